// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allgather, Parallel Rings: one ring over the nodes per local rank (column), all at the same
// time, and while a node's next parts come in, the last ones are handed round within the node.
//   1. every rank gives its own block to the others of its node;
//   2. round i of N - 1: the member of column l on node k sends the part of node k - i to node k +
//      1 and gets that of node k - 1 - i; it hands the part of the round before to the others of
//      its node.
// Rounds N - 1, and those within a node: 1 (linear, xor, and inter-socket on one socket),
// floor(log2 L) (binomial), the most digits of a number below L that are not 0 (k-nomial), those
// of allgather_recursive_doubling.cpp, or 3 (inter-socket). A rank sends (N - 1) n over the
// network and N (L - 1) n within the node, (P - 1) n in all; where recursive doubling folds,
// more within the node. Out of a node: (P - L) n, as much as it has to learn, spread evenly over
// its rails.
// Source: Barati Sedeh, Grant and Afsahi, "Scalable, Topology- and Multi-HCA-Aware Hierarchical
// GPU Allgather Using Parallel Rings"; the cut into columns is ours (columns.hpp). How data goes
// round within a node is the form (node_exchange.hpp).
#include "schedule/builder.hpp"
#include "schedule/columns.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"
#include "schedule/node_exchange.hpp"

namespace tutti::schedule {
namespace {

void add_rings(const Task& task, NodeForm form, Builder& builder) {
  const Blocks blocks = blocks_of(task.problem);
  const Columns columns(task.layout, blocks);
  const NodeExchange exchange(task, form);
  const auto index = topology::Layout::index;
  const int node = task.layout.node_of[index(task.rank)];
  const int nodes = columns.nodes();
  const auto& neighbors = task.layout.ranks_of[index(node)];
  auto wrap = [&](int number) { return (number % nodes + nodes) % nodes; };
  auto part = [&](int of_node, int column) {
    return columns.part(Buffer::kOutput, of_node, column);
  };

  // Without columns that a rank carries for others.
  builder.reserve(static_cast<std::size_t>(nodes) * 2 * neighbors.size());
  builder.copy({Buffer::kInput, 0, blocks.count(task.rank)}, blocks.in(Buffer::kOutput, task.rank));
  for (int round = 0; round < nodes; ++round) {
    if (round < nodes - 1) {
      columns.each_of(task.rank, [&](int column) {
        builder.send(columns.member(wrap(node + 1), column), part(wrap(node - round), column));
      });
      columns.each_of(task.rank, [&](int column) {
        builder.recv(columns.member(wrap(node - 1), column), part(wrap(node - round - 1), column));
      });
    }
    // The parts of the node whose turn it is, each now at the member of its column, go to all.
    exchange.add(builder, [&](int local) {
      std::vector<Region> parts;
      columns.each_of(neighbors[index(local)],
                      [&](int column) { parts.push_back(part(wrap(node - round), column)); });
      return parts;
    });
  }
}

Program rings(const Task& task, NodeForm form) {
  Builder builder;
  add_rings(task, form, builder);
  return std::move(builder).finish();
}

Cost cost(const Task& task, NodeForm form) {
  const Letters of(task);
  const std::uint64_t around = of.nodes - 1;
  return {.rounds = static_cast<int>(around) + NodeExchange::rounds(form, task),
          .sent_max = (around + of.nodes * NodeExchange::parts_sent(form, task)) * of.count,
          .node_out_max = of.width * around * of.count};
}

}  // namespace

void add_allgather_rings(const Task& task, Builder& builder) {
  add_rings(task, NodeForm::kLinear, builder);
}

#define TUTTI_RINGS(name, form)                                \
  Program name(const Task& task) { return rings(task, form); } \
  Cost name##_cost(const Task& task) { return cost(task, form); }

TUTTI_RINGS(allgather_rings, NodeForm::kLinear)
TUTTI_RINGS(allgather_rings_xor, NodeForm::kXor)
TUTTI_RINGS(allgather_rings_knomial, NodeForm::kKnomial)
TUTTI_RINGS(allgather_rings_binomial_doubling, NodeForm::kBinomialDoubling)
TUTTI_RINGS(allgather_rings_binomial_halving, NodeForm::kBinomialHalving)
TUTTI_RINGS(allgather_rings_recursive_doubling, NodeForm::kRecursiveDoubling)
TUTTI_RINGS(allgather_rings_inter_socket, NodeForm::kInterSocket)
#undef TUTTI_RINGS

}  // namespace tutti::schedule
