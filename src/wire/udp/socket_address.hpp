// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// An IPv4 or IPv6 address with a port.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

namespace tutti::wire::udp {

/// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// "10.0.0.1", "fe80::1%eth0"; without a family "?".
std::string host_text(const SocketAddress& address);
/// "10.0.0.1:4242", "[fe80::1%eth0]:4242"
std::string to_text(const SocketAddress& address);

}  // namespace tutti::wire::udp
