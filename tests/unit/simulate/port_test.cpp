// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/port.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::simulate {
namespace {

constexpr PsPerByteQ16 kRate = ps_per_byte_q16(400'000);
constexpr TimePs kLatency = 1'000'000;

/// A port and what it did.
struct Fixture {
  explicit Fixture(PortRules with = {}) : rules(with) {
    rules.seed = 1;
    rules.latency_ps = kLatency;
    rules.header_bytes = 64;
    port.set_up(3, kRate, &rules, held.data());
  }

  /// Everything that has been sent, in the order of its arrival.
  std::vector<SimPacket> sent() {
    std::vector<SimPacket> found;
    for (const Priority priority : {Priority::kData, Priority::kControl}) {
      Ring& ring = port.ring(priority);
      ring.publish();
      for (; ring.has_arrivals(); ring.pop()) {
        found.push_back(ring.at(ring.head()));
      }
    }
    std::sort(found.begin(), found.end(),
              [](const SimPacket& a, const SimPacket& b) { return a.time_ps < b.time_ps; });
    return found;
  }

  std::vector<std::uint32_t> payloads() {
    std::vector<std::uint32_t> found;
    for (const SimPacket& packet : sent()) {
      found.push_back(packet.payload);
    }
    return found;
  }

  void data(TimePs now, std::uint32_t payload, std::uint32_t bytes = 1000) {
    port.arrive(now, {.payload = payload, .bytes = bytes, .ingress = kNoLink}, &dead);
  }
  void control(TimePs now, std::uint32_t payload) {
    port.arrive(now, {.payload = payload, .bytes = 64, .priority = Priority::kControl}, &dead);
  }

  PortRules rules;
  Port port;
  std::array<std::uint32_t, 8> held{};
  std::vector<SimPacket> dead;
};

TEST(port, arrive__an_idle_port_sends_at_once_a_busy_one_in_turn) {
  Fixture f;
  f.data(100, 1);
  f.data(200, 2);
  f.data(90'000, 3);
  f.port.catch_up(100'000);
  const auto sent = f.sent();
  ASSERT_EQ(3U, sent.size());
  EXPECT_EQ(100 + 20'000 + kLatency, sent[0].time_ps);
  EXPECT_EQ(100 + 40'000 + kLatency, sent[1].time_ps);
  EXPECT_EQ(90'000 + 20'000 + kLatency, sent[2].time_ps);
}

TEST(port, catch_up__how_often_changes_nothing) {
  Fixture often;
  Fixture once;
  for (TimePs now = 0; now < 200'000; now += 7'000) {
    for (Fixture* f : {&often, &once}) {
      f->data(now, static_cast<std::uint32_t>(now));
      if (now % 3 == 0) {
        f->control(now + 10, static_cast<std::uint32_t>(now + 10));
      }
    }
    for (TimePs between = now; between < now + 7'000; between += 500) {
      often.port.catch_up(between + 10);
    }
  }
  often.port.catch_up(kNever - 1);
  once.port.catch_up(kNever - 1);
  const auto a = often.sent();
  const auto b = once.sent();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].time_ps, b[i].time_ps);
    EXPECT_EQ(a[i].payload, b[i].payload);
  }
}

TEST(port, send_one__control_overtakes_data_but_does_not_interrupt_it) {
  Fixture f;
  f.data(0, 1);
  f.data(0, 2);
  f.control(1, 3);
  f.data(2, 4);
  f.control(3, 5);
  f.port.catch_up(1'000'000);
  EXPECT_EQ((std::vector<std::uint32_t>{1, 3, 5, 2, 4}), f.payloads());
}

TEST(port, overflow__without_trimming_the_arriving_packet_is_dropped) {
  Fixture f({.queue_bytes = 2000});
  for (std::uint32_t i = 0; i < 5; ++i) {
    f.data(i, i);  // 0 leaves at once, 1 and 2 wait.
  }
  ASSERT_EQ(2U, f.dead.size());
  EXPECT_EQ(3U, f.dead[0].payload);
  EXPECT_EQ(4U, f.dead[1].payload);
  EXPECT_EQ(2U, f.port.counters().dropped);
  EXPECT_EQ(2000U, f.port.counters().queue_bytes_max);
  f.port.catch_up(1'000'000);
  EXPECT_EQ((std::vector<std::uint32_t>{0, 1, 2}), f.payloads());
}

TEST(port, overflow__trimming_cuts_the_newest_or_the_arriving_by_a_fair_coin) {
  std::uint32_t newest = 0;
  Fixture f({.queue_bytes = 2000, .trim = true, .last_hop = true});
  constexpr std::uint32_t kRounds = 1000;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const TimePs begin = round * 1'000'000;
    for (std::uint32_t i = 0; i < 4; ++i) {
      f.data(begin + i, i);
    }
    f.port.catch_up(begin + 900'000);
    const auto sent = f.sent();
    ASSERT_EQ(4U, sent.size());
    // 0 was being sent; the header goes next, before what waits.
    EXPECT_EQ(0U, sent[0].payload);
    EXPECT_EQ(64U, sent[1].bytes);
    EXPECT_EQ(packet_flags::kTrimmed | packet_flags::kTrimmedLast, sent[1].flags);
    EXPECT_EQ(Priority::kControl, sent[1].priority);
    EXPECT_EQ(1U, sent[2].payload);
    EXPECT_EQ(5U, sent[1].payload + sent[3].payload);
    newest += sent[1].payload == 2 ? 1 : 0;
  }
  EXPECT_EQ(kRounds, f.port.counters().trimmed);
  EXPECT_EQ(0U, f.port.data_bytes());
  // Five standard deviations.
  EXPECT_NEAR(kRounds / 2.0, newest, 5 * std::sqrt(kRounds) / 2);
}

TEST(port, marks__never_up_to_the_low_always_from_the_high_threshold_linear_between) {
  constexpr std::uint32_t kRounds = 2000;
  // `waiting` packets of 1000 bytes are left when the first of the queue leaves.
  const auto marked_share = [&](std::uint32_t waiting) {
    Fixture f({.ecn_low_bytes = 2000, .ecn_high_bytes = 6000});
    std::uint32_t marked = 0;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const TimePs begin = round * 1'000'000;
      for (std::uint32_t i = 0; i < waiting + 2; ++i) {
        f.data(begin, i);
      }
      f.port.catch_up(begin + 900'000);
      marked += (f.sent()[1].flags & packet_flags::kEcn) != 0 ? 1 : 0;
    }
    return marked / static_cast<double>(kRounds);
  };
  EXPECT_EQ(0.0, marked_share(2));
  EXPECT_NEAR(0.25, marked_share(3), 0.05);
  EXPECT_NEAR(0.50, marked_share(4), 0.056);
  EXPECT_NEAR(0.75, marked_share(5), 0.05);
  EXPECT_EQ(1.0, marked_share(6));
}

TEST(port, pause__holds_data_back_and_lets_control_pass) {
  Fixture f;
  f.port.pause(0, true);
  f.data(10, 1);
  f.control(20, 2);
  f.port.catch_up(50'000);
  EXPECT_EQ((std::vector<std::uint32_t>{2}), f.payloads());
  EXPECT_EQ(kNever, f.port.next_send_ps());
  f.port.pause(60'000, false);
  const auto sent = f.sent();
  ASSERT_EQ(1U, sent.size());
  EXPECT_EQ(60'000 + 20'000 + kLatency, sent[0].time_ps);
  EXPECT_EQ(1U, f.port.counters().pauses);
}

TEST(port, set_rate__counts_from_the_next_packet_and_zero_loses_all) {
  Fixture f;
  f.data(0, 1);
  f.data(0, 2);
  f.port.set_rate(10'000, kRate * 4);
  f.port.catch_up(200'000);
  f.port.set_rate(200'000, 0);
  f.data(200'000, 3);
  const auto sent = f.sent();
  ASSERT_EQ(3U, sent.size());
  EXPECT_EQ(20'000 + kLatency, sent[0].time_ps);
  EXPECT_EQ(20'000 + 80'000 + kLatency, sent[1].time_ps);
  EXPECT_EQ(0, sent[1].flags);
  EXPECT_EQ(packet_flags::kLost, sent[2].flags);
  EXPECT_EQ(1U, f.port.counters().lost);
}

/// Lost packets of `count`, and how many of them follow a lost one.
std::pair<std::uint32_t, std::uint32_t> losses(const LossModel& loss, std::uint32_t count) {
  Fixture f({.loss = loss});
  std::uint32_t lost = 0;
  std::uint32_t in_a_row = 0;
  bool before = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    f.data(i * 100'000, i);
    const bool now = (f.sent()[0].flags & packet_flags::kLost) != 0;
    lost += now ? 1 : 0;
    in_a_row += now && before ? 1 : 0;
    before = now;
  }
  return {lost, in_a_row};
}

TEST(port, loses__independent_and_in_bursts) {
  constexpr std::uint32_t kTenth = 429'496'730;  // 0.1 of 2^32.
  const auto independent = losses({.good_q32 = kTenth}, 20'000);
  EXPECT_NEAR(2000, independent.first, 5 * std::sqrt(20'000 * 0.1 * 0.9));
  EXPECT_NEAR(200, independent.second, 100);
  // A bad state in which all is lost, entered after 99 packets and left after 10 on average: 9.2 %.
  const auto bursts = losses(
      {.bad_q32 = UINT32_MAX, .good_to_bad_q32 = kTenth / 10, .bad_to_good_q32 = kTenth}, 20'000);
  EXPECT_NEAR(1818, bursts.first, 700);
  EXPECT_GT(bursts.second, bursts.first * 8 / 10);
}

}  // namespace
}  // namespace tutti::simulate
