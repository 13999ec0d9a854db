// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allgather, ring: in round i a rank passes on the block it got in round i - 1.
// Rounds P - 1; each rank sends (P - 1) n. Source: Thakur et al. 2005, section 4.1.
#include "schedule/builder.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allgather_ring(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  Builder builder;
  builder.copy({Buffer::kInput, 0, blocks.count(task.rank)}, blocks.in(Buffer::kOutput, task.rank));
  for (int round = 0; round < task.ranks() - 1; ++round) {
    builder.send(task.after(1), blocks.in(Buffer::kOutput, task.after(-round)));
    builder.recv(task.after(-1), blocks.in(Buffer::kOutput, task.after(-round - 1)));
  }
  return std::move(builder).finish();
}

Cost allgather_ring_cost(const Task& task) {
  const int others = task.ranks() - 1;
  return {others, static_cast<std::uint64_t>(others) * task.problem.counts[0]};
}

}  // namespace tutti::schedule
