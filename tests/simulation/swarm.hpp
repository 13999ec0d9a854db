// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// All knobs of one simulated run, drawn from its seed: swarm testing (Groce and others, ISSTA
// 2012). Each run enables a random subset of the faults with random intensities, so that faults
// that hide each other are also seen apart. Times in ns of virtual time, chances in 1/1000, sizes
// in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/random.hpp"
#include "transport/types.hpp"

namespace tutti::transport::simulation {

/// What may be done to the packets of one direction of a connection.
struct LinkFaults {
  std::uint32_t loss = 0;
  std::uint32_t burst_enter = 0;  ///< Gilbert-Elliott: chance to enter the bad state, of a path.
  std::uint32_t burst_leave = 1000;
  std::uint32_t burst_loss = 0;
  std::uint32_t loss_of_type = 0;  ///< Of packets of `lossy_type`.
  std::uint8_t lossy_type = 0;     ///< PacketType
  std::uint32_t loss_every = 0;    ///< Each n-th packet of `lossy_type`; 0: none.
  std::uint32_t loss_of_ends = 0;  ///< Of the last chunk of a message, when it is sent first.
  std::uint32_t loss_of_retransmissions = 0;
  std::uint32_t duplicate = 0;
  std::uint32_t duplicate_copies = 1;
  TimeNs duplicate_ns_max = 1;
  std::uint32_t delay = 0;
  TimeNs delay_ns_max = 1;
  std::uint32_t reorder = 0;  ///< Leaves the order of its path.
  TimeNs reorder_ns_max = 1;
  std::uint32_t corrupt_header = 0;
  std::uint32_t corrupt_payload = 0;
  std::uint32_t trim = 0;
  std::uint32_t silent_trim = 0;   ///< Trimmed packets of which not even the header comes.
  std::uint32_t partial = 0;       ///< Reported so by the wire, where no switch trims.
  std::uint32_t partial_late = 0;  ///< Of the partial ones, that come whole later.
  std::uint32_t mark = 0;
  TimeNs blackout_ns = kNever;  ///< From then on nothing arrives, healed or not.
};

/// A set of paths that is gone, or whose packets wait, from time to time.
struct PathFault {
  std::uint8_t direction = 0;    ///< Bit 0: from end 0; bit 1: from end 1.
  std::uint32_t path_first = 0;  ///< Paths first, first + step, ... (a rail: step = rails).
  std::uint32_t path_step = 1;
  std::uint32_t path_count = 1;
  bool is_pause = false;  ///< Packets are held and released together, instead of lost.
  TimeNs from_ns = 0;
  TimeNs until_ns = kNever;
  TimeNs period_ns = 0;  ///< Flapping: off in every second half period; 0: always.
};

struct MessageKnobs {
  Tag tag = 0;
  Bytes bytes = 0;
  TimeNs wait_ns = 0;  ///< Between the post before and this one.
};

struct ReceiveKnobs {
  std::vector<std::uint32_t> parts;  ///< Which message of the plan fits each part.
  std::vector<Bytes> capacities;     ///< At least 0; less than the message: truncated.
  TimeNs wait_ns = 0;
};

struct CancelKnobs {
  bool is_send = false;
  std::uint32_t index = 0;  ///< kNewest: of what has been posted until then.
  TimeNs at_ns = 0;

  static constexpr std::uint32_t kNewest = UINT32_MAX;
};

/// What one end does.
struct PlanKnobs {
  std::vector<MessageKnobs> sends;
  std::vector<ReceiveKnobs> receives;
  std::vector<CancelKnobs> cancels;
};

struct ConnectionKnobs {
  std::uint32_t hosts[2] = {0, 1};
  ConnectionOptions options;  ///< Of end 0; ids, incarnations and key are the world's.
  PlanKnobs plans[2];
  LinkFaults faults[2];  ///< Of what end 0 and what end 1 sends.
  std::vector<PathFault> path_faults;
  TimeNs remap_ns = kNever;             ///< Paths change their routes then.
  std::uint32_t path_spread_ns = 0;     ///< Paths differ in length by up to this.
  std::uint32_t core_path[2] = {0, 0};  ///< What the liveness phase heals, each way.
  std::uint32_t core_paths = 1;         ///< Paths from core_path on that are healed.
  std::uint32_t closer = 0;
  TimeNs abort_ns = kNever;      ///< `closer` aborts then.
  TimeNs close_ns = kNever;      ///< `closer` closes then, whatever is open.
  bool is_clean = false;         ///< No fault: little may be counted as lost.
  bool piggybacks = false;       ///< Packets that may wait are piggybacked before their time.
  bool is_patient = false;       ///< Nobody waits for the end of a send.
  std::uint32_t successors = 0;  ///< Connections of the same ids that follow this one.

  bool has_cancels() const { return !plans[0].cancels.empty() || !plans[1].cancels.empty(); }
};

struct HostKnobs {
  TimeNs clock_offset_ns = 0;
  std::int32_t clock_drift_ppm = 0;
  TimeNs clock_step_at_ns = kNever;  ///< The clock steps back then,
  TimeNs clock_step_ns = 0;          ///< by this much.
  TimeNs timer_grain_ns = 1;         ///< Timeouts are seen at multiples of it.
  TimeNs batch_ns = 1;               ///< Packets are handed over at multiples of it.
  TimeNs stall_every_ns = 0;         ///< 0: never.
  TimeNs stall_ns_max = 1;
  bool has_stamps = false;            ///< It knows when packets came that it takes in later.
  TimeNs egress_room_ns = 1'000'000;  ///< The wire takes packets up to this far ahead.
  TimeNs crash_ns = kNever;
  TimeNs restart_after_ns = 1;
};

struct Knobs {
  std::uint64_t seed = 0;
  TimeNs heal_ns = 0;  ///< End of the safety phase.
  std::vector<HostKnobs> hosts;
  std::vector<ConnectionKnobs> connections;
  bool is_clean = false;  ///< No fault at all.
};

Knobs draw(std::uint64_t seed);
/// The messages of both ends, as many as a successor or a restarted peer exchanges.
void draw_plans(Random& random, ConnectionKnobs& connection, Bytes bytes_max);
std::string describe(const Knobs& knobs);

}  // namespace tutti::transport::simulation
