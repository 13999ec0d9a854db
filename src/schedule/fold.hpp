// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Power-of-two algorithms on any number of ranks: with P = core + extra, core the largest power of
// two, rank core + j is folded onto rank j, which takes part for both (Thakur, Rabenseifner and
// Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, section 4.4).
#pragma once

#include <algorithm>
#include <bit>

#include "schedule/algorithm.hpp"
#include "schedule/builder.hpp"
#include "schedule/formula.hpp"

namespace tutti::schedule {

struct Fold {
  int core;
  int extra;

  explicit Fold(int ranks)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), extra(ranks - core) {}
  int rounds() const { return log2_floor(core); }
  /// Where what a rank learns is passed on block by block: the last round waits for all others only
  /// where both a block's owner and its last reader are folded, and differ in every bit.
  int rounds_of_data() const { return rounds() + (extra == 0 ? 0 : 2 * extra > core ? 2 : 1); }
  /// Core ranks [first, last) and those folded onto them.
  std::uint64_t members(int first, int last) const {
    return whole(last - first + std::max(std::min(last, extra) - first, 0));
  }
  /// Blocks that rank 0, which is folded onto and so are those next to it, sends in all rounds.
  std::uint64_t blocks_sent() const {
    std::uint64_t blocks = 0;
    for (int bit = 1; bit < core; bit *= 2) {
      blocks += members(0, bit);
    }
    return blocks;
  }
  /// Elements that leave the node that sends most: each folded rank gives `in` and gets `out`, and
  /// core rank r sends exchanged(r, 2^k) to rank r ^ 2^k in each round.
  template <class Exchanged>
  std::uint64_t node_out(const topology::Layout& layout, std::uint64_t in, Exchanged exchanged,
                         std::uint64_t out) const {
    NodeOut sum(layout);
    for (int rank = 0; rank < core; ++rank) {
      for (int bit = 1; bit < core; bit *= 2) {
        sum.add(rank, rank ^ bit, exchanged(rank, bit));
      }
    }
    for (int rank = 0; rank < extra; ++rank) {
      sum.add(rank + core, rank, in);
      sum.add(rank, rank + core, out);
    }
    return sum.most();
  }
  /// Rank `rank` takes part for its own partner as well.
  bool has_partner(int rank) const { return rank < extra; }
  bool is_folded(int rank) const { return rank >= core; }
};

/// The blocks of core ranks [first, last) and of the ranks folded onto them: two runs.
struct FoldedBlocks {
  const Fold& fold;
  const Blocks& blocks;

  template <class Visit>
  void each(Buffer buffer, int first, int last, Visit visit) const {
    visit(blocks.range(buffer, first, last));
    const int folded_last = std::min(last, fold.extra);
    if (first < folded_last) {
      visit(blocks.range(buffer, fold.core + first, fold.core + folded_last));
    }
  }
};

/// An allreduce on the core: rounds(fold, output, arrived, builder) begin with what a rank and its
/// folded partner put in, in `output`, and end with the result there; `arrived` is scratch.
template <class Rounds>
Program folded_allreduce(const Task& task, Rounds rounds) {
  const std::uint64_t count = task.problem.counts[0];
  const Region output{Buffer::kOutput, 0, count};
  const Fold fold(task.ranks());
  Builder builder;
  builder.copy({Buffer::kInput, 0, count}, output);
  if (fold.is_folded(task.rank)) {
    builder.send(task.rank - fold.core, output);
    builder.recv(task.rank - fold.core, output);
    return std::move(builder).finish();
  }
  const int partner = task.rank + fold.core;
  const Region arrived = builder.scratch(count);
  if (fold.has_partner(task.rank)) {
    builder.recv(partner, arrived);
    builder.reduce(arrived, output);
  }
  rounds(fold, output, arrived, builder);
  if (fold.has_partner(task.rank)) {
    builder.send(partner, output);
  }
  return std::move(builder).finish();
}

}  // namespace tutti::schedule
