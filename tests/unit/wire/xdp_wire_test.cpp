// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// XdpWire between two network namespaces with a veth pair, in native and in generic mode. As root.
#include "wire/xdp/xdp_wire.hpp"

#include <gtest/gtest.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "support/veth_network.hpp"
#include "support/wire_contract.hpp"

namespace tutti::wire::xdp {
namespace {

using test::VethNetwork;
using test::with_veth_network;
using testing::WireCheck;
using testing::WirePair;

XdpOptions options_of(int side, AttachMode mode, int mtu_bytes = 1500) {
  XdpOptions options;
  const sockaddr_in address = VethNetwork::address_of(side);
  std::memcpy(&options.local.storage, &address, sizeof address);
  options.local.bytes = sizeof address;
  options.interface = VethNetwork::kDevice;
  options.mtu_bytes = mtu_bytes;
  options.paths = 8;
  options.mode = mode;
  return options;
}

Result<std::unique_ptr<XdpWire>> open_on(const VethNetwork& network, int side, AttachMode mode,
                                         const XdpOptions* options = nullptr) {
  network.enter(side);
  return XdpWire::open(options != nullptr ? *options : options_of(side, mode));
}

UdpEnd end_of(const Wire& wire) {
  UdpEnd end;
  const WireAddress address = wire.address();
  std::memcpy(&end.port, &address.bytes[1], 2);
  std::memcpy(&end.address, &address.bytes[3], 4);
  return end;
}

/// Sends datagrams by one socket of the kernel on host 0.
void send_by_kernel(const VethNetwork& network, const UdpEnd& to,
                    const std::vector<std::vector<std::byte>>& all, int tos = 0) {
  network.enter(0);
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_NO_CHECK, &on, sizeof on);
  setsockopt(socket, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = to.address;
  address.sin_port = to.port;
  for (const auto& bytes : all) {
    (void)!sendto(socket, bytes.data(), bytes.size(), 0,
                  reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  close(socket);
}

WirePair pair_on(const VethNetwork& network, AttachMode mode) {
  auto a = open_on(network, 0, mode);
  auto b = open_on(network, 1, mode);
  EXPECT_TRUE(a.ok()) << a.status().message();
  EXPECT_TRUE(b.ok()) << b.status().message();
  WirePair pair;
  pair.a = std::move(*a);
  pair.b = std::move(*b);
  pair.inject = [&network, to = end_of(*pair.b)](std::span<const std::byte> bytes) {
    send_by_kernel(network, to, {{bytes.begin(), bytes.end()}});
  };
  return pair;
}

/// Why there is no such wire here; empty: there is.
std::string why_none(const VethNetwork& network, AttachMode mode) {
  const auto it = open_on(network, 0, mode);
  return !it.ok() && it.status().code() == ErrorCode::kUnsupported ? it.status().message() : "";
}

class XdpContract : public ::testing::TestWithParam<std::tuple<AttachMode, WireCheck>> {};

TEST_P(XdpContract, Holds) {
  const auto& [mode, check] = GetParam();
  with_veth_network({}, [mode = mode, check = check](const VethNetwork& network) {
    std::string why = why_none(network, mode);
    if (why.empty()) {
      network.meet();
      check.run([&] { return pair_on(network, mode); });
    }
    return why;
  });
}

INSTANTIATE_TEST_SUITE_P(Wire, XdpContract,
                         ::testing::Combine(::testing::Values(AttachMode::kNative,
                                                              AttachMode::kGeneric),
                                            ::testing::ValuesIn(testing::wire_checks())),
                         [](const auto& it) {
                           return std::string(to_string(std::get<0>(it.param))) + "_" +
                                  std::get<1>(it.param).name;
                         });

/// Runs `body` in both modes, with wires that know each other's MAC address.
void in_both_modes(const std::function<void(const VethNetwork&, AttachMode)>& body,
                   const VethNetwork::Options& options = {}) {
  for (const AttachMode mode : {AttachMode::kNative, AttachMode::kGeneric}) {
    SCOPED_TRACE(to_string(mode));
    with_veth_network(options, [&](const VethNetwork& network) {
      std::string why = why_none(network, mode);
      if (why.empty()) {
        network.meet();
        body(network, mode);
      }
      return why;
    });
  }
}

const XdpWire& xdp(const std::unique_ptr<Wire>& wire) {
  return dynamic_cast<const XdpWire&>(*wire);
}

/// One packet of `bytes`, there.
void pass(testing::Conversation& talk, std::uint64_t number, std::size_t bytes) {
  const testing::TestPacket packet(number, talk.b_named_by_a, testing::Conversation::kHeaderBytes,
                                   bytes);
  testing::expect_equal(packet, talk.pass(packet));
}

TEST(XdpWire, PacketsPassTheKernelBy) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    testing::Conversation talk([&] { return pair_on(network, mode); });
    talk.at_b.places = [](std::uint64_t) { return true; };
    const std::uint32_t chunk_bytes = talk.pair.a->capabilities().chunk_bytes;
    for (std::uint64_t number = 1; number <= 100; ++number) {
      pass(talk, number, chunk_bytes);
    }
    EXPECT_EQ(mode, xdp(talk.pair.a).mode());
    // At most one packet, while the kernel makes sure of the neighbour.
    const std::uint64_t each = talk.pair.a->counters().datagrams_sent / 100;
    EXPECT_GT(each, 10U);
    EXPECT_LE(xdp(talk.pair.a).kernel_sent(), each);
    EXPECT_EQ(0U, xdp(talk.pair.b).kernel_received());
    EXPECT_GE(talk.pair.b->counters().payload_bytes_placed, 90 * std::uint64_t{chunk_bytes});
    EXPECT_TRUE(talk.pair.a->description().starts_with(
        "AF_XDP on wire0 queue 0, " + std::string(to_string(mode)) + ", copy mode"))
        << talk.pair.a->description();
    EXPECT_EQ("", talk.pair.b->report());
  });
}

// The kernel asks for the MAC address, and carries what is sent until it knows.
TEST(XdpWire, FirstPacketsArriveBeforeAnyAnswerOfArp) {
  with_veth_network({}, [](const VethNetwork& network) {
    std::string why = why_none(network, AttachMode::kAny);
    if (why.empty()) {
      testing::Conversation talk([&] { return pair_on(network, AttachMode::kAny); });
      pass(talk, 1, 5000);
      const std::uint64_t by_kernel = xdp(talk.pair.a).kernel_sent();
      EXPECT_GT(by_kernel, 0U);
      // It had a checksum, though a veth leaves that out where it may.
      EXPECT_EQ(0U, xdp(talk.pair.b).kernel_received());
      EXPECT_EQ(0U, talk.pair.b->counters().malformed_dropped);
      usleep(5'000);
      for (std::uint64_t number = 2; number < 10; ++number) {
        pass(talk, number, 5000);
      }
      EXPECT_GT(talk.pair.a->counters().datagrams_sent, xdp(talk.pair.a).kernel_sent());
    }
    return why;
  });
}

// The kernel looks at the checksums of what it gets: ours are right, whatever the length.
TEST(XdpWire, FramesAreGoodForTheKernelToo) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    network.enter(1);
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    const timeval timeout{2, 0};
    setsockopt(socket, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in bound = VethNetwork::address_of(1);
    socklen_t length = sizeof bound;
    ASSERT_EQ(0, bind(socket, reinterpret_cast<sockaddr*>(&bound), sizeof bound));
    ASSERT_EQ(0, getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length));
    auto a = open_on(network, 0, mode);
    ASSERT_TRUE(a.ok()) << a.status().message();
    WireAddress address = (*a)->address();
    std::memcpy(&address.bytes[1], &bound.sin_port, 2);
    std::memcpy(&address.bytes[3], &bound.sin_addr, 4);
    const auto peer = (*a)->add_peer(address, 0xb8);
    ASSERT_TRUE(peer.ok());
    for (std::size_t bytes = 1; bytes < 1400; bytes += 13) {
      testing::TestPacket packet(bytes, *peer, 40, bytes);
      packet.transmission.path = static_cast<transport::PathId>(bytes);
      ASSERT_TRUE((*a)->send(packet.transmission));
      std::array<std::byte, 2048> got{};
      std::array<char, 64> control{};
      iovec part = {got.data(), got.size()};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      ASSERT_EQ(static_cast<ssize_t>(udp::kPrefixBytes + 40 + bytes), recvmsg(socket, &message, 0));
      EXPECT_EQ(0, std::memcmp(got.data() + udp::kPrefixBytes + 40, packet.payload.data(), bytes));
      const cmsghdr* const tos = CMSG_FIRSTHDR(&message);
      ASSERT_NE(nullptr, tos);
      EXPECT_EQ(0xb8 | 2, *CMSG_DATA(tos));  // Also of the first, which the kernel may have sent.
    }
    EXPECT_LE((*a)->kernel_sent(), 1U);
    close(socket);
  });
}

