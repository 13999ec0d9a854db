// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The clock by which a NIC stamps completions, in the time of the transport. It is a counter with a
// frequency and an oscillator of its own, which may have fewer than 64 bits and wrap. A reading is
// slow (a read over PCIe or two) and as uncertain as it is long, so the fastest of several is used.
// Times in ns.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.hpp"
#include "transport/types.hpp"
#include "wire/reception_clock.hpp"
#include "wire/verbs/driver_verbs.hpp"

namespace tutti::wire::verbs {

class NicClock {
 public:
  using TimeNs = transport::TimeNs;
  using HostClock = std::function<TimeNs()>;

  /// Between looks: a few us each. Oscillators drift by 0.5 us in that time at most (100 ppm).
  static constexpr TimeNs kLookNs = 5'000'000;
  /// Drivers tell frequencies in whole MHz, or nearly right.
  static constexpr std::int64_t kDriftPpmMax = 5'000;
  /// A clock that seems to have been set at so many looks in a row runs at another frequency.
  static constexpr int kSetMax = 3;
  /// A stamp that is later than the last look, or earlier than open(), by more is of another clock.
  static constexpr std::int64_t kAheadNsMax = 1'000'000'000;

  /// Errors: why the NIC's stamps say nothing here (kUnavailable).
  static Result<NicClock> open(Context* context, HostClock host_clock);

  /// Looks at both clocks if that is due; before stamps are translated. Errors: why they say
  /// nothing any more (kUnavailable).
  Status refresh(TimeNs now) { return now < look_due_ns_ ? Status() : look(now); }
  /// `ticks`: a completion's. kNever: of another clock, or the clock was set, which the next look
  /// finds out.
  TimeNs received_ns(std::uint64_t ticks) {
    const std::int64_t since_ns = ns_of(ticks_between(seen_.ticks, ticks));
    const auto opened_ago_ns = static_cast<std::int64_t>(seen_ns_ - opened_ns_);
    if (since_ns > kAheadNsMax || -since_ns > opened_ago_ns + kAheadNsMax) {
      is_strange_ = true;
      return transport::kNever;
    }
    const TimeNs stamp_ns = seen_ns_ + static_cast<TimeNs>(since_ns);
    if (clock_.is_set_back(stamp_ns)) {
      look_due_ns_ = 0;
      return transport::kNever;
    }
    return clock_.received_ns(stamp_ns);
  }

 private:
  struct Sample {
    TimeNs host_ns = 0;  ///< In the middle of the reading.
    TimeNs took_ns = transport::kNever;
    std::uint64_t ticks = 0;
  };

  NicClock(Context* context, HostClock host_clock, std::uint64_t time_mask, std::uint64_t khz);
  Result<Sample> read_once() const;
  Result<Sample> read(int readings, TimeNs fast_ns) const;
  Status look(TimeNs now);
  Status wrong_frequency() const;
  /// Between two values of the counter that are less than half its range apart.
  std::int64_t ticks_between(std::uint64_t from, std::uint64_t to) const {
    return static_cast<std::int64_t>((to - from) << unused_bits_) >> unused_bits_;
  }
  std::int64_t ns_of(std::int64_t ticks) const {
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>(static_cast<Wide>(ticks) * ns_per_tick_q32_ >> 32);
  }

  Context* context_ = nullptr;
  HostClock host_clock_;
  int unused_bits_ = 0;  ///< Of 64, above those of the counter.
  std::uint64_t khz_ = 0;
  std::int64_t ns_per_tick_q32_ = 0;  ///< By the frequency, times 2^32.
  ReceptionClock clock_;
  TimeNs took_ns_max_ = 0;
  TimeNs look_due_ns_ = 0;
  Sample seen_;         ///< At the last look.
  TimeNs seen_ns_ = 0;  ///< The NIC's time then: begins as the host's, and goes by the frequency.
  TimeNs opened_ns_ = 0;
  bool is_strange_ = false;  ///< A stamp of another clock came since the last look.
  int strange_ = 0;          ///< Looks in a row with such.
  int set_ = 0;              ///< Looks in a row at which it seemed to have been set.
};

}  // namespace tutti::wire::verbs
