// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allreduce, ring: reduce-scatter around the ring, then allgather around it, on P even parts of the
// vector. With S segments each does so by itself and their phases overlap (segmented ring).
// Rounds 2 (P - 1); each rank sends at most 2 (P - 1) ceil(n / P).
// Source: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms", 2009.
#include "schedule/builder.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allreduce_ring(const Task& task) {
  const std::uint64_t count = task.problem.counts[0];
  const int ranks = task.ranks();
  const Region output{Buffer::kOutput, 0, count};
  const Blocks segments = Blocks::even(count, task.segments_or(1));
  Builder builder;
  builder.copy({Buffer::kInput, 0, count}, output);
  std::vector<Blocks> parts;
  for (int segment = 0; segment < segments.size(); ++segment) {
    parts.push_back(Blocks::even(segments.count(segment), ranks));
  }
  auto part = [&](int segment, int index) {
    const Blocks& blocks = parts[static_cast<std::size_t>(segment)];
    return output.part(segments.offset(segment) + blocks.offset(index), blocks.count(index));
  };
  for (int round = 0; round < 2 * (ranks - 1); ++round) {
    const bool reduces = round < ranks - 1;
    for (int segment = 0; segment < segments.size(); ++segment) {
      const Region leaves = part(segment, task.after(-round));
      const Region arrives = part(segment, task.after(-round - 1));
      builder.send(task.after(1), leaves);
      if (!reduces) {
        builder.recv(task.after(-1), arrives);
        continue;
      }
      const Region contribution = builder.scratch(arrives.count);
      builder.recv(task.after(-1), contribution);
      builder.reduce(contribution, arrives);
    }
  }
  return std::move(builder).finish();
}

Cost allreduce_ring_cost(const Task& task) {
  const auto ranks = static_cast<std::uint64_t>(task.ranks());
  const auto segments = static_cast<std::uint64_t>(task.segments_or(1));
  const std::uint64_t part = task.problem.counts[0] / (ranks * segments) + 1;
  return {2 * (task.ranks() - 1), 2 * (ranks - 1) * segments * part};
}

}  // namespace tutti::schedule
