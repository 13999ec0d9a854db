// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Gather, binomial tree: a rank collects the blocks of its subtree and hands them up.
// Rounds floor(log2 P). With w the ranks of the widest subtree below the root, P / 2 on powers
// of two and max(2^(k-1), P - 2^k) for 2^k < P <= 2^(k+1): a rank sends w n; scratch w n where w
// > 1. Out of a node: the subtrees whose parents are elsewhere; P n / 2 on powers of two, to the
// first rank.
// Source: Chan et al., "Collective Communication: Theory, Practice, and Experience", 2007.
#include "schedule/builder.hpp"
#include "schedule/generators.hpp"
#include "schedule/subtree.hpp"

namespace tutti::schedule {

Program gather_binomial(const Task& task) {
  const Subtrees trees(task);
  const int me = task.after(-task.root());
  const Region own{Buffer::kInput, 0, trees.block(me)};
  const int width = trees.width(me);
  Builder builder;
  if (me == 0) {
    trees.each(Buffer::kOutput, 0, 1, [&](const Region& place) { builder.copy(own, place); });
    for (int bit = 1; bit < task.ranks(); bit *= 2) {
      trees.each(Buffer::kOutput, bit, trees.width(bit),
                 [&](const Region& place) { builder.recv(trees.rank_of(bit), place); });
    }
    return std::move(builder).finish();
  }
  // The subtree's blocks in the order of relative ranks, the own one first.
  const Region all = width == 1 ? own : builder.scratch(trees.elements(me, width));
  if (width > 1) {
    builder.copy(own, all.part(0, own.count));
  }
  for (int bit = 1; bit < (me & -me) && me + bit < task.ranks(); bit *= 2) {
    std::uint64_t next = trees.elements(me, bit);
    trees.each(Buffer::kScratch, me + bit, trees.width(me + bit), [&](const Region& region) {
      builder.recv(trees.rank_of(me + bit), all.part(next, region.count));
      next += region.count;
    });
  }
  std::uint64_t next = 0;
  trees.each(Buffer::kScratch, me, width, [&](const Region& region) {
    builder.send(trees.rank_of(me - (me & -me)), all.part(next, region.count));
    next += region.count;
  });
  return std::move(builder).finish();
}

Cost gather_binomial_cost(const Task& task) {
  return cost_of_subtrees(task, /*is_gather=*/true,
                          whole(Subtrees(task).widest()) * Letters(task).count);
}

}  // namespace tutti::schedule
