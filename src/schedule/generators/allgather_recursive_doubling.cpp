// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Allgather, recursive doubling: in round k exchange all that is known with the rank whose k-th
// bit differs. Not a power of two: fold.hpp.
// P = 2^k: rounds k; a rank sends (P - 1) n, a node L (P - L) n to others. P = 2^k + e: rounds k
// + 1, k + 2 where e > 2^(k-1); rank 0 sends most, (2^k - 1 + sum of min(2^i, e) over i < k) n
// in the core and (P - 1) n to the rank folded onto it. Out of a node: of that, for each of its
// ranks, what goes elsewhere.
// Source: Thakur et al. 2005, section 4.1.
#include "schedule/fold.hpp"
#include "schedule/formula.hpp"
#include "schedule/generators.hpp"

namespace tutti::schedule {

Program allgather_recursive_doubling(const Task& task) {
  const Blocks blocks = blocks_of(task.problem);
  const Fold fold(task.ranks());
  const FoldedBlocks folded{fold, blocks};
  const Region whole = blocks.range(Buffer::kOutput, 0, task.ranks());
  const Region own = blocks.in(Buffer::kOutput, task.rank);
  Builder builder;
  builder.copy({Buffer::kInput, 0, own.count}, own);
  if (fold.is_folded(task.rank)) {
    builder.send(task.rank - fold.core, own);
    // What lies around the own block, so that it is not written while it is sent.
    builder.recv(task.rank - fold.core, whole.part(0, own.offset));
    builder.recv(task.rank - fold.core, whole.part(own.end(), whole.count - own.end()));
    return std::move(builder).finish();
  }
  const int partner = task.rank + fold.core;
  if (fold.has_partner(task.rank)) {
    builder.recv(partner, blocks.in(Buffer::kOutput, partner));
  }
  for (int bit = 1; bit < fold.core; bit *= 2) {
    const int peer = task.rank ^ bit;
    const int mine = task.rank & ~(bit - 1);
    const int theirs = peer & ~(bit - 1);
    folded.each(Buffer::kOutput, mine, mine + bit,
                [&](const Region& region) { builder.send(peer, region); });
    folded.each(Buffer::kOutput, theirs, theirs + bit,
                [&](const Region& region) { builder.recv(peer, region); });
  }
  if (fold.has_partner(task.rank)) {
    const Region theirs = blocks.in(Buffer::kOutput, partner);
    builder.send(partner, whole.part(0, theirs.offset));
    builder.send(partner, whole.part(theirs.end(), whole.count - theirs.end()));
  }
  return std::move(builder).finish();
}

Cost allgather_recursive_doubling_cost(const Task& task) {
  const Letters of(task);
  const Fold fold(task.ranks());
  const std::uint64_t back = fold.extra > 0 ? of.ranks - 1 : 0;
  const auto exchanged = [&](int rank, int bit) {
    const int mine = rank & ~(bit - 1);
    return fold.members(mine, mine + bit) * of.count;
  };
  return {.rounds = fold.rounds_of_data(),
          .sent_max = (fold.blocks_sent() + back) * of.count,
          .node_out_max = fold.node_out(task.layout, of.count, exchanged, back * of.count)};
}

}  // namespace tutti::schedule
