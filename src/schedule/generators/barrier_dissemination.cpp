// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Barrier, dissemination: in round k tell the rank 2^k further that all of the 2^k ranks before
// have come. Rounds ceil(log2 P); no data. Source: Hensgen, Finkel and Manber, "Two Algorithms for
// Barrier Synchronization", 1988.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program barrier_dissemination(const Task& task) {
  Builder builder;
  for (int distance = 1; distance < task.ranks(); distance *= 2) {
    builder.send_token(task.after(distance));
    builder.recv_token(task.after(-distance));
    builder.fence();
  }
  return std::move(builder).finish();
}

Cost barrier_dissemination_cost(const Task& task) { return {.rounds = log2_ceil(task.ranks())}; }

}  // namespace tutti::schedule
