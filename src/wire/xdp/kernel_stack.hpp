// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The kernel's network stack, as a wire uses it beside its AF_XDP socket: its tables of routes and
// neighbours, and a UDP socket. Tests have one of their own (tests/support/fake_xsk.hpp).
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/xdp/netlink.hpp"
#include "wire/xdp/packet.hpp"

namespace tutti::wire::xdp {

inline sockaddr_in socket_address_of(const UdpEnd& end) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = end.address;
  address.sin_port = end.port;
  return address;
}

class KernelStack {
 public:
  virtual ~KernelStack() = default;
  virtual NextHop next_hop(std::uint32_t target) const = 0;
  virtual std::optional<Neighbour> neighbour(std::uint32_t address) const = 0;
  /// Sends a datagram by the UDP socket. 0, or an error number.
  virtual int send(const UdpEnd& target, int tos, std::span<const std::byte> payload) = 0;
  /// The next datagram of the UDP socket, with its payload in `buffer`. False: there is none.
  virtual bool receive(std::span<std::byte> buffer, Datagram& out) = 0;
};

/// The system's. The UDP socket is the caller's, and `source` is its address.
class SystemStack : public KernelStack {
 public:
  SystemStack(int socket, int interface, std::uint32_t source)
      : socket_(socket), interface_(interface), source_(source) {}
  NextHop next_hop(std::uint32_t target) const override {
    return netlink_.next_hop(interface_, source_, target);
  }
  std::optional<Neighbour> neighbour(std::uint32_t address) const override {
    return netlink_.neighbour(interface_, address);
  }
  int send(const UdpEnd& target, int tos, std::span<const std::byte> payload) override;
  bool receive(std::span<std::byte> buffer, Datagram& out) override;

 private:
  int socket_;
  int interface_;
  std::uint32_t source_;
  Netlink netlink_;
};

}  // namespace tutti::wire::xdp
