// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reduce-scatter, Parallel Rings: the allgather's rings the other way round. For every other
// node the ranks of a node first add up, each for the columns it is a member of, what goes there;
// the sums travel one ring per column and collect each node's contribution on their way home.
// Rounds N - 1, and 1 where L > 1. A rank sends (N - 1) n over the network and N (L - 1) n
// within its node; out of a node (P - L) n. Scratch (P + N - 1) n: L n for the sums of each
// node, n for what comes in of each but one. In general, with s the sum of a rank's columns, (L +
// 1) s less the part of the node before. Source: mirror of Barati Sedeh, Grant and Afsahi, "...
// Allgather Using Parallel Rings".
#include "schedule/builder.hpp"
#include "schedule/columns.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

void add_reduce_scatter_rings(const Task& task, Builder& builder) {
  const Blocks blocks = blocks_of(task.problem);
  const Columns columns(task.layout, blocks);
  const auto index = topology::Layout::index;
  const int node = task.layout.node_of[index(task.rank)];
  const int nodes = columns.nodes();
  const auto& neighbors = task.layout.ranks_of[index(node)];
  const int width = columns.width(node);
  const int local = task.layout.local_of[index(task.rank)];
  auto wrap = [&](int number) { return (number % nodes + nodes) % nodes; };

  // Without columns that a rank carries for others.
  builder.reserve(static_cast<std::size_t>(nodes) * (3 * neighbors.size() + 2));
  // Sum over this node of what goes to a column's part of `of_node`, at the column's member.
  auto node_sum = [&](int of_node, int column) {
    const Region own = columns.part(Buffer::kInput, of_node, column);
    const Region sum = builder.scratch(own.count);
    builder.copy(own, sum);
    return sum;
  };
  const Region output{Buffer::kOutput, 0, blocks.count(task.rank)};
  std::vector<Region> incoming;  // By column of this rank, what the last round brought.
  for (int round = 0; round < nodes; ++round) {
    // Round 0 makes the sums for the farthest node; the last round those for this one.
    const int target = wrap(node - round - 1);
    std::vector<Region> sums;
    columns.each_of(task.rank, [&](int column) { sums.push_back(node_sum(target, column)); });
    for (int turn = 1; turn < width; ++turn) {
      const int to = neighbors[index((local + turn) % width)];
      const int from = neighbors[index((local - turn + width) % width)];
      columns.each_of(
          to, [&](int column) { builder.send(to, columns.part(Buffer::kInput, target, column)); });
      std::size_t at = 0;
      columns.each_of(task.rank, [&](int) {
        const Region sum = sums[at++];
        const Region arrived = builder.scratch(sum.count);
        builder.recv(from, arrived);
        builder.reduce(arrived, sum);
      });
    }
    std::size_t at = 0;
    columns.each_of(task.rank, [&](int column) {
      const Region sum = sums[at];
      if (round > 0) {
        builder.reduce(incoming[at], sum);
      }
      ++at;
      if (round < nodes - 1) {
        builder.send(columns.member(wrap(node + 1), column), sum);
      } else {
        const Region home = columns.part(Buffer::kOutput, node, column);
        builder.copy(sum, output.part(home.offset - blocks.offset(task.rank), home.count));
      }
    });
    if (round < nodes - 1) {
      incoming.clear();
      columns.each_of(task.rank, [&](int column) {
        const Region arrives =
            builder.scratch(columns.part(Buffer::kInput, wrap(target - 1), column).count);
        builder.recv(columns.member(wrap(node - 1), column), arrives);
        incoming.push_back(arrives);
      });
    }
  }
}

Program reduce_scatter_rings(const Task& task) {
  Builder builder;
  add_reduce_scatter_rings(task, builder);
  return std::move(builder).finish();
}

Cost reduce_scatter_rings_cost(const Task& task) {
  const Letters of(task);
  const Blocks blocks = blocks_of(task.problem);
  return {.rounds = static_cast<int>(of.nodes) - 1 + (of.width > 1 ? 1 : 0),
          .sent_max = (of.ranks - 1) * of.count,
          .scratch_max = Columns(task.layout, blocks).scratch_of_sums(),
          .node_out_max = (of.ranks - of.width) * of.count};
}

}  // namespace tutti::schedule
