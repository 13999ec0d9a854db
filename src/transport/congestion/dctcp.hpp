// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// DCTCP (RFC 8257): the window falls by half the smoothed share of marked bytes, once per window.
// A baseline. Shares in 1/1024.
#pragma once

#include "transport/congestion/controller.hpp"

namespace tutti::transport {

class DctcpController final : public Controller {
 public:
  explicit DctcpController(const ControllerOptions& options);

  void on_ack(const Feedback& feedback) override;
  void on_loss(const Feedback& feedback) override;
  void on_timeout(const Feedback& feedback) override;
  void on_spurious(TimeNs now) override;

  std::uint32_t alpha() const { return alpha_; }

 private:
  void clamp();

  ControllerOptions options_;
  std::uint32_t alpha_ = 1024;  ///< RFC 8257 section 3.3: starts at 1.
  Bytes acked_bytes_ = 0;       ///< In this window of data.
  Bytes marked_bytes_ = 0;
  Bytes increase_ = 0;  ///< Acknowledged towards the next additive step.
  bool is_slow_start_ = true;
  Bytes before_loss_bytes_ = 0;
};

}  // namespace tutti::transport
