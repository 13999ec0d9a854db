// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allgather, linear: every rank sends its block to every other, nearest first.
// Rounds 1. A rank sends (P - 1) n, a node L (P - L) n to others. Source: folklore; Open MPI
// "linear".
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allgather_linear(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  const Region own{Buffer::kInput, 0, blocks.count(task.rank)};
  Builder builder;
  builder.copy(own, blocks.in(Buffer::kOutput, task.rank));
  for (int distance = 1; distance < task.ranks(); ++distance) {
    builder.recv(task.after(-distance), blocks.in(Buffer::kOutput, task.after(-distance)));
    builder.send(task.after(distance), own);
  }
  return std::move(builder).finish();
}

Cost allgather_linear_cost(const Task& task) {
  return cost_of_all_pairs(task, task.ranks() > 1 ? 1 : 0);
}

}  // namespace tutti::schedule
