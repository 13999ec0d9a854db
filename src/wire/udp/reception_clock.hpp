// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// When the kernel took a datagram in, by the clock of the transport. The kernel's stamps are of
// CLOCK_REALTIME, which people and daemons set; the transport's time is CLOCK_MONOTONIC. What one
// is ahead of the other changes only when it is set, so both are looked at now and then: as soon as
// a stamp is later than the last look by more than a while, or earlier than one before it. What was
// taken in before a change that has been noticed counts as taken in then. Times in ns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "base/clock.hpp"
#include "transport/types.hpp"

namespace tutti::wire::udp {

class ReceptionClock {
 public:
  /// Both clocks at one moment, the monotonic one read first.
  struct Reading {
    transport::TimeNs monotonic_ns = 0;
    transport::TimeNs realtime_ns = 0;
    transport::TimeNs took_ns = 0;  ///< Most that lies between the two reads.
  };
  static Reading read() {
    const transport::TimeNs before_ns = monotonic_ns();
    const transport::TimeNs realtime_ns = read_clock_ns(CLOCK_REALTIME);
    return {before_ns, realtime_ns, monotonic_ns() - before_ns};
  }

  /// A clock that has moved by less has not been set.
  static constexpr std::int64_t kStepNs = 5'000;
  /// A thread that lost its processor between the readings has not seen the clocks at one moment.
  static constexpr transport::TimeNs kTookNsMax = kStepNs / 2;
  /// So many in a row, and reading takes that long here (a clock source outside the processor):
  /// from then on readings count that take twice as long as the fastest of them.
  static constexpr int kSlowReadings = 16;
  /// Between looks. A clock that is set back by less than lies between two packets is noticed so
  /// late; one that is set forward makes waits seem shorter until then.
  static constexpr transport::TimeNs kLookNs = 100'000;

  /// The clocks are to be looked at before this stamp counts.
  bool is_due(transport::TimeNs stamp_ns) const {
    return !has_looked_ || stamp_ns > looked_ns_ + kLookNs ||
           stamp_ns + static_cast<transport::TimeNs>(step_ns()) < newest_stamp_ns_;
  }

  /// A reading that took too long changes nothing: the next stamp asks for another.
  void look(const Reading& now) {
    if (has_looked_ && now.took_ns > took_ns_max_) {
      fastest_ns_ = std::min(fastest_ns_, now.took_ns);
      if (++slow_readings_ < kSlowReadings) {
        return;
      }
      took_ns_max_ = 2 * fastest_ns_;
      if (now.took_ns > took_ns_max_) {
        return;
      }
    }
    slow_readings_ = 0;
    fastest_ns_ = transport::kNever;
    const auto ahead_ns = static_cast<std::int64_t>(now.realtime_ns - now.monotonic_ns);
    if (!has_looked_ || ahead_ns - ahead_ns_ > step_ns() || ahead_ns_ - ahead_ns > step_ns()) {
      has_looked_ = true;
      ahead_ns_ = ahead_ns;
      since_ns_ = now.monotonic_ns;
      newest_stamp_ns_ = 0;
    }
    // The less time lay between the two clocks' readings, the better.
    ahead_ns_ = std::min(ahead_ns_, ahead_ns);
    looked_ns_ = now.realtime_ns;
  }

  /// Not before the last change of the clocks; what seems to come from the future came just now.
  transport::TimeNs received_ns(transport::TimeNs stamp_ns) {
    newest_stamp_ns_ = std::max(newest_stamp_ns_, stamp_ns);
    const std::int64_t at_ns = static_cast<std::int64_t>(stamp_ns) - ahead_ns_;
    return std::max(static_cast<transport::TimeNs>(std::max<std::int64_t>(at_ns, 0)), since_ns_);
  }

 private:
  std::int64_t step_ns() const { return 2 * static_cast<std::int64_t>(took_ns_max_); }

  transport::TimeNs took_ns_max_ = kTookNsMax;
  transport::TimeNs fastest_ns_ = transport::kNever;  ///< Of the slow readings in a row.
  int slow_readings_ = 0;
  bool has_looked_ = false;
  std::int64_t ahead_ns_ = 0;              ///< Realtime, of monotonic.
  transport::TimeNs since_ns_ = 0;         ///< Monotonic: seen like this for the first time.
  transport::TimeNs looked_ns_ = 0;        ///< Realtime, of the last look.
  transport::TimeNs newest_stamp_ns_ = 0;  ///< Since the last change.
};

}  // namespace tutti::wire::udp
