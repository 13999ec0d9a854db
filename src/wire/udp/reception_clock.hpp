// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// When the kernel took a datagram in, by the clock of the transport. The kernel's stamps are of
// CLOCK_REALTIME, which people and daemons set; the transport's time is CLOCK_MONOTONIC. What one
// is ahead of the other changes only when it is set, so it is looked at with each stamp, and stamps
// from before its last change count as unknown. Times in ns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "transport/types.hpp"

namespace tutti::wire::udp {

class ReceptionClock {
 public:
  /// Both clocks at one moment, the monotonic one read first.
  struct Reading {
    transport::TimeNs monotonic_ns = 0;
    transport::TimeNs realtime_ns = 0;
  };
  static Reading read() { return {read(CLOCK_MONOTONIC), read(CLOCK_REALTIME)}; }

  /// More than two readings of clocks differ by, unless the thread lost its processor in between;
  /// then it looks as if the clock had been set, twice, and no more is lost than a few stamps.
  static constexpr std::int64_t kStepNs = 5'000;
  /// Nothing lies in a socket for longer: an engine wakes up for it.
  static constexpr transport::TimeNs kWaitNsMax = 1'000'000'000;

  /// Notes how the clocks stand to each other.
  void look(const Reading& now) {
    const auto ahead_ns = static_cast<std::int64_t>(now.realtime_ns - now.monotonic_ns);
    if (!has_looked_ || ahead_ns - ahead_ns_ > kStepNs || ahead_ns_ - ahead_ns > kStepNs) {
      has_looked_ = true;
      ahead_ns_ = ahead_ns;
      since_ns_ = now.monotonic_ns;
    }
    // The less time lay between the two clocks' readings, the better.
    ahead_ns_ = std::min(ahead_ns_, ahead_ns);
  }

  /// Of a datagram that was read just now: between the last change of the clocks and now.
  transport::TimeNs received_ns(const Reading& now, transport::TimeNs stamp_ns) {
    look(now);
    const transport::TimeNs oldest_ns =
        std::max(since_ns_, now.monotonic_ns - std::min(now.monotonic_ns, kWaitNsMax));
    const auto at_ns = static_cast<std::int64_t>(stamp_ns) - ahead_ns_;
    return std::clamp(static_cast<transport::TimeNs>(std::max<std::int64_t>(at_ns, 0)), oldest_ns,
                      now.monotonic_ns);
  }

 private:
  static transport::TimeNs read(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<transport::TimeNs>(now.tv_sec) * 1'000'000'000U +
           static_cast<transport::TimeNs>(now.tv_nsec);
  }

  bool has_looked_ = false;
  std::int64_t ahead_ns_ = 0;       ///< Realtime, of monotonic.
  transport::TimeNs since_ns_ = 0;  ///< Seen like this for the first time.
};

}  // namespace tutti::wire::udp
