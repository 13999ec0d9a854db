// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/netlink.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include <cstring>
#include <functional>
#include <vector>

#include "base/random.hpp"

namespace tutti::wire::xdp {
namespace {

/// An answer of the kernel.
class Message {
 public:
  template <class Body>
  Message(std::uint16_t type, const Body& body) {
    nlmsghdr head{};
    head.nlmsg_type = type;
    add(&head, sizeof head);
    add(&body, sizeof body);
  }
  template <class T>
  Message& attribute(int type, const T& value) {
    return attribute(type, std::as_bytes(std::span(&value, 1)));
  }
  Message& attribute(int type, std::span<const std::byte> value) {
    const rtattr head = {static_cast<unsigned short>(RTA_LENGTH(value.size())),
                         static_cast<unsigned short>(type)};
    add(&head, sizeof head);
    add(value.data(), value.size());
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Without the head and the body of nothing.
  std::span<const std::byte> attributes(std::size_t body_bytes) const {
    return std::span(bytes_).subspan(NLMSG_HDRLEN + NLMSG_ALIGN(body_bytes));
  }

 private:
  void add(const void* data, std::size_t count) {
    const auto* const from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + count);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  std::vector<std::byte> bytes_;
};

const std::uint32_t kTarget = htonl(0x0a000002);
const std::uint32_t kGateway = htonl(0x0a0000fe);

Message route(std::uint8_t type) {
  rtmsg body{};
  body.rtm_family = AF_INET;
  body.rtm_type = type;
  return {RTM_NEWROUTE, body};
}

Message neighbour(std::uint16_t state) {
  ndmsg body{};
  body.ndm_family = AF_INET;
  body.ndm_state = state;
  return {RTM_NEWNEIGH, body};
}

constexpr MacAddress kMac = {2, 0, 0, 1, 2, 3};

TEST(XdpNetlink, NextHopIsTheTargetOrAGateway) {
  Message direct = route(RTN_UNICAST);
  direct.attribute(RTA_DST, kTarget).attribute(RTA_OIF, 7);
  NextHop hop = read_next_hop(direct.bytes(), 7, kTarget);
  EXPECT_EQ(NextHop::Kind::kNeighbour, hop.kind);
  EXPECT_EQ(kTarget, hop.address);
  Message routed = route(RTN_UNICAST);
  routed.attribute(RTA_OIF, 7).attribute(RTA_GATEWAY, kGateway);
  hop = read_next_hop(routed.bytes(), 7, kTarget);
  EXPECT_EQ(NextHop::Kind::kNeighbour, hop.kind);
  EXPECT_EQ(kGateway, hop.address);
}

TEST(XdpNetlink, WaysThatAreNoneOfOurs) {
  Message other = route(RTN_UNICAST);
  other.attribute(RTA_OIF, 8);
  EXPECT_EQ(NextHop::Kind::kNone, read_next_hop(other.bytes(), 7, kTarget).kind);
  EXPECT_EQ(NextHop::Kind::kNeighbour, read_next_hop(other.bytes(), 0, kTarget).kind);
  for (const std::uint8_t type : {RTN_UNREACHABLE, RTN_BLACKHOLE, RTN_MULTICAST, RTN_BROADCAST}) {
    Message it = route(type);
    it.attribute(RTA_OIF, 7);
    EXPECT_EQ(NextHop::Kind::kNone, read_next_hop(it.bytes(), 7, kTarget).kind);
  }
  Message local = route(RTN_LOCAL);
  local.attribute(RTA_OIF, 1);
  EXPECT_EQ(NextHop::Kind::kLocal, read_next_hop(local.bytes(), 7, kTarget).kind);
  Message by_v6 = route(RTN_UNICAST);
  by_v6.attribute(RTA_OIF, 7).attribute(RTA_VIA, std::array<std::byte, 18>{});
  EXPECT_EQ(NextHop::Kind::kNone, read_next_hop(by_v6.bytes(), 7, kTarget).kind);
  for (const int type : {RTA_ENCAP, RTA_ENCAP_TYPE}) {
    Message tunnel = route(RTN_UNICAST);
    tunnel.attribute(RTA_OIF, 7).attribute(type, std::uint16_t{1});
    EXPECT_EQ(NextHop::Kind::kNone, read_next_hop(tunnel.bytes(), 7, kTarget).kind);
  }
  EXPECT_TRUE(is_route(other.bytes()));
  EXPECT_FALSE(is_route(local.bytes()));
  EXPECT_FALSE(is_route({}));
  EXPECT_EQ(NextHop::Kind::kNone, read_next_hop(neighbour(NUD_REACHABLE).bytes(), 7, kTarget).kind);
  EXPECT_EQ(NextHop::Kind::kNone, read_next_hop({}, 7, kTarget).kind);
}

TEST(XdpNetlink, NeighbourHasAMacAddressWhileItsStateSaysSo) {
  for (const std::uint16_t state :
       {NUD_REACHABLE, NUD_PERMANENT, NUD_NOARP, NUD_STALE, NUD_DELAY, NUD_PROBE}) {
    Message it = neighbour(state);
    it.attribute(NDA_DST, kTarget).attribute(NDA_LLADDR, kMac);
    const auto found = read_neighbour(it.bytes());
    ASSERT_TRUE(found) << state;
    EXPECT_EQ(kMac, found->mac);
    EXPECT_EQ(state == NUD_STALE, found->is_stale);
  }
  for (const std::uint16_t state : {NUD_NONE, NUD_INCOMPLETE, NUD_FAILED}) {
    Message it = neighbour(state);
    it.attribute(NDA_LLADDR, kMac);
    EXPECT_FALSE(read_neighbour(it.bytes())) << state;
  }
  EXPECT_FALSE(read_neighbour(neighbour(NUD_REACHABLE).bytes()));
  Message infiniband = neighbour(NUD_REACHABLE);
  infiniband.attribute(NDA_LLADDR, std::array<std::byte, 20>{});
  EXPECT_FALSE(read_neighbour(infiniband.bytes()));
}

TEST(XdpNetlink, AttachedProgram) {
  const auto attached = [](std::uint8_t how, std::uint32_t id) {
    Message inner(0, ifinfomsg{});
    inner.attribute(IFLA_XDP_ATTACHED, how).attribute(IFLA_XDP_PROG_ID, id);
    Message it(RTM_NEWLINK, ifinfomsg{});
    it.attribute(IFLA_MTU, 1500)
        .attribute(IFLA_XDP | NLA_F_NESTED, inner.attributes(sizeof(ifinfomsg)));
    return read_attached_program(it.bytes());
  };
  EXPECT_EQ(42U, attached(XDP_ATTACHED_DRV, 42).id);
  EXPECT_FALSE(attached(XDP_ATTACHED_DRV, 42).is_generic);
  EXPECT_TRUE(attached(XDP_ATTACHED_SKB, 42).is_generic);
  EXPECT_EQ(0U, read_attached_program(Message(RTM_NEWLINK, ifinfomsg{}).bytes()).id);
}

// Cut off, or with a byte changed: nothing beyond the message is read.
TEST(XdpNetlink, NoiseIsHarmless) {
  Message hop = route(RTN_UNICAST);
  hop.attribute(RTA_OIF, 7).attribute(RTA_GATEWAY, kGateway);
  Message mac = neighbour(NUD_REACHABLE);
  mac.attribute(NDA_LLADDR, kMac);
  Message link(RTM_NEWLINK, ifinfomsg{});
  link.attribute(IFLA_XDP, mac.attributes(sizeof(ndmsg)));
  Random random(1);
  for (const Message* const message : {&hop, &mac, &link}) {
    const auto whole = message->bytes();
    for (int i = 0; i < 20'000; ++i) {
      // Of its own, so that an address sanitizer sees a byte too far.
      std::vector<std::byte> it(
          whole.begin(),
          whole.begin() + random.below(static_cast<std::uint32_t>(whole.size()) + 1));
      if (!it.empty()) {
        it[random.below(static_cast<std::uint32_t>(it.size()))] =
            static_cast<std::byte>(random.next());
      }
      (void)read_next_hop(it, 7, kTarget);
      (void)read_neighbour(it);
      (void)read_attached_program(it);
    }
  }
}

// This host's own tables.
TEST(XdpNetlink, LoopbackIsLocal) {
  const Netlink netlink;
  const std::uint32_t loopback = htonl(0x7f000001);
  EXPECT_EQ(NextHop::Kind::kLocal, netlink.next_hop(1, loopback, loopback).kind);
  EXPECT_FALSE(netlink.neighbour(1, loopback));
  EXPECT_EQ(0U, netlink.attached_program(1).id);
}

}  // namespace
}  // namespace tutti::wire::xdp
