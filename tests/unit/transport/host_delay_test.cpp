// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Hosts that take their time: what lies in a socket while an engine sleeps is no congestion where
// the host knows when it came (Arrival::received_ns), and no loss either way.
#include <gtest/gtest.h>

#include <string>

#include "lossy_pair.hpp"
#include "transport/loss.hpp"
#include "transport/rtt.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

constexpr std::size_t kMessageBytes = 4'000'000;
constexpr TimeNs kNapNs = 200'000;  // Many base round trips, which take 12 us.

ConnectionOptions options_of(const std::string& controller) {
  ConnectionOptions options;
  options.controller = controller;
  options.wire.marks_ecn = false;  // Delay is all that a controller has.
  options.window_bytes_min = 2 * Bytes{options.wire.chunk_bytes};  // As src/net has it.
  return options;
}

/// One message from end 0 to end 1.
void pass(LossyPair& pair, const std::vector<std::byte>& data, std::vector<std::byte>& into) {
  const std::size_t events = pair.events(0).size();
  pair.receive(1, 0, into);
  pair.send(0, 0, data);
  ASSERT_TRUE(pair.run_until_events(events + 1, events + 1));
}

struct Outcomes {
  ConnectionStatus last;
  ConnectionCounters counters;  ///< Since the first message, from which the timers learn.
};

Outcomes run(const std::string& controller, std::array<TimeNs, 2> nap_ns, bool has_stamps) {
  LossyPair pair(options_of(controller));
  pair.checks_invariants = false;
  pair.nap_ns = nap_ns;
  pair.has_stamps = has_stamps;
  Outcomes outcomes;
  const auto data = pattern(kMessageBytes, 1);
  std::vector<std::byte> into(kMessageBytes);
  pass(pair, data, into);
  const ConnectionCounters before = pair.counters(0);
  for (int i = 0; i < 4; ++i) {
    pass(pair, data, into);
  }
  EXPECT_TRUE(data == into);
  outcomes.last = pair.end(0).status(pair.handle(0));
  outcomes.counters = pair.counters(0);
  outcomes.counters.timeouts -= before.timeouts;
  outcomes.counters.retransmissions -= before.retransmissions;
  return outcomes;
}

class HostDelay : public ::testing::TestWithParam<std::array<TimeNs, 2>> {};

INSTANTIATE_TEST_SUITE_P(naps, HostDelay,
                         ::testing::Values(std::array{TimeNs{0}, kNapNs},
                                           std::array{kNapNs, TimeNs{0}},
                                           std::array{kNapNs, kNapNs / 2}),
                         [](const auto& one) {
                           return "sender_" + std::to_string(one.param[0] / 1000) +
                                  "_us_receiver_" + std::to_string(one.param[1] / 1000) + "_us";
                         });

TEST_P(HostDelay, SwiftKeepsItsWindow) {
  const Outcomes awake = run("swift", {}, true);
  const Outcomes with = run("swift", GetParam(), true);
  const Outcomes without = run("swift", GetParam(), false);
  // What leaves at once after a nap queues at the link, which is the network's delay.
  EXPECT_GT(with.last.window_bytes, awake.last.window_bytes / 2);
  EXPECT_LT(without.last.window_bytes, awake.last.window_bytes / 16);
}

TEST_P(HostDelay, TheTwoRoundTripsAreKnown) {
  const Outcomes it = run("fixed", GetParam(), true);
  const TimeNs base_ns = options_of("fixed").wire.base_rtt_ns;
  EXPECT_GE(it.last.fabric_ns_min, base_ns);
  // A window of packets in one queue, and no nap.
  EXPECT_LT(it.last.fabric_ns, 4 * base_ns);
  EXPECT_GT(it.last.srtt_ns, it.last.fabric_ns + kNapNs / 4);
  EXPECT_GT(it.last.rto_ns, kNapNs);
}

TEST_P(HostDelay, NothingIsSentAgain) {
  for (const char* controller : {"swift", "nscc", "cubic", "timely"}) {
    const Outcomes it = run(controller, GetParam(), true);
    EXPECT_EQ(0U, it.counters.timeouts) << controller;
    EXPECT_EQ(0U, it.counters.retransmissions) << controller;
  }
}

/// What a host that sleeps answers late is no reason to take all in the air for lost.
TEST(HostDelay, ALostLastChunkIsProbedBeforeTheTimeout) {
  constexpr std::size_t kBytes = 40'967;  // The last chunk has 7.
  LossyPair pair(options_of("cubic"));
  pair.checks_invariants = false;
  pair.nap_ns = {0, 5'000'000};
  const auto data = pattern(kBytes, 1);
  std::vector<std::byte> into(kBytes);
  for (int i = 0; i < 20; ++i) {
    pass(pair, data, into);
  }
  const ConnectionCounters before = pair.counters(0);
  int dropped = 0;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    return packet.payload_bytes == 7 && dropped++ == 0;
  };
  pass(pair, data, into);
  EXPECT_GE(dropped, 2);
  EXPECT_GE(pair.counters(0).tail_probes, before.tail_probes + 1);
  EXPECT_EQ(before.timeouts, pair.counters(0).timeouts);
}

/// One pause is not what round trips take from then on.
TEST(HostDelay, OneLongPauseDoesNotMakeTimeoutsLong) {
  const LossOptions options;
  LossDetector loss(options, {});
  for (int i = 0; i < 200; ++i) {
    loss.rtt().on_sample(100'000);
  }
  loss.rtt().on_sample(500'000'000);
  EXPECT_GT(loss.rto_ns(), TimeNs{100'000'000});  // It may be the first of many.
  for (int i = 0; i < 60; ++i) {
    loss.rtt().on_sample(100'000);
  }
  EXPECT_LE(loss.rto_ns(), options.rto_ns_max / 2 + 1'000'000);
  EXPECT_LT(loss.tail_probe_ns(), loss.rto_ns());
  EXPECT_LE(loss.reordering_ns(), options.rto_ns_max);
}

TEST(HostDelay, AStampThatCameRoundIsNoShortRoundTrip) {
  constexpr TimeNs kRound = TimeNs{1} << 32;
  constexpr TimeNs kPause = kRound + 2'000;
  const RttSample seems = rtt_sample(kPause, 0, kNever, 0);
  EXPECT_EQ(2'000U, seems.round_trip_ns);
  EXPECT_EQ(0U, believed(seems, kPause).round_trip_ns);
  EXPECT_EQ(2'000U, believed(seems, 2'000).round_trip_ns);
  // Of a chunk that was sent twice: only where the peer's host tells how long it took.
  EXPECT_EQ(0U, believed(seems, kNever).round_trip_ns);
  EXPECT_EQ(2'000U, believed(rtt_sample(2'000, 0, 500, 0), kNever).round_trip_ns);
}

}  // namespace
}  // namespace tutti::transport
