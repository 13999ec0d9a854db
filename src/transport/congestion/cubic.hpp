// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// CUBIC (RFC 9438), in integers: windows in 1/65536 of a segment (a chunk), time in ns. Loss is its
// only signal. K is counted in seconds, so that in a data centre the Reno-friendly region always
// decides; the option time_scale runs its clock that many times faster, and 0 chooses the factor
// such that K is 50 round trips at a window of one bandwidth-delay product.
#pragma once

#include "transport/congestion/controller.hpp"

namespace tutti::transport {

class CubicController final : public Controller {
 public:
  explicit CubicController(const ControllerOptions& options);

  void on_ack(const Feedback& feedback) override;
  void on_loss(const Feedback& feedback) override;
  void on_timeout(const Feedback& feedback) override;
  void on_spurious(TimeNs now) override;

  std::uint32_t time_scale() const { return time_scale_; }

 private:
  static constexpr std::uint64_t kOne = 65536;  ///< One segment.

  struct State {
    std::uint64_t window = 0;
    std::uint64_t threshold = UINT64_MAX;  ///< ssthresh
    std::uint64_t window_max = 0;          ///< W_max
    std::uint64_t window_max_last = 0;
    std::uint64_t window_prior = 0;  ///< cwnd_prior
    std::uint64_t window_reno = 0;   ///< W_est
    TimeNs epoch_ns = kNever;
    std::uint64_t k_us = 0;  ///< Scaled microseconds.
  };

  std::uint64_t cubic_at(std::uint64_t scaled_us) const;
  std::uint64_t scaled_us(TimeNs time_ns) const { return time_ns * time_scale_ / 1000; }
  void reduce(std::uint64_t inflight);
  void publish();

  ControllerOptions options_;
  std::uint32_t time_scale_;
  State state_;
  State saved_;
  bool has_saved_ = false;
  TimeNs acked_ns_ = 0;
};

}  // namespace tutti::transport
