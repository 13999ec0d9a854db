// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/loss.hpp"

#include <gtest/gtest.h>

#include "lossy_pair.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

class Loss : public ::testing::Test {
 protected:
  Loss() : flight(64, 4, 1), loss(LossOptions{}, wire()) { loss.rtt().on_sample(10'000); }

  static WireCapabilities wire() {
    WireCapabilities wire;
    wire.paths = 4;
    wire.base_rtt_ns = 10'000;
    return wire;
  }
  std::uint64_t send(TimeNs now, PathId path) {
    const std::uint64_t number = flight.add();
    flight.at(number).bytes = 100;
    flight.transmit(now, number, path);
    return number;
  }
  void deliver(std::uint64_t number, TimeNs rtt_ns = 10'000) {
    loss.on_delivered(flight.at(number).sent_ns + rtt_ns, flight, number, rtt_ns);
    loss.mark_same_path(flight, number, packet);
    flight.acknowledge(number);
  }
  std::vector<std::uint64_t> told(std::uint64_t bitmap) {
    std::vector<std::uint64_t> lost;
    loss.on_told(flight, 0, bitmap, packet, [&](std::uint64_t n) {
      lost.push_back(n);
      flight.lose(n);
    });
    return lost;
  }
  std::vector<std::uint64_t> by_time(TimeNs now, TimeNs* again = nullptr) {
    std::vector<std::uint64_t> lost;
    const TimeNs next = loss.detect_by_time(flight, now, [&](std::uint64_t n) {
      lost.push_back(n);
      flight.lose(n);
    });
    if (again != nullptr) {
      *again = next;
    }
    return lost;
  }

  Flight flight;
  LossDetector loss;
  std::uint64_t packet = 1;
};

using Numbers = std::vector<std::uint64_t>;

TEST_F(Loss, same_path__needs_a_later_arrival_and_a_word_that_says_no) {
  send(0, 0);
  send(10, 1);
  send(20, 0);
  send(30, 0);
  deliver(3);
  EXPECT_EQ(Numbers({}), told(0b1010));  // Says that 1 is here: its echo was lost.
  EXPECT_EQ(Numbers({1}), told(0b1000));
  EXPECT_EQ(Numbers({}), told(0b1000));  // 2 is of another path, 4 is later.
  flight.check();
}

TEST_F(Loss, same_path__an_older_packet_says_nothing) {
  send(0, 0);
  send(10, 0);
  packet = 5;
  deliver(2);
  packet = 4;
  EXPECT_EQ(Numbers({}), told(0b100));
  packet = 5;
  EXPECT_EQ(Numbers({1}), told(0b100));
}

TEST_F(Loss, same_path__a_chunk_sent_again_counts_by_its_new_path) {
  send(0, 0);
  send(10, 0);
  flight.lose(1);
  flight.transmit(20, 1, 2);
  send(30, 2);
  deliver(2);
  EXPECT_EQ(Numbers({}), told(0b0100));
  deliver(3);
  EXPECT_EQ(Numbers({1}), told(0b1100));
}

TEST_F(Loss, same_path__is_off_where_paths_reorder) {
  WireCapabilities reordering = wire();
  reordering.reorders_within_path = true;
  loss = LossDetector(LossOptions{}, reordering);
  send(0, 0);
  send(10, 0);
  deliver(2);
  EXPECT_EQ(Numbers({}), told(0b100));
}

TEST_F(Loss, rack__waits_a_round_trip_and_the_reordering_window) {
  send(0, 0);
  send(100, 1);
  send(200, 2);
  deliver(2);
  TimeNs again = 0;
  const TimeNs patience = 10'000 + loss.reordering_ns();
  EXPECT_EQ(2'500U, loss.reordering_ns());  // A quarter of the least round trip.
  EXPECT_EQ(Numbers({}), by_time(patience - 1, &again));
  EXPECT_EQ(patience, again);
  EXPECT_EQ(Numbers({1}), by_time(patience, &again));
  EXPECT_EQ(kNever, again);  // 3 was sent later than what has arrived.
}

TEST_F(Loss, rack__has_patience_with_paths_that_nobody_knows) {
  WireCapabilities unknown = wire();
  unknown.base_rtt_is_guess = true;
  loss = LossDetector(LossOptions{}, unknown);
  // The first two of a burst are light: they have no order to tell of.
  for (std::uint64_t burst = 0; burst < 128; ++burst) {
    EXPECT_EQ(loss.rtt().srtt_ns() + loss.rtt().high_ns(), loss.reordering_ns()) << burst;
    for (int i = 0; i < 4; ++i) {
      loss.rtt().on_sample(i == 0 ? 20'000 : 10'000);
      send(burst, 0);
    }
    for (int i = 4; i > 0; --i) {
      deliver(flight.next() - static_cast<std::uint64_t>(i));
    }
    flight.advance(flight.next());
  }
  // Whose queues all chunks pass alike: a quarter of the least round trip, and an answer that
  // waits.
  EXPECT_EQ(loss.rtt().min_ns() / 4, loss.reordering_ns());
  loss.set_ack_delay(300, 0);
  EXPECT_EQ(loss.rtt().min_ns() / 4 + 300, loss.reordering_ns());
  // One of a burst comes 4 us after one that was sent behind it; each has a longer way.
  const std::uint64_t first = flight.next();
  for (int i = 0; i < 6; ++i) {
    send(1'000, static_cast<PathId>(i % 2));
  }
  deliver(first + 1, 30'000);
  deliver(first, 34'000);
  EXPECT_EQ(2 * 4'000U, loss.reordering_ns());
  deliver(first + 3, 40'000);
  const TimeNs window_ns = loss.reordering_ns();
  TimeNs again = 0;
  EXPECT_EQ(Numbers({}), by_time(41'000 + window_ns - 1, &again));
  EXPECT_EQ(41'000 + window_ns, again);
  deliver(first + 4, 45'000);  // Whose longer way does not make it wait.
  EXPECT_EQ(Numbers({first + 2}), by_time(41'000 + window_ns));
  // Sent again it has not been overtaken.
  flight.transmit(50'000, first + 2, 1);
  EXPECT_EQ(Numbers({}), by_time(1'000'000));
  deliver(first + 5, 45'000);
  deliver(first + 2);
  flight.advance(flight.next());
  // Light traffic is no proof of order, and forgets none.
  const TimeNs learnt = loss.reordering_ns();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    deliver(send(60'000, 0));
    flight.advance(flight.next());
  }
  EXPECT_EQ(learnt, loss.reordering_ns());
  // One that was given up came all the same: the window grows, up to what is believed of any.
  loss.on_late(10'000);
  EXPECT_EQ(2 * 10'000U, loss.reordering_ns());
  loss.on_late(1'000'000'000);
  EXPECT_EQ(loss.rtt().srtt_ns() + loss.rtt().high_ns(), loss.reordering_ns());
  // A timeout asks since the sending, with the queue.
  EXPECT_GE(loss.overdue_ns(), loss.rtt().high_ns());
}

TEST_F(Loss, tail_probe__of_light_traffic_knows_no_queue_of_heavier_one) {
  WireCapabilities unknown = wire();
  unknown.base_rtt_is_guess = true;
  for (const bool is_guess : {true, false}) {
    loss = LossDetector(LossOptions{}, is_guess ? unknown : wire());
    for (int i = 0; i < 100; ++i) {
      deliver(send(0, 0));
      loss.rtt().on_sample(10'000);
      flight.advance(flight.next());
    }
    for (int i = 0; i < 100; ++i) {
      loss.rtt().on_sample(1'000'000);
    }
    const std::uint64_t light = send(0, 0);
    send(0, 1);
    const std::uint64_t heavy = send(0, 2);
    EXPECT_GT(loss.tail_probe_ns(flight.at(heavy)), 1'000'000U);
    EXPECT_EQ(is_guess ? 20'000U : loss.tail_probe_ns(flight.at(heavy)),
              loss.tail_probe_ns(flight.at(light)));
    for (std::uint64_t number = light; number <= heavy; ++number) {
      deliver(number);
    }
    flight.advance(flight.next());
  }
}

TEST_F(Loss, rack__a_lost_retransmission_is_found_again) {
  send(0, 0);
  send(10, 1);
  deliver(2);
  EXPECT_EQ(Numbers({1}), by_time(20'000));
  flight.transmit(20'000, 1, 2);
  EXPECT_EQ(Numbers({}), by_time(100'000));
  send(20'010, 1);
  deliver(3);
  EXPECT_EQ(Numbers({1}), by_time(100'000));
}

TEST_F(Loss, rto__follows_srtt_backs_off_and_has_bounds) {
  EXPECT_EQ(75'000U, loss.rto_ns());  // 15 us and six queues of one round trip.
  for (int i = 0; i < 100; ++i) {
    loss.rtt().on_sample(1'000'000);
  }
  EXPECT_GT(loss.rto_ns(), 1'000'000U);
  const TimeNs before = loss.rto_ns();
  loss.on_timeout();
  EXPECT_EQ(2 * before, loss.rto_ns());
  for (int i = 0; i < 100; ++i) {
    loss.on_timeout();
  }
  EXPECT_EQ(100'000'000U, loss.rto_ns());
  loss.on_progress();
  EXPECT_EQ(before, loss.rto_ns());
}

// A slow link with a long queue.
TEST_F(Loss, rto__is_not_over_before_the_usual_round_trip) {
  for (int i = 0; i < 100; ++i) {
    loss.rtt().on_sample(300'000'000);
  }
  const TimeNs usual = loss.rto_ns();
  EXPECT_GT(usual, 300'000'000U);
  loss.on_timeout();
  EXPECT_EQ(usual, loss.rto_ns());
}

TEST_F(Loss, episode__one_reaction_for_what_was_in_the_air_together) {
  send(0, 0);
  send(10, 1);
  EXPECT_TRUE(loss.on_lost(15, flight, 1));
  flight.lose(1);
  EXPECT_FALSE(loss.on_lost(15, flight, 2));
  flight.lose(2);
  EXPECT_TRUE(loss.is_in_recovery(flight));
  flight.transmit(20, 1, 2);
  loss.on_retransmitted();
  flight.transmit(30, 2, 2);
  loss.on_retransmitted();
  EXPECT_FALSE(loss.is_in_recovery(flight));
  EXPECT_FALSE(loss.on_spurious(flight, 1, 20));
  EXPECT_TRUE(loss.on_spurious(flight, 2, 0));  // The first transmission came second.
  EXPECT_EQ(5'000U, loss.reordering_ns() * (loss.reordering_ns() > 2'500 ? 1 : 2));
  send(40, 0);
  EXPECT_TRUE(loss.on_lost(50, flight, 3));
}

// What told late that the first episode was needless says nothing of the second.
TEST_F(Loss, on_spurious__an_episode_answers_for_its_own_retransmissions_alone) {
  for (TimeNs now = 0; now < 30; now += 10) {
    send(now, 0);
  }
  EXPECT_TRUE(loss.on_lost(100, flight, 1));
  flight.lose(1);
  EXPECT_FALSE(loss.on_lost(100, flight, 2));
  flight.lose(2);
  for (const std::uint64_t number : {1, 2}) {
    flight.transmit(110, number, 1);
    loss.on_retransmitted();
  }
  for (TimeNs now = 120; now < 140; now += 10) {
    send(now, 2);  // Chunks 4 and 5.
  }
  EXPECT_TRUE(loss.on_lost(200, flight, 4));
  flight.lose(4);
  EXPECT_FALSE(loss.on_lost(200, flight, 5));
  flight.lose(5);
  for (const std::uint64_t number : {4, 5}) {
    flight.transmit(210, number, 1);
    loss.on_retransmitted();
  }
  EXPECT_FALSE(loss.on_spurious(flight, 1, 110));
  EXPECT_FALSE(loss.on_spurious(flight, 2, 110));
  EXPECT_FALSE(loss.on_spurious(flight, 2, 10));
  EXPECT_FALSE(loss.on_spurious(flight, 4, 210));
  EXPECT_TRUE(loss.on_spurious(flight, 5, 130));  // The first transmission came second.
}

struct Cost {
  std::uint64_t retransmissions = 0;
  std::uint64_t spurious = 0;
  std::uint64_t timeouts = 0;
  TimeNs time_ns = 0;
  ConnectionCounters counters;
};

Cost transfer(const testing::Faults& faults, const LossOptions& loss_options, Bytes bytes,
              std::uint64_t seed = 1,
              const std::function<bool(const LossyPair::Delivered&)>& drop = {}) {
  ConnectionOptions options;
  options.wire.paths = 16;
  options.receives = false;
  options.loss = loss_options;
  LossyPair pair(options, seed);
  pair.faults = faults;
  pair.drop = drop;
  pair.checks_invariants = false;
  const auto data = pattern(bytes, 1);
  std::vector<std::byte> into(bytes);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  const TimeNs start = pair.now();
  EXPECT_TRUE(pair.run_until_events(1, 1));
  EXPECT_TRUE(data == into);
  const ConnectionCounters& c = pair.counters(0);
  return {c.retransmissions, c.spurious_retransmissions, c.timeouts, pair.now() - start, c};
}

TEST(loss, transfer__one_percent_costs_about_one_percent) {
  const Cost cost = transfer({.loss = 10}, {}, 40'000'000);
  const double chunks = 40e6 / 4096;
  EXPECT_GT(static_cast<double>(cost.retransmissions), 0.005 * chunks);
  EXPECT_LT(static_cast<double>(cost.retransmissions), 0.02 * chunks);
  EXPECT_LT(cost.spurious, cost.retransmissions / 4);
  EXPECT_LE(cost.timeouts, 3U);
}

TEST(loss, transfer__a_lost_last_chunk_is_probed_before_the_timeout) {
  int dropped = 0;
  const auto drop_last = [&](const LossyPair::Delivered& packet) {
    return packet.payload_bytes == 7 && dropped++ == 0;
  };
  const Cost with = transfer({}, {}, 40'967, 1, drop_last);
  EXPECT_EQ(2, dropped);
  EXPECT_EQ(1U, with.counters.tail_probes);
  EXPECT_EQ(0U, with.timeouts);
  dropped = 0;
  LossOptions without_probe;
  without_probe.tail_probe = false;
  const Cost without = transfer({}, without_probe, 40'967, 1, drop_last);
  EXPECT_EQ(0U, without.counters.tail_probes);
  EXPECT_EQ(1U, without.timeouts);
  EXPECT_LT(with.time_ns, without.time_ns);
}

TEST(loss, transfer__each_way_of_finding_is_enough_alone) {
  LossOptions none;
  none.same_path = false;
  none.rack = false;
  none.tail_probe = false;
  EXPECT_GT(transfer({.loss = 20}, none, 1'000'000).counters.lost_timeout, 0U);
  LossOptions same_path = none;
  same_path.same_path = true;
  EXPECT_GT(transfer({.loss = 20}, same_path, 1'000'000).counters.lost_same_path, 0U);
  LossOptions rack = none;
  rack.rack = true;
  EXPECT_GT(transfer({.loss = 20}, rack, 1'000'000).counters.lost_rack, 0U);
}

/// What the wire tells of it where a part of it was lost.
LossyPair::Delivered partial(LossyPair::Delivered packet) {
  packet.trimmed = true;
  packet.payload.clear();
  return packet;
}

// No switch trims here: the wire has seen a part of it.
TEST(loss, partial__is_sent_again_without_a_wait) {
  LossOptions none;
  none.same_path = false;
  none.rack = false;
  none.tail_probe = false;
  const Cost cost = transfer({.trim = 50}, none, 10'000'000);
  EXPECT_GT(cost.counters.nacks, 10'000'000U / 4096 / 25);
  EXPECT_EQ(cost.counters.nacks, cost.retransmissions);
  EXPECT_EQ(0U, cost.timeouts);
  EXPECT_EQ(0U, cost.spurious);
  EXPECT_EQ(0U, cost.counters.lost_timeout + cost.counters.lost_rack);
}

// Its path has reordered it: the window is as before, and nobody was taken for an attacker.
TEST(loss, partial__what_comes_whole_yet_counts) {
  ConnectionOptions options;
  options.wire.paths = 4;
  options.receives = false;
  LossyPair pair(options);
  int told = 0;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    if (packet.to == 1 && packet.payload_bytes == 4096 && told == 0) {
      ++told;
      pair.in_air().emplace(pair.now() + 1, partial(packet));
    }
    return false;
  };
  ASSERT_TRUE(pair.carry(400'000));
  pair.run(10'000'000);
  EXPECT_EQ(1U, pair.counters(0).nacks);
  EXPECT_EQ(1U, pair.counters(0).retransmissions);
  EXPECT_EQ(1U, pair.counters(0).spurious_retransmissions);
  EXPECT_EQ(1U, pair.counters(0).undone);
  EXPECT_EQ(0U, pair.counters(1).replays_dropped);
}

// A chunk is lost for good, sent again, and only then reported as partial: the loss was real.
TEST(loss, partial__late_word_undoes_nothing) {
  for (const TimeNs late_ns : {1'000, 50'000, 200'000, 2'000'000}) {
    ConnectionOptions options;
    options.wire.paths = 4;
    options.receives = false;
    options.controller = "cubic";
    LossyPair pair(options);
    int lost = 0;
    pair.drop = [&](const LossyPair::Delivered& packet) {
      if (packet.to != 1 || packet.payload_bytes != 4096 || pair.counters(0).chunks_sent < 60 ||
          ++lost > 1) {
        return false;
      }
      pair.in_air().emplace(pair.now() + late_ns, partial(packet));
      return true;
    };
    ASSERT_TRUE(pair.carry(2'000'000));
    pair.run(10'000'000);
    EXPECT_EQ(1U, pair.counters(0).retransmissions) << late_ns;
    EXPECT_EQ(0U, pair.counters(0).spurious_retransmissions) << late_ns;
    EXPECT_EQ(0U, pair.counters(0).undone) << late_ns;
  }
}

// An attacker sends headers that it has seen, and that never arrived, as partial chunks again and
// again.
TEST(loss, partial__replayed_headers_keep_nobody_alive) {
  ConnectionOptions options;
  options.loss.give_up_ns = 100'000'000;
  LossyPair pair(options);
  std::vector<LossyPair::Delivered> seen;
  bool is_dead = false;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    if (packet.to == 0 && (is_dead || pair.counters(1).chunks_received > 20)) {
      is_dead = true;
      seen.push_back(packet);
      return true;
    }
    return false;
  };
  const auto data = pattern(2'000'000, 1);
  std::vector<std::byte> into(data.size());
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  const auto other = pattern(200'000, 2);
  std::vector<std::byte> into_other(other.size());
  pair.receive(0, 2, into_other);
  pair.send(1, 2, other);
  const auto has_failed = [&] {
    return std::any_of(pair.events(0).begin(), pair.events(0).end(),
                       [](const Event& event) { return event.outcome != Outcome::kOk; });
  };
  const TimeNs until = pair.now() + 200'000'000;
  while (pair.now() < until && !has_failed()) {
    pair.run(1'000'000);
    for (const LossyPair::Delivered& packet : seen) {
      pair.deliver(partial(packet));
    }
    seen.resize(std::min<std::size_t>(seen.size(), 50));
  }
  EXPECT_FALSE(seen.empty());
  EXPECT_TRUE(has_failed());
}

TEST(loss, partial__a_path_that_loses_parts_of_everything_is_left) {
  ConnectionOptions options;
  options.wire.paths = 8;
  options.receives = false;
  LossyPair pair(options);
  pair.checks_invariants = false;
  pair.is_partial = [](const LossyPair::Delivered& packet) { return packet.path == 3; };
  ASSERT_TRUE(pair.carry(20'000'000));
  EXPECT_EQ(1U, pair.counters(0).path_deaths);
  EXPECT_LT(pair.counters(0).nacks, 100U);
}

// A tag over the payload cannot be checked, so nobody is believed; and nobody is called a forger.
TEST(loss, partial__is_not_heard_where_the_payload_is_authenticated) {
  ConnectionOptions options;
  options.authenticates_payload = true;
  options.receives = false;
  LossyPair pair(options);
  pair.faults.trim = 20;
  ASSERT_TRUE(pair.carry(2'000'000));
  EXPECT_EQ(0U, pair.counters(0).nacks);
  EXPECT_GT(pair.counters(0).retransmissions, 0U);
  EXPECT_EQ(0U, pair.counters(1).forgeries_dropped);
}

TEST(loss, transfer__lost_acknowledgements_cause_few_retransmissions) {
  Random random(5);
  const Cost cost = transfer({}, {}, 20'000'000, 1, [&](const LossyPair::Delivered& packet) {
    return packet.to == 0 && random.below(100) < 10;
  });
  EXPECT_LT(cost.retransmissions, 20'000'000U / 4096 / 200);  // Half a percent.
}

}  // namespace
}  // namespace tutti::transport
