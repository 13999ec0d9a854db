// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Broadcast, k-nomial tree: with ranks counted from the root and written in base k, a rank's
// parent has its lowest digit that is not 0 set to 0. k = 2 is the binomial tree.
// Rounds: the most digits of a number below P that are not 0, floor(log2 P) for k = 2. The root
// sends most: n for each number below P that has one such digit, ceil(log2 P) n for k = 2. Out
// of a node: n for each edge to another node; log2(N) n for k = 2 on powers of two, from the
// first rank.
// Source: Thakur et al. 2005, section 4.2.
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program bcast_knomial(const Task& task) {
  const int ranks = task.ranks();
  const int radix = task.radix_or(2);
  const int me = task.after(-task.root());
  const Region output{Buffer::kOutput, 0, task.problem.counts[0]};
  auto rank_of = [&](std::int64_t relative) {
    return static_cast<int>((relative + task.root()) % ranks);
  };
  Builder builder;
  if (me == 0) {
    builder.copy({Buffer::kInput, 0, output.count}, output);
  }
  // Of the lowest digit that is not 0; of the digit above all for the root. That one may be up to
  // the square of the radix.
  std::int64_t weight = 1;
  for (; weight < ranks; weight *= radix) {
    if (const std::int64_t digit = me / weight % radix; digit != 0) {
      builder.recv(rank_of(me - digit * weight), output);
      break;
    }
  }
  for (weight /= radix; weight >= 1; weight /= radix) {
    for (int digit = 1; digit < radix && me + digit * weight < ranks; ++digit) {
      builder.send(rank_of(me + digit * weight), output);
    }
  }
  return std::move(builder).finish();
}

Cost bcast_knomial_cost(const Task& task) {
  const Letters of(task);
  const Knomial tree{task.ranks(), task.radix_or(2)};
  NodeOut out(task.layout);
  tree.each_edge(task.root(),
                 [&](int parent, int child, int) { out.add(parent, child, of.count); });
  return {.rounds = tree.depth(),
          .sent_max = whole(tree.children()) * of.count,
          .node_out_max = out.most()};
}

}  // namespace tutti::schedule
