// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Binomial gather and scatter: a rank's subtree is a run of ranks counted from the root. In rank
// order that run may go around the end: then it is two regions, and two messages at both ends.
#pragma once

#include <algorithm>
#include <bit>

#include "schedule/algorithm.hpp"
#include "schedule/formula.hpp"

namespace tutti::schedule {

class Subtrees {
 public:
  explicit Subtrees(const Task& task)
      : ranks_(task.ranks()), root_(task.root()), blocks_(blocks_of(task.problem)) {}

  int rank_of(int relative) const { return (relative + root_) % ranks_; }
  /// Ranks in the subtree of a relative rank.
  int width(int relative) const {
    const int full = relative == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks_)))
                                   : relative & -relative;
    return std::min(full, ranks_ - relative);
  }
  /// Ranks in the largest subtree but the root's.
  int widest() const {
    const int last = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks_ - 1)));
    return ranks_ > 1 ? std::max(last / 2, ranks_ - last) : 0;
  }
  /// Elements of relative ranks [first, first + many).
  std::uint64_t elements(int first, int many) const {
    std::uint64_t total = 0;
    each(Buffer::kInput, first, many, [&](const Region& region) { total += region.count; });
    return total;
  }
  /// Their one or two regions in a buffer in rank order.
  template <class Visit>
  void each(Buffer buffer, int first, int many, Visit visit) const {
    const int straight = std::min(many, std::max(ranks_ - root_ - first, 0));
    if (straight > 0) {
      visit(blocks_.range(buffer, rank_of(first), rank_of(first) + straight));
    }
    if (straight < many) {
      const int wrapped = rank_of(first + straight);
      visit(blocks_.range(buffer, wrapped, wrapped + many - straight));
    }
  }
  std::uint64_t block(int relative) const { return blocks_.count(rank_of(relative)); }

 private:
  int ranks_;
  int root_;
  Blocks blocks_;
};

/// Of a gather, whose messages go to the parents, or a scatter.
inline Cost cost_of_subtrees(const Task& task, bool is_gather, std::uint64_t sent_max) {
  const Letters of(task);
  const Subtrees trees(task);
  const Knomial tree{task.ranks()};
  NodeOut out(task.layout);
  tree.each_edge(task.root(), [&](int parent, int child, int relative) {
    out.add(is_gather ? child : parent, is_gather ? parent : child,
            whole(trees.width(relative)) * of.count);
  });
  const std::uint64_t widest = whole(trees.widest());
  return {.rounds = tree.depth(),
          .sent_max = sent_max,
          .scratch_max = widest > 1 ? widest * of.count : 0,
          .node_out_max = out.most()};
}

}  // namespace tutti::schedule