TEST(XdpWire, OtherTrafficGoesToTheKernel) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    const auto b = open_on(network, 1, mode);
    ASSERT_TRUE(b.ok()) << b.status().message();
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int datagrams = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const timeval timeout{2, 0};
    sockaddr_in to = VethNetwork::address_of(1);
    to.sin_port = htons(7777);
    const auto* const at = reinterpret_cast<const sockaddr*>(&to);
    for (const int socket : {listener, datagrams}) {
      setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
      ASSERT_EQ(0, bind(socket, at, sizeof to));
    }
    ASSERT_EQ(0, listen(listener, 1));
    network.enter(0);
    const int stream = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(0, connect(stream, at, sizeof to)) << std::strerror(errno);
    ASSERT_EQ(5, send(stream, "hello", 5, 0));
    send_by_kernel(network, {to.sin_addr.s_addr, to.sin_port}, {std::vector<std::byte>(3)});
    const int accepted = accept(listener, nullptr, nullptr);
    char got[16];
    EXPECT_EQ(5, recv(accepted, got, sizeof got, 0));
    EXPECT_EQ(3, recv(datagrams, got, sizeof got, 0));
    testing::Collector collector;
    EXPECT_EQ(0U, (*b)->receive(collector, 16));
    EXPECT_EQ(0U, (*b)->counters().datagrams_received);
    for (const int socket : {listener, datagrams, stream, accepted}) {
      close(socket);
    }
  });
}

