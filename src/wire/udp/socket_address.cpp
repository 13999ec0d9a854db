// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/socket_address.hpp"

#include <arpa/inet.h>
#include <net/if.h>

namespace tutti::wire::udp {

std::string host_text(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  std::string scope;
  if (address.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    char name[IF_NAMESIZE];
    if (v6.sin6_scope_id != 0) {
      scope = "%";
      scope += if_indextoname(v6.sin6_scope_id, name) != nullptr ? std::string(name)
                                                                 : std::to_string(v6.sin6_scope_id);
    }
  } else if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  }
  return text + scope;
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
