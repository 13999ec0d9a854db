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
constexpr std::uint64_t kQueueDrains = 6;  // Full queues of one BDP that a round trip may meet.

}  // namespace

LossDetector::LossDetector(const LossOptions& options, const WireCapabilities& wire)
    : options_(options),
      wire_(wire),
      rtt_(wire.base_rtt_ns),
      rto_ns_min_(
          options.rto_ns_min != 0
              ? options.rto_ns_min
              : std::max(4 * wire.base_rtt_ns, kRtoFloorNs + kQueueDrains * wire.base_rtt_ns)) {
  options_.same_path = options.same_path && !wire.reorders_within_path;
}

void LossDetector::on_delivered(const Chunk& chunk, TimeNs round_trip_ns) {
  if (!has_delivered_ || chunk.order > delivered_order_) {
    has_delivered_ = true;
    delivered_order_ = chunk.order;
    delivered_rtt_ns_ = round_trip_ns;
  }
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
  const TimeNs spread = rtt_.high_ns() - std::min(rtt_.high_ns(), rtt_.min_ns());
  const TimeNs low = rtt_.min_ns() / 4;
  // In a network that nobody knows one path may be several times as long as the others.
  const TimeNs high = rtt_.srtt_ns() + (wire_.base_rtt_is_guess ? rtt_.high_ns() : 0);
  return std::clamp(reordering_multiple_ * spread, low, std::max(low, high));
}

TimeNs LossDetector::rto_ns() const {
  const TimeNs usual = rtt_.srtt_ns() + std::max(4 * rtt_.rttvar_ns(), kRtoGranularityNs);
  const TimeNs rto = std::max(usual, late_ns()) + lazy_ns_;
  return std::min(std::clamp(rto, rto_ns_min_, std::max(rto_ns_min_, options_.rto_ns_max))
                      << backoff_,
                  std::max(rto_ns_min_, options_.rto_ns_max));
}

bool LossDetector::on_lost(const Flight& flight, std::uint64_t number) {
  if (has_episode_ && flight.at(number).order < episode_order_) {
    return false;
  }
  if (has_episode_ && episode_spurious_ == 0 && ++clean_episodes_ >= kCleanEpisodesToReset) {
    clean_episodes_ = 0;
    reordering_multiple_ = 1;
  }
  has_episode_ = true;
  episode_order_ = flight.orders();
  episode_retransmitted_ = 0;
  episode_spurious_ = 0;
  return true;
}

bool LossDetector::is_in_recovery(const Flight& flight) const {
  const std::uint64_t oldest = flight.oldest();
  return flight.first_lost() != Flight::kNoChunk ||
         (has_episode_ && oldest != Flight::kNoChunk && flight.at(oldest).order < episode_order_);
}

bool LossDetector::on_spurious(const Flight& flight) {
  if (episode_spurious_++ == 0) {
    reordering_multiple_ = std::min(reordering_multiple_ + 1, kMultipleMax);
    clean_episodes_ = 0;
  }
  return flight.first_lost() == Flight::kNoChunk && episode_spurious_ == episode_retransmitted_;
}

}  // namespace tutti::transport
