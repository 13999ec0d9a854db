// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// CUBIC (RFC 9438), in integers: windows in 1/65536 of a segment (a chunk), time in ns. Loss is its
// only signal. K is counted in seconds, so that in a data centre the Reno-friendly region always
// decides; the option time_scale runs its clock that many times faster, and 0 chooses the factor
// such that K is 50 round trips at a window of one bandwidth-delay product.
#include <algorithm>

#include "transport/congestion/kinds.hpp"
#include "transport/congestion/roots.hpp"

namespace tutti::transport {
namespace {

using Wide = unsigned __int128;

// RFC 9438 section 4.6 and 5: beta = 0.7, C = 0.4, alpha = 3 (1 - beta) / (1 + beta) = 9/17.
constexpr std::uint64_t kBeta10 = 7;
constexpr std::uint64_t kC10 = 4;
constexpr std::uint64_t kAlphaNumerator = 9;
constexpr std::uint64_t kAlphaDenominator = 17;
constexpr std::uint64_t kIdleRounds = 2;
constexpr Wide kCubicMicros = Wide{1'000'000} * 1'000'000 * 1'000'000;  // us^3 in a s^3.

/// Scaled microseconds in which the curve climbs `gap` (in 1/65536 segments): cbrt(gap / C).
std::uint64_t climb_us(std::uint64_t gap) {
  return cube_root(Wide{gap} * 10 * kCubicMicros / (kC10 * 65536));
}

class CubicController final : public Controller {
 public:
  explicit CubicController(const ControllerOptions& options)
      : Controller(options.bdp_bytes),
        options_(options),
        time_scale_(options.cubic_time_scale),
        window_max_(std::max(options.window_bytes_max * kOne / options.chunk_bytes, kOne)) {
    if (time_scale_ == 0) {
      constexpr std::uint64_t kRounds = 50;
      const std::uint64_t window = options.bdp_bytes * kOne / options.chunk_bytes;
      const std::uint64_t wanted_us =
          std::max<std::uint64_t>(options.base_rtt_ns * kRounds / 1000, 1);
      time_scale_ = static_cast<std::uint32_t>(
          std::max<std::uint64_t>(climb_us(window * (10 - kBeta10) / 10) / wanted_us, 1));
    }
    state_.window = options.bdp_bytes * kOne / options.chunk_bytes;
    publish();
  }

  void on_ack(const Feedback& feedback) override {
    const std::uint64_t acked = feedback.bytes * kOne / options_.chunk_bytes;
    // An idle time does not count (RFC 9438 section 5.8).
    if (state_.epoch_ns != kNever && feedback.now - acked_ns_ > kIdleRounds * feedback.srtt_ns) {
      state_.epoch_ns = std::min(state_.epoch_ns + (feedback.now - acked_ns_), feedback.now);
    }
    acked_ns_ = feedback.now;
    if (state_.window < state_.threshold) {
      state_.window += acked;
      publish();
      return;
    }
    if (state_.epoch_ns == kNever) {
      state_.epoch_ns = feedback.now;
      state_.window_reno = state_.window;
      state_.k_us =
          state_.window < state_.window_max ? climb_us(state_.window_max - state_.window) : 0;
      state_.window_max = std::max(state_.window_max, state_.window);
    }
    const TimeNs elapsed_ns = feedback.now - state_.epoch_ns;
    const std::uint64_t target = std::clamp(cubic_at(scaled_us(elapsed_ns + feedback.srtt_ns)),
                                            state_.window, state_.window * 3 / 2);
    const std::uint64_t reno = acked * kOne / state_.window;
    state_.window_reno += state_.window_reno >= state_.window_prior
                              ? reno
                              : reno * kAlphaNumerator / kAlphaDenominator;
    if (cubic_at(scaled_us(elapsed_ns)) < state_.window_reno) {
      state_.window = std::max(state_.window, state_.window_reno);
    } else {
      state_.window += acked * (target - state_.window) / state_.window;
    }
    publish();
  }

  void on_loss(const Feedback& feedback) override {
    if (!feedback.is_new_episode) {
      return;
    }
    reduce((feedback.inflight_bytes + feedback.bytes) * kOne / options_.chunk_bytes);
    state_.window = state_.threshold;
    publish();
  }

  void on_timeout(const Feedback& feedback) override {
    reduce((feedback.inflight_bytes + feedback.bytes) * kOne / options_.chunk_bytes);
    state_.window = kOne;
    publish();
  }

  void on_spurious(TimeNs /*now*/) override {
    if (has_saved_) {
      const std::uint64_t window = state_.window;
      state_ = saved_;
      state_.window = std::max(state_.window, window);
      has_saved_ = false;
      publish();
    }
  }

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

  /// C (t - K)^3 + W_max
  std::uint64_t cubic_at(std::uint64_t at_us) const {
    const bool is_after = at_us >= state_.k_us;
    const std::uint64_t distance =
        std::min<std::uint64_t>(is_after ? at_us - state_.k_us : state_.k_us - at_us, 1ULL << 31);
    const Wide cube = Wide{distance} * distance * distance;
    const auto rise = static_cast<std::uint64_t>(
        std::min<Wide>(cube * kC10 * kOne / (10 * kCubicMicros), Wide{1} << 48));
    if (is_after) {
      return state_.window_max + rise;
    }
    return state_.window_max - std::min(state_.window_max, rise);
  }

  std::uint64_t scaled_us(TimeNs time_ns) const { return time_ns * time_scale_ / 1000; }

  void reduce(std::uint64_t inflight) {
    saved_ = state_;
    has_saved_ = true;
    state_.window_prior = state_.window;
    state_.window_max = state_.window < state_.window_max_last
                            ? state_.window * (10 + kBeta10) / 20  // Fast convergence.
                            : state_.window;
    state_.window_max_last = state_.window;
    const std::uint64_t base = std::min(state_.window, std::max(inflight, state_.window / 2));
    state_.threshold = std::max(base * kBeta10 / 10, 2 * kOne);
    state_.epoch_ns = kNever;
  }

  void publish() {
    state_.window = std::clamp(state_.window, kOne, window_max_);
    window_bytes_ = state_.window * options_.chunk_bytes / kOne;
  }

  ControllerOptions options_;
  std::uint32_t time_scale_;
  std::uint64_t window_max_;  ///< Of what the options allow.
  State state_;
  State saved_;
  bool has_saved_ = false;
  TimeNs acked_ns_ = 0;
};

}  // namespace

constexpr ControllerKind kCubic = {"cubic", false, make<CubicController>};

}  // namespace tutti::transport
