// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One direction of a cable: the queues before it (marks, drops, faults), the serialiser, the wire.
// A port has no timer. A caller that looks at it at `now` first lets it catch up: all packets whose
// turn came until `now` are sent, in the order and at the times at which an eager port would have
// sent them. That is exact, since nothing but an arrival (or a pause, or a change of rate) alters
// that order, and each of these catches up first. So a packet costs one event per hop, its arrival.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "simulate/options.hpp"
#include "simulate/ring.hpp"

namespace tutti::simulate {

inline constexpr std::uint32_t kNoLink = UINT32_MAX;
inline constexpr std::size_t kQueueBins = 16;

/// What ports of one kind have in common.
struct PortRules {
  std::uint64_t seed = 0;
  TimePs latency_ps = 0;
  std::uint32_t header_bytes = 0;
  std::uint32_t queue_bytes = UINT32_MAX;    ///< Data that may wait.
  std::uint32_t control_bytes = UINT32_MAX;  ///< Control that may wait.
  std::uint32_t ecn_low_bytes = UINT32_MAX;
  std::uint32_t ecn_high_bytes = UINT32_MAX;
  std::uint32_t bin_bytes = UINT32_MAX;  ///< Width of a bin of PortCounters::queue.
  bool trim = false;
  bool last_hop = false;
  bool lossless = false;
  LossModel loss{};
};

struct PortCounters {
  std::uint64_t packets = 0;  ///< Sent, both priorities.
  std::uint64_t bytes = 0;
  std::uint32_t marked = 0;
  std::uint32_t trimmed = 0;
  std::uint32_t dropped = 0;  ///< No room in the queue.
  std::uint32_t lost = 0;     ///< The wire's fault: loss model, link down.
  std::uint32_t pauses = 0;   ///< Received.
  std::uint32_t queue_bytes_max = 0;
  /// Data packets sent, by the bytes they left waiting; the last bin is open.
  std::array<std::uint32_t, kQueueBins> queue{};
};

class Port {
 public:
  /// `rules` and `held` outlive the port. `held`: bytes that a switch holds, by in-link.
  void set_up(std::uint32_t link, PsPerByteQ16 rate, const PortRules* rules, std::uint32_t* held);

  /// A packet for this link; packets that die are appended to `dead`.
  void arrive(TimePs now_ps, SimPacket packet, std::vector<SimPacket>* dead);
  /// Sends all whose turn came until `now_ps`.
  void catch_up(TimePs now_ps) {
    while (free_ps_ <= now_ps && may_send()) {
      send_one();
    }
  }
  void pause(TimePs now_ps, bool stop);
  /// 0: the link is down.
  void set_rate(TimePs now_ps, PsPerByteQ16 rate);

  bool paused() const { return paused_; }
  /// The serialiser is busy until then.
  TimePs free_ps() const { return free_ps_; }
  /// When the next packet's turn comes; kNever: none waits.
  TimePs next_send_ps() const { return may_send() ? free_ps_ : kNever; }
  std::uint32_t data_bytes() const { return data_bytes_; }
  /// Packets that wait or are on the wire. Between windows.
  std::uint32_t in_transit() const { return rings_[0].in_transit() + rings_[1].in_transit(); }
  const PortCounters& counters() const { return counters_; }

  Ring& ring(Priority priority) { return rings_[static_cast<std::size_t>(priority)]; }

 private:
  bool may_send() const { return rings_[1].has_queued() || (rings_[0].has_queued() && !paused_); }
  void send_one();
  void admit(SimPacket packet, std::vector<SimPacket>* dead);
  void overflow(SimPacket packet, std::vector<SimPacket>* dead);
  void queue_control(const SimPacket& packet, std::vector<SimPacket>* dead);
  void queue_data(const SimPacket& packet);
  bool marks();
  bool loses();
  std::uint32_t random_bits();

  TimePs free_ps_ = 0;
  const PortRules* rules_ = nullptr;
  std::uint32_t* held_ = nullptr;
  PsPerByteQ16 rate_ = 0;
  std::uint32_t link_ = 0;
  std::uint32_t data_bytes_ = 0;
  std::uint32_t control_bytes_ = 0;
  std::uint32_t draws_ = 0;
  bool paused_ = false;
  bool down_ = false;
  bool bad_ = false;  ///< State of the loss model.
  std::array<Ring, kPriorities> rings_;
  PortCounters counters_;
};

}  // namespace tutti::simulate
