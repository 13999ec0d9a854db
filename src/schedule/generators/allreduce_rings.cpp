// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allreduce, Parallel Rings: their reduce-scatter on P even parts of the vector, then their
// allgather. N nodes of L ranks: rounds at most 2 N; a rank sends 2 (N - 1) n / P over the network
// and 2 N (L - 1) n / P within its node. Source: allgather_rings.cpp, reduce_scatter_rings.cpp.
#include "schedule/builder.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {
namespace {

/// One of the two halves as a problem of its own.
Problem half(const Task& task, Collective collective) {
  Problem problem{.collective = collective, .ranks = task.ranks()};
  const Blocks parts = Blocks::even(task.problem.counts[0], task.ranks());
  for (int rank = 0; rank < task.ranks(); ++rank) {
    problem.counts.push_back(parts.count(rank));
  }
  return problem;
}

}  // namespace

Program allreduce_rings(const Task& task) {
  const Region output{Buffer::kOutput, 0, task.problem.counts[0]};
  const Blocks parts = Blocks::even(output.count, task.ranks());
  const Region own = parts.in(Buffer::kOutput, task.rank);
  const Problem scattered = half(task, Collective::kReduceScatterBlock);
  const Problem gathered = half(task, Collective::kAllgather);
  Builder builder;
  // All work is on the output, so that it may be the same memory as the input (in place).
  builder.copy({Buffer::kInput, 0, output.count}, output);
  builder.place(output, own);
  add_reduce_scatter_rings({task.layout, scattered, task.rank, task.parameters}, builder);
  builder.place(own, output);
  add_allgather_rings({task.layout, gathered, task.rank, task.parameters}, builder);
  return std::move(builder).finish();
}

Cost allreduce_rings_cost(const Task& task) {
  const Problem scattered = half(task, Collective::kReduceScatterBlock);
  const Task one{task.layout, scattered, task.rank, task.parameters};
  // counts[0] is the largest part.
  const Cost there = reduce_scatter_rings_cost(one);
  const Cost back = allgather_rings_cost(one);
  return {there.rounds + back.rounds, there.sent_max + back.sent_max};
}

}  // namespace tutti::schedule
