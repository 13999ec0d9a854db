// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// NSCC, the sender-driven controller of Ultra Ethernet's congestion management sublayer: an ECN
// bit and queueing delay above or below a target give four cases. Constants are scaled from
// 100 Gb/s and 12 us (150 kB) to this network's bandwidth-delay product. Where no mark reaches us,
// a delay above the target stands for one. The target is the idle round trip, three quarters of it
// where switches trim; no knob sets it.
#include <algorithm>

#include "transport/congestion/kinds.hpp"

namespace tutti::transport {
namespace {

// The reference network of the constants: 100 Gb/s times 12 us.
constexpr std::uint64_t kReferenceBytes = 150'000;
constexpr std::uint64_t kReferenceNs = 12'000;
constexpr TimeNs kEmptyQueueNs = 1'000;  ///< Less queueing than this counts as none.
constexpr Bytes kApplyMtus = 8;

class alignas(64) NsccController final : public Controller {
 public:
  explicit NsccController(const ControllerOptions& options)
      : Controller(options.window_bytes_max),
        base_rtt_ns_(options.base_rtt_ns),
        round_trip_ns_(options.base_rtt_ns),
        options_(options) {
    scale();
  }

  void on_ack(const Feedback& feedback) override {
    TimeNs delay_ns = 0;
    if (feedback.fabric_ns != 0) {
      if (feedback.fabric_ns < base_rtt_ns_ && feedback.is_full_chunk) {
        base_rtt_ns_ = feedback.fabric_ns;
        round_trip_ns_ = std::min(round_trip_ns_, feedback.round_trip_ns);
        scale();
      }
      delay_ns = feedback.fabric_ns > base_rtt_ns_ ? feedback.fabric_ns - base_rtt_ns_ : 0;
    }
    const bool marked =
        feedback.ecn || (!options_.marks_ecn && feedback.fabric_ns != 0 && delay_ns >= target_ns_);
    if (feedback.fabric_ns != 0) {
      // Late but unmarked is the way back or the host, not the queue we share.
      note_delay(!marked && delay_ns > target_ns_ ? base_rtt_ns_ / 4 : delay_ns);
    }
    acked_in_period_ += feedback.bytes;
    acked_since_apply_ += feedback.bytes;
    ignore(feedback.bytes);
    if (quick_adapt(feedback, delay_ns, marked, false)) {
      return;
    }
    const bool is_late = delay_ns >= target_ns_;
    if (!marked && delay_ns < kEmptyQueueNs && feedback.fabric_ns != 0) {
      fast_increase_bytes_ += feedback.bytes;
    } else {
      fast_increase_bytes_ = 0;
    }
    if (marked && is_late) {
      decrease(feedback.now);
    } else if (!marked && is_late) {
      increase_ += Wide{fair_bytes_} * feedback.bytes;
    } else if (!marked && fast_increase_bytes_ > window_bytes_) {
      window_bytes_ +=
          static_cast<Bytes>(Wide{feedback.bytes} * bdp_bytes_ / (4 * kReferenceBytes));
    } else if (!marked && feedback.fabric_ns != 0) {
      increase_ += (Wide{alpha_q16_} * (target_ns_ - delay_ns) >> 16) * feedback.bytes;
    }
    apply(feedback);
  }

  void on_nack(const Feedback& feedback) override {
    // The receiver's credit answers for its own link.
    on_overload(feedback, /*is_ours=*/!(options_.has_credit && feedback.last_hop));
  }

  // Without trimming a loss is all there is to tell of an overload: each one counts, as a trim
  // does.
  void on_loss(const Feedback& feedback) override { on_overload(feedback, /*is_ours=*/true); }

  void on_timeout(const Feedback& feedback) override {
    before_loss_bytes_ = window_bytes_;
    fast_increase_bytes_ = 0;
    ignore(feedback.bytes);
    window_bytes_ -= std::min(window_bytes_, feedback.bytes);
    clamp();
  }

  void on_spurious(TimeNs /*now*/) override {
    window_bytes_ = std::max(window_bytes_, before_loss_bytes_);
    before_loss_bytes_ = 0;
    clamp();
  }

 private:
  using Wide = unsigned __int128;  ///< Of products of windows, times and chunks.

  void on_overload(const Feedback& feedback, bool is_ours) {
    if (feedback.is_new_episode) {
      before_loss_bytes_ = window_bytes_;
    }
    note_delay(base_rtt_ns_);
    trigger_ = true;
    fast_increase_bytes_ = 0;
    ignore(feedback.bytes);
    if (!quick_adapt(feedback, base_rtt_ns_, true, true) && is_ours) {
      window_bytes_ -= std::min(window_bytes_, feedback.bytes);
      clamp();
    }
  }

