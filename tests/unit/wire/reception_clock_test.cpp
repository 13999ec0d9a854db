// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/reception_clock.hpp"

#include <gtest/gtest.h>

namespace tutti::wire::udp {
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

TEST(ReceptionClock, StampsAreOfOurClock) {
  ReceptionClock clock = looked();
  for (const TimeNs wait_ns : {TimeNs{0}, TimeNs{1}, 5 * kMs, 900 * kMs}) {
    const TimeNs now = kStart + kSecond;
    EXPECT_EQ(now - wait_ns, clock.received_ns(at(now), k2026 + now - wait_ns));
  }
}

TEST(ReceptionClock, WhatItWasNotThereForIsUnknown) {
  ReceptionClock clock;
  EXPECT_EQ(kStart, clock.received_ns(at(kStart), k2026 + kStart - kMs));
  EXPECT_EQ(kStart, clock.received_ns(at(kStart + kMs), k2026 + kStart - kMs));
  EXPECT_EQ(kStart + 1, clock.received_ns(at(kStart + kMs), k2026 + kStart + 1));
}

TEST(ReceptionClock, NothingComesFromTheFutureOrWaitsForEver) {
  ReceptionClock clock = looked();
  const TimeNs now = kStart + 60 * kSecond;
  EXPECT_EQ(now, clock.received_ns(at(now), k2026 + now + 1));
  EXPECT_EQ(now, clock.received_ns(at(now), UINT64_MAX / 2));
  EXPECT_EQ(now - ReceptionClock::kWaitNsMax, clock.received_ns(at(now), k2026 + kStart));
  EXPECT_EQ(now - ReceptionClock::kWaitNsMax, clock.received_ns(at(now), 0));
}

TEST(ReceptionClock, ASetClockMakesOlderStampsUnknown) {
  for (const std::int64_t step_ns :
       {std::int64_t{-3600} * 1'000'000'000, std::int64_t{-20'000}, std::int64_t{20'000},
        std::int64_t{40'000'000}, std::int64_t{3600} * 1'000'000'000}) {
    ReceptionClock clock = looked();
    const TimeNs ahead_ns = k2026 + static_cast<TimeNs>(step_ns);
    const TimeNs set_ns = kStart + kSecond;
    // Three datagrams came before it, and are read 1 ms after it, one after the other.
    for (TimeNs i = 0; i < 3; ++i) {
      const TimeNs now = set_ns + kMs + i * 1'000;
      const TimeNs got = clock.received_ns(at(now, ahead_ns), k2026 + set_ns - 2'000);
      EXPECT_GE(got, set_ns + kMs) << step_ns << ": a wait that was not";
      EXPECT_LE(got, now) << step_ns;
    }
    // One that came after it was noticed.
    const TimeNs now = set_ns + 10 * kMs;
    EXPECT_EQ(now - 5 * kMs, clock.received_ns(at(now, ahead_ns), ahead_ns + now - 5 * kMs))
        << step_ns;
  }
}

TEST(ReceptionClock, APauseBetweenTheTwoClocksIsForgotten) {
  ReceptionClock clock;
  clock.look(at(kStart, k2026 + 3'000));  // The first time, and 3 us lay between them.
  const TimeNs now = kStart + kSecond;
  EXPECT_EQ(now - kMs, clock.received_ns(at(now), k2026 + now - kMs));
  EXPECT_EQ(now - kMs, clock.received_ns(at(now, k2026 + 4'000), k2026 + now - kMs));
  // Longer ones look like a step there and back.
  EXPECT_EQ(now + kMs, clock.received_ns(at(now + kMs, k2026 + 80'000), k2026 + now));
  EXPECT_EQ(now + 2 * kMs, clock.received_ns(at(now + 2 * kMs), k2026 + now));
  EXPECT_EQ(now + 3 * kMs, clock.received_ns(at(now + 4 * kMs), k2026 + now + 3 * kMs));
}

TEST(ReceptionClock, ReadsBothClocks) {
  const ReceptionClock::Reading a = ReceptionClock::read();
  const ReceptionClock::Reading b = ReceptionClock::read();
  EXPECT_LE(a.monotonic_ns, b.monotonic_ns);
  EXPECT_GT(a.realtime_ns, k2026 / 2) << "a date of this century";
}

}  // namespace
}  // namespace tutti::wire::udp
