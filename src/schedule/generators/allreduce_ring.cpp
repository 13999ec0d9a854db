// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allreduce, ring: reduce-scatter around the ring, then allgather around it, on P even parts of
// the vector. In segments its phases overlap (segmented ring).
// Rounds 2 (P - 1). A rank sends 2 n less two neighbouring parts, 2 (P - 1) n / P where P
// divides n; a node as much to others, by its last rank. Scratch n - floor(n / P).
// Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms", 2009.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allreduce_ring(const Task& task) {
  const std::uint64_t count = task.problem.counts[0];
  const int ranks = task.ranks();
  const Blocks parts = Blocks::even(count, ranks);
  Builder builder;
  builder.reserve(static_cast<std::size_t>(task.ranks()) * 5);
  builder.copy({Buffer::kInput, 0, count}, {Buffer::kOutput, 0, count});
  for (int round = 0; round < 2 * (ranks - 1); ++round) {
    const Region arrives = parts.in(Buffer::kOutput, task.after(-round - 1));
    builder.send(task.after(1), parts.in(Buffer::kOutput, task.after(-round)));
    if (round < ranks - 1) {
      const Region contribution = builder.scratch(arrives.count);
      builder.recv(task.after(-1), contribution);
      builder.reduce(contribution, arrives);
    } else {
      builder.recv(task.after(-1), arrives);
    }
  }
  return std::move(builder).finish();
}

Cost allreduce_ring_cost(const Task& task) {
  const Letters of(task);
  const int ranks = task.ranks();
  const Blocks parts = Blocks::even(of.count, ranks);
  if (ranks == 1) {
    return {};
  }
  // All but two neighbouring parts twice, and those two once: the smallest are the last.
  const auto sent = [&](int rank) {
    return 2 * of.count - parts.count((rank + 1) % ranks) - parts.count((rank + 2) % ranks);
  };
  const int width = task.layout.ranks_per_node_max();
  const std::uint64_t sent_max = sent(ranks > 2 ? ranks - 3 : 0);
  // The last rank of a node sends to the next node; that of the last node but one sends most.
  const std::uint64_t out = width > 1 ? sent(ranks - width - 1) : sent_max;
  return {.rounds = 2 * (ranks - 1),
          .sent_max = sent_max,
          .scratch_max = of.count - of.count / of.ranks,
          .node_out_max = of.nodes > 1 ? out : 0};
}

}  // namespace tutti::schedule
