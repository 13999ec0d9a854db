// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Scatter, binomial tree: a rank gets the blocks of its subtree and hands the others their
// parts.
// Rounds floor(log2 P). The root sends (P - 1) n. Scratch of a rank that hands on: its subtree,
// as in gather_binomial.cpp. Out of a node: the subtrees elsewhere whose parents are here; (P -
// L) n on powers of two, from the first rank.
// Source: Chan et al., "Collective Communication: Theory, Practice, and Experience", 2007.
#include "schedule/builder.hpp"
#include "schedule/generators.hpp"
#include "schedule/subtree.hpp"

namespace tutti::schedule {

Program scatter_binomial(const Task& task) {
  const Subtrees trees(task);
  const int ranks = task.ranks();
  const int me = task.after(-task.root());
  const int width = trees.width(me);
  const Region own{Buffer::kOutput, 0, trees.block(me)};
  const int reach =
      me == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks))) : me & -me;
  Builder builder;
  Region all = own;
  if (me != 0) {
    if (width > 1) {
      all = builder.scratch(trees.elements(me, width));
    }
    std::uint64_t next = 0;
    trees.each(Buffer::kScratch, me, width, [&](const Region& region) {
      builder.recv(trees.rank_of(me - (me & -me)), all.part(next, region.count));
      next += region.count;
    });
  }
  for (int bit = reach / 2; bit >= 1; bit /= 2) {
    if (me + bit >= ranks) {
      continue;
    }
    std::uint64_t next = me == 0 ? 0 : trees.elements(me, bit);
    trees.each(Buffer::kInput, me + bit, trees.width(me + bit), [&](const Region& region) {
      builder.send(trees.rank_of(me + bit), me == 0 ? region : all.part(next, region.count));
      next += region.count;
    });
  }
  if (me == 0) {
    trees.each(Buffer::kInput, 0, 1, [&](const Region& region) { builder.copy(region, own); });
  } else {
    builder.copy(all.part(0, own.count), own);
  }
  return std::move(builder).finish();
}

Cost scatter_binomial_cost(const Task& task) {
  const Letters of(task);
  return cost_of_subtrees(task, /*is_gather=*/false, (of.ranks - 1) * of.count);
}

}  // namespace tutti::schedule
