// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Broadcast, double binary tree: half of the vector down each of two trees, in segments.
// Rounds ceil(log2 P). A rank with two children in one tree, as there are from P = 4 on, sends 2
// ceil(n / 2); below, the root sends n. Out of a node: half of the vector for each edge to
// another node; on powers of two, from the first rank, at most 5 halves. Source:
// double_tree.hpp.
#include "schedule/builder.hpp"
#include "schedule/double_tree.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program bcast_double_tree(const Task& task) {
  const int ranks = task.ranks();
  const int me = task.after(-task.root());
  const DoubleTree trees(ranks);
  const Blocks halves = Blocks::even(task.problem.counts[0], 2);
  auto rank_of = [&](int relative) { return (relative + task.root()) % ranks; };
  Builder builder;
  if (me == 0) {
    const Region output = halves.range(Buffer::kOutput, 0, 2);
    builder.copy({Buffer::kInput, 0, output.count}, output);
  }
  for (const int tree : {0, 1}) {
    const Region half = halves.in(Buffer::kOutput, tree);
    const auto node = trees.node(tree, me);
    if (node.parent >= 0) {
      builder.recv(rank_of(node.parent), half);
    }
    for (const int child : node.children) {
      builder.send(rank_of(child), half);
    }
  }
  return std::move(builder).finish();
}

Cost bcast_double_tree_cost(const Task& task) {
  const Letters of(task);
  const DoubleTree trees(task.ranks());
  const Blocks halves = Blocks::even(of.count, 2);
  NodeOut out(task.layout);
  trees.each_edge(task.root(), [&](int tree, int parent, int child) {
    out.add(parent, child, halves.count(tree));
  });
  // Up to 3 ranks the root sends most; from 4 on there are ranks with two children.
  return {.rounds = trees.depth(),
          .sent_max = task.ranks() > 3   ? 2 * halves.count(0)
                      : task.ranks() > 1 ? of.count
                                         : 0,
          .node_out_max = out.most()};
}

}  // namespace tutti::schedule
