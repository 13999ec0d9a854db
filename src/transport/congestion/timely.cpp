// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Timely (Mittal et al., SIGCOMM 2015): the gradient of the round trip moves a rate between two
// thresholds. Here the rate is kept as a window per base round trip and paced. A baseline.
#include <algorithm>

#include "transport/congestion/kinds.hpp"

namespace tutti::transport {
namespace {

// Section 4 of the paper: EWMA weight 1/8 here (0.875 there for the old value), beta 0.8, five
// completions before hyperactive increase. The thresholds are of this network's base round trip.
constexpr std::int64_t kGradientGain = 8;
constexpr std::uint32_t kHyperactive = 5;

class TimelyController final : public Controller {
 public:
  explicit TimelyController(const ControllerOptions& options)
      : Controller(options.window_bytes_max), options_(options), rate_bytes_(options.bdp_bytes) {
    set_rate(options.bdp_bytes);
  }

  void on_ack(const Feedback& feedback) override {
    if (feedback.fabric_ns == 0) {
      return;
    }
    if (previous_rtt_ns_ == 0) {
      previous_rtt_ns_ = feedback.fabric_ns;
    }
    const auto difference = static_cast<std::int64_t>(feedback.fabric_ns - previous_rtt_ns_);
    previous_rtt_ns_ = feedback.fabric_ns;
    gradient_ns_ += (difference - gradient_ns_) / kGradientGain;
    if (feedback.now - updated_ns_ < options_.base_rtt_ns) {
      return;
    }
    updated_ns_ = feedback.now;
    const TimeNs low_ns = options_.base_rtt_ns * 5 / 4;
    const TimeNs high_ns = options_.base_rtt_ns * 4;
    const Bytes step = options_.mtu_bytes;
    if (feedback.fabric_ns < low_ns) {
      set_rate(rate_bytes_ + step);
    } else if (feedback.fabric_ns > high_ns) {
      increases_ = 0;
      set_rate(rate_bytes_ -
               rate_bytes_ * 4 * (feedback.fabric_ns - high_ns) / (5 * feedback.fabric_ns));
    } else if (gradient_ns_ <= 0) {
      increases_ = std::min(increases_ + 1, kHyperactive);
      set_rate(rate_bytes_ + (increases_ >= kHyperactive ? 5 * step : step));
    } else {
      increases_ = 0;
      const auto gradient = std::min(static_cast<TimeNs>(gradient_ns_), options_.base_rtt_ns);
      set_rate(rate_bytes_ - rate_bytes_ * 4 * gradient / (5 * options_.base_rtt_ns));
    }
  }

  void on_loss(const Feedback& feedback) override {
    if (feedback.is_new_episode) {
      set_rate(rate_bytes_ / 2);
    }
  }

  void on_timeout(const Feedback& /*feedback*/) override { set_rate(rate_bytes_ / 2); }

  TimeNs gap_ns(Bytes bytes) const override { return options_.base_rtt_ns * bytes / rate_bytes_; }

 private:
  void set_rate(Bytes rate_bytes) {
    rate_bytes_ = std::clamp<Bytes>(rate_bytes, std::max<Bytes>(options_.bdp_bytes / 1000, 1),
                                    options_.bdp_bytes);
    // The rate rules; the window only bounds what a silent network may hold.
    window_bytes_ = std::max<Bytes>(options_.window_bytes_max, options_.chunk_bytes);
  }

  ControllerOptions options_;
  Bytes rate_bytes_;  ///< Per base round trip.
  TimeNs previous_rtt_ns_ = 0;
  std::int64_t gradient_ns_ = 0;  ///< Smoothed difference of round trips.
  std::uint32_t increases_ = 0;   ///< In a row; five switch to hyperactive increase.
  TimeNs updated_ns_ = 0;
};

}  // namespace

constexpr ControllerKind kTimely = {"timely", true, make<TimelyController>};

}  // namespace tutti::transport
