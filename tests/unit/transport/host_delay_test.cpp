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
  EXPECT_LT(loss.tail_probe_ns(Chunk{}), loss.rto_ns());
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

// What is held back on its way to the sender until its stamp has come round.
class CameRound : public ::testing::Test {
 protected:
  static constexpr TimeNs kSeemsNs = 20'000;

  CameRound() {
    options.receives = false;
    options.wire.paths = 2;
    options.wire.base_rtt_ns = 100'000;
    options.acknowledgement.ack_delay_ns = 0;
    options.loss.tail_probe = false;
    options.loss.rto_ns_min = 60'000'000'000;
    options.loss.give_up_ns = 60'000'000'000;
  }
  /// Takes the first packet of this kind out of the network, and all later ones.
  void hold(PacketType held_type) {
    pair.emplace(options);
    pair->has_stamps = false;
    pair->drop = [this, held_type](const LossyPair::Delivered& packet) {
      const auto type =
          static_cast<PacketType>(std::to_integer<std::uint32_t>(packet.header[0]) & 15U);
      if (packet.to == 1) {
        sent_ns = held ? sent_ns : pair->now();
        return type == PacketType::kData && packet.path == dead;
      }
      if (type == held_type && !held) {
        held = packet;
      }
      return type == held_type;
    };
  }
  void release() {
    ASSERT_TRUE(held);
    pair->run(sent_ns + (TimeNs{1} << 32) + kSeemsNs - pair->now());
    pair->deliver(*held);
  }

  ConnectionOptions options;
  std::optional<LossyPair> pair;
  std::optional<LossyPair::Delivered> held;
  PathId dead = kNoPath;
  TimeNs sent_ns = 0;
};

TEST_F(CameRound, AnEchoSaysNothingOfItsPath) {
  hold(PacketType::kAck);
  const auto data = testing::pattern(100, 1);
  std::vector<std::byte> into(data.size());
  pair->receive(1, 1, into);
  pair->run(1'000'000);
  pair->send(0, 1, data);
  pair->run(1'000'000);
  ASSERT_NO_FATAL_FAILURE(release());
  ASSERT_TRUE(pair->run_until_events(1, 1));
  for (const PathId path : {PathId{0}, PathId{1}}) {
    EXPECT_EQ(0U, pair->end(0).path_counters(pair->handle(0), path).rtt_ns);
  }
}

TEST_F(CameRound, APongRevivesItsPathAndSaysNoMore) {
  options.loss.rto_ns_min = 1'000'000;
  dead = 1;
  hold(PacketType::kPong);
  const auto data = testing::pattern(1'000'000, 1);
  std::vector<std::byte> into(data.size());
  pair->receive(1, 1, into);
  pair->send(0, 1, data);
  ASSERT_TRUE(pair->run_until_events(1, 1));
  pair->run(100'000'000);
  const auto counters = [&] { return pair->end(0).path_counters(pair->handle(0), 1); };
  ASSERT_EQ(PathState::kDead, counters().state);
  ASSERT_NO_FATAL_FAILURE(release());
  EXPECT_EQ(PathState::kGood, counters().state);
  EXPECT_EQ(0U, counters().rtt_ns);
}

}  // namespace
}  // namespace tutti::transport
