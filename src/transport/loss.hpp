// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// When is a chunk declared lost? From the surest sign to the weakest:
// - trim: its header came without its payload, which a switch cut off
// - partial: its header came, with a gap in its payload (Arrival::trimmed where no switch trims)
// - same path: a chunk sent later on the same path is here, and a word of bits told since then says
//   that this one is not. The word matters: the echo of this one may itself be lost.
// - rack: a chunk sent later on any path is here, and a reordering window has passed (RFC 8985);
//   where the idle round trip is a guess, since it came, and the window is learnt from what came
//   late
// - gap: the receiver says so (credits without trimming)
// - timeout: nothing was heard for an RTO (RFC 6298)
// A lost retransmission is found in the same ways, as each chunk counts by its latest transmission.
// Round trips here are with the time that hosts take: an answer that a sleeping host owes is not
// lost. Also here: the tail probe's time, the episode of a recovery, and its undoing when the
// receiver had everything already (D-SACK, RFC 2883). Not the sending: connection_send.cpp.
#pragma once

#include <algorithm>
#include "transport/flight.hpp"
#include "transport/rtt.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

enum class LossCause : std::uint8_t { kTrim, kSamePath, kRack, kGap, kTimeout, kPartial };

class LossDetector {
 public:
  /// Round trips over paths of which nothing is known, before their order is believed: some for
  /// each path, while the queues fill up that the connection itself makes.
  static constexpr std::uint32_t kSamplesToTrust = 256;

  LossDetector(const LossOptions& options, const WireCapabilities& wire);

  RttEstimator& rtt() { return rtt_; }
  const RttEstimator& rtt() const { return rtt_; }

  /// A transmission is known to have arrived, by an echo of it. Before the flight forgets it.
  void on_delivered(TimeNs now, Flight& flight, std::uint64_t number, TimeNs round_trip_ns);
  /// Marks the chunks that went before `number` on its path as missed.
  void mark_same_path(Flight& flight, std::uint64_t number, std::uint64_t packet_number);
  /// Of a word of bits told by packet `packet_number`: calls lost(number) for the missed ones.
  template <class Lost>
  void on_told(Flight& flight, std::uint64_t base64, std::uint64_t bitmap,
               std::uint64_t packet_number, Lost&& lost) {
    std::uint64_t missed = flight.marks(base64) & ~bitmap;
    if (missed == 0 || packet_number < marked_by_) {
      return;
    }
    for (; missed != 0; missed &= missed - 1) {
      const std::uint64_t number = base64 + static_cast<std::uint64_t>(__builtin_ctzll(missed));
      if (flight.is_in_flight(number)) {
        lost(number);
      }
    }
  }
  /// Calls lost(number) for what RACK gives up now. Returns when to look again; kNever.
  template <class Lost>
  TimeNs detect_by_time(const Flight& flight, TimeNs now, Lost&& lost) {
    if (!options_.rack || !has_delivered_) {
      return kNever;
    }
    const TimeNs window_ns = reordering_ns();
    const TimeNs round_trip_ns = std::max(delivered_rtt_ns_, rtt_.srtt_ns());
    while (true) {
      const std::uint64_t number = flight.oldest();
      if (number == Flight::kNoChunk || flight.at(number).order > delivered_order_) {
        return kNever;
      }
      const Chunk& chunk = flight.at(number);
      const TimeNs due_ns =
          window_ns + (knows_lateness() ? chunk.overtaken_ns : chunk.sent_ns + round_trip_ns);
      if (due_ns > now) {
        return due_ns;
      }
      lost(number);
    }
  }

