// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/socket_address.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>

namespace tutti::wire::udp {
namespace {

SocketAddress v6_address(std::uint32_t scope) {
  SocketAddress address;
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(4242);
  v6.sin6_scope_id = scope;
  EXPECT_EQ(inet_pton(AF_INET6, "fe80::1", &v6.sin6_addr), 1);
  address.bytes = sizeof v6;
  return address;
}

TEST(SocketAddress, V4IsHostColonPort) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(4242);
  ASSERT_EQ(inet_pton(AF_INET, "10.0.0.1", &v4.sin_addr), 1);
  address.bytes = sizeof v4;
  EXPECT_EQ(host_text(address), "10.0.0.1");
  EXPECT_EQ(to_text(address), "10.0.0.1:4242");
}

TEST(SocketAddress, V6IsInBrackets) {
  EXPECT_EQ(host_text(v6_address(0)), "fe80::1");
  EXPECT_EQ(to_text(v6_address(0)), "[fe80::1]:4242");
}

// On two links the same link-local address are two hosts.
TEST(SocketAddress, V6OfALinkNamesTheLink) {
  EXPECT_EQ(to_text(v6_address(if_nametoindex("lo"))), "[fe80::1%lo]:4242");
  EXPECT_EQ(host_text(v6_address(123456)), "fe80::1%123456");
}

TEST(SocketAddress, OfNoFamilyIsUnknown) { EXPECT_EQ(host_text({}), "?"); }

}  // namespace
}  // namespace tutti::wire::udp
