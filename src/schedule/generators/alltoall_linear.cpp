// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Alltoall(v), linear: every message at once, nearest rank first.
// Rounds 1. A rank sends (P - 1) n, a node L (P - L) n to others. Source: folklore; Open MPI
// "linear".
#include "schedule/builder.hpp"
#include "schedule/exchange.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program alltoall_linear(const Task& task) {
  const Exchange exchange(task.problem, task.rank);
  Builder builder;
  builder.copy(exchange.leaves(task.rank), exchange.arrives(task.rank));
  for (int distance = 1; distance < task.ranks(); ++distance) {
    builder.recv(task.after(-distance), exchange.arrives(task.after(-distance)));
    builder.send(task.after(distance), exchange.leaves(task.after(distance)));
  }
  return std::move(builder).finish();
}

Cost alltoall_linear_cost(const Task& task) {
  return cost_of_all_pairs(task, task.ranks() > 1 ? 1 : 0);
}

}  // namespace tutti::schedule
