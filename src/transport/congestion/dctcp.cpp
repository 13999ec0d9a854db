// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/congestion/dctcp.hpp"

#include <algorithm>

namespace tutti::transport {

DctcpController::DctcpController(const ControllerOptions& options)
    : Controller(options.bdp_bytes), options_(options) {
  clamp();
}

void DctcpController::clamp() {
  window_bytes_ =
      std::clamp<Bytes>(window_bytes_, options_.chunk_bytes,
                        std::max<Bytes>(options_.window_bytes_max, options_.chunk_bytes));
}

void DctcpController::on_ack(const Feedback& feedback) {
  acked_bytes_ += feedback.bytes;
  marked_bytes_ += feedback.ecn ? feedback.bytes : 0;
  if (feedback.ecn) {
    is_slow_start_ = false;
  } else if (is_slow_start_) {
    window_bytes_ += feedback.bytes;
  } else {
    increase_ += feedback.bytes;
    if (increase_ >= window_bytes_) {
      increase_ -= window_bytes_;
      window_bytes_ += options_.mtu_bytes;
    }
  }
  if (acked_bytes_ >= window_bytes_) {
    constexpr std::uint32_t kGain = 16;
    const auto share = static_cast<std::uint32_t>(marked_bytes_ * 1024 / acked_bytes_);
    alpha_ = alpha_ - alpha_ / kGain + share / kGain;
    if (marked_bytes_ > 0) {
      window_bytes_ -= window_bytes_ * alpha_ / 2048;
    }
    acked_bytes_ = 0;
    marked_bytes_ = 0;
  }
  clamp();
}

void DctcpController::on_loss(const Feedback& feedback) {
  if (!feedback.is_new_episode) {
    return;
  }
  before_loss_bytes_ = window_bytes_;
  is_slow_start_ = false;
  window_bytes_ /= 2;
  clamp();
}

void DctcpController::on_timeout(const Feedback& /*feedback*/) {
  before_loss_bytes_ = window_bytes_;
  is_slow_start_ = true;
  window_bytes_ = options_.chunk_bytes;
}

void DctcpController::on_spurious(TimeNs /*now*/) {
  window_bytes_ = std::max(window_bytes_, before_loss_bytes_);
  before_loss_bytes_ = 0;
  clamp();
}

}  // namespace tutti::transport