/// An XDP program that lets all pass, on this host's end; its link.
int attach_foreign_program(const VethNetwork& network, int side) {
  network.enter(side);
  const bpf_insn pass[] = {{BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, XDP_PASS},
                           {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_XDP;
  load.insns = reinterpret_cast<std::uintptr_t>(pass);
  load.insn_cnt = 2;
  load.license = reinterpret_cast<std::uintptr_t>("GPL");
  std::strcpy(load.prog_name, "stranger");
  bpf_attr attach{};
  attach.link_create.prog_fd =
      static_cast<std::uint32_t>(syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load));
  attach.link_create.target_ifindex = if_nametoindex(VethNetwork::kDevice);
  attach.link_create.attach_type = BPF_XDP;
  attach.link_create.flags = XDP_FLAGS_SKB_MODE;
  return static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &attach, sizeof attach));
}

TEST(XdpWire, ProgramOfSomebodyElseStays) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    const int link = attach_foreign_program(network, 0);
    ASSERT_GE(link, 0) << std::strerror(errno);
    const std::uint32_t id = Netlink().attached_program(if_nametoindex(VethNetwork::kDevice)).id;
    EXPECT_NE(0U, id);
    const auto refused = open_on(network, 0, mode);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(ErrorCode::kUnavailable, refused.status().code());
    EXPECT_NE(std::string::npos, refused.status().message().find("'stranger'"))
        << refused.status().message();
    EXPECT_EQ(id, Netlink().attached_program(if_nametoindex(VethNetwork::kDevice)).id);
    close(link);
    EXPECT_TRUE(open_on(network, 0, mode).ok());
  });
}

