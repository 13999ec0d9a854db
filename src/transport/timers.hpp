// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One connection's timers: an enumeration and a fixed table; the next deadline is the minimum.
// Timers are lazy: one that fires early looks at the state and arms itself again, so that the hot
// path never moves a deadline back.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "transport/types.hpp"

namespace tutti::transport {

enum class Timer : std::uint8_t {
  kRetransmit,  ///< RTO: nothing was heard about the oldest chunk.
  kRack,        ///< The oldest chunk's reordering window ends.
  kTailProbe,   ///< Nothing was sent or heard for two round trips.
  kAck,         ///< The first unacknowledged chunk has waited long enough.
  kPace,        ///< The next chunk may leave.
  kGap,         ///< A hole is old: the receiver asks for the chunk (credits without trimming).
  kRequest,     ///< No credit came: ask again.
  kControl,     ///< Adverts or a close were not answered.
  kAdvert,      ///< Adverts have waited long enough to be piggybacked.
  kAdvertAck,   ///< What says that adverts are known has.
  kPathProbe,   ///< A dead path is asked again.
  kKeepAlive,   ///< Nothing was heard, and something is waited for.
  kLinger,      ///< An ended connection is forgotten.
  kCount,
};

class Timers {
 public:
  Timers() { times_.fill(kNever); }

  TimeNs at(Timer timer) const { return times_[index(timer)]; }
  bool is_set(Timer timer) const { return at(timer) != kNever; }
  void set(Timer timer, TimeNs time_ns) {
    TimeNs& at = times_[index(timer)];
    is_known_ = time_ns <= next_ns_ || (is_known_ && at != next_ns_);
    next_ns_ = std::min(next_ns_, time_ns);
    at = time_ns;
  }
  void clear(Timer timer) { set(timer, kNever); }
  void clear_all() { *this = {}; }

  TimeNs next() const {
    if (!is_known_) {
      next_ns_ = *std::min_element(times_.begin(), times_.end());
      is_known_ = true;
    }
    return next_ns_;
  }

  /// Clears and gives one timer whose time is not after `now`, in the order of the enumeration;
  /// kCount: none.
  Timer pop(TimeNs now) {
    for (std::size_t i = 0; i < times_.size(); ++i) {
      if (times_[i] <= now) {
        clear(static_cast<Timer>(i));
        return static_cast<Timer>(i);
      }
    }
    return Timer::kCount;
  }

 private:
  static std::size_t index(Timer timer) { return static_cast<std::size_t>(timer); }

  std::array<TimeNs, static_cast<std::size_t>(Timer::kCount)> times_;
  mutable TimeNs next_ns_ = kNever;  ///< No time is before it.
  mutable bool is_known_ = true;     ///< One is equal to it.
};

}  // namespace tutti::transport
