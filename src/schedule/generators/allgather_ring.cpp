// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allgather, ring: in round i a rank passes on the block it got in round i - 1.
// Rounds P - 1. A rank sends (P - 1) n, and so does a node to others, by its last rank.
// Source: Thakur et al. 2005, section 4.1.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allgather_ring(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  Builder builder;
  builder.copy({Buffer::kInput, 0, blocks.count(task.rank)}, blocks.in(Buffer::kOutput, task.rank));
  for (int round = 0; round < task.ranks() - 1; ++round) {
    builder.send(task.after(1), blocks.in(Buffer::kOutput, task.after(-round)));
    builder.recv(task.after(-1), blocks.in(Buffer::kOutput, task.after(-round - 1)));
  }
  return std::move(builder).finish();
}

Cost allgather_ring_cost(const Task& task) {
  const Letters of(task);
  const std::uint64_t sent = (of.ranks - 1) * of.count;
  return {.rounds = task.ranks() - 1, .sent_max = sent, .node_out_max = of.nodes > 1 ? sent : 0};
}

}  // namespace tutti::schedule
