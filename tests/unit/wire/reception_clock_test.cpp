// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/reception_clock.hpp"

#include <gtest/gtest.h>

namespace tutti::wire {
namespace {

using transport::TimeNs;

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kSecond = 1'000 * kMs;
constexpr TimeNs kStart = 100 * kSecond;           // Of the monotonic clock.
constexpr TimeNs k2026 = 1'800'000'000 * kSecond;  // What the other one is ahead of it.

ReceptionClock::Reading at(TimeNs monotonic_ns, TimeNs ahead_ns = k2026) {
  return {monotonic_ns, monotonic_ns + ahead_ns};
}

/// One that has seen the clocks stand as they do.
ReceptionClock looked() {
  ReceptionClock clock;
  clock.look(at(kStart));
  return clock;
}

/// What a wire does with a stamp that it reads now; whether it looked at the clocks.
TimeNs take(ReceptionClock& clock, const ReceptionClock::Reading& now, TimeNs stamp_ns,
            bool* has_looked = nullptr) {
  const bool is_due = clock.is_due(stamp_ns);
  if (is_due) {
    clock.look(now);
  }
  if (has_looked != nullptr) {
    *has_looked = is_due;
  }
  return clock.received_ns(stamp_ns);
}

TEST(ReceptionClock, StampsAreOfOurClock) {
  ReceptionClock clock = looked();
  TimeNs now = kStart + kSecond;
  for (const TimeNs wait_ns : {900 * kMs, 5 * kMs, TimeNs{1}, TimeNs{0}}) {
    EXPECT_EQ(now - wait_ns, take(clock, at(now), k2026 + now - wait_ns));
    now += kSecond;
  }
}

TEST(ReceptionClock, WhatItWasNotThereForIsUnknown) {
  ReceptionClock clock;
  EXPECT_EQ(kStart, take(clock, at(kStart), k2026 + kStart - kMs));
  EXPECT_EQ(kStart, take(clock, at(kStart + kMs), k2026 + kStart - kMs));
  EXPECT_EQ(kStart + 1, take(clock, at(kStart + kMs), k2026 + kStart + 1));
  EXPECT_EQ(kStart, take(clock, at(kStart + kMs), 0));
}

TEST(ReceptionClock, LooksNowAndThen) {
  ReceptionClock clock;
  bool has_looked = false;
  int looks = 0;
  for (int i = 0; i < 1'000; ++i) {  // A packet in 10 us, read 30 us after it came.
    const TimeNs now = kStart + static_cast<TimeNs>(i) * 10'000;
    take(clock, at(now), k2026 + now - 30'000, &has_looked);
    looks += has_looked ? 1 : 0;
  }
  EXPECT_GE(looks, 60);
  EXPECT_LE(looks, 100);
  // At once after a pause.
  const TimeNs now = kStart + kSecond;
  take(clock, at(now), k2026 + now, &has_looked);
  EXPECT_TRUE(has_looked);
}

/// A packet in 10 us, each read 2 ms after it came, and a clock that is set meanwhile.
TEST(ReceptionClock, AClockThatIsSetChangesNoWaitForLong) {
  for (const std::int64_t step_ns :
       {std::int64_t{-3600} * 1'000'000'000, std::int64_t{-40'000'000}, std::int64_t{-20'000},
        std::int64_t{20'000}, std::int64_t{40'000'000}, std::int64_t{3600} * 1'000'000'000}) {
    constexpr TimeNs kWaitNs = 2 * kMs;
    constexpr TimeNs kGapNs = 10'000;
    ReceptionClock clock = looked();
    const TimeNs set_ns = kStart + 20 * kMs + 1;
    const auto ahead_at = [&](TimeNs time_ns) {
      return time_ns < set_ns ? k2026 : k2026 + static_cast<TimeNs>(step_ns);
    };
    int unknown = 0;
    for (TimeNs came = kStart + kMs; came < kStart + 60 * kMs; came += kGapNs) {
      const TimeNs now = came + kWaitNs;
      const TimeNs got = std::min(now, take(clock, at(now, ahead_at(now)), came + ahead_at(came)));
      // Never a wait that was not, and few that are not noticed.
      EXPECT_GE(got, came) << step_ns;
      unknown += got != came ? 1 : 0;
    }
    // What was in the socket, and what came until the clocks were looked at.
    EXPECT_LE(unknown, 2 * static_cast<int>(kWaitNs / kGapNs) + 12) << step_ns;
  }
}

TEST(ReceptionClock, APauseBetweenTheTwoClocksIsForgotten) {
  ReceptionClock clock;
  clock.look(at(kStart, k2026 + 3'000));  // The first time, and 3 us lay between them.
  const TimeNs now = kStart + kSecond;
  EXPECT_EQ(now - kMs, take(clock, at(now), k2026 + now - kMs));
  clock.look(at(now, k2026 + 4'000));
  EXPECT_EQ(now - kMs, clock.received_ns(k2026 + now - kMs));
}

/// As if the clock had been set, and every packet until the next look had waited so much longer.
TEST(ReceptionClock, AReadingThatWasInterruptedIsNone) {
  ReceptionClock clock = looked();
  const TimeNs now = kStart + kSecond;
  EXPECT_EQ(now, take(clock, at(now), k2026 + now));
  ReceptionClock::Reading torn = at(now + kMs, k2026 + 40'000);
  torn.took_ns = 40'300;
  EXPECT_EQ(now + kMs - 1'000, take(clock, torn, k2026 + now + kMs - 1'000));
  bool has_looked = false;
  EXPECT_EQ(now + 2 * kMs, take(clock, at(now + 2 * kMs), k2026 + now + 2 * kMs, &has_looked));
  EXPECT_TRUE(has_looked);
  // One whose time is right tells that the clock was set.
  EXPECT_EQ(now + 3 * kMs,
            take(clock, at(now + 3 * kMs, k2026 + 40'000), k2026 + 40'000 + now + 3 * kMs));
}

/// Where each reading takes long, a clock that is set is noticed all the same, and looking is not
/// done for each packet.
TEST(ReceptionClock, SlowReadingsCountWhereAllAreSlow) {
  ReceptionClock clock = looked();
  TimeNs now = kStart;
  TimeNs ahead = k2026;
  int looks = 0;
  const auto packet = [&] {
    now += 10'000;
    const bool is_due = clock.is_due(now + ahead - 1'000);
    looks += is_due ? 1 : 0;
    if (is_due) {
      ReceptionClock::Reading slow = at(now, ahead);
      slow.took_ns = 6'000 + 100 * (now / 10'000 % 7);
      clock.look(slow);
    }
    return clock.received_ns(now + ahead - 1'000);
  };
  for (int i = 0; i < 1'000; ++i) {
    packet();
  }
  EXPECT_LE(looks, 150);
  ahead -= kSecond;
  for (int i = 0; i < 100; ++i) {
    packet();
  }
  const TimeNs received_ns = packet();
  EXPECT_EQ(received_ns, now - 1'000);
}

/// Looked at every 5 ms. An oscillator that is off by up to what is allowed has not been set.
TEST(ReceptionClock, ADriftIsMeasuredAndFollowed) {
  for (const std::int64_t drift_ppm : {-900, -50, 50, 900}) {
    ReceptionClock clock(1'000, 500);
    const auto stamp_of = [&](TimeNs time_ns) {
      const auto passed_ns = static_cast<std::int64_t>(time_ns - kStart);
      return k2026 + time_ns + static_cast<TimeNs>(passed_ns / 1'000'000 * drift_ppm);
    };
    for (TimeNs now = kStart; now < kStart + kSecond; now += 5 * kMs) {
      const auto seen = clock.look({now, stamp_of(now), 100});
      EXPECT_EQ(now == kStart, seen == ReceptionClock::Seen::kSet) << drift_ppm;
      if (now > kStart + 200 * kMs) {
        for (const TimeNs at : {now - 20 * kMs, now, now + 5 * kMs}) {
          const TimeNs received_ns = clock.received_ns(stamp_of(at));
          EXPECT_LE(received_ns, at + 50) << drift_ppm;
          EXPECT_GE(received_ns + 50, at) << drift_ppm;
        }
      }
    }
    const TimeNs now = kStart + kSecond;
    EXPECT_EQ(ReceptionClock::Seen::kSet, clock.look({now, stamp_of(now) + 20'000, 100}));
    EXPECT_EQ(ReceptionClock::Seen::kTooSlow, clock.look({now, stamp_of(now), 501}));
  }
}

TEST(ReceptionClock, ReadsBothClocks) {
  const ReceptionClock::Reading a = ReceptionClock::read_realtime();
  const ReceptionClock::Reading b = ReceptionClock::read_realtime();
  EXPECT_LE(a.monotonic_ns, b.monotonic_ns);
  EXPECT_GT(a.stamps_ns, k2026 / 2) << "a date of this century";
}

}  // namespace
}  // namespace tutti::wire