  void scale() {
    const auto scaled = [&](Bytes bytes, TimeNs part_ns) {
      return static_cast<Bytes>(Wide{bytes} * part_ns / options_.base_rtt_ns);
    };
    bdp_bytes_ = scaled(options_.bdp_bytes, base_rtt_ns_);
    window_max_ =
        std::max<Bytes>(scaled(options_.window_bytes_max, round_trip_ns_), options_.chunk_bytes);
    target_ns_ = options_.trims ? base_rtt_ns_ * 3 / 4 : base_rtt_ns_;
    const Wide mtu = options_.mtu_bytes;
    // alpha = 4 * mtu * a * b / target with a = bdp / kReferenceBytes and b = target /
    // kReferenceNs.
    const auto part = [](Wide product, std::uint64_t divisor) {
      return static_cast<std::uint64_t>(product / divisor);
    };
    alpha_q16_ = part(4 * mtu * bdp_bytes_ << 16, kReferenceBytes * kReferenceNs);
    fair_bytes_ = part(5 * mtu * bdp_bytes_, kReferenceBytes);
    bump_bytes_ = part(3 * mtu * bdp_bytes_, 20 * kReferenceBytes);
    clamp();
  }

  void note_delay(TimeNs delay_ns) {
    average80_ns_ += delay_ns;
    average80_ns_ -= average80_ns_ / 81;
  }

  /// News of what was in the air when the window was set to what had been delivered.
  void ignore(Bytes bytes) { ignored_ += ignored_ < to_ignore_ ? bytes : 0; }

  void decrease(TimeNs now) {
    const TimeNs average = average_ns();
    if (now - decreased_ns_ < base_rtt_ns_ || average <= target_ns_) {
      return;
    }
    // Keeps at least half: 1 - 0.8 * (average - target) / average.
    const auto cut =
        static_cast<Bytes>(Wide{window_bytes_} * 4 * (average - target_ns_) / (Wide{average} * 5));
    window_bytes_ -= std::min(cut, window_bytes_ / 2);
    decreased_ns_ = now;
    clamp();
  }

  void apply(const Feedback& feedback) {
    const bool is_round = feedback.now - applied_ns_ >= base_rtt_ns_;
    if (acked_since_apply_ > kApplyMtus * options_.mtu_bytes || is_round) {
      window_bytes_ += static_cast<Bytes>(std::min<Wide>(increase_ / window_bytes_, window_max_));
      increase_ = 0;
      acked_since_apply_ = 0;
      applied_ns_ = feedback.now;
      if (feedback.now - bumped_ns_ >= base_rtt_ns_) {
        window_bytes_ += bump_bytes_;
        bumped_ns_ = feedback.now;
      }
    }
    clamp();
  }

  /// After a sudden overload the window becomes what was delivered in one round trip, and news
  /// about what was sent before is passed over.
  bool quick_adapt(const Feedback& feedback, TimeNs delay_ns, bool marked, bool loss) {
    if (ignored_ < to_ignore_ && (marked || loss)) {
      return true;
    }
    if (feedback.now < period_end_ns_) {
      return false;
    }
    bool adapted = false;
    const bool is_overloaded = trigger_ || loss || delay_ns > 4 * target_ns_;
    if (period_end_ns_ != 0 && is_overloaded && acked_in_period_ < window_max_ / 8) {
      window_bytes_ = std::max<Bytes>(acked_in_period_, options_.chunk_bytes);
      clamp();
      to_ignore_ = feedback.inflight_bytes;
      ignored_ = 0;
      trigger_ = false;
      increase_ = 0;
      adapted = true;
    }
    period_end_ns_ = feedback.now + base_rtt_ns_ + target_ns_;
    acked_in_period_ = 0;
    return adapted;
  }

  void clamp() {
    window_bytes_ = std::clamp<Bytes>(window_bytes_, options_.chunk_bytes, window_max_);
  }

  TimeNs average_ns() const { return average80_ns_ / 80; }

  // Of the network, scaled again when a lower round trip shows that base_rtt was too high. What
  // may be in the air lasts for the time that hosts take, too.
  TimeNs base_rtt_ns_;
  TimeNs round_trip_ns_;  ///< With idle links and hosts, from base_rtt downwards.
  Bytes bdp_bytes_ = 0;
  Bytes window_max_ = 0;
  TimeNs target_ns_ = 0;
  std::uint64_t alpha_q16_ = 0;   ///< Proportional increase: bytes per ns.
  std::uint64_t fair_bytes_ = 0;  ///< Fair increase.
  std::uint64_t bump_bytes_ = 0;  ///< Unconditional increase per round trip.

  std::uint64_t average80_ns_ = 0;  ///< Queueing delay, weight 1/80, times 80.
  Wide increase_ = 0;               ///< Bytes squared, waiting to be applied.
  Bytes acked_since_apply_ = 0;
  TimeNs applied_ns_ = 0;
  TimeNs bumped_ns_ = 0;
  TimeNs decreased_ns_ = 0;
  Bytes fast_increase_bytes_ = 0;  ///< Acknowledged in a row without queueing.
  // Quick adapt.
  TimeNs period_end_ns_ = 0;
  Bytes acked_in_period_ = 0;
  Bytes to_ignore_ = 0;
  Bytes ignored_ = 0;
  bool trigger_ = false;
  Bytes before_loss_bytes_ = 0;  ///< Window that on_spurious restores; 0: none.
  ControllerOptions options_;    // Last: each acknowledgement looks at what is before it.
};

}  // namespace

constexpr ControllerKind kNscc = {"nscc", true, make<NsccController>};

}  // namespace tutti::transport
