// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// timing_wheel, timers, round_robin, replay, rtt: the small ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "transport/random.hpp"
#include "transport/replay.hpp"
#include "transport/round_robin.hpp"
#include "transport/rtt.hpp"
#include "transport/timers.hpp"
#include "transport/timing_wheel.hpp"

namespace tutti::transport {
namespace {

TEST(timing_wheel, set__the_earliest_time_is_exact_over_all_ranges) {
  TimingWheel wheel(4);
  EXPECT_EQ(kNever, wheel.next());
  wheel.set(0, 1'000'000'000'000'000'000ULL);
  EXPECT_EQ(1'000'000'000'000'000'000ULL, wheel.next());
  wheel.set(1, 777);
  wheel.set(2, 778);
  EXPECT_EQ(777U, wheel.next());
  wheel.set(1, kNever);
  EXPECT_EQ(778U, wheel.next());
  std::uint32_t item = 9;
  EXPECT_FALSE(wheel.pop(777, &item));
  ASSERT_TRUE(wheel.pop(778, &item));
  EXPECT_EQ(2U, item);
  EXPECT_EQ(kNever, wheel.time_of(2));
  EXPECT_FALSE(wheel.pop(779, &item));
}

TEST(timing_wheel, pop__agrees_with_a_sorted_list) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    constexpr std::uint32_t kItems = 50;
    TimingWheel wheel(kItems);
    std::map<std::uint32_t, TimeNs> times;
    TimeNs now = random.next() % 1'000'000;
    for (int i = 0; i < 3000; ++i) {
      const std::uint32_t item = random.below(kItems);
      switch (random.below(4)) {
        case 0:
          wheel.set(item, kNever);
          times.erase(item);
          break;
        case 1: {  // Also times that have passed.
          const TimeNs time =
              now - std::min<TimeNs>(now, 100) + (random.next() >> (64 - random.below(40) - 1));
          wheel.set(item, time);
          times[item] = time;
          break;
        }
        default: {
          now += random.next() >> (64 - random.below(30) - 1);
          std::uint32_t popped = 0;
          TimeNs last = 0;
          while (wheel.pop(now, &popped)) {
            ASSERT_EQ(1U, times.count(popped));
            EXPECT_LE(times[popped], now);
            EXPECT_GE(times[popped], std::min(last, times[popped]));
            last = times[popped];
            times.erase(popped);
          }
        }
      }
      TimeNs earliest = kNever;
      for (const auto& [index, time] : times) {
        earliest = std::min(earliest, time);
      }
      ASSERT_EQ(earliest, wheel.next()) << "seed " << seed << " step " << i;
    }
  }
}

TEST(timers, next__is_the_earliest_after_any_change) {
  constexpr auto kCount = static_cast<std::uint32_t>(Timer::kCount);
  Random random(1);
  Timers timers;
  for (int step = 0; step < 10'000; ++step) {
    const auto timer = static_cast<Timer>(random.below(kCount));
    timers.set(timer, random.below(3) == 0 ? kNever : TimeNs{random.below(50)});
    if (random.below(10) == 0) {
      timers.pop(random.below(50));
    } else if (random.below(500) == 0) {
      timers.clear_all();
    }
    if (random.below(2) == 0) {
      TimeNs earliest = kNever;
      for (std::uint32_t i = 0; i < kCount; ++i) {
        earliest = std::min(earliest, timers.at(static_cast<Timer>(i)));
      }
      ASSERT_EQ(earliest, timers.next()) << step;
    }
  }
}

TEST(timers, pop__in_order_and_once) {
  Timers timers;
  EXPECT_EQ(kNever, timers.next());
  timers.set(Timer::kAck, 20);
  timers.set(Timer::kRack, 10);
  EXPECT_EQ(10U, timers.next());
  EXPECT_EQ(Timer::kCount, timers.pop(9));
  EXPECT_EQ(Timer::kRack, timers.pop(20));
  EXPECT_EQ(Timer::kAck, timers.pop(20));
  EXPECT_EQ(Timer::kCount, timers.pop(20));
  timers.set(Timer::kLinger, 5);
  EXPECT_TRUE(timers.is_set(Timer::kLinger));
  timers.clear_all();
  EXPECT_EQ(kNever, timers.next());
}

