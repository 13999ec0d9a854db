// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The compositions there are by name (compose.hpp). Parts: trees where the vector goes as a
// whole, recursive doubling among nodes. Rounds: the sum of the parts', on N equal nodes of L
// ranks. A leader sends most, the sum of what it sends in each part (nothing in a reduce within
// its node, whose root it is). What it sends among leaders leaves the node, nothing else does.
// Scratch:
//   - allreduce alpha: a leader's, of both parts: (ceil(log2 L) + 1) n;
//   - allreduce delta: L ceil(n / L); slices of ceil(n / L) take the place of the vector in each
//     part;
//   - reduce alpha: ceil(log2 L) n, and ceil(log2 N) n at the root, or n at a leader that is a
//     leaf and (2 + c) n at one with c children among leaders;
//   - allgather alpha: the gather's; P n where the ranks of nodes do not follow one another.
// Source: Guo et al., "Preparing MPICH for exascale", 2024, section on compositions.
#include <algorithm>

#include "schedule/compose.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {
namespace {

/// Of a part among `ranks` ranks, each on a node of its own: all it sends leaves a node.
Cost part(Cost (*cost)(const Task&), const Task& task, Collective collective, std::uint64_t ranks,
          std::uint64_t count) {
  const topology::Layout layout = topology::regular_layout(static_cast<int>(ranks), 1);
  const Problem problem{.collective = collective,
                        .ranks = static_cast<int>(ranks),
                        .counts = std::vector<std::uint64_t>(ranks, count)};
  return cost({layout, problem, 0, task.parameters});
}

}  // namespace

Program allreduce_alpha(const Task& task) {
  return alpha_allreduce(task, reduce_binomial, allreduce_recursive_doubling, bcast_knomial);
}
Cost allreduce_alpha_cost(const Task& task) {
  const Letters of(task);
  const Cost up = part(reduce_binomial_cost, task, Collective::kReduce, of.width, of.count);
  const Cost among =
      part(allreduce_recursive_doubling_cost, task, Collective::kAllreduce, of.nodes, of.count);
  const Cost down = part(bcast_knomial_cost, task, Collective::kBcast, of.width, of.count);
  return {.rounds = up.rounds + among.rounds + down.rounds,
          .sent_max = among.sent_max + down.sent_max,
          .scratch_max = up.scratch_max + among.scratch_max,
          .node_out_max = among.sent_max};
}

Program allreduce_delta(const Task& task) {
  return delta_allreduce(task, reduce_scatter_pairwise, allreduce_recursive_doubling,
                         allgather_linear);
}
Cost allreduce_delta_cost(const Task& task) {
  const Letters of(task);
  const std::uint64_t slice = (of.count + of.width - 1) / of.width;
  const Cost within =
      part(reduce_scatter_pairwise_cost, task, Collective::kReduceScatterBlock, of.width, slice);
  const Cost among =
      part(allreduce_recursive_doubling_cost, task, Collective::kAllreduce, of.nodes, slice);
  const Cost of_all =
      part(allreduce_recursive_doubling_cost, task, Collective::kAllreduce, of.nodes, of.count);
  // A smaller node leads the slices in several runs of its width.
  std::uint64_t led = 0;
  for (const auto& ranks : task.layout.ranks_of) {
    led = std::max(led, (of.width + ranks.size() - 1) / ranks.size() * ranks.size());
  }
  return {.rounds = 2 * within.rounds + among.rounds,
          .sent_max = of.count - slice + among.sent_max + within.sent_max,
          .scratch_max = led * slice,
          .node_out_max = of_all.sent_max};
}

Program bcast_alpha(const Task& task) { return alpha_bcast(task, bcast_knomial, bcast_knomial); }
Cost bcast_alpha_cost(const Task& task) {
  const Letters of(task);
  const Cost among = part(bcast_knomial_cost, task, Collective::kBcast, of.nodes, of.count);
  const Cost down = part(bcast_knomial_cost, task, Collective::kBcast, of.width, of.count);
  return {.rounds = among.rounds + down.rounds,
          .sent_max = among.sent_max + down.sent_max,
          .node_out_max = among.sent_max};
}

Program reduce_alpha(const Task& task) {
  return alpha_reduce(task, reduce_binomial, reduce_binomial);
}
Cost reduce_alpha_cost(const Task& task) {
  const Letters of(task);
  const Cost up = part(reduce_binomial_cost, task, Collective::kReduce, of.width, of.count);
  const Cost among = part(reduce_binomial_cost, task, Collective::kReduce, of.nodes, of.count);
  // A leader but the root has the node's sum in scratch, and copies it where it has children.
  const auto nodes = static_cast<int>(of.nodes);
  std::uint64_t leader = 0;
  if (nodes > 1) {
    const int last = 1 << log2_floor(nodes - 1);
    const int children = std::max(log2_floor(last) - 1, log2_ceil(nodes - last));
    leader = (1 + (children > 0 ? 1 + whole(children) : 0)) * of.count;
  }
  return {.rounds = up.rounds + among.rounds,
          .sent_max = of.ranks > 1 ? of.count : 0,
          .scratch_max = up.scratch_max + std::max(among.scratch_max, leader),
          .node_out_max = of.nodes > 1 ? of.count : 0};
}

Program allgather_alpha(const Task& task) {
  return alpha_allgather(task, gather_binomial, allgather_ring, bcast_knomial);
}
Cost allgather_alpha_cost(const Task& task) {
  const Letters of(task);
  const std::uint64_t total = of.ranks * of.count;
  const Cost up = part(gather_binomial_cost, task, Collective::kGather, of.width, of.count);
  const Cost among =
      part(allgather_ring_cost, task, Collective::kAllgather, of.nodes, of.width * of.count);
  const Cost down = part(bcast_knomial_cost, task, Collective::kBcast, of.width, total);
  return {.rounds = up.rounds + among.rounds + down.rounds,
          .sent_max = among.sent_max + down.sent_max,
          .scratch_max = std::max(up.scratch_max, task.layout.is_consecutive() ? 0 : total),
          .node_out_max = among.sent_max};
}

}  // namespace tutti::schedule
