// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the closed formulas of the generators share: their letters, logarithms and binomial trees,
// and what of a pattern of messages leaves a node. Formulas are for N equal nodes of L consecutive
// ranks, P in all, and n elements (of the vector, or of each block). Elements, all of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "schedule/algorithm.hpp"

namespace tutti::schedule {

inline std::uint64_t whole(int number) { return static_cast<std::uint64_t>(number); }
inline int log2_floor(int number) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(number))) - 1;
}
inline int log2_ceil(int number) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(number - 1)));
}

/// The letters of the formulas.
struct Letters {
  explicit Letters(const Task& task)
      : ranks(whole(task.ranks())),
        nodes(whole(task.layout.nodes())),
        width(whole(task.layout.ranks_per_node_max())),
        count(task.problem.counts.empty() ? 0 : task.problem.counts[0]) {}

  std::uint64_t ranks;  ///< P
  std::uint64_t nodes;  ///< N
  std::uint64_t width;  ///< L
  std::uint64_t count;  ///< n

  /// Ranks of a node whose message leaves it when each sends to the rank `distance` further:
  /// all but those that stay, and those that come back around the end.
  std::uint64_t leaving(std::uint64_t distance) const {
    const std::uint64_t stay = width - std::min(width, distance);
    const std::uint64_t return_home = width - std::min(width, ranks - distance);
    return width - stay - return_home;
  }
};

/// Where every rank sends n elements to every other.
inline Cost cost_of_all_pairs(const Task& task, int rounds) {
  const Letters of(task);
  return {.rounds = rounds,
          .sent_max = (of.ranks - 1) * of.count,
          .node_out_max = of.width * (of.ranks - of.width) * of.count};
}

/// Sums up, from who sends how much to whom, what leaves each node.
class NodeOut {
 public:
  explicit NodeOut(const topology::Layout& layout)
      : layout_(layout), out_(topology::Layout::index(layout.nodes()), 0) {}

  void add(int from, int to, std::uint64_t elements) {
    const int node = layout_.node_of[topology::Layout::index(from)];
    if (layout_.node_of[topology::Layout::index(to)] != node) {
      out_[topology::Layout::index(node)] += elements;
    }
  }
  std::uint64_t most() const { return *std::max_element(out_.begin(), out_.end()); }

 private:
  const topology::Layout& layout_;
  std::vector<std::uint64_t> out_;
};

/// The k-nomial tree over 0 .. P - 1, counted from the root and written in base k: a parent has the
/// lowest digit that is not 0 set to 0. k = 2: binomial. A weight that may pass P counts in 64
/// bits: from a radix of 46341 on its square is over an int.
struct Knomial {
  int ranks;
  int radix = 2;

  /// Edges to the deepest rank: most digits that are not 0; 11..1 is the least number of so many.
  int depth() const {
    int digits = 0;
    for (std::int64_t ones = 1; ones < ranks; ones = ones * radix + 1) {
      ++digits;
    }
    return digits;
  }
  /// The root's, which has most: numbers with one digit that is not 0.
  int children() const {
    int found = 0;
    for (std::int64_t unit = 1; unit < ranks; unit *= radix) {
      found += std::min(radix - 1, static_cast<int>((ranks - 1) / unit));
    }
    return found;
  }
  /// Weight of the lowest digit that is not 0; `relative` is not the root.
  int unit(int relative) const {
    int weight = 1;
    while (relative / weight % radix == 0) {
      weight *= radix;
    }
    return weight;
  }
  int parent(int relative) const {
    const int weight = unit(relative);
    return relative - relative / weight % radix * weight;
  }
  /// Visits (parent, child) as ranks of the task's communicator, and the child as counted from the
  /// root.
  template <class Visit>
  void each_edge(int root, Visit visit) const {
    for (int child = 1; child < ranks; ++child) {
      visit((parent(child) + root) % ranks, (child + root) % ranks, child);
    }
  }
};

}  // namespace tutti::schedule
