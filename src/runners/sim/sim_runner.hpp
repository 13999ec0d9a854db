// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries the programs of all ranks out on a model of GPU nodes (docs/simulation.md): the same
// programs that the MPI runner carries out, with times instead of data. A discrete-event run with
// fluid links. Rules:
//  R1 An end sends one message at a time, at full rate: in the order in which messages became
//     ready, then by rank and step.
//  R2 Two and more messages into one end share a part of its rate (LinkModel::incast_percent)
//     evenly.
//  R3 A message is ready when both its steps' dependencies are complete (rendezvous); a copy and a
//     reduction take no time.
//  R4 A message holds its sender's end for LinkModel::message_ns before its first byte moves.
// Integers throughout: times in picoseconds, rates in MB/s, so that a rate times a time is a whole
// number of millionths of a byte. Equal input gives equal output, on any machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "runners/sim/cluster.hpp"
#include "runners/sim/wires.hpp"
#include "schedule/program.hpp"

namespace tutti::runners::sim {

using TimePs = std::uint64_t;

/// What went through one end in one direction.
struct EndUse {
  Bytes bytes = 0;
  TimePs busy_ps = 0;    ///< Out: the engine was held. In: a message was coming in.
  TimePs incast_ps = 0;  ///< In: two or more messages were.
};

/// One message.
struct Transfer {
  int from = 0;
  int to = 0;
  std::uint32_t send_step = 0;
  std::uint32_t recv_step = 0;
  Bytes bytes = 0;
  LinkClass kind = LinkClass::kNvlink;
  TimePs ready_ps = 0;  ///< Both steps could begin.
  TimePs start_ps = 0;  ///< The engine took it up.
  TimePs end_ps = 0;    ///< Both steps are complete.
};

struct SimOutcome {
  TimePs end_ps = 0;
  std::vector<TimePs> finish_ps;  ///< By rank: its last step is complete.
  std::vector<LinkEnd> ends;
  std::vector<EndUse> out;          ///< By end.
  std::vector<EndUse> in;           ///< By end; a mesh's ends count bytes alone.
  std::vector<Transfer> transfers;  ///< In the order of (sender, step); empty unless asked for.
};

/// Errors: a send without its receive (or the reverse), ranks that wait for each other in a circle,
/// a link that the cluster lacks, more bytes than 64 bits of millionths count.
Result<SimOutcome> run(std::span<const schedule::Program> programs, const topology::Layout& layout,
                       const Cluster& cluster, Bytes element_bytes, bool keep_transfers = false);

}  // namespace tutti::runners::sim
