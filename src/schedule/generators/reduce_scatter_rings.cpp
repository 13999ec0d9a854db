// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reduce-scatter, Parallel Rings: the allgather's rings the other way round. For every other
// node the ranks of a node first add up, each for the lanes it is a member of, what goes there;
// the sums travel one ring per lane and collect each node's contribution on their way home.
// Rounds N - 1, and 1 where L > 1. A rank sends (N - 1) n over the network and N (L - 1) n
// within its node; out of a node (P - L) n. Scratch (P + N - 1) n: L n for the sums of each
// node, n for what comes in of each but one. In general, with s the sum of a rank's lanes, (L +
// 1) s less the part of the node before. Source: mirror of Barati Sedeh, Grant and Afsahi, "...
// Allgather Using Parallel Rings".
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"
#include "schedule/lanes.hpp"

namespace tutti::schedule {

void add_reduce_scatter_rings(const Task& task, Builder& builder) {
  const Blocks blocks = blocks_of(task.problem);
  const Lanes lanes(task.layout, blocks);
  const auto index = topology::Layout::index;
  const int node = task.layout.node_of[index(task.rank)];
  const int nodes = lanes.nodes();
  const auto& neighbors = task.layout.ranks_of[index(node)];
  const int width = lanes.width(node);
  const int local = task.layout.local_of[index(task.rank)];
  auto wrap = [&](int number) { return (number % nodes + nodes) % nodes; };

  // Without lanes that a rank carries for others.
  builder.reserve(static_cast<std::size_t>(nodes) * (3 * neighbors.size() + 2));
  // Sum over this node of what goes to a lane's part of `of_node`, at the lane's member.
  auto node_sum = [&](int of_node, int lane) {
    const Region own = lanes.part(Buffer::kInput, of_node, lane);
    const Region sum = builder.scratch(own.count);
    builder.copy(own, sum);
    return sum;
  };
  const Region output{Buffer::kOutput, 0, blocks.count(task.rank)};
  std::vector<Region> incoming;  // By lane of this rank, what the last round brought.
  for (int round = 0; round < nodes; ++round) {
    // Round 0 makes the sums for the farthest node; the last round those for this one.
    const int target = wrap(node - round - 1);
    std::vector<Region> sums;
    lanes.each_of(task.rank, [&](int lane) { sums.push_back(node_sum(target, lane)); });
    for (int turn = 1; turn < width; ++turn) {
      const int to = neighbors[index((local + turn) % width)];
      const int from = neighbors[index((local - turn + width) % width)];
      lanes.each_of(to,
                    [&](int lane) { builder.send(to, lanes.part(Buffer::kInput, target, lane)); });
      std::size_t at = 0;
      lanes.each_of(task.rank, [&](int) {
        const Region sum = sums[at++];
        const Region arrived = builder.scratch(sum.count);
        builder.recv(from, arrived);
        builder.reduce(arrived, sum);
      });
    }
    std::size_t at = 0;
    lanes.each_of(task.rank, [&](int lane) {
      const Region sum = sums[at];
      if (round > 0) {
        builder.reduce(incoming[at], sum);
      }
      ++at;
      if (round < nodes - 1) {
        builder.send(lanes.member(wrap(node + 1), lane), sum);
      } else {
        const Region home = lanes.part(Buffer::kOutput, node, lane);
        builder.copy(sum, output.part(home.offset - blocks.offset(task.rank), home.count));
      }
    });
    if (round < nodes - 1) {
      incoming.clear();
      lanes.each_of(task.rank, [&](int lane) {
        const Region arrives =
            builder.scratch(lanes.part(Buffer::kInput, wrap(target - 1), lane).count);
        builder.recv(lanes.member(wrap(node - 1), lane), arrives);
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
          .scratch_max = Lanes(task.layout, blocks).scratch_of_sums(),
          .node_out_max = (of.ranks - of.width) * of.count};
}

}  // namespace tutti::schedule
