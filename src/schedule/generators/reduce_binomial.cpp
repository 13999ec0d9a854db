// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reduce, binomial tree: the broadcast's tree the other way round.
// Rounds floor(log2 P). A rank sends n once. Scratch ceil(log2 P) n: one vector for each child
// of the root. Out of a node: n for each edge to a parent elsewhere; n on powers of two, to the
// first rank. Source: Thakur et al. 2005, section 4.4.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program reduce_binomial(const Task& task) {
  const int ranks = task.ranks();
  const int me = task.after(-task.root());
  const std::uint64_t count = task.problem.counts[0];
  auto rank_of = [&](int relative) { return (relative + task.root()) % ranks; };
  Builder builder;
  Region sum{Buffer::kInput, 0, count};
  auto own_sum = [&] {
    if (sum.buffer == Buffer::kInput) {
      const Region place = me == 0 ? Region{Buffer::kOutput, 0, count} : builder.scratch(count);
      builder.copy(sum, place);
      sum = place;
    }
  };
  if (me == 0) {
    own_sum();
  }
  for (int bit = 1; bit < ranks; bit *= 2) {
    if ((me & bit) != 0) {
      builder.send(rank_of(me - bit), sum);
      break;
    }
    if (me + bit < ranks) {
      own_sum();
      const Region arrived = builder.scratch(count);
      builder.recv(rank_of(me + bit), arrived);
      builder.reduce(arrived, sum);
    }
  }
  return std::move(builder).finish();
}

Cost reduce_binomial_cost(const Task& task) {
  const Letters of(task);
  const Knomial tree{task.ranks()};
  NodeOut out(task.layout);
  tree.each_edge(task.root(),
                 [&](int parent, int child, int) { out.add(child, parent, of.count); });
  return {.rounds = tree.depth(),
          .sent_max = of.ranks > 1 ? of.count : 0,
          .scratch_max = whole(tree.children()) * of.count,
          .node_out_max = out.most()};
}

}  // namespace tutti::schedule
