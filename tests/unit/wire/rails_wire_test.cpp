// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Rails over memory, and over the loopback interface's sockets.
#include "wire/rails/rails_wire.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "support/memory_wire.hpp"
#include "support/wire_contract.hpp"
#include "wire/udp/udp_wire.hpp"

namespace tutti::wire::rails {
namespace {

using testing::Collector;
using testing::MemoryNetwork;
using testing::MemoryWire;
using testing::TestPacket;
using testing::WirePair;
using transport::WireCapabilities;

transport::TimeNs now_ns = 1'000;

std::unique_ptr<RailsWire> together(std::vector<std::unique_ptr<Wire>> rails) {
  auto wire = RailsWire::open(std::move(rails), [] { return now_ns; });
  EXPECT_TRUE(wire.ok()) << wire.status().message();
  return wire.ok() ? std::move(*wire) : nullptr;
}

/// Networks of memory, one for each rail.
struct MemoryRails {
  explicit MemoryRails(std::size_t rails, std::size_t queue_packets_max = 64,
                       bool completes_late = false) {
    WireCapabilities capabilities = MemoryNetwork::default_capabilities();
    capabilities.rails = 1;
    capabilities.sends_complete_late = completes_late;
    for (std::size_t i = 0; i < rails; ++i) {
      networks.push_back(std::make_unique<MemoryNetwork>(capabilities, queue_packets_max));
    }
  }
  /// An end with the first so many of them.
  std::unique_ptr<RailsWire> end(std::size_t rails) {
    std::vector<std::unique_ptr<Wire>> wires;
    for (std::size_t i = 0; i < rails; ++i) {
      wires.push_back(std::make_unique<MemoryWire>(networks[i].get()));
    }
    return together(std::move(wires));
  }
  std::vector<std::unique_ptr<MemoryNetwork>> networks;
};

udp::UdpOptions loopback(const char* text, int mtu_bytes = 1500) {
  udp::UdpOptions options;
  auto& v4 = reinterpret_cast<sockaddr_in&>(options.local.storage);
  v4.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, text, &v4.sin_addr), 1);
  options.local.bytes = sizeof v4;
  options.mtu_bytes = mtu_bytes;
  options.paths = 4;
  return options;
}

/// One rail for each of the addresses.
std::unique_ptr<RailsWire> udp_rails(const std::vector<udp::UdpOptions>& rails) {
  std::vector<std::unique_ptr<Wire>> wires;
  for (const udp::UdpOptions& options : rails) {
    auto wire = udp::UdpWire::open(options);
    EXPECT_TRUE(wire.ok()) << wire.status().message();
    wires.push_back(std::move(*wire));
  }
  return together(std::move(wires));
}

WirePair memory_pair(bool completes_late) {
  auto rails = std::make_shared<MemoryRails>(3, 64, completes_late);
  WirePair pair;
  pair.a = rails->end(3);
  pair.b = rails->end(3);
  pair.network = std::move(rails);
  return pair;
}

WirePair udp_pair() {
  WirePair pair;
  pair.a = udp_rails({loopback("127.0.0.1"), loopback("127.0.0.2", 9000)});
  pair.b = udp_rails({loopback("127.0.0.1"), loopback("127.0.0.2", 9000)});
  return pair;
}

class RailsOfMemoryContract : public ::testing::TestWithParam<testing::WireCheck> {};
TEST_P(RailsOfMemoryContract, Holds) {
  GetParam().run([] { return memory_pair(false); });
}
INSTANTIATE_TEST_SUITE_P(Wire, RailsOfMemoryContract, ::testing::ValuesIn(testing::wire_checks()),
                         testing::wire_check_name);

class RailsOfLateMemoryContract : public ::testing::TestWithParam<testing::WireCheck> {};
TEST_P(RailsOfLateMemoryContract, Holds) {
  GetParam().run([] { return memory_pair(true); });
}
INSTANTIATE_TEST_SUITE_P(Wire, RailsOfLateMemoryContract,
                         ::testing::ValuesIn(testing::wire_checks()), testing::wire_check_name);

class RailsOfUdpContract : public ::testing::TestWithParam<testing::WireCheck> {};
TEST_P(RailsOfUdpContract, Holds) { GetParam().run(udp_pair); }
INSTANTIATE_TEST_SUITE_P(Wire, RailsOfUdpContract, ::testing::ValuesIn(testing::wire_checks()),
                         testing::wire_check_name);

/// Packets of these paths, from one to the other.
void send(Wire& from, std::uint64_t peer, std::span<const transport::PathId> paths) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    TestPacket packet(i + 1, peer, 24, 0);
    packet.transmission.path = paths[i];
    EXPECT_TRUE(from.send(packet.transmission));
  }
}

