// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reduce-scatter, recursive halving: in round k exchange, with the rank whose k-th highest bit
// differs, the half of the blocks that the other one keeps. Not a power of two: fold.hpp.
// P = 2^k: rounds k; a rank sends (P - 1) n, a node L (P - L) n to others. P = 2^k + e: rounds k
// + 2; a rank that is folded sends most, its input of P n. Scratch 2 P n. Out of a node then:
// for each of its ranks, what goes elsewhere of (P - 1) n, or of P n where it is folded.
// Source: Thakur et al. 2005, section 4.3.
#include "schedule/fold.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program reduce_scatter_recursive_halving(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  const Fold fold(task.ranks());
  const FoldedBlocks folded{fold, blocks};
  const Region input{Buffer::kInput, 0, blocks.total()};
  const Region output{Buffer::kOutput, 0, blocks.count(task.rank)};
  Builder builder;
  if (fold.is_folded(task.rank)) {
    builder.send(task.rank - fold.core, input);
    builder.recv(task.rank - fold.core, output);
    return std::move(builder).finish();
  }
  const Region sum = builder.scratch(blocks.total());
  const Region arrived = builder.scratch(blocks.total());
  builder.copy(input, sum);
  const int partner = task.rank + fold.core;
  if (fold.has_partner(task.rank)) {
    builder.recv(partner, arrived);
    builder.reduce(arrived, sum);
  }
  for (int half = fold.core / 2; half >= 1; half /= 2) {
    const int peer = task.rank ^ half;
    const int mine = task.rank & ~(half - 1);
    const int theirs = peer & ~(half - 1);
    folded.each(Buffer::kScratch, theirs, theirs + half,
                [&](const Region& region) { builder.send(peer, region); });
    folded.each(Buffer::kScratch, mine, mine + half, [&](const Region& region) {
      const Region into = arrived.part(region.offset, region.count);
      builder.recv(peer, into);
      builder.reduce(into, region);
    });
  }
  builder.copy(blocks.in(Buffer::kScratch, task.rank), output);
  if (fold.has_partner(task.rank)) {
    builder.send(partner, blocks.in(Buffer::kScratch, partner));
  }
  return std::move(builder).finish();
}

Cost reduce_scatter_recursive_halving_cost(const Task& task) {
  const Letters of(task);
  const Fold fold(task.ranks());
  const auto exchanged = [&](int rank, int half) {
    const int theirs = (rank ^ half) & ~(half - 1);
    return fold.members(theirs, theirs + half) * of.count;
  };
  const std::uint64_t input = of.ranks * of.count;
  return {.rounds = fold.rounds() + (fold.extra > 0 ? 2 : 0),
          .sent_max = fold.extra > 0 ? input : input - of.count,
          .scratch_max = 2 * input,
          .node_out_max = fold.node_out(task.layout, input, exchanged, of.count)};
}

}  // namespace tutti::schedule
