// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allgather, Parallel Rings: one ring over the nodes per local rank (lane), all at the same time,
// and while a node's next parts come in, the last ones are handed round within the node.
//   1. every rank gives its own block to the others of its node;
//   2. round i of N - 1: the member of lane l on node k sends the part of node k - i to node k + 1
//   and
//      gets that of node k - 1 - i; it hands the part of the round before to the others of its
//      node.
// N nodes of L ranks: rounds at most N; a rank sends (N - 1) n over the network, (P - N) n + ...
// within the node: N (L - 1) n. Bytes into a node: (P - L) n, spread evenly over its rails. Source:
// Barati Sedeh, Grant and Afsahi, "Scalable, Topology- and Multi-HCA-Aware Hierarchical GPU
// Allgather Using Parallel Rings"; the cut into lanes is ours (lanes.hpp). "rings-xor" orders the
// hand round so that at no time two ranks of a node send to the same one (reference model: no
// incast).
#include <bit>

#include "schedule/builder.hpp"
#include "schedule/generators.hpp"
#include "schedule/lanes.hpp"

namespace tutti::schedule {
namespace {

/// The other ranks of the node, in the order in which a rank turns to them.
std::vector<int> turns(int local, int width, bool by_xor) {
  std::vector<int> order;
  const int span = by_xor ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(width))) : width;
  for (int distance = 1; distance < span; ++distance) {
    const int peer = by_xor ? local ^ distance : (local + distance) % width;
    if (peer < width) {
      order.push_back(peer);
    }
  }
  return order;
}

Program rings(const Task& task, bool by_xor) {
  const Blocks blocks = blocks_of(task.problem);
  const Lanes lanes(task.layout, blocks);
  const auto index = topology::Layout::index;
  const int node = task.layout.node_of[index(task.rank)];
  const int nodes = lanes.nodes();
  const int local = task.layout.local_of[index(task.rank)];
  const auto& neighbors = task.layout.ranks_of[index(node)];
  const auto order = turns(local, lanes.width(node), by_xor);
  auto wrap = [&](int number) { return (number % nodes + nodes) % nodes; };
  auto part = [&](int of_node, int lane) { return lanes.part(Buffer::kOutput, of_node, lane); };

  Builder builder;
  builder.copy({Buffer::kInput, 0, blocks.count(task.rank)}, blocks.in(Buffer::kOutput, task.rank));
  // The parts of `of_node` that this node has by now, each at the member of its lane, go to all.
  auto hand_round = [&](int of_node) {
    for (const int turn : order) {
      const int peer = neighbors[index(turn)];
      lanes.each_of(task.rank, [&](int lane) { builder.send(peer, part(of_node, lane)); });
      lanes.each_of(peer, [&](int lane) { builder.recv(peer, part(of_node, lane)); });
    }
  };
  for (int round = 0; round < nodes; ++round) {
    if (round < nodes - 1) {
      lanes.each_of(task.rank, [&](int lane) {
        builder.send(lanes.member(wrap(node + 1), lane), part(wrap(node - round), lane));
      });
      lanes.each_of(task.rank, [&](int lane) {
        builder.recv(lanes.member(wrap(node - 1), lane), part(wrap(node - round - 1), lane));
      });
    }
    hand_round(wrap(node - round));
  }
  return std::move(builder).finish();
}

}  // namespace

Program allgather_rings(const Task& task) { return rings(task, false); }
Program allgather_rings_xor(const Task& task) { return rings(task, true); }

Cost allgather_rings_cost(const Task& task) {
  const auto nodes = static_cast<std::uint64_t>(task.layout.nodes());
  const auto width = static_cast<std::uint64_t>(task.layout.ranks_per_node_max());
  const bool hands_round = width > 1;
  return {static_cast<int>(nodes) - 1 + (hands_round ? 1 : 0),
          (nodes - 1 + nodes * (width - 1)) * task.problem.counts[0]};
}
Cost allgather_rings_xor_cost(const Task& task) { return allgather_rings_cost(task); }

}  // namespace tutti::schedule