TEST(RailsWire, APathHasARailAndAPlaceThere) {
  MemoryRails rails(3);
  const auto a = rails.end(3);
  const auto b = rails.end(3);
  const std::uint64_t peer = *a->add_peer(b->address(), 0);
  const std::vector<transport::PathId> paths = {0, 1, 2, 3, 4, 5, 47};
  send(*a, peer, paths);
  Collector collector;
  EXPECT_EQ(b->receive(collector, 100), paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    EXPECT_EQ(collector.received[i + 1].rail, paths[i] % 3) << "path " << paths[i];
  }
  EXPECT_EQ(a->counters().datagrams_sent, paths.size());
  EXPECT_EQ(b->counters().datagrams_received, paths.size());
}

TEST(RailsWire, CapabilitiesAreTheWeakestRailsAndAllPaths) {
  const auto wire = udp_rails({loopback("127.0.0.1", 9000), loopback("127.0.0.2", 1500)});
  const auto weak = udp::UdpWire::open(loopback("127.0.0.2", 1500));
  const WireCapabilities it = wire->capabilities();
  EXPECT_EQ(it.rails, 2U);
  EXPECT_EQ(it.paths, 8U);
  EXPECT_EQ(it.mtu_bytes, (*weak)->capabilities().mtu_bytes);
  EXPECT_LE(it.chunk_bytes, (*weak)->capabilities().chunk_bytes);
  EXPECT_EQ(wire->description().substr(0, 9), "2 rails, ");
}

TEST(RailsWire, TheFewerRailsOfTwoEndsAreUsed) {
  MemoryRails rails(3);
  const auto many = rails.end(3);
  const auto few = rails.end(2);
  const std::vector<transport::PathId> paths = {0, 1, 2, 3};
  send(*many, *many->add_peer(few->address(), 0), paths);
  send(*few, *few->add_peer(many->address(), 0), paths);
  for (RailsWire* const end : {many.get(), few.get()}) {
    Collector collector;
    EXPECT_EQ(end->receive(collector, 100), paths.size());
    for (std::size_t i = 0; i < paths.size(); ++i) {
      EXPECT_EQ(collector.received[i + 1].rail, paths[i] % 2);
    }
  }
}

TEST(RailsWire, APeerWithoutRailsIsOnTheFirst) {
  const auto with = udp_rails({loopback("127.0.0.1"), loopback("127.0.0.2")});
  const auto without = udp::UdpWire::open(loopback("127.0.0.1"));
  const std::vector<transport::PathId> paths = {0, 1, 2, 3};
  send(*with, *with->add_peer((*without)->address(), 0), paths);
  send(**without, *(*without)->add_peer(*RailsWire::first_of(with->address()), 0), paths);
  for (Wire* const end : {static_cast<Wire*>(with.get()), static_cast<Wire*>(without->get())}) {
    Collector collector;
    pollfd waiting = {end->file_descriptor(), POLLIN, 0};
    while (collector.count < paths.size() && poll(&waiting, 1, 5000) > 0) {
      (void)end->receive(collector, 1);
    }
    EXPECT_EQ(collector.received.size(), paths.size());
  }
  EXPECT_EQ(*RailsWire::first_of((*without)->address()), (*without)->address());
}

TEST(RailsWire, NoRailWaitsWhileAnotherHasALot) {
  MemoryRails rails(2);
  const auto a = rails.end(2);
  const auto b = rails.end(2);
  const std::uint64_t peer = *a->add_peer(b->address(), 0);
  send(*a, peer, std::vector<transport::PathId>{0, 0, 0, 0, 0, 0, 0, 1});
  Collector collector;
  // As engines do: one at a time.
  EXPECT_EQ(b->receive(collector, 1) + b->receive(collector, 1), 2U);
  EXPECT_EQ(collector.received.count(8), 1U);
}

TEST(RailsWire, AFullRailDoesNotStopTheOthers) {
  MemoryRails rails(2, /*queue_packets_max=*/1);
  const auto a = rails.end(2);
  const auto b = rails.end(2);
  const std::uint64_t peer = *a->add_peer(b->address(), 0);
  TestPacket packet(1, peer, 24, 0);
  EXPECT_TRUE(a->send(packet.transmission));
  EXPECT_FALSE(a->send(packet.transmission));
  packet.transmission.path = 1;
  EXPECT_TRUE(a->send(packet.transmission));
  // Who sends waits with the first packet that finds no room, so a rail may not be full for long.
  packet.transmission.path = 0;
  now_ns += RailsWire::kFullNsMax - 1;
  EXPECT_FALSE(a->send(packet.transmission));
  now_ns += 1;
  EXPECT_TRUE(a->send(packet.transmission));
  EXPECT_EQ(a->counters().refused, 1U);
  Collector collector;
  EXPECT_EQ(b->receive(collector, 100), 2U);
  EXPECT_TRUE(a->send(packet.transmission));
  EXPECT_FALSE(a->send(packet.transmission));
}