TEST(round_robin, take__equal_bytes_for_unequal_chunks) {
  RoundRobin queue(3);
  const std::array<std::uint32_t, 3> chunk = {4096, 32768, 100'000};
  std::array<std::uint64_t, 3> bytes{};
  for (std::uint32_t i = 0; i < 3; ++i) {
    queue.add(i);
    queue.add(i);
  }
  for (int i = 0; i < 100'000; ++i) {
    const std::uint32_t index = queue.front();
    if (queue.may_take(chunk[index])) {
      queue.take(chunk[index]);
      bytes[index] += chunk[index];
    }
  }
  for (std::uint64_t each : bytes) {
    EXPECT_GT(each, 100'000'000U);
    EXPECT_LT(each > bytes[0] ? each - bytes[0] : bytes[0] - each, 400'000U);
  }
  queue.remove(1);
  queue.remove_front();
  queue.remove_front();
  EXPECT_TRUE(queue.is_empty());
}

TEST(index_queue, push__once_and_removal_anywhere) {
  IndexQueue queue(4);
  for (std::uint32_t i : {2U, 0U, 3U, 0U}) {
    queue.push(i);
  }
  queue.remove(0);
  queue.remove(1);
  EXPECT_EQ(2U, queue.front());
  queue.rotate();
  EXPECT_EQ(3U, queue.front());
  queue.pop();
  EXPECT_EQ(2U, queue.front());
  EXPECT_TRUE(queue.holds(2));
  EXPECT_FALSE(queue.holds(3));
  queue.pop();
  EXPECT_TRUE(queue.is_empty());
}

TEST(replay, take__agrees_with_a_set_inside_the_window) {
  for (std::uint64_t first : {1ULL, 64ULL, (1ULL << 32) - 5, 1000ULL}) {
    ReplayWindow window(256, first);
    std::set<std::uint64_t> seen;
    Random random(first);
    std::uint64_t newest = first;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t jump = random.below(100) == 0 ? random.below(2000) : random.below(4);
      const std::uint64_t number =
          newest + jump - std::min<std::uint64_t>(random.below(150), newest + jump - first);
      const bool is_new = seen.insert(number).second;
      const bool taken = window.take(number);
      newest = std::max(newest, number + 1);
      if (newest - number <= 192) {
        ASSERT_EQ(is_new, taken) << number;
      } else {
        ASSERT_FALSE(taken);
      }
      ASSERT_EQ(newest, window.next());
    }
  }
}

TEST(rtt, rtt_sample__what_hosts_take_is_told_apart) {
  const TimeNs now = (5ULL << 32) + 10'000;  // The stamp's 32 bits have just wrapped.
  const auto stamp = static_cast<std::uint32_t>(now - 400'000);
  const auto expect = [&](TimeNs round_trip_ns, TimeNs fabric_ns, const RttSample& sample) {
    EXPECT_EQ(round_trip_ns, sample.round_trip_ns);
    EXPECT_EQ(fabric_ns, sample.fabric_ns);
  };
  expect(400'000, 400'000, rtt_sample(now, stamp, 0, 0));
  expect(400'000, 100'000, rtt_sample(now, stamp, 250'000, 50'000));
  expect(400'000, 1, rtt_sample(now, stamp, 250'000, 150'000));
  // Timeouts need no more than the stamp.
  expect(400'000, 0, rtt_sample(now, stamp, kNever, 50'000));
  // A clock jumped: more time in hosts than in all.
  expect(400'000, 0, rtt_sample(now, stamp, 250'000, 150'001));
  expect(400'000, 0, rtt_sample(now, stamp, 0, kNever));
  expect(400'000, 0, rtt_sample(now, stamp, 400'001, 0));
  // A stamp that was never sent.
  expect(0, 0, rtt_sample(now, static_cast<std::uint32_t>(now + 1), 0, 0));
  expect(1, 1, rtt_sample(now, static_cast<std::uint32_t>(now), 0, 0));
}

TEST(rtt, on_sample__follows_rfc_6298_and_the_high_mark) {
  RttEstimator rtt(12'000);
  EXPECT_EQ(12'000U, rtt.srtt_ns());
  EXPECT_FALSE(rtt.has_sample());
  rtt.on_sample(8'000);
  EXPECT_EQ(8'000U, rtt.srtt_ns());
  EXPECT_EQ(4'000U, rtt.rttvar_ns());
  rtt.on_sample(16'000);
  EXPECT_EQ(9'000U, rtt.srtt_ns());    // 7/8 * 8000 + 1/8 * 16000
  EXPECT_EQ(5'000U, rtt.rttvar_ns());  // 3/4 * 4000 + 1/4 * 8000
  EXPECT_EQ(8'000U, rtt.min_ns());
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    rtt.on_sample(10'000 + random.below(10'000));
  }
  EXPECT_NEAR(15'000, static_cast<double>(rtt.srtt_ns()), 3'000);
  EXPECT_GT(rtt.high_ns(), 18'500U);
  EXPECT_LE(rtt.high_ns(), 20'000U);
}

}  // namespace
}  // namespace tutti::transport