TEST(XdpWire, ProgramLeavesWithItsLastWire) {
  in_both_modes(
      [](const VethNetwork& network, AttachMode mode) {
        const auto attached = [&] {
          network.enter(0);
          return Netlink().attached_program(if_nametoindex(VethNetwork::kDevice)).id;
        };
        auto first = open_on(network, 0, mode);
        ASSERT_TRUE(first.ok()) << first.status().message();
        auto second = open_on(network, 0, mode);
        ASSERT_TRUE(second.ok()) << second.status().message();
        EXPECT_NE(std::string::npos, (*second)->description().find("queue 1"));
        const auto third = open_on(network, 0, mode);
        ASSERT_FALSE(third.ok());
        EXPECT_EQ(ErrorCode::kUnavailable, third.status().code());
        EXPECT_NE(std::string::npos, third.status().message().find("queue"));
        const std::uint32_t id = attached();
        EXPECT_NE(0U, id);
        first->reset();
        EXPECT_EQ(id, attached());
        second->reset();
        EXPECT_EQ(0U, attached());
      },
      {.queues = 2});
}

// What comes by another queue than the wire's is no loss: the kernel hands it on.
TEST(XdpWire, PacketsOfOtherQueuesArrive) {
  in_both_modes(
      [](const VethNetwork& network, AttachMode mode) {
        const auto first = open_on(network, 1, mode);  // A veth keeps the queue, which is 0.
        testing::Conversation talk([&] { return pair_on(network, mode); });
        EXPECT_NE(std::string::npos, talk.pair.b->description().find("queue 1"));
        for (std::uint64_t number = 1; number <= 5; ++number) {
          pass(talk, number, 20'000);
        }
        EXPECT_LE(xdp(talk.pair.a).kernel_sent(), 20U);
        EXPECT_GT(xdp(talk.pair.b).kernel_received(), 50U);
      },
      {.queues = 2});
}

// The kernel takes any address for a neighbour's, if it is asked for one interface.
TEST(XdpWire, WhatNoRouteLeadsToIsNoNeighbour) {
  with_veth_network({}, [](const VethNetwork& network) {
    network.enter(0);
    const Netlink netlink;
    const int device = static_cast<int>(if_nametoindex(VethNetwork::kDevice));
    const std::uint32_t own = VethNetwork::address_of(0).sin_addr.s_addr;
    const NextHop known = netlink.next_hop(device, own, VethNetwork::address_of(1).sin_addr.s_addr);
    EXPECT_EQ(NextHop::Kind::kNeighbour, known.kind);
    EXPECT_EQ(VethNetwork::address_of(1).sin_addr.s_addr, known.address);
    EXPECT_EQ(NextHop::Kind::kLocal, netlink.next_hop(device, own, own).kind);
    EXPECT_EQ(NextHop::Kind::kNone, netlink.next_hop(device, own, inet_addr("192.0.2.1")).kind);
    return std::string();
  });
}

// On one host nothing leaves by the interface.
TEST(XdpWire, PeersOfThisHostAreReachedByTheKernel) {
  in_both_modes(
      [](const VethNetwork& network, AttachMode mode) {
        testing::Conversation talk([&] {
          WirePair pair;
          pair.a = std::move(*open_on(network, 0, mode));
          pair.b = std::move(*open_on(network, 0, mode));
          return pair;
        });
        pass(talk, 1, 20'000);
        EXPECT_EQ(talk.pair.a->counters().datagrams_sent, xdp(talk.pair.a).kernel_sent());
      },
      {.queues = 2});
}

TEST(XdpWire, ProbesFindAllPaths) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    testing::Conversation talk([&] { return pair_on(network, mode); });
    EXPECT_FALSE(talk.pair.a->reach(talk.b_named_by_a).is_known);
    EXPECT_TRUE(talk.wait([&] {
      for (Wire* const wire : {talk.pair.a.get(), talk.pair.b.get()}) {
        wire->handle_timeout(monotonic_ns());
      }
      return talk.pair.a->reach(talk.b_named_by_a).is_known &&
             talk.pair.b->reach(talk.a_named_by_b).is_known &&
             talk.pair.a->next_deadline() == transport::kNever;
    }));
    EXPECT_EQ(std::string::npos, talk.pair.a->report().find("nothing arrives"));
    const Ends ends = talk.pair.a->ends(talk.b_named_by_a);
    EXPECT_EQ("10.77.0.2", ends.peer_host);
    EXPECT_TRUE(ends.senders.starts_with("10.77.0.1 (UDP ports ")) << ends.senders;
  });
}

