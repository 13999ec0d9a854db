// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/loss.hpp"

#include <algorithm>

namespace tutti::transport {
namespace {

constexpr std::uint32_t kMultipleMax = 8;
constexpr std::uint32_t kCleanEpisodesToReset = 16;  // RFC 8985 section 6.2, step 4.
constexpr TimeNs kRtoGranularityNs = 1'000;
constexpr TimeNs kRtoFloorNs = 15'000;
constexpr TimeNs kRttNsMax = 1ULL << 31;  // Longer ones cannot be told.
constexpr TimeNs kDeviations = 4;         // As of the timeout, RFC 6298.
constexpr std::uint32_t kLatenessMultiple = 2;
constexpr std::uint32_t kLatenessFall = 256;  // Of it in each sample.
constexpr std::uint64_t kQueueDrains = 6;     // Full queues of one BDP that a round trip may meet.

}  // namespace

LossDetector::LossDetector(const LossOptions& options, const WireCapabilities& wire)
    : options_(options),
      wire_(wire),
      rtt_(wire.base_rtt_ns),
      light_rtt_(wire.base_rtt_ns),
      rto_ns_min_(
          options.rto_ns_min != 0
              ? options.rto_ns_min
              : std::max(4 * wire.base_rtt_ns, kRtoFloorNs + kQueueDrains * wire.base_rtt_ns)) {
  options_.same_path = options.same_path && !wire.reorders_within_path;
}

void LossDetector::on_delivered(TimeNs now, Flight& flight, std::uint64_t number,
                                TimeNs round_trip_ns) {
  const Chunk& chunk = flight.at(number);
  if (chunk.is_light) {
    if (round_trip_ns != 0) {
      light_rtt_.on_sample(round_trip_ns);
    }
  } else {
    delivered_ = std::min(delivered_ + 1, kSamplesToTrust);
    lateness_ns_ -= lateness_ns_ / kLatenessFall;
  }
  if (has_delivered_ && chunk.order < delivered_order_) {
    if (chunk.overtaken_ns != 0) {
      on_late(now - chunk.overtaken_ns);
    }
    return;
  }
  has_delivered_ = true;
  delivered_order_ = chunk.order;
  delivered_rtt_ns_ = round_trip_ns;
  if (wire_.base_rtt_is_guess) {
    for (std::uint64_t n = flight.before(number);
         n != Flight::kNoChunk && flight.at(n).overtaken_ns == 0; n = flight.before(n)) {
      flight.at(n).overtaken_ns = now;  // And so are all before it.
    }
  }
}

void LossDetector::on_late(TimeNs late_ns) {
  lateness_ns_ = std::max(lateness_ns_, std::min(late_ns, rtt_.srtt_ns() + high_ns()));
}

void LossDetector::mark_same_path(Flight& flight, std::uint64_t number,
                                  std::uint64_t packet_number) {
  if (!options_.same_path) {
    return;
  }
  for (std::uint64_t n = flight.before_on_path(number); n != Flight::kNoChunk;
       n = flight.before_on_path(n)) {
    const std::uint64_t bit = 1ULL << (n % 64);
    if ((flight.marks(n) & bit) != 0) {
      break;  // And so are all before it.
    }
    flight.marks(n) |= bit;
    marked_by_ = std::max(marked_by_, packet_number);
  }
}

TimeNs LossDetector::reordering_ns() const {
  const TimeNs low = rtt_.min_ns() / 4;
  if (!wire_.base_rtt_is_guess) {
    return std::clamp(reordering_multiple_ * spread_ns(), low, std::max(low, rtt_.srtt_ns()));
  }
  // In a network that nobody knows one path may be several times as long as the others.
  const TimeNs high = rtt_.srtt_ns() + high_ns();
  if (!knows_lateness()) {
    return high;
  }
  // What overtook it may have been answered at once, and it with the next ones.
  const TimeNs least = low + ack_delay_ns_;
  return std::clamp(reordering_multiple_ * kLatenessMultiple * lateness_ns_, least,
                    std::max(least, high));
}

TimeNs LossDetector::overdue_ns() const {
  if (!knows_lateness()) {
    return rtt_.srtt_ns() + reordering_ns();
  }
  return rtt_.srtt_ns() + std::max(spread_ns(), kDeviations * rtt_.rttvar_ns());
}

TimeNs LossDetector::rto_ns() const {
  const TimeNs usual = rtt_.srtt_ns() + std::max(4 * rtt_.rttvar_ns(), kRtoGranularityNs);
  // After the tail probe, which may tell that nothing is lost.
  const TimeNs rto = std::max(usual, 2 * high_ns()) + std::max(ack_delay_ns_, lazy_ns_);
  // Backing off has a bound. Slow links with long queues have none: no answer is late before its
  // usual time.
  const TimeNs first =
      std::clamp(rto, rto_ns_min_, std::max({rto_ns_min_, options_.rto_ns_max, kRttNsMax}));
  return std::min(first << backoff_, std::max(first, options_.rto_ns_max));
}

bool LossDetector::on_lost(TimeNs now, const Flight& flight, std::uint64_t number) {
  if (episode_ != 0 && flight.at(number).order < episode_order_) {
    return false;
  }
  if (episode_ != 0 && !has_reordered_ && ++clean_episodes_ >= kCleanEpisodesToReset) {
    clean_episodes_ = 0;
    reordering_multiple_ = 1;
  }
  ++episode_;
  has_reordered_ = false;
  episode_order_ = flight.orders();
  episode_ns_ = now;
  episode_first_ = episode_next_;
  episode_next_ = flight.next();
  episode_retransmitted_ = 0;
  episode_spurious_ = 0;
  return true;
}

bool LossDetector::is_in_recovery(const Flight& flight) const {
  const std::uint64_t oldest = flight.oldest();
  return flight.first_lost() != Flight::kNoChunk ||
         (episode_ != 0 && oldest != Flight::kNoChunk && flight.at(oldest).order < episode_order_);
}

bool LossDetector::on_spurious(const Flight& flight, std::uint64_t number, TimeNs sent_ns) {
  if (!has_reordered_) {
    has_reordered_ = true;
    reordering_multiple_ = std::min(reordering_multiple_ + 1, kMultipleMax);
    clean_episodes_ = 0;
  }
  // Of a chunk that the episode before may have sent again, only what was sent since tells of this
  // one. Of later chunks the first transmission may be what came second.
  if (sent_ns < episode_ns_ && number < episode_first_) {
    return false;
  }
  ++episode_spurious_;
  return flight.first_lost() == Flight::kNoChunk && episode_spurious_ == episode_retransmitted_;
}

}  // namespace tutti::transport
