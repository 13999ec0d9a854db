// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reduce, chain: the broadcast's chain the other way round, in segments one after the other
// (algorithm.cpp). Each rank adds its own vector to what arrives and passes the sum on.
// Rounds P - 1 for a segment of the last rank to get to the root. A rank sends n, and so does a
// node to others; the root receives n, from one rank. Scratch n. Source: bcast_chain.cpp, mirrored.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program reduce_chain(const Task& task) {
  const int me = task.after(-task.root());
  const std::uint64_t count = task.problem.counts[0];
  const bool is_last = me + 1 == task.ranks();
  Builder builder;
  Region sum{Buffer::kInput, 0, count};
  if (me == 0) {
    sum = {Buffer::kOutput, 0, count};
    builder.copy({Buffer::kInput, 0, count}, sum);
  }
  if (!is_last) {
    const Region arrived = builder.scratch(count);
    builder.recv(task.after(1), arrived);
    if (me == 0) {
      builder.reduce(arrived, sum);
    } else {
      builder.reduce(sum, arrived);
      sum = arrived;
    }
  }
  if (me > 0) {
    builder.send(task.after(-1), sum);
  }
  return std::move(builder).finish();
}

Cost reduce_chain_cost(const Task& task) {
  const Letters of(task);
  const std::uint64_t sent = of.ranks > 1 ? of.count : 0;
  return {.rounds = task.ranks() - 1,
          .sent_max = sent,
          .scratch_max = sent,
          .node_out_max = of.nodes > 1 ? of.count : 0};
}

}  // namespace tutti::schedule