  TimeNs reordering_ns() const;
  TimeNs rto_ns() const;
  /// `newest`: in the air. A light one does not wait for the queue that heavier traffic of its own
  /// connection made before it: over UDP, round trips of light ones are counted by themselves, too.
  TimeNs tail_probe_ns(const Chunk& newest) const {
    const TimeNs usual_ns = std::max(2 * rtt_.srtt_ns(), high_ns() * 5 / 4);
    const TimeNs light_ns = std::max(2 * light_rtt_.srtt_ns(), light_rtt_.high_ns() * 5 / 4);
    const bool is_light = counts_as_light(newest) && light_rtt_.has_sample();
    return std::max((is_light ? std::min(usual_ns, light_ns) : usual_ns) + ack_delay_ns_,
                    options_.tail_probe_ns_min);
  }
  bool counts_as_light(const Chunk& chunk) const {
    return wire_.base_rtt_is_guess && chunk.is_light;
  }
  /// After so long since it was sent a chunk should have been heard of.
  TimeNs overdue_ns() const;
  /// A chunk that was given up by knows_lateness() has arrived, this long after it was overtaken.
  void on_late(TimeNs late_ns);
  /// A network whose idle round trip is a guess has a measure of its own, once enough has arrived.
  bool knows_lateness() const { return wire_.base_rtt_is_guess && delivered_ >= kSamplesToTrust; }
  /// How long the peer may delay an acknowledgement, and one that its sender does not wait for.
  void set_ack_delay(TimeNs delay_ns, TimeNs lazy_ns) {
    ack_delay_ns_ = std::max(delay_ns, lazy_ns);
    lazy_ns_ = lazy_ns;
  }
  void on_progress() { backoff_ = 0; }
  void on_timeout() { backoff_ = backoff_ < 20 ? backoff_ + 1 : backoff_; }
  std::uint32_t backoff() const { return backoff_; }

  /// A chunk was lost (before the flight counts it so); true: a new episode. What was in the air
  /// when the episode began belongs to it. It is the connection's: what is undone and the
  /// reordering window are judged by all of it. To which losses a window reacts is its group's own
  /// matter.
  bool on_lost(TimeNs now, const Flight& flight, std::uint64_t number);
  /// Number of the latest episode, from 1; 0: there has been none.
  std::uint64_t episode() const { return episode_; }
  /// Something of the episode is still lost or in the air.
  bool is_in_recovery(const Flight& flight) const;
  /// A chunk of the open episode was sent again.
  void on_retransmitted() { ++episode_retransmitted_; }
  /// The receiver had the chunk already when the transmission of `sent_ns` came; true: so it was
  /// with all retransmissions of the open episode, and the reaction is to be undone.
  bool on_spurious(const Flight& flight, std::uint64_t number, TimeNs sent_ns);

 private:
  /// What round trips may take that is not in the smoothed one: a host that sleeps and then answers
  /// all at once ends with the shortest of them. One long pause is in it for hundreds of samples;
  /// only the smoothed one may say that they all take so long.
  TimeNs high_ns() const {
    const TimeNs usual = rtt_.srtt_ns() + 4 * rtt_.rttvar_ns();
    return std::min(rtt_.high_ns(), std::max(options_.rto_ns_max / 4, usual));
  }

  TimeNs spread_ns() const { return high_ns() - std::min(high_ns(), rtt_.min_ns()); }

  LossOptions options_;
  WireCapabilities wire_;
  RttEstimator rtt_;
  RttEstimator light_rtt_;
  TimeNs ack_delay_ns_ = 0;
  TimeNs lazy_ns_ = 0;
  TimeNs rto_ns_min_;
  std::uint32_t backoff_ = 0;

  /// Transmissions that have arrived, as far as that matters; without light ones, which have no
  /// order to tell of.
  std::uint32_t delivered_ = 0;
  bool has_delivered_ = false;
  std::uint64_t delivered_order_ = 0;  ///< The newest transmission known to have arrived.
  TimeNs delivered_rtt_ns_ = 0;
  /// How long after it was overtaken a chunk has arrived: what RACK has to wait for. The most,
  /// slowly falling. Unlike the spread of round trips it has nothing of the queues that all chunks
  /// pass: those of one burst have equal times of sending, and each a longer way than the one
  /// before.
  TimeNs lateness_ns_ = 0;
  std::uint64_t marked_by_ = 0;  ///< Newest packet that marked a chunk as missed.

  std::uint32_t reordering_multiple_ = 1;  ///< 1 to 8.
  std::uint32_t clean_episodes_ = 0;
  std::uint64_t episode_ = 0;        ///< Number of the latest.
  bool has_reordered_ = false;       ///< A retransmission was needless since the episode began.
  std::uint64_t episode_order_ = 0;  ///< Transmissions before it belong to the episode.
  TimeNs episode_ns_ = 0;            ///< When it began.
  std::uint64_t episode_next_ = 0;   ///< The first chunk that had not been sent then.
  std::uint64_t episode_first_ = 0;  ///< Chunks before it may be those of the episode before.
  std::uint64_t episode_retransmitted_ = 0;
  std::uint64_t episode_spurious_ = 0;
};

}  // namespace tutti::transport
