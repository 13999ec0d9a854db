// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which network interfaces of this host carry messages. Names and families are chosen by what users
// already set for NCCL (NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY). Reading and choosing are apart:
// the choice is a function of plain records. Not the sockets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "net/network.hpp"
#include "wire/udp/socket_address.hpp"

namespace tutti::net {

enum class Family : std::uint8_t { kAny, kIpv4, kIpv6 };

/// What a user asks for, as text.
struct InterfaceFilter {
  /// As NCCL reads it (parseStringList, matchIfList in its src/misc): prefixes with commas between
  /// them ("eth,ib0"); a ^ in front: all but these; a = in front (or behind the ^): whole names; a
  /// further = or ^ is part of a name; what follows a colon does not count. Empty: InfiniBand's
  /// (ib*) if there are any, else all. Loopback and what is of containers (docker*, br-*, veth*,
  /// cni*, flannel* and their like, unless it stands on hardware) comes only when it is asked for
  /// or there is nothing else.
  std::string names;
  std::string family;                                ///< AF_INET, AF_INET6; empty: any.
  std::string names_origin = "NCCL_SOCKET_IFNAME";   ///< For messages.
  std::string family_origin = "NCCL_SOCKET_FAMILY";  ///< For messages.
  /// Of an interface that does not know its own: a virtual one, or one that a hypervisor made.
  int default_speed_mbps = 10'000;
};

/// The devices in the order of the kernel's numbers. Errors: a filter that cannot be understood
/// (kInvalidConfig); nothing fits it, with what there is (kUnavailable).
Result<std::vector<NetDevice>> find_devices(const InterfaceFilter& filter);
/// Of one of them, without a port.
Result<wire::udp::SocketAddress> address_of(const NetDevice& device);

// The parts, for tests.

struct NameFilter {
  bool excludes = false;
  bool is_exact = false;
  std::vector<std::string> names;  ///< Empty: everything fits.

  bool fits(std::string_view name) const;
};

struct InterfaceAddress {
  Family family = Family::kIpv4;
  std::string text;  ///< "192.0.2.1", "2001:db8::1", "fe80::1%eth0"
  bool is_link_local = false;
};

/// One interface as the kernel describes it.
struct Interface {
  std::string name;
  bool is_running = false;  ///< Up, and with a carrier.
  bool is_loopback = false;
  int mtu_bytes = 0;
  std::string hardware_address;  ///< "02:00:00:00:00:01"; empty: it has none.
  std::vector<InterfaceAddress> addresses;
  bool is_hardware = false;  ///< It, or what a bond, a VLAN or a bridge stands on.
  int speed_mbps = 0;        ///< 0: unknown.
  std::string pci_path;      ///< Of its own PCI device.
  /// Processors near that device, ascending; empty: unknown.
  std::vector<int> near_processors;
};

Result<NameFilter> parse_name_filter(std::string_view text, const std::string& origin);
Result<Family> parse_family(std::string_view text, const std::string& origin);

/// The best address of a family: a global one before a link-local one, then IPv4 before IPv6, then
/// the first. Null: none.
const InterfaceAddress* choose_address(const Interface& interface, Family family);

/// In their order.
std::vector<NetDevice> choose_devices(const std::vector<Interface>& interfaces,
                                      const NameFilter& names, Family family,
                                      int default_speed_mbps);

/// Fills the last four fields from a directory like /sys/class/net.
void read_device(const std::string& class_directory, Interface* interface);

/// All interfaces of this network namespace.
Result<std::vector<Interface>> read_interfaces();

}  // namespace tutti::net
