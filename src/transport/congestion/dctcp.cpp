// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// DCTCP (RFC 8257): the window falls by half the smoothed share of marked bytes, once per window.
// A baseline. Shares in 1/1024.
#include <algorithm>

#include "transport/congestion/kinds.hpp"

namespace tutti::transport {
namespace {

class DctcpController final : public Controller {
 public:
  explicit DctcpController(const ControllerOptions& options)
      : Controller(options.bdp_bytes), options_(options) {
    clamp();
  }

  void on_ack(const Feedback& feedback) override {
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

  void on_loss(const Feedback& feedback) override {
    if (!feedback.is_new_episode) {
      return;
    }
    before_loss_bytes_ = window_bytes_;
    is_slow_start_ = false;
    window_bytes_ /= 2;
    clamp();
  }

  void on_timeout(const Feedback& /*feedback*/) override {
    before_loss_bytes_ = window_bytes_;
    is_slow_start_ = true;
    window_bytes_ = options_.chunk_bytes;
  }

  void on_spurious(TimeNs /*now*/) override {
    window_bytes_ = std::max(window_bytes_, before_loss_bytes_);
    before_loss_bytes_ = 0;
    clamp();
  }

 private:
  void clamp() {
    window_bytes_ =
        std::clamp<Bytes>(window_bytes_, options_.chunk_bytes,
                          std::max<Bytes>(options_.window_bytes_max, options_.chunk_bytes));
  }

  ControllerOptions options_;
  std::uint32_t alpha_ = 1024;  ///< RFC 8257 section 3.3: starts at 1.
  Bytes acked_bytes_ = 0;       ///< In this window of data.
  Bytes marked_bytes_ = 0;
  Bytes increase_ = 0;  ///< Acknowledged towards the next additive step.
  bool is_slow_start_ = true;
  Bytes before_loss_bytes_ = 0;
};

}  // namespace

constexpr ControllerKind kDctcp = {"dctcp", false, make<DctcpController>};

}  // namespace tutti::transport
