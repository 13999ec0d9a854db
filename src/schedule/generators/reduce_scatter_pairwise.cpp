// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reduce-scatter, pairwise: every rank sends each other rank that one's block and adds up what
// comes for its own, in the order of distance.
// Rounds 1. A rank sends (P - 1) n, a node L (P - L) n to others. Scratch (P - 1) n.
// Source: Thakur et al. 2005, section 4.3.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program reduce_scatter_pairwise(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  const Region output{Buffer::kOutput, 0, blocks.count(task.rank)};
  Builder builder;
  builder.copy(blocks.in(Buffer::kInput, task.rank), output);
  for (int distance = 1; distance < task.ranks(); ++distance) {
    const Region arrived = builder.scratch(output.count);
    builder.recv(task.after(-distance), arrived);
    builder.send(task.after(distance), blocks.in(Buffer::kInput, task.after(distance)));
    builder.reduce(arrived, output);
  }
  return std::move(builder).finish();
}

Cost reduce_scatter_pairwise_cost(const Task& task) {
  Cost cost = cost_of_all_pairs(task, task.ranks() > 1 ? 1 : 0);
  cost.scratch_max = cost.sent_max;
  return cost;
}

}  // namespace tutti::schedule
