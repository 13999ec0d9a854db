// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Power-of-two algorithms on any number of ranks: with P = core + extra, core the largest power of
// two, rank core + j is folded onto rank j, which takes part for both (Thakur, Rabenseifner and
// Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, section 4.4).
#pragma once

#include <bit>

#include "schedule/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti::schedule {

struct Fold {
  int core;
  int extra;

  explicit Fold(int ranks)
      : core(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), extra(ranks - core) {}
  int rounds() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(core))) - 1; }
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

}  // namespace tutti::schedule
