// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reduce-scatter, ring: block b starts at rank b + 1 and collects a contribution at every rank
// until it comes to rank b.
// Rounds P - 1. A rank sends (P - 1) n, and so does a node to others, by its last rank. Scratch
// (P - 2) n.
// Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms", 2009, section 3.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program reduce_scatter_ring(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  Builder builder;
  const Region output{Buffer::kOutput, 0, blocks.count(task.rank)};
  if (task.ranks() == 1) {
    builder.copy({Buffer::kInput, 0, output.count}, output);
    return std::move(builder).finish();
  }
  Region sum = blocks.in(Buffer::kInput, task.after(-1));
  for (int round = 0; round < task.ranks() - 1; ++round) {
    const int arrives = task.after(-round - 2);
    const Region next = arrives == task.rank ? output : builder.scratch(blocks.count(arrives));
    builder.send(task.after(1), sum);
    builder.recv(task.after(-1), next);
    builder.reduce(blocks.in(Buffer::kInput, arrives), next);
    sum = next;
  }
  return std::move(builder).finish();
}

Cost reduce_scatter_ring_cost(const Task& task) {
  const Letters of(task);
  const std::uint64_t sent = (of.ranks - 1) * of.count;
  return {.rounds = task.ranks() - 1,
          .sent_max = sent,
          .scratch_max = of.ranks > 2 ? (of.ranks - 2) * of.count : 0,
          .node_out_max = of.nodes > 1 ? sent : 0};
}

}  // namespace tutti::schedule
