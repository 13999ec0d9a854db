// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/socket_address.hpp"

#include <arpa/inet.h>

namespace tutti::wire::udp {

std::string host_text(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  }
  return text;
}

std::string to_text(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    return "[" + host_text(address) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  return host_text(address) + ":" + std::to_string(ntohs(v4.sin_port));
}

}  // namespace tutti::wire::udp
