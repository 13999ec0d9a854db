// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/sim/endpoint_host.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace tutti::wire::sim {
namespace {

using simulate::HostWork;
using simulate::kPsPerNs;
using simulate::OperationKind;
using simulate::Priority;
using simulate::SimPacket;
using simulate::TimePs;
using simulate::Turn;

/// Two hosts that send each other a message, and a wire that takes 1 us and nothing else.
class Pair {
 public:
  Pair() : exchange_(2) {
    for (std::uint32_t host = 0; host < 2; ++host) {
      HostWork work;
      for (const OperationKind kind : {OperationKind::kSend, OperationKind::kReceive}) {
        work.add({.kind = kind, .peer = 1 - host, .bytes = 1'000'000});
      }
      EndpointHostOptions options;
      options.host = host;
      options.connection.wire.paths = 4;
      auto made = EndpointHost::make(work, options, &exchange_);
      EXPECT_TRUE(made.ok()) << made.status().message();
      hosts_.push_back(std::move(*made));
      hosts_.back()->on_timer(0);
    }
  }

  bool pull(std::uint32_t host, Turn turn, SimPacket* packet) {
    const bool found = hosts_[host]->pull(now_ps_, turn, packet);
    packet->src = host;
    return found;
  }

  void deliver(const SimPacket& packet) {
    now_ps_ += 1000 * kPsPerNs;
    hosts_[packet.dst]->on_packet(now_ps_, packet);
    exchange_.settle();
    if (hosts_[packet.dst]->next_timer_ps() <= now_ps_) {
      hosts_[packet.dst]->on_timer(now_ps_);
    }
  }

  /// All the control that host 0 can send; how much that was.
  int control_of_0(Turn turn) {
    SimPacket packet;
    int count = 0;
    for (; pull(0, turn, &packet); ++count) {
      EXPECT_EQ(Priority::kControl, packet.priority);
      deliver(packet);
    }
    return count;
  }

  /// Until host 1 has given so many packets of data to host 0.
  void data_from_1(int count) {
    while (count > 0) {
      SimPacket packet;
      ASSERT_TRUE(pull(1, Turn::kFree, &packet));
      deliver(packet);
      count -= packet.priority == Priority::kData ? 1 : 0;
    }
  }

 private:
  SlotExchange exchange_;
  std::vector<std::unique_ptr<EndpointHost>> hosts_;
  TimePs now_ps_ = 0;
};

TEST(endpoint_host, pull__control_leaves_while_data_is_paused) {
  Pair pair;
  EXPECT_GT(pair.control_of_0(Turn::kControl), 0) << "which receives there are";
  // Data comes and is acknowledged, however much of the host's own waits for the pause to end.
  for (int round = 0; round < 5; ++round) {
    pair.data_from_1(8);  // Two acknowledgements' worth.
    EXPECT_GT(pair.control_of_0(Turn::kControl), 0) << "round " << round;
  }
  // Data leaves when the pause ends, each packet once.
  std::vector<std::uint32_t> places;
  for (int i = 0; i < 12; ++i) {
    SimPacket packet;
    ASSERT_TRUE(pair.pull(0, Turn::kFree, &packet));
    EXPECT_EQ(0, std::count(places.begin(), places.end(), packet.payload));
    places.push_back(packet.payload);
  }
}

// One connection without room must not hold up the others, nor receives behind sends.
TEST(endpoint_host, post__what_waits_for_room_holds_up_nothing_else) {
  SlotExchange exchange(3);
  HostWork work;
  for (int i = 0; i < 20; ++i) {
    work.add({.kind = OperationKind::kSend, .peer = 1, .bytes = 1});
  }
  work.add({.kind = OperationKind::kReceive, .peer = 1, .bytes = 1});
  work.add({.kind = OperationKind::kReceive, .peer = 2, .bytes = 1});
  EndpointHostOptions options;
  options.connection.sends_max = 4;
  auto made = EndpointHost::make(work, options, &exchange);
  ASSERT_TRUE(made.ok()) << made.status().message();
  (*made)->on_timer(0);
  std::vector<std::uint32_t> told;
  SimPacket packet;
  while ((*made)->pull(0, Turn::kFree, &packet)) {
    told.push_back(packet.dst);
  }
  std::sort(told.begin(), told.end());
  EXPECT_EQ((std::vector<std::uint32_t>{1, 2}), told) << "an advert to each";
}

// A table by host would be 8 MB of each host here.
TEST(endpoint_host, make__memory_goes_by_the_peers_not_by_the_hosts) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator does not count";
#endif
  constexpr std::uint32_t kHosts = 1 << 20;
  SlotExchange exchange(1);
  HostWork work;
  work.add({.kind = OperationKind::kSend, .peer = kHosts - 1, .bytes = 1});
  work.add({.kind = OperationKind::kReceive, .peer = kHosts / 2, .bytes = 1});
  const auto allocated = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const std::size_t before = allocated();
  auto made = EndpointHost::make(work, {}, &exchange);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_LT(allocated() - before, std::size_t{2} << 20);
  (*made)->on_timer(0);
  EXPECT_EQ(0U, (*made)->failed()) << "both are posted";
}

}  // namespace
}  // namespace tutti::wire::sim
