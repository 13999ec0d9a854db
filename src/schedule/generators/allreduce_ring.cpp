// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allreduce, ring: reduce-scatter around the ring, then allgather around it, on P even parts of the
// vector. In segments its phases overlap (segmented ring).
// Rounds 2 (P - 1); each rank sends at most 2 (P - 1) ceil(n / P).
// Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms", 2009.
#include "schedule/builder.hpp"
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
  const auto ranks = static_cast<std::uint64_t>(task.ranks());
  return {2 * (task.ranks() - 1), 2 * (ranks - 1) * (task.problem.counts[0] / ranks + 1)};
}

}  // namespace tutti::schedule
