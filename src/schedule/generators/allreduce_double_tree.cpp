// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allreduce, double binary tree: half of the vector is summed up each of two trees and comes
// down again, in segments.
// Rounds 2 ceil(log2 P). A rank that has two children in one tree, as there are from P = 4 on,
// sends n up and 2 ceil(n / 2) down, and needs 2 ceil(n / 2) of scratch; of three ranks one has
// one child, of two the root has both halves. Out of a node: half of the vector for each edge to
// another node, down and up; on powers of two at most 10 halves.
// Source: double_tree.hpp.
#include "schedule/builder.hpp"
#include "schedule/double_tree.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allreduce_double_tree(const Task& task) {
  const DoubleTree trees(task.ranks());
  const Blocks halves = Blocks::even(task.problem.counts[0], 2);
  Builder builder;
  const Region output = halves.range(Buffer::kOutput, 0, 2);
  builder.copy({Buffer::kInput, 0, output.count}, output);
  for (const int tree : {0, 1}) {
    const Region half = halves.in(Buffer::kOutput, tree);
    const auto node = trees.node(tree, task.rank);
    for (const int child : node.children) {
      const Region contribution = builder.scratch(half.count);
      builder.recv(child, contribution);
      builder.reduce(contribution, half);
    }
    if (node.parent >= 0) {
      builder.send(node.parent, half);
      builder.recv(node.parent, half);
    }
    for (const int child : node.children) {
      builder.send(child, half);
    }
  }
  return std::move(builder).finish();
}

Cost allreduce_double_tree_cost(const Task& task) {
  const Letters of(task);
  const DoubleTree trees(task.ranks());
  const Blocks halves = Blocks::even(of.count, 2);
  const std::uint64_t larger = halves.count(0);
  // Up to 3 ranks a tree is a chain; from 4 on there are ranks with two children.
  const std::uint64_t sent = task.ranks() > 3    ? of.count + 2 * larger
                             : task.ranks() == 3 ? of.count + larger
                                                 : of.count;
  NodeOut out(task.layout);
  trees.each_edge(0, [&](int tree, int parent, int child) {
    out.add(parent, child, halves.count(tree));
    out.add(child, parent, halves.count(tree));
  });
  return {.rounds = 2 * trees.depth(),
          .sent_max = task.ranks() > 1 ? sent : 0,
          .scratch_max = task.ranks() > 3   ? 2 * larger
                         : task.ranks() > 1 ? of.count
                                            : 0,
          .node_out_max = out.most()};
}

}  // namespace tutti::schedule
