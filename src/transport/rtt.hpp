// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Round-trip time of a connection: smoothed, its variation (RFC 6298 section 2), the least, and a
// slowly falling high mark (about the 99th percentile of what spraying over unequal paths gives).
// Samples are round trips without the receiver's turnaround, in ns. Integers with 3 more bits.
#pragma once

#include <algorithm>

#include "transport/types.hpp"

namespace tutti::transport {

class RttEstimator {
 public:
  /// `base_ns` stands for the estimate until there is a sample.
  explicit RttEstimator(TimeNs base_ns) : srtt8_(base_ns * 8), rttvar4_(base_ns * 2) {}

  void on_sample(TimeNs rtt_ns) {
    min_ns_ = std::min(min_ns_, rtt_ns);
    if (!has_sample_) {
      has_sample_ = true;
      srtt8_ = rtt_ns * 8;
      rttvar4_ = rtt_ns * 2;
      high_ns_ = rtt_ns;
      return;
    }
    const TimeNs srtt = srtt8_ / 8;
    const TimeNs error = rtt_ns > srtt ? rtt_ns - srtt : srtt - rtt_ns;
    rttvar4_ += error - rttvar4_ / 4;
    srtt8_ += rtt_ns - srtt;
    // 1 in 100 samples above it balances the other 99: up by half the distance, down by 1/200.
    if (rtt_ns > high_ns_) {
      high_ns_ += (rtt_ns - high_ns_ + 1) / 2;
    } else {
      high_ns_ -= (high_ns_ - rtt_ns) / 200;
    }
  }

  TimeNs srtt_ns() const { return srtt8_ / 8; }
  TimeNs rttvar_ns() const { return rttvar4_ / 4; }
  TimeNs min_ns() const { return has_sample_ ? min_ns_ : srtt_ns(); }
  TimeNs high_ns() const { return has_sample_ ? high_ns_ : srtt_ns(); }
  bool has_sample() const { return has_sample_; }

 private:
  TimeNs srtt8_;
  TimeNs rttvar4_;
  TimeNs min_ns_ = kNever;
  TimeNs high_ns_ = 0;
  bool has_sample_ = false;
};

}  // namespace tutti::transport
