// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the kernel's tables say (rtnetlink(7)): which interface and gateway lead to an address,
// which MAC address a neighbour has, which XDP program an interface has. Nothing is changed there.
// A socket asks in the network namespace in which it was opened. Addresses in network byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/descriptors.hpp"
#include "wire/xdp/packet.hpp"

namespace tutti::wire::xdp {

/// Where datagrams to an address go first.
struct NextHop {
  enum class Kind : std::uint8_t {
    kNone,   ///< There is no such way by this interface.
    kLocal,  ///< The address is this host's own.
    kNeighbour,
  };
  Kind kind = Kind::kNone;
  std::uint32_t address = 0;  ///< Of the neighbour: a gateway, or the target itself.
};

struct Neighbour {
  MacAddress mac{};
  /// The kernel has not heard from it for a while, and asks when something is sent there.
  bool is_stale = false;
};

/// The XDP program of an interface.
struct AttachedProgram {
  std::uint32_t id = 0;  ///< 0: there is none.
  bool is_generic = false;
};

class Netlink {
 public:
  /// Without a socket, where there is none to be had, every answer is "none".
  Netlink();

  NextHop next_hop(int interface, std::uint32_t source, std::uint32_t target) const;
  std::optional<Neighbour> neighbour(int interface, std::uint32_t address) const;
  AttachedProgram attached_program(int interface) const;

 private:
  Descriptor socket_;
};

// The parts, for tests: what an answer's message says. Any bytes are allowed.

/// An entry of the routing tables that leads to other hosts.
bool is_route(std::span<const std::byte> message);
NextHop read_next_hop(std::span<const std::byte> message, int interface, std::uint32_t target);
std::optional<Neighbour> read_neighbour(std::span<const std::byte> message);
AttachedProgram read_attached_program(std::span<const std::byte> message);

}  // namespace tutti::wire::xdp
