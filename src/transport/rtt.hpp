// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Round trips of a connection, in ns. Each sample is two numbers: from the sending of a chunk to
// the moment at which its sender hears of it, and without the time that it and its answer lay in
// hosts. Who waits for an answer (timeouts, loss detection) needs the first, who asks how full the
// network is (congestion control, path choice) the second.
//
// An estimate of either: smoothed, its variation (RFC 6298 section 2), the least, and a slowly
// falling high mark (about the 99th percentile of what spraying over unequal paths gives). Integers
// with 3 more bits. The retransmission time-out made of it is LossDetector's (loss.hpp).
#pragma once

#include <algorithm>

#include "transport/types.hpp"

namespace tutti::transport {

struct RttSample {
  TimeNs round_trip_ns = 0;  ///< 0: unknown, and so is the other.
  TimeNs fabric_ns = 0;      ///< 0: unknown.
};

/// Of a stamp of ours that came back `turnaround_ns` after the peer's host had taken it in (kNever:
/// unknown) and has lain in this host for `waited_ns`.
inline RttSample rtt_sample(TimeNs now, std::uint32_t stamp, TimeNs turnaround_ns,
                            TimeNs waited_ns) {
  const auto elapsed_ns = static_cast<std::uint32_t>(static_cast<std::uint32_t>(now) - stamp);
  if (elapsed_ns >= UINT32_MAX / 2) {
    return {};  // From the future, or too long ago to tell.
  }
  RttSample sample;
  sample.round_trip_ns = std::max<TimeNs>(elapsed_ns, 1);
  // Hosts that have taken longer than all of it have a clock that jumped.
  if (turnaround_ns <= elapsed_ns && waited_ns <= elapsed_ns - turnaround_ns) {
    sample.fabric_ns = std::max<TimeNs>(elapsed_ns - turnaround_ns - waited_ns, 1);
  }
  return sample;
}

/// Stamps have 32 bits, which come round in 4.3 s, and hosts may be stopped for longer: then
/// nothing tells how old one is but the chunk that it belongs to. `age_ns`: since that was sent;
/// kNever: it has been sent again since.
inline RttSample believed(const RttSample& sample, TimeNs age_ns) {
  const bool is_told = age_ns == kNever ? sample.fabric_ns != 0 : age_ns < UINT32_MAX / 2;
  return is_told ? sample : RttSample{};
}

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
