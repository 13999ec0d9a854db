// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Broadcast, chain: each rank passes the vector on, in segments one after the other
// (algorithm.cpp).
// Rounds P - 1 for the last rank to get a segment. A rank sends n, and so does a node to others.
// Source: Watts and van de Geijn, "A Pipelined Broadcast for Multidimensional Meshes", 1995.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program bcast_chain(const Task& task) {
  const int me = task.after(-task.root());
  const Region output{Buffer::kOutput, 0, task.problem.counts[0]};
  Builder builder;
  if (me == 0) {
    builder.copy({Buffer::kInput, 0, output.count}, output);
  } else {
    builder.recv(task.after(-1), output);
  }
  if (me + 1 < task.ranks()) {
    builder.send(task.after(1), output);
  }
  return std::move(builder).finish();
}

Cost bcast_chain_cost(const Task& task) {
  const Letters of(task);
  return {.rounds = task.ranks() - 1,
          .sent_max = of.ranks > 1 ? of.count : 0,
          .node_out_max = of.nodes > 1 ? of.count : 0};
}

}  // namespace tutti::schedule
