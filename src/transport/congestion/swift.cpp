// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Swift (Kumar et al., SIGCOMM 2020): delay against a target that grows as the window shrinks.
// Under spraying the delay is the median of the last round trip's samples (MSwift, arXiv
// 2509.07907): the latest one is a draw of one path. Packets of the paper's constants are MTUs, not
// chunks. The window may be less than a chunk: then chunks are paced. The target's part for hops is
// in the base round trip. Constants are the paper's where it gives them.
#include <algorithm>
#include <array>

#include "transport/congestion/kinds.hpp"
#include "transport/congestion/roots.hpp"

namespace tutti::transport {
namespace {

constexpr std::uint64_t kAdditiveMtus = 1;  // Per round trip.
constexpr std::uint64_t kBetaPercent = 80;
constexpr std::uint64_t kKeepMin1024 = 512;  // 1 - max_mdf
constexpr std::uint32_t kTimeoutsToReset = 5;
constexpr std::uint64_t kMinWindowDivisor = 100;  // Of an MTU.
constexpr std::uint64_t kFlowRange = 5;           // Times half the base round trip.
// 1 / sqrt(window in MTUs) in 1/65536, at the ends of the flow scaling: 0.1 and 100 MTUs.
constexpr std::uint64_t kInverseRootMin = 207'243;
constexpr std::uint64_t kInverseRootMax = 6'554;

class SwiftController final : public Controller {
 public:
  explicit SwiftController(const ControllerOptions& options)
      : Controller(std::min(options.bdp_bytes, options.window_bytes_max)),
        options_(options),
        base_target_ns_(0),
        flow_range_ns_(0),
        window_q8_(0),
        window_q8_min_(std::max<std::uint64_t>(
            options.mtu_bytes * 256 / kMinWindowDivisor,
            std::min(options.window_bytes_min, options.window_bytes_max) * 256)),
        srtt_ns_(options.base_rtt_ns) {
    set_base(options.base_rtt_ns);
    set_window(window_bytes_ * 256);
  }

  void on_ack(const Feedback& feedback) override {
    timeouts_ = 0;
    srtt_ns_ = feedback.srtt_ns;
    if (feedback.fabric_ns == 0) {
      return;
    }
    if (options_.base_rtt_is_guess && feedback.is_full_chunk && feedback.fabric_ns < rtt_ns_min_) {
      rtt_ns_min_ = feedback.fabric_ns;
      set_base(std::max(rtt_ns_min_, options_.base_rtt_ns));
    }
    add_sample(feedback.fabric_ns);
    const TimeNs target = target_ns();
    if (median_ns_ < target) {
      // kAdditiveMtus per window; below one MTU of window, per MTU acknowledged.
      const Bytes per = std::max<Bytes>(window_bytes_, options_.mtu_bytes);
      set_window(window_q8_ + kAdditiveMtus * options_.mtu_bytes * feedback.bytes * 256 / per);
      return;
    }
    const std::uint64_t cut = kBetaPercent * 1024 * (median_ns_ - target) / (100 * median_ns_);
    decrease(feedback, std::max(1024 - std::min<std::uint64_t>(cut, 1024), kKeepMin1024));
  }

  void on_loss(const Feedback& feedback) override {
    if (!feedback.is_new_episode) {
      return;
    }
    timeouts_ = 0;
    before_loss_q8_ = window_q8_;
    decrease(feedback, kKeepMin1024);
  }

  void on_timeout(const Feedback& feedback) override {
    before_loss_q8_ = window_q8_;
    if (++timeouts_ >= kTimeoutsToReset) {
      set_window(window_q8_min_);
      return;
    }
    decrease(feedback, kKeepMin1024);
  }

  void on_spurious(TimeNs /*now*/) override {
    set_window(std::max(window_q8_, before_loss_q8_));
    before_loss_q8_ = 0;
  }

  TimeNs gap_ns(Bytes bytes) const override {
    return window_bytes_ >= options_.chunk_bytes ? 0 : srtt_ns_ * bytes * 256 / window_q8_;
  }

 private:
  static constexpr std::uint32_t kSamples = 31;
  static constexpr std::uint32_t kMedianEvery = 8;  ///< Samples between two medians.

  /// The delay aimed at with the window of now.
  TimeNs target_ns() const {
    const std::uint64_t inverse_root =
        square_root((static_cast<std::uint64_t>(options_.mtu_bytes) << 40) / window_q8_);
    const std::uint64_t above =
        std::clamp(inverse_root, kInverseRootMax, kInverseRootMin) - kInverseRootMax;
    return base_target_ns_ + flow_range_ns_ * above / (kInverseRootMin - kInverseRootMax);
  }

  void add_sample(TimeNs rtt_ns) {
    samples_[sample_count_++ % kSamples] = rtt_ns;
    if (sample_count_ % kMedianEvery != 0 && sample_count_ > kMedianEvery) {
      return;
    }
    const std::uint32_t count = std::min(sample_count_, kSamples);
    std::array<TimeNs, kSamples> sorted = samples_;
    const auto middle = sorted.begin() + count / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + count);
    median_ns_ = *middle;
  }

  /// At most once per round trip.
  void decrease(const Feedback& feedback, std::uint64_t keep_1024) {
    if (has_decreased_ && feedback.now - decreased_ns_ < feedback.srtt_ns) {
      return;
    }
    has_decreased_ = true;
    decreased_ns_ = feedback.now;
    set_window(window_q8_ * keep_1024 / 1024);
  }

  void set_window(std::uint64_t window_q8) {
    window_q8_ = std::clamp(window_q8, window_q8_min_, options_.window_bytes_max * 256);
    window_bytes_ = std::max<Bytes>(window_q8_ / 256, 1);
  }

  void set_base(TimeNs base_rtt_ns) {
    base_target_ns_ = base_rtt_ns * 3 / 2;
    flow_range_ns_ = kFlowRange * (base_rtt_ns / 2);
  }

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

}  // namespace

constexpr ControllerKind kSwift = {"swift", true, make<SwiftController>};

}  // namespace tutti::transport
