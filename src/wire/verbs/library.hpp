// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// libibverbs, found by dlopen, and the ports of its devices: which there are, what they can do, and
// which of a port's addresses (GIDs) a connection uses.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "wire/verbs/driver_verbs.hpp"

namespace tutti::wire::verbs {

/// Errors: there is none, or it lacks a function (kUnavailable).
Result<Functions> load_library(const std::string& name = "libibverbs.so.1");

/// Of the library's extended interface. Null: the library or the device's driver has none.
template <class Function>
Function function_of(Context* context, Function ExtendedContext::*member) {
  if (reinterpret_cast<std::uintptr_t>(context->abi_compat) != kIsExtended) {
    return nullptr;
  }
  auto* const extended = reinterpret_cast<ExtendedContext*>(reinterpret_cast<std::byte*>(context) -
                                                            offsetof(ExtendedContext, context));
  const auto bytes_behind =
      static_cast<std::size_t>(reinterpret_cast<std::byte*>(extended + 1) -
                               reinterpret_cast<std::byte*>(&(extended->*member)));
  return extended->bytes < bytes_behind ? nullptr : extended->*member;
}

struct GidEntry {
  int index = 0;
  Gid gid{};
  bool is_roce_v2 = false;
  std::string interface;  ///< Network interface that it belongs to; empty: none.

  bool is_ipv4() const;        ///< IPv4-mapped.
  bool is_link_local() const;  ///< fe80::/10
};

struct Port {
  std::string device;  ///< "mlx5_0"
  int number = 1;
  bool is_active = false;
  bool is_ethernet = false;
  int mtu_bytes = 0;   ///< Payload of one RDMA packet.
  int speed_mbps = 0;  ///< 0: unknown.
  std::uint16_t lid = 0;
  std::vector<GidEntry> gids;
};

/// What the user asks for.
struct GidWish {
  int index = -1;              ///< NCCL_IB_GID_INDEX; -1: any that fits.
  int roce_version = 2;        ///< NCCL_IB_ROCE_VERSION_NUM
  bool wants_ipv6 = false;     ///< NCCL_IB_ADDR_FAMILY is AF_INET6.
  std::string interface = {};  ///< Of this one first; empty: of any.
};

/// Where it lies in `port.gids`. Errors: none fits, with what there is (kUnavailable).
Result<std::size_t> choose_gid(const Port& port, const GidWish& wish);

/// NCCL_IB_HCA: devices and ports by name. Prefixes with commas between them ("mlx5_0:1,mlx5_2");
/// a ^ in front: all but these; a = in front or behind the ^: whole names. Empty: all.
class PortFilter {
 public:
  explicit PortFilter(std::string_view text);
  bool fits(const Port& port) const;

 private:
  struct Name {
    std::string device;
    int port = -1;  ///< -1: any.
  };
  bool excludes_ = false;
  bool is_exact_ = false;
  std::vector<Name> names_;
};

/// The ports of all devices, in the library's order. `class_directory`: the kernel's records.
/// Errors: the library says that there are none (kUnavailable).
Result<std::vector<Port>> list_ports(const Functions& verbs,
                                     const std::string& class_directory = "/sys/class/infiniband");

/// What a port's NIC has counted of congestion since the system started (RoCE v2, DCQCN).
struct MarkCounters {
  std::uint64_t marked = 0;  ///< Packets that came with a switch's mark (ECN).
  std::uint64_t told = 0;    ///< Notifications (CNP) that came: of marks on what the port sent.
};

/// Nothing: the NIC's driver does not count them. Of the mlx5 driver's names.
std::optional<MarkCounters> read_marks(const std::string& class_directory,
                                       const std::string& device, int port);

/// Null: there is none of that name, or it cannot be opened, as errno says.
Context* open_device(const Functions& verbs, const std::string& name);

/// What registering memory of a GPU comes to on a device.
struct DeviceMemorySupport {
  Status by_address;  ///< nvidia-peermem, or what other GPUs have in its place.
  Status by_dma_buf;
};
DeviceMemorySupport try_device_memory(const Functions& verbs, const std::string& device,
                                      std::span<std::byte> memory);

}  // namespace tutti::wire::verbs
