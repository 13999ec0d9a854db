// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// When the host took a packet in, by the clock of the transport (CLOCK_MONOTONIC), from a stamp of
// another clock: the kernel's stamps are of CLOCK_REALTIME, a NIC's of its own oscillator. What one
// is ahead of the other changes when a clock is set, and a NIC's drifts besides, so both are looked
// at now and then: as soon as a stamp is later than the last look by more than a while, or earlier
// than one before it. What was taken in before a change that has been noticed counts as taken in
// then. Times in ns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "base/clock.hpp"
#include "transport/types.hpp"

namespace tutti::wire {

class ReceptionClock {
 public:
  /// Both clocks at one moment.
  struct Reading {
    transport::TimeNs monotonic_ns = 0;
    transport::TimeNs stamps_ns = 0;  ///< The clock of the stamps.
    transport::TimeNs took_ns = 0;    ///< Most that lies between the two reads.
  };
  /// The kernel's clocks, the monotonic one read first.
  static Reading read_realtime() {
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
  /// Least time over which a drift is measured: errors of readings are small against it.
  static constexpr std::int64_t kDriftNs = 100'000'000;

  ReceptionClock() = default;
  /// Of clocks with oscillators of their own: one that has drifted by no more has not been set.
  ReceptionClock(std::int64_t drift_ppm_max, transport::TimeNs took_ns_max)
      : drift_ppm_max_(drift_ppm_max), took_ns_max_(took_ns_max) {}

  /// The clocks are to be looked at before this stamp counts.
  bool is_due(transport::TimeNs stamp_ns) const {
    return !has_looked_ || stamp_ns > looked_ns_ + kLookNs || is_set_back(stamp_ns);
  }
  /// It is earlier than one before it: their clock has been set.
  bool is_set_back(transport::TimeNs stamp_ns) const {
    return stamp_ns + static_cast<transport::TimeNs>(step_ns()) < newest_stamp_ns_;
  }

  enum class Seen : std::uint8_t {
    kAsBefore,
    kSet,      ///< A clock has been set since the last look, or this is the first.
    kTooSlow,  ///< The reading changes nothing: the next stamp asks for another.
  };
  Seen look(const Reading& now) {
    if (has_looked_ && now.took_ns > took_ns_max_) {
      fastest_ns_ = std::min(fastest_ns_, now.took_ns);
      if (++slow_readings_ < kSlowReadings) {
        return Seen::kTooSlow;
      }
      took_ns_max_ = 2 * fastest_ns_;
      if (now.took_ns > took_ns_max_) {
        return Seen::kTooSlow;
      }
    }
    slow_readings_ = 0;
    fastest_ns_ = transport::kNever;
    const auto ahead_ns = static_cast<std::int64_t>(now.stamps_ns - now.monotonic_ns);
    const std::int64_t off_ns = ahead_ns - ahead_at(now.stamps_ns);
    const std::int64_t off_ns_max = step_ns() + drifted_ns_max(now.stamps_ns);
    const bool is_set = !has_looked_ || off_ns > off_ns_max || -off_ns > off_ns_max;
    if (is_set) {
      has_looked_ = true;
      since_ns_ = now.monotonic_ns;
      newest_stamp_ns_ = 0;
      drift_ppb_ = 0;
      measured_from_ = now;
      ahead_ns_ = ahead_ns;
    }
    if (drift_ppm_max_ == 0) {
      // The less time lay between the two clocks' readings, the better.
      ahead_ns_ = std::min(ahead_ns_, ahead_ns);
    } else {
      ahead_ns_ = ahead_ns;
      measure_drift(now, ahead_ns);
    }
    looked_ns_ = now.stamps_ns;
    return is_set ? Seen::kSet : Seen::kAsBefore;
  }

  /// Not before the last change of the clocks; what seems to come from the future came just now.
  transport::TimeNs received_ns(transport::TimeNs stamp_ns) {
    newest_stamp_ns_ = std::max(newest_stamp_ns_, stamp_ns);
    const std::int64_t at_ns = static_cast<std::int64_t>(stamp_ns) - ahead_at(stamp_ns);
    return std::max(static_cast<transport::TimeNs>(std::max<std::int64_t>(at_ns, 0)), since_ns_);
  }

 private:
  std::int64_t step_ns() const { return 2 * static_cast<std::int64_t>(took_ns_max_); }
  /// What the clock of the stamps is ahead when it shows that.
  std::int64_t ahead_at(transport::TimeNs stamp_ns) const {
    const auto since_look_ns = static_cast<std::int64_t>(stamp_ns - looked_ns_);
    __extension__ using Wide = __int128;
    return drift_ppb_ == 0
               ? ahead_ns_
               : ahead_ns_ + static_cast<std::int64_t>(static_cast<Wide>(since_look_ns) *
                                                       drift_ppb_ / 1'000'000'000);
  }
  std::int64_t drifted_ns_max(transport::TimeNs stamps_ns) const {
    const auto since_look_ns = static_cast<std::int64_t>(stamps_ns - looked_ns_);
    return std::max<std::int64_t>(since_look_ns, 0) / 1'000'000 * drift_ppm_max_;
  }
  void measure_drift(const Reading& now, std::int64_t ahead_ns) {
    const auto over_ns = static_cast<std::int64_t>(now.stamps_ns - measured_from_.stamps_ns);
    if (over_ns >= kDriftNs) {
      const auto from_ns =
          static_cast<std::int64_t>(measured_from_.stamps_ns - measured_from_.monotonic_ns);
      __extension__ using Wide = __int128;
      drift_ppb_ = static_cast<std::int64_t>(static_cast<Wide>(ahead_ns - from_ns) * 1'000'000'000 /
                                             over_ns);
      measured_from_ = now;
    }
  }

  std::int64_t drift_ppm_max_ = 0;
  transport::TimeNs took_ns_max_ = kTookNsMax;
  transport::TimeNs fastest_ns_ = transport::kNever;  ///< Of the slow readings in a row.
  int slow_readings_ = 0;
  bool has_looked_ = false;
  std::int64_t ahead_ns_ = 0;              ///< The stamps' clock, of monotonic, at the last look.
  std::int64_t drift_ppb_ = 0;             ///< What that grows by, of the time that passes.
  Reading measured_from_;                  ///< The drift is, next.
  transport::TimeNs since_ns_ = 0;         ///< Monotonic: seen like this for the first time.
  transport::TimeNs looked_ns_ = 0;        ///< The stamps' clock, at the last look.
  transport::TimeNs newest_stamp_ns_ = 0;  ///< Since the last change.
};

}  // namespace tutti::wire