/// Datagrams of a packet with this number, as `content` cut into pieces of 1000 bytes.
std::vector<std::vector<std::byte>> fragments_of(std::uint64_t number,
                                                 std::span<const std::byte> content) {
  std::vector<std::vector<std::byte>> all;
  udp::Prefix prefix;
  prefix.count = static_cast<std::uint8_t>((content.size() + 999) / 1000);
  prefix.header_bytes = 40;
  prefix.content_bytes = static_cast<std::uint16_t>(content.size());
  prefix.packet = number;
  for (std::size_t at = 0; at < content.size(); at += 1000) {
    const auto part = content.subspan(at, std::min<std::size_t>(1000, content.size() - at));
    std::vector<std::byte>& it = all.emplace_back(udp::kPrefixBytes);
    encode(prefix, it.data());
    it.insert(it.end(), part.begin(), part.end());
    ++prefix.index;
  }
  return all;
}

/// Sends these of a packet's fragments; what has arrived after a while.
testing::Collector::Received* receive_fragments(const VethNetwork& network,
                                                testing::Conversation& talk, std::uint64_t number,
                                                const testing::TestPacket& packet,
                                                const std::vector<std::size_t>& order,
                                                int tos = 0) {
  std::vector<std::byte> content(packet.transmission.header.begin(),
                                 packet.transmission.header.begin() + 40);
  content.insert(content.end(), packet.payload.begin(), packet.payload.end());
  const auto all = fragments_of(number, content);
  std::vector<std::vector<std::byte>> sent;
  for (const std::size_t index : order) {
    sent.push_back(all[index]);
  }
  send_by_kernel(network, end_of(*talk.pair.b), sent, tos);
  const auto until = monotonic_ns() + 50'000'000;
  while (monotonic_ns() < until && talk.at_b.received.count(number) == 0) {
    talk.receive();
  }
  return talk.at_b.received.count(number) == 0 ? nullptr : &talk.at_b.received[number];
}

TEST(XdpWire, FragmentsInAnyOrder) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    testing::Conversation talk([&] { return pair_on(network, mode); });
    talk.at_b.places = [](std::uint64_t) { return true; };
    const std::vector<std::size_t> orders[] = {
        {0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {1, 0, 2, 3, 4}, {0, 1, 2, 4, 3}};
    std::uint64_t number = 0;
    for (const auto& order : orders) {
      ++number;
      const testing::TestPacket packet(number, 0, 40, 4800);
      const auto* const got = receive_fragments(network, talk, number, packet, order);
      ASSERT_NE(nullptr, got) << number;
      testing::expect_equal(packet, *got);
      EXPECT_EQ(number == 1, got->was_placed);
    }
    EXPECT_EQ(0U, talk.pair.b->counters().malformed_dropped);
  });
}

