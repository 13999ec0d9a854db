// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Handles and handshakes, and the errors of those that do not fit.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "net/bootstrap/handle.hpp"
#include "net/bootstrap/handshake.hpp"

namespace tutti::net {
namespace {

using wire::udp::SocketAddress;

constexpr transport::Key kKey{0x1122334455667788, 0x99aabbccddeeff00};

SocketAddress ipv4(const char* text, std::uint16_t port) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, text, &v4.sin_addr), 1);
  address.bytes = sizeof v4;
  return address;
}

SocketAddress ipv6(const char* text, std::uint16_t port) {
  SocketAddress address;
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
  address.bytes = sizeof v6;
  return address;
}

HandleContent listener_at(const SocketAddress& address) {
  return {.address = address, .key = kKey, .device = 77, .process = 4711, .host = "host1"};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Handle, SaysWhoListensWhere) {
  const auto of_v4 = from_handle(to_handle(listener_at(ipv4("10.1.2.3", 4242))), AF_INET);
  ASSERT_TRUE(of_v4.ok()) << of_v4.status().message();
  EXPECT_EQ(of_v4->who(), "host1, process 4711, at 10.1.2.3:4242");
  EXPECT_EQ(of_v4->key.low, kKey.low);
  EXPECT_EQ(of_v4->key.high, kKey.high);
  EXPECT_EQ(of_v4->device, 77U);
  EXPECT_EQ(of_v4->address.bytes, sizeof(sockaddr_in));
  const auto of_v6 = from_handle(to_handle(listener_at(ipv6("fe80::1", 4242))), AF_INET6);
  ASSERT_TRUE(of_v6.ok()) << of_v6.status().message();
  EXPECT_EQ(of_v6->who(), "host1, process 4711, at [fe80::1]:4242");
  EXPECT_EQ(of_v6->address.bytes, sizeof(sockaddr_in6));
}

TEST(Handle, ALongNameIsCutAndASenselessOneCanBeShown) {
  HandleContent content = listener_at(ipv4("10.1.2.3", 1));
  content.host = std::string(200, 'h');
  const Handle handle = to_handle(content);
  const auto cut = from_handle(handle, AF_INET);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->host, std::string(cut->host.size(), 'h'));
  EXPECT_GE(cut->host.size(), 32U);
  EXPECT_LT(cut->host.size(), 64U);
  // Without an end, and with what a terminal would obey.
  Handle senseless = handle;
  std::fill(senseless.bytes.end() - 52, senseless.bytes.end(), std::byte{0x1b});
  const auto shown = from_handle(senseless, AF_INET);
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ(shown->host, std::string(52, '?'));
}

