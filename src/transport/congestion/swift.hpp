// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Swift (Kumar et al., SIGCOMM 2020): delay against a target that grows as the window shrinks.
// Under spraying the delay is the median of the last round trip's samples (MSwift, arXiv
// 2509.07907): the latest one is a draw of one path. Packets of the paper's constants are MTUs, not
// chunks. The window may be less than a chunk: then chunks are paced. The target's part for hops is
// in the base round trip. Constants are the paper's where it gives them.
#pragma once

#include <array>

#include "transport/congestion/controller.hpp"

namespace tutti::transport {

class SwiftController final : public Controller {
 public:
  explicit SwiftController(const ControllerOptions& options);

  void on_ack(const Feedback& feedback) override;
  void on_loss(const Feedback& feedback) override;
  void on_timeout(const Feedback& feedback) override;
  void on_spurious(TimeNs now) override;
  TimeNs gap_ns(Bytes bytes) const override;

  /// The delay aimed at with the window of now.
  TimeNs target_ns() const;

 private:
  static constexpr std::uint32_t kSamples = 31;
  static constexpr std::uint32_t kMedianEvery = 8;  ///< Samples between two medians.

  void add_sample(TimeNs rtt_ns);
  void decrease(const Feedback& feedback, std::uint64_t keep_1024);
  void set_window(std::uint64_t window_q8);
  void set_base(TimeNs base_rtt_ns);

  ControllerOptions options_;
  TimeNs base_target_ns_;
  TimeNs flow_range_ns_;
  TimeNs rtt_ns_min_ = kNever;  ///< Of full chunks.
  std::uint64_t window_q8_;     ///< Window in 1/256 bytes.
  std::uint64_t window_q8_min_;
  std::uint64_t before_loss_q8_ = 0;
  TimeNs decreased_ns_ = 0;
  bool has_decreased_ = false;
  std::uint32_t timeouts_ = 0;  ///< In a row.
  TimeNs srtt_ns_;
  std::array<TimeNs, kSamples> samples_{};
  std::uint32_t sample_count_ = 0;
  TimeNs median_ns_ = 0;
};

}  // namespace tutti::transport