TEST(XdpWire, MarksOfSwitchesAreSeen) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    testing::Conversation talk([&] { return pair_on(network, mode); });
    talk.at_b.may_be_marked = true;
    for (const std::uint64_t number : {1, 2, 3}) {
      const testing::TestPacket packet(number, 0, 40, 4800);
      const std::vector<std::size_t> order = number == 3 ? std::vector<std::size_t>{4, 3, 2, 1, 0}
                                                         : std::vector<std::size_t>{0, 1, 2, 3, 4};
      const auto* const got =
          receive_fragments(network, talk, number, packet, order, number == 1 ? 2 : 3);
      ASSERT_NE(nullptr, got);
      EXPECT_EQ(number != 1, got->is_marked);
    }
  });
}

TEST(XdpWire, PartialChunksAreTold) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    testing::Conversation talk([&] { return pair_on(network, mode); });
    const testing::TestPacket packet(1, 0, 40, 4800);
    EXPECT_EQ(nullptr, receive_fragments(network, talk, 1, packet, {0, 1, 3, 4}));
    EXPECT_EQ(std::vector<std::uint64_t>{1}, talk.at_b.partial);
    // Only the last ones are missing: what follows is not held up.
    const testing::TestPacket tail(2, 0, 40, 4800);
    EXPECT_EQ(nullptr, receive_fragments(network, talk, 2, tail, {0, 1, 2}));
    const testing::TestPacket next(3, 0, 40, 4800);
    const auto* const got = receive_fragments(network, talk, 3, next, {0, 1, 2, 3, 4});
    ASSERT_NE(nullptr, got);
    testing::expect_equal(next, *got);
  });
}

// Datagrams wait for the rest of their packet: a thread that sleeps is woken in time.
TEST(XdpWire, HeldFragmentsHaveADeadline) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    testing::Conversation talk([&] { return pair_on(network, mode); });
    const auto all = fragments_of(1, std::vector<std::byte>(4800));
    send_by_kernel(network, end_of(*talk.pair.b), {all[0]});
    talk.pair.b->handle_timeout(monotonic_ns());  // Probes are due later.
    EXPECT_TRUE(talk.wait([&] { return talk.pair.b->counters().datagrams_received > 0; }));
    EXPECT_LE(talk.pair.b->next_deadline(), monotonic_ns() + 1'000'000);
    usleep(1'000);
    EXPECT_EQ(0U, talk.pair.b->receive(talk.at_b, 1));
    talk.pair.b->handle_timeout(monotonic_ns());
    EXPECT_GT(talk.pair.b->next_deadline(), monotonic_ns());
    EXPECT_EQ(0U, talk.at_b.count);
  });
}

// Of a receiver that sleeps the kernel drops what has no room, and the report says so.
TEST(XdpWire, FullBuffersRecover) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    testing::Conversation talk([&] {
      XdpOptions options = options_of(1, mode);
      options.buffer_bytes = 0;  // The least: 256 frames.
      WirePair pair;
      auto a = open_on(network, 0, mode);
      auto b = open_on(network, 1, mode, &options);
      EXPECT_TRUE(a.ok() && b.ok()) << a.status().message() << b.status().message();
      pair.a = std::move(*a);
      pair.b = std::move(*b);
      return pair;
    });
    EXPECT_EQ(256 * 2048U, xdp(talk.pair.b).buffer_bytes());
    const std::uint32_t chunk_bytes = talk.pair.a->capabilities().chunk_bytes;
    for (std::uint64_t number = 1; number <= 20; ++number) {
      const testing::TestPacket packet(number, talk.b_named_by_a, 40, chunk_bytes);
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (!talk.pair.a->send(packet.transmission)) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "it sends no more";
      }
    }
    usleep(20'000);
    for (int i = 0; i < 100; ++i) {
      talk.receive();
    }
    EXPECT_GE(talk.at_b.count, 2U);
    EXPECT_LT(talk.at_b.count, 20U);
    EXPECT_NE(std::string::npos, talk.pair.b->report().find("frames dropped for want of a buffer"))
        << talk.pair.b->report();
    for (std::uint64_t number = 101; number <= 110; ++number) {
      pass(talk, number, chunk_bytes);
    }
  });
}

