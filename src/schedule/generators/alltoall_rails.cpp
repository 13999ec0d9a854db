// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Alltoall, rail-aligned hierarchical: what goes to a rank of another node is carried over the
// network by the rank of this node that has its local index, so each rail talks to itself alone
// and a rank of another node gets one message from here, not one from each rank.
//   1. every rank gives each rank of its node what that one is to carry, in one message;
//   2. a carrier sends each rank it serves what all of its node have for it, in one message.
// Rounds 2, one where N or L is 1. A rank sends (P - L) n over the network, in N - 1 messages
// where pairwise sends P - L, and N (L - 1) n within its node. Scratch 2 (2 P - L - N) n. Out of
// a node L (P - L) n. Unequal nodes: local indices wrap; sums over what a rank serves.
// Source: the two-level alltoall of Kumar et al., "Scaling Alltoall Collective on Multi-core
// Systems", 2008; with one carrier per rail as NCCL's PXN has it.
#include <algorithm>

#include "schedule/builder.hpp"
#include "schedule/exchange.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {
namespace {

class Rails {
 public:
  explicit Rails(const topology::Layout& layout) : layout_(layout) {}

  int node_of(int rank) const { return layout_.node_of[topology::Layout::index(rank)]; }
  const std::vector<int>& ranks_of(int node) const {
    return layout_.ranks_of[topology::Layout::index(node)];
  }
  /// The rank of `node` that carries what goes to `destination`, a rank of another node.
  int carrier(int node, int destination) const {
    const auto& ranks = ranks_of(node);
    return ranks[topology::Layout::index(destination_local(destination)) % ranks.size()];
  }
  /// Ranks of other nodes that `carrier` serves.
  std::vector<int> served_by(int carrier) const {
    std::vector<int> found;
    const int own = node_of(carrier);
    for (int node = 0; node < layout_.nodes(); ++node) {
      if (node == own) {
        continue;
      }
      const auto step = ranks_of(own).size();
      for (std::size_t local = layout_local(carrier); local < ranks_of(node).size();
           local += step) {
        found.push_back(ranks_of(node)[local]);
      }
    }
    return found;
  }

 private:
  int destination_local(int rank) const { return layout_.local_of[topology::Layout::index(rank)]; }
  std::size_t layout_local(int rank) const {
    return topology::Layout::index(layout_.local_of[topology::Layout::index(rank)]);
  }
  const topology::Layout& layout_;
};

}  // namespace

Program alltoall_rails(const Task& task) {
  const Exchange exchange(task.problem, task.rank);
  const Rails rails(task.layout);
  const std::uint64_t count = task.problem.counts[0];
  const int own = rails.node_of(task.rank);
  const auto& neighbors = rails.ranks_of(own);
  const std::vector<int> served = rails.served_by(task.rank);
  auto blocks = [&](std::size_t many) { return static_cast<std::uint64_t>(many) * count; };
  Builder builder;
  builder.reserve(static_cast<std::size_t>(task.ranks()) * 4);

  // For each rank that this one serves, what every rank of the node has for it, in rank order.
  const Region carried = builder.scratch(blocks(served.size() * neighbors.size()));
  auto carried_block = [&](std::size_t destination, std::size_t source) {
    return carried.part(blocks(destination * neighbors.size() + source), count);
  };
  for (std::size_t turn = 0; turn < neighbors.size(); ++turn) {
    const auto self =
        topology::Layout::index(task.layout.local_of[topology::Layout::index(task.rank)]);
    const std::size_t to = (self + turn) % neighbors.size();
    const std::size_t from = (self + neighbors.size() - turn) % neighbors.size();
    if (turn == 0) {
      builder.copy(exchange.leaves(task.rank), exchange.arrives(task.rank));
      for (std::size_t i = 0; i < served.size(); ++i) {
        builder.copy(exchange.leaves(served[i]), carried_block(i, self));
      }
      continue;
    }
    const std::vector<int> theirs = rails.served_by(neighbors[to]);
    const Region packed = builder.scratch(blocks(theirs.size() + 1));
    builder.copy(exchange.leaves(neighbors[to]), packed.part(0, count));
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      builder.copy(exchange.leaves(theirs[i]), packed.part(blocks(i + 1), count));
    }
    builder.send(neighbors[to], packed);
    const Region arrived = builder.scratch(blocks(served.size() + 1));
    builder.recv(neighbors[from], arrived);
    builder.copy(arrived.part(0, count), exchange.arrives(neighbors[from]));
    for (std::size_t i = 0; i < served.size(); ++i) {
      builder.copy(arrived.part(blocks(i + 1), count), carried_block(i, from));
    }
  }
  for (std::size_t i = 0; i < served.size(); ++i) {
    builder.send(served[i], carried.part(blocks(i * neighbors.size()), blocks(neighbors.size())));
  }
  for (int node = 0; node < task.layout.nodes(); ++node) {
    if (node == own) {
      continue;
    }
    const auto& sources = rails.ranks_of(node);
    const Region arrived = builder.scratch(blocks(sources.size()));
    builder.recv(rails.carrier(node, task.rank), arrived);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      builder.copy(arrived.part(blocks(i), count), exchange.arrives(sources[i]));
    }
  }
  return std::move(builder).finish();
}

Cost alltoall_rails_cost(const Task& task) {
  const Letters of(task);
  const Rails rails(task.layout);
  Cost cost{.rounds = (of.width > 1 ? 1 : 0) + (of.nodes > 1 ? 1 : 0)};
  for (const auto& neighbors : task.layout.ranks_of) {
    const std::uint64_t width = neighbors.size();
    const std::uint64_t elsewhere = of.ranks - width;  // What the node's ranks serve among them.
    for (const int rank : neighbors) {
      const std::uint64_t served = rails.served_by(rank).size();
      const std::uint64_t given = elsewhere - served + width - 1;
      cost.sent_max = std::max(cost.sent_max, (served * width + given) * of.count);
      const std::uint64_t taken = (width - 1) * (served + 1);
      cost.scratch_max =
          std::max(cost.scratch_max, (served * width + given + taken + elsewhere) * of.count);
    }
    cost.node_out_max = std::max(cost.node_out_max, width * elsewhere * of.count);
  }
  return cost;
}

}  // namespace tutti::schedule
