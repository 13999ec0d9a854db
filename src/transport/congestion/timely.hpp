// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Timely (Mittal et al., SIGCOMM 2015): the gradient of the round trip moves a rate between two
// thresholds. Here the rate is kept as a window per base round trip and paced. A baseline.
#pragma once

#include "transport/congestion/controller.hpp"

namespace tutti::transport {

class TimelyController final : public Controller {
 public:
  explicit TimelyController(const ControllerOptions& options);

  void on_ack(const Feedback& feedback) override;
  void on_loss(const Feedback& feedback) override;
  void on_timeout(const Feedback& feedback) override;
  TimeNs gap_ns(Bytes bytes) const override;

 private:
  void set_rate(Bytes rate_bytes);

  ControllerOptions options_;
  Bytes rate_bytes_;  ///< Per base round trip.
  TimeNs previous_rtt_ns_ = 0;
  std::int64_t gradient_ns_ = 0;  ///< Smoothed difference of round trips.
  std::uint32_t increases_ = 0;   ///< In a row; five switch to hyperactive increase.
  TimeNs updated_ns_ = 0;
};

}  // namespace tutti::transport
