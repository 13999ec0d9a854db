// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allreduce, Parallel Rings: their reduce-scatter on P even parts of the vector, then their
// allgather.
// Rounds 2 (N - 1), and 2 more where L > 1. Where P divides n: a rank sends 2 (P - 1) n / P, 2
// (N - 1) n / P of it over the network; scratch (P + N - 1) n / P; out of a node 2 (N - 1) n /
// N. Else, with s what a rank's column carries of all nodes: a rank sends n + L s less its column's
// parts of its own and of the next node; out of a node go 2 n less the parts of these two nodes;
// scratch as in reduce_scatter_rings.cpp.
// Source: allgather_rings.cpp, reduce_scatter_rings.cpp.
#include <algorithm>

#include "schedule/builder.hpp"
#include "schedule/columns.hpp"
#include "schedule/formula.hpp"
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
  const Letters of(task);
  const Blocks parts = Blocks::even(of.count, task.ranks());
  const Columns columns(task.layout, parts);
  Cost cost{.rounds = 2 * columns.nodes() - 2 + (of.width > 1 ? 2 : 0)};
  for (int node = 0; node < columns.nodes(); ++node) {
    const auto& ranks = task.layout.ranks_of[topology::Layout::index(node)];
    const int next = (node + 1) % columns.nodes();
    std::uint64_t out = 2 * of.count;
    for (const int rank : ranks) {
      const std::uint64_t stays = columns.share(rank, node) + columns.share(rank, next);
      cost.sent_max = std::max(cost.sent_max,
                               of.count + whole(columns.width(node)) * columns.share(rank) - stays);
      out -= stays;
    }
    cost.node_out_max = std::max(cost.node_out_max, out);
  }
  cost.scratch_max = columns.scratch_of_sums();
  return cost;
}

}  // namespace tutti::schedule
