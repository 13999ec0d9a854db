// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/congestion/timely.hpp"

#include <algorithm>

namespace tutti::transport {
namespace {

// Section 4 of the paper: EWMA weight 1/8 here (0.875 there for the old value), beta 0.8, five
// completions before hyperactive increase. The thresholds are of this network's base round trip.
constexpr std::int64_t kGradientGain = 8;
constexpr std::uint32_t kHyperactive = 5;

}  // namespace

TimelyController::TimelyController(const ControllerOptions& options)
    : Controller(options.window_bytes_max), options_(options), rate_bytes_(options.bdp_bytes) {
  set_rate(options.bdp_bytes);
}

void TimelyController::set_rate(Bytes rate_bytes) {
  rate_bytes_ = std::clamp<Bytes>(rate_bytes, std::max<Bytes>(options_.bdp_bytes / 1000, 1),
                                  options_.bdp_bytes);
  // The rate rules; the window only bounds what a silent network may hold.
  window_bytes_ = std::max<Bytes>(options_.window_bytes_max, options_.chunk_bytes);
}

void TimelyController::on_ack(const Feedback& feedback) {
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

void TimelyController::on_loss(const Feedback& feedback) {
  if (feedback.is_new_episode) {
    set_rate(rate_bytes_ / 2);
  }
}

void TimelyController::on_timeout(const Feedback& /*feedback*/) { set_rate(rate_bytes_ / 2); }

TimeNs TimelyController::gap_ns(Bytes bytes) const {
  return options_.base_rtt_ns * bytes / rate_bytes_;
}

}  // namespace tutti::transport
