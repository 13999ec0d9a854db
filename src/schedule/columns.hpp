// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How Parallel Rings cut data over ranks and NICs. A column is one ring over the nodes with one
// member on each; every rank of a node is a member of at least one, and so is every NIC. There are
// as many columns as the largest node has ranks or NICs. A node's data is cut by column: a rank
// that is a member of one column gives it its block, a rank of several columns cuts its block into
// as many stripes. So unequal nodes, fewer NICs than ranks (a rail then carries several rings) and
// more NICs than ranks (a rank stripes) are one case.
#pragma once

#include <algorithm>

#include "schedule/algorithm.hpp"

namespace tutti::schedule {

class Columns {
 public:
  Columns(const topology::Layout& layout, const Blocks& blocks)
      : layout_(layout), blocks_(blocks), count_(layout.ranks_per_node_max()) {
    for (int node = 0; node < layout.nodes(); ++node) {
      count_ = std::max(count_, layout.rails(node));
    }
  }

  int count() const { return count_; }
  int nodes() const { return layout_.nodes(); }
  /// Ranks of a node.
  int width(int node) const {
    return static_cast<int>(layout_.ranks_of[topology::Layout::index(node)].size());
  }
  int member(int node, int column) const {
    return layout_
        .ranks_of[topology::Layout::index(node)][topology::Layout::index(column % width(node))];
  }
  /// What a node gives to a column: a stripe of its member's block, in a buffer of all blocks.
  Region part(Buffer buffer, int node, int column) const {
    const int ranks = width(node);
    const int local = column % ranks;
    const int stripes = (count_ - local + ranks - 1) / ranks;
    const Region block = blocks_.in(buffer, member(node, column));
    return Blocks::even_part(block, stripes, column / ranks);
  }
  /// Columns of which a rank is the member on its node.
  template <class Visit>
  void each_of(int rank, Visit visit) const {
    const int node = layout_.node_of[topology::Layout::index(rank)];
    for (int column = layout_.local_of[topology::Layout::index(rank)]; column < count_;
         column += width(node)) {
      visit(column);
    }
  }
  /// Elements of a rank's columns, of one node's part or of all.
  std::uint64_t share(int rank, int of_node) const {
    std::uint64_t sum = 0;
    each_of(rank, [&](int column) { sum += part(Buffer::kInput, of_node, column).count; });
    return sum;
  }
  std::uint64_t share(int rank) const {
    std::uint64_t sum = 0;
    for (int node = 0; node < nodes(); ++node) {
      sum += share(rank, node);
    }
    return sum;
  }
  /// Scratch of the rank that needs most when sums go round the columns: what each rank of its node
  /// has for them, and what comes in, which is all but what starts at the node before.
  std::uint64_t scratch_of_sums() const {
    std::uint64_t most = 0;
    for (int rank = 0; rank < layout_.ranks(); ++rank) {
      const int node = layout_.node_of[topology::Layout::index(rank)];
      const int before = (node + nodes() - 1) % nodes();
      most = std::max(
          most, static_cast<std::uint64_t>(width(node) + 1) * share(rank) - share(rank, before));
    }
    return most;
  }

 private:
  const topology::Layout& layout_;
  const Blocks& blocks_;
  int count_;
};

}  // namespace tutti::schedule
