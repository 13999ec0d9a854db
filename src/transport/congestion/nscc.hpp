// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// NSCC, the sender-driven controller of Ultra Ethernet's congestion management sublayer: an ECN
// bit and queueing delay above or below a target give four cases. Constants are scaled from
// 100 Gb/s and 12 us (150 kB) to this network's bandwidth-delay product. Where no mark reaches us,
// a delay above the target stands for one. The target is the idle round trip, three quarters of it
// where switches trim; no knob sets it.
#pragma once

#include "transport/congestion/controller.hpp"

namespace tutti::transport {

class NsccController final : public Controller {
 public:
  explicit NsccController(const ControllerOptions& options);

  void on_ack(const Feedback& feedback) override;
  void on_nack(const Feedback& feedback) override;
  void on_loss(const Feedback& feedback) override;
  void on_timeout(const Feedback& feedback) override;
  void on_spurious(TimeNs now) override;

  TimeNs base_rtt_ns() const { return base_rtt_ns_; }

 private:
  using Wide = unsigned __int128;  ///< Of products of windows, times and chunks.

  void scale();
  void note_delay(TimeNs delay_ns);
  /// News of what was in the air when the window was set to what had been delivered.
  void ignore(Bytes bytes) { ignored_ += ignored_ < to_ignore_ ? bytes : 0; }
  void decrease(TimeNs now);
  void apply(const Feedback& feedback);
  bool quick_adapt(const Feedback& feedback, TimeNs delay_ns, bool marked, bool loss);
  void clamp();
  TimeNs average_ns() const { return average80_ns_ / 80; }

  ControllerOptions options_;
  // Of the network, scaled again when a lower round trip shows that base_rtt was too high. What
  // may be in the air lasts for the time that hosts take, too.
  TimeNs base_rtt_ns_;
  TimeNs round_trip_ns_;  ///< With idle links and hosts, from base_rtt downwards.
  Bytes bdp_bytes_ = 0;
  Bytes window_max_ = 0;
  TimeNs target_ns_ = 0;
  std::uint64_t alpha_q16_ = 0;   ///< Proportional increase: bytes per ns.
  std::uint64_t fair_bytes_ = 0;  ///< Fair increase.
  std::uint64_t bump_bytes_ = 0;  ///< Unconditional increase per round trip.

  std::uint64_t average80_ns_ = 0;  ///< Queueing delay, weight 1/80, times 80.
  Wide increase_ = 0;               ///< Bytes squared, waiting to be applied.
  Bytes acked_since_apply_ = 0;
  TimeNs applied_ns_ = 0;
  TimeNs bumped_ns_ = 0;
  TimeNs decreased_ns_ = 0;
  Bytes fast_increase_bytes_ = 0;  ///< Acknowledged in a row without queueing.
  // Quick adapt.
  TimeNs period_end_ns_ = 0;
  Bytes acked_in_period_ = 0;
  Bytes to_ignore_ = 0;
  Bytes ignored_ = 0;
  bool trigger_ = false;
  Bytes before_loss_bytes_ = 0;  ///< Window that on_spurious restores; 0: none.
};

}  // namespace tutti::transport