// No rail will tell of a packet that none has taken.
TEST(RailsWire, WhatAFullRailLosesIsToldAsSent) {
  MemoryRails rails(1, /*queue_packets_max=*/1, /*completes_late=*/true);
  const auto a = rails.end(1);
  const auto b = rails.end(1);
  const std::uint64_t peer = *a->add_peer(b->address(), 0);
  const TestPacket taken(1, peer, 24, 8);
  const TestPacket lost(2, peer, 24, 8);
  const TestPacket without_payload(3, peer, 24, 0);
  EXPECT_TRUE(a->send(taken.transmission));
  EXPECT_FALSE(a->send(lost.transmission));
  now_ns += RailsWire::kFullNsMax;
  EXPECT_TRUE(a->send(lost.transmission));
  EXPECT_TRUE(a->send(without_payload.transmission));
  Collector collector;
  EXPECT_EQ(a->receive(collector, 1), 0U);
  EXPECT_EQ(collector.completed, (std::map<std::uint64_t, int>{{2, 1}}));
  EXPECT_EQ(a->receive(collector, 1), 0U);
  EXPECT_EQ(collector.completed.size(), 1U);
}

/// Pins nothing, or counts what it pins.
class PinningWire : public MemoryWire {
 public:
  PinningWire(MemoryNetwork* network, int* pinned, bool refuses)
      : MemoryWire(network), pinned_(pinned), refuses_(refuses) {}
  Status register_memory(std::span<std::byte> memory) override {
    if (refuses_) {
      return Status(ErrorCode::kUnavailable, "no memory can be pinned");
    }
    ++*pinned_;
    return MemoryWire::register_memory(memory);
  }
  void deregister_memory(std::span<std::byte> memory) override {
    --*pinned_;
    MemoryWire::deregister_memory(memory);
  }

 private:
  int* pinned_;
  bool refuses_;
};

TEST(RailsWire, RegistersMemoryWithAllRailsOrNone) {
  MemoryRails rails(3);
  for (const bool refuses : {false, true}) {
    int pinned = 0;
    std::vector<std::unique_ptr<Wire>> wires;
    for (std::size_t i = 0; i < 3; ++i) {
      wires.push_back(
          std::make_unique<PinningWire>(rails.networks[i].get(), &pinned, refuses && i == 2));
    }
    const auto wire = together(std::move(wires));
    std::array<std::byte, 16> memory;
    EXPECT_EQ(wire->register_memory(memory).code(),
              refuses ? ErrorCode::kUnavailable : ErrorCode::kOk);
    EXPECT_EQ(pinned, refuses ? 0 : 3);
    if (!refuses) {
      wire->deregister_memory(memory);
      EXPECT_EQ(pinned, 0);
    }
  }
}

TEST(RailsWire, OneNameForAnAddressAsLongAsItHasUsers) {
  const auto a = udp_rails({loopback("127.0.0.1"), loopback("127.0.0.2")});
  const auto b = udp_rails({loopback("127.0.0.1"), loopback("127.0.0.2")});
  const std::uint64_t first = *a->add_peer(b->address(), 0);
  EXPECT_EQ(*a->add_peer(b->address(), 0), first);
  EXPECT_NE(*a->add_peer(b->address(), 64), first);
  a->remove_peer(first);
  send(*a, first, std::vector<transport::PathId>{0, 1});
  a->remove_peer(first);
  send(*a, first, std::vector<transport::PathId>{0, 1});
  Collector collector;
  pollfd waiting = {b->file_descriptor(), POLLIN, 0};
  while (collector.count < 2 && poll(&waiting, 1, 5000) > 0) {
    (void)b->receive(collector, 1);
  }
  EXPECT_EQ(poll(&waiting, 1, 50), 0) << "something came for a peer that is gone";
  EXPECT_EQ(collector.count, 2U);
}

/// Counts the peers that it has names for.
class CountingWire : public MemoryWire {
 public:
  CountingWire(MemoryNetwork* network, int* peers) : MemoryWire(network), peers_(peers) {}
  Result<std::uint64_t> add_peer(const WireAddress& address, std::uint8_t traffic_class) override {
    auto name = MemoryWire::add_peer(address, traffic_class);
    *peers_ += name.ok() ? 1 : 0;
    return name;
  }
  void remove_peer(std::uint64_t peer) override {
    --*peers_;
    MemoryWire::remove_peer(peer);
  }