TEST(Handle, WhatDoesNotFitIsNamed) {
  const Handle handle = to_handle(listener_at(ipv4("10.1.2.3", 4242)));
  Handle other_version = handle;
  other_version.bytes[4] = std::byte{6};
  const auto of_version = from_handle(other_version, AF_INET);
  EXPECT_EQ(of_version.status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(of_version.status().message(),
            "net: the handle of the peer at 10.1.2.3:4242 is of protocol 6, this host has " +
                std::to_string(kProtocolVersion) + "; install the same Tutti on all hosts");
  const auto of_family = from_handle(handle, AF_INET6);
  EXPECT_EQ(of_family.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(of_family.status().message(),
            "net: this host uses IPv6, and host1, process 4711, at 10.1.2.3:4242 does not; set "
            "NCCL_SOCKET_FAMILY to the same on all hosts");
  const auto foreign = from_handle(Handle{}, AF_INET);
  EXPECT_EQ(foreign.status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(foreign.status().message(),
            "net: the handle is not Tutti's: the peer uses another network; remedy: "
            "NCCL_NET_PLUGIN and NCCL_NET=Tutti on all ranks (tutti env nccl-net)");
}

Handshake handshake_of_host(const std::string& host) {
  Handshake handshake;
  handshake.host = host;
  handshake.process = 4711;
  handshake.wire = "udp";
  handshake.controller = "cubic";
  return handshake;
}

TEST(Handshake, TheOddOneIsNamed) {
  const Handshake mine = handshake_of_host("here");
  const auto of = [&](const Handshake& theirs) {
    const auto agreed = agree(mine, theirs, kKey);
    EXPECT_EQ(agreed.status().code(), ErrorCode::kInvalidArgument);
    return agreed.status().message();
  };
  ASSERT_TRUE(agree(mine, handshake_of_host("there"), kKey).ok());
  Handshake theirs = handshake_of_host("there");
  theirs.wire = "verbs";
  EXPECT_EQ(of(theirs),
            "net: the wire differs: udp on here, process 4711, verbs on there, process 4711; set "
            "the same on all hosts");
  theirs = handshake_of_host("there");
  theirs.controller = "swift";
  EXPECT_EQ(of(theirs),
            "net: TUTTI_NET_CONTROLLER differs: cubic on here, process 4711, swift on there, "
            "process 4711; set the same on all hosts");
  theirs = handshake_of_host("there");
  theirs.authenticates = false;
  EXPECT_EQ(of(theirs),
            "net: TUTTI_NET_AUTHENTICATE differs: 1 on here, process 4711, 0 on there, process "
            "4711; set the same on all hosts");
}

TEST(Handshake, ARefusalArrivesWholeHoweverLongTheNames) {
  Handshake mine = handshake_of_host(std::string(kTextBytes - 1, 'a'));
  Handshake theirs = handshake_of_host(std::string(kTextBytes - 1, 'b'));
  mine.process = theirs.process = UINT32_MAX;
  theirs.controller = std::string(31, 'c');
  Handshake refusal;
  refusal.host = mine.host;
  refusal.refusal = agree(mine, theirs, kKey).status().message();
  const auto heard = decode(encode(refusal, kKey), kKey);
  ASSERT_TRUE(heard.ok());
  EXPECT_EQ(heard->refusal, refusal.refusal);
  EXPECT_TRUE(has(heard->refusal, theirs.host));
  EXPECT_TRUE(has(heard->refusal, "set the same on all hosts"));
}

TEST(Handshake, AnotherVersionAndAnotherKey) {
  HandshakeBytes bytes = encode(handshake_of_host("there"), kKey);
  const auto other_key = decode(bytes, {1, 2});
  EXPECT_EQ(other_key.status().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(has(other_key.status().message(), "net: there, process 4711 has another key"));
  bytes[4] = std::byte{99};
  const auto other_version = decode(bytes, kKey);
  EXPECT_EQ(other_version.status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(other_version.status().message(),
            "net: handshake: protocol version 99, this host has " +
                std::to_string(kProtocolVersion) + "; install the same Tutti on all hosts");
}

TEST(Handshake, AWireThatCanDoNothingIsRefused) {
  using transport::WireCapabilities;
  constexpr std::uint32_t WireCapabilities::*kFields[] = {
      &WireCapabilities::chunk_bytes, &WireCapabilities::mtu_bytes, &WireCapabilities::paths,
      &WireCapabilities::rails, &WireCapabilities::ps_per_byte};
  const transport::Key key{1, 2};
  Handshake mine;
  EXPECT_TRUE(agree(mine, mine, key).ok());
  for (const auto field : kFields) {
    Handshake theirs;
    theirs.host = "odd";
    theirs.capabilities.*field = 0;
    const auto read = decode(encode(theirs, key), key);
    ASSERT_TRUE(read.ok());
    for (const auto& options : {agree(mine, *read, key), agree(*read, mine, key)}) {
      EXPECT_EQ(options.status().code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(options.status().message().find("odd"), std::string::npos);
    }
  }
}

TEST(Handshake, WhatMayDifferIsTold) {
  const Handshake mine = handshake_of_host("here");
  Handshake theirs = handshake_of_host("there");
  EXPECT_EQ(differences(mine, theirs), "");
  theirs.capabilities.mtu_bytes = 1460;
  theirs.capabilities.chunk_bytes = 1412;
  EXPECT_EQ(differences(mine, theirs),
            "net: there differs: bytes of a datagram 1460 (here 4096), bytes of a chunk 1412 (here "
            "4096); what both can do is used");
  theirs = handshake_of_host("there");
  theirs.capabilities.paths = 8;
  theirs.capabilities.rails = 2;
  theirs.capabilities.ps_per_byte = 80;
  theirs.capabilities.marks_ecn = !mine.capabilities.marks_ecn;
  theirs.sub_connections = 4;
  const std::string text = differences(mine, theirs);
  for (const char* const part :
       {"paths 8 (here 1)", "rails 2 (here 1)", "sub-connections 4 (here 1)",
        "Mb/s of a link 100000 (here 400000)", "ECN "}) {
    EXPECT_TRUE(has(text, part)) << text;
  }
}

}  // namespace
}  // namespace tutti::net