// Each packet is lost, and somebody hears why; once the interface is up again, all is well.
TEST(XdpWire, AnInterfaceThatIsDownIsTold) {
  in_both_modes([](const VethNetwork& network, AttachMode mode) {
    std::vector<std::string> told;
    testing::Conversation talk([&] {
      XdpOptions options = options_of(0, mode);
      options.on_fallback = [&](const std::string& what, const std::string&) {
        told.push_back(what);
      };
      WirePair pair;
      auto a = open_on(network, 0, mode, &options);
      auto b = open_on(network, 1, mode);
      EXPECT_TRUE(a.ok() && b.ok()) << a.status().message() << b.status().message();
      pair.a = std::move(*a);
      pair.b = std::move(*b);
      return pair;
    });
    pass(talk, 1, 1000);
    pass(talk, 2, 1000);
    network.enter(0);
    const int any = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::strcpy(request.ifr_name, VethNetwork::kDevice);
    ASSERT_EQ(0, ioctl(any, SIOCGIFFLAGS, &request));
    request.ifr_flags = static_cast<short>(request.ifr_flags & ~IFF_UP);
    ASSERT_EQ(0, ioctl(any, SIOCSIFFLAGS, &request));
    const testing::TestPacket packet(3, talk.b_named_by_a, 40, 1000);
    (void)talk.pair.a->send(packet.transmission);
    EXPECT_EQ(1U, told.size());
    EXPECT_NE(std::string::npos, told.empty() ? 0 : told[0].find("sends nothing by wire0"));
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
    ASSERT_EQ(0, ioctl(any, SIOCSIFFLAGS, &request));
    close(any);
  });
}

TEST(XdpWire, LongFramesAreCutToAPage) {
  in_both_modes(
      [](const VethNetwork& network, AttachMode mode) {
        std::vector<std::string> told;
        WirePair pair;
        for (int side = 0; side < 2; ++side) {
          XdpOptions options = options_of(side, mode, 9000);
          options.on_fallback = [&](const std::string& what, const std::string&) {
            told.push_back(what);
          };
          auto wire = open_on(network, side, mode, &options);
          ASSERT_TRUE(wire.ok()) << wire.status().message();
          (side == 0 ? pair.a : pair.b) = std::move(*wire);
        }
        EXPECT_EQ(2U, told.size());
        EXPECT_GT(pair.a->capabilities().mtu_bytes, 3700U);
        EXPECT_LT(pair.a->capabilities().mtu_bytes, 4096U);
        testing::Conversation talk([&] { return std::move(pair); });
        for (std::uint64_t number = 1; number <= 20; ++number) {
          pass(talk, number, talk.pair.a->capabilities().chunk_bytes);
        }
        EXPECT_LE(xdp(talk.pair.a).kernel_sent(), 20U);
        EXPECT_EQ(0U, xdp(talk.pair.b).kernel_received());
      },
      {.mtu_bytes = 9000});
}

TEST(XdpWire, WhatItCannotBeIsAnError) {
  with_veth_network({}, [](const VethNetwork& network) {
    XdpOptions options = options_of(0, AttachMode::kAny);
    options.interface = "lo";
    const auto loopback = open_on(network, 0, AttachMode::kAny, &options);
    EXPECT_EQ(ErrorCode::kUnsupported, loopback.status().code());
    EXPECT_NE(std::string::npos, loopback.status().message().find("Ethernet"));
    options = options_of(0, AttachMode::kAny);
    options.local.storage.ss_family = AF_INET6;
    const auto v6 = open_on(network, 0, AttachMode::kAny, &options);
    EXPECT_EQ(ErrorCode::kUnsupported, v6.status().code());
    EXPECT_NE(std::string::npos, v6.status().message().find("IPv4"));
    options = options_of(0, AttachMode::kAny);
    options.paths = 0;
    EXPECT_EQ(ErrorCode::kInvalidArgument,
              open_on(network, 0, AttachMode::kAny, &options).status().code());
    return std::string();
  });
}

}  // namespace
}  // namespace tutti::wire::xdp