 private:
  int* peers_;
};

/// A wire that has found that out.
class FoundWire : public MemoryWire {
 public:
  FoundWire(MemoryNetwork* network, const Reach* found) : MemoryWire(network), found_(found) {}
  Reach reach(std::uint64_t) const override { return *found_; }
  Ends ends(std::uint64_t peer) const override {
    (void)peer;
    return {.senders = "here", .receiver = "here:1", .peer = "there:2", .peer_host = "there"};
  }

 private:
  const Reach* found_;
};

TEST(RailsWire, OneRailThatReachesThePeerIsEnough) {
  MemoryNetwork first(MemoryNetwork::default_capabilities(), 64);
  MemoryNetwork second(MemoryNetwork::default_capabilities(), 64);
  Reach found[2];
  std::vector<std::unique_ptr<Wire>> rails;
  rails.push_back(std::make_unique<FoundWire>(&first, &found[0]));
  rails.push_back(std::make_unique<FoundWire>(&second, &found[1]));
  const auto wire = together(std::move(rails));
  const std::uint64_t peer = *wire->add_peer(wire->address(), 0);
  EXPECT_TRUE(wire->reach(peer).is_known);
  EXPECT_EQ(wire->reach(peer).silent, "");
  EXPECT_EQ(wire->ends(peer).peer, "there:2, there:2");
  // Not before the other one has tried.
  found[1] = {
      .is_known = false, .is_tried = false, .is_heard = false, .is_too_small = false, .silent = {}};
  EXPECT_FALSE(wire->reach(peer).is_known);
  found[1].is_tried = true;
  EXPECT_TRUE(wire->reach(peer).is_known);
  EXPECT_EQ(wire->reach(peer).silent, "from here to there:2");
  found[0] = found[1];
  EXPECT_FALSE(wire->reach(peer).is_known);
  EXPECT_TRUE(wire->reach(peer).is_tried);
  EXPECT_FALSE(wire->reach(peer).is_heard);
}

TEST(RailsWire, AddressesThatAreNone) {
  MemoryRails rails(3);
  const auto a = rails.end(2);
  const auto b = rails.end(2);
  const WireAddress right = b->address();
  ASSERT_TRUE(a->add_peer(right, 0).ok());
  // Cut off anywhere, or of another number of rails.
  for (std::uint8_t length = 0; length < right.length; ++length) {
    WireAddress cut = right;
    cut.length = length;
    EXPECT_EQ(a->add_peer(cut, 0).status().code(), ErrorCode::kInvalidArgument) << int{length};
    EXPECT_TRUE(length == 0 || !RailsWire::first_of(cut).ok()) << int{length};
  }
  for (const int count : {0, 1, 3, 9, 255}) {
    WireAddress other = right;
    other.bytes[1] = static_cast<std::byte>(count);
    EXPECT_EQ(a->add_peer(other, 0).status().code(), ErrorCode::kInvalidArgument) << count;
    EXPECT_FALSE(RailsWire::first_of(other).ok()) << count;
  }
  // One of the second rail's is none of its wire: the first rail's peer goes again.
  WireAddress bad = right;
  bad.bytes[right.length - 8U] = std::byte{0x7f};
  std::array<int, 2> peers = {};
  std::vector<std::unique_ptr<Wire>> counting;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    counting.push_back(std::make_unique<CountingWire>(rails.networks[i].get(), &peers[i]));
  }
  const auto counted = together(std::move(counting));
  const auto refused = counted->add_peer(bad, 0);
  EXPECT_EQ(refused.status().message(), "rail 1: not an address of a memory wire");
  EXPECT_EQ(peers, (std::array{0, 0}));
  const std::uint64_t added = *counted->add_peer(right, 0);
  EXPECT_EQ(peers, (std::array{1, 1}));
  counted->remove_peer(added);
  EXPECT_EQ(peers, (std::array{0, 0}));
  EXPECT_EQ(RailsWire::open({}, {}).status().code(), ErrorCode::kInvalidArgument);
  std::vector<std::unique_ptr<Wire>> many;
  for (std::size_t i = 0; i <= RailsWire::kRailsMax; ++i) {
    many.push_back(std::make_unique<MemoryWire>(rails.networks[0].get()));
  }
  EXPECT_EQ(RailsWire::open(std::move(many), {}).status().message(),
            "rails: a connection has 1 to 8, not 9");
}

}  // namespace
}  // namespace tutti::wire::rails
