// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Two binary trees over the ranks below the root such that a rank with children in one is a leaf of
// the other: each carries half of a vector, so every rank's links are busy both ways. Ranks are
// counted from the root (0). The first tree numbers 1 .. P - 1 in order: a number's place is its
// lowest bit that is set. The second is its mirror image, shifted where that would put odd numbers
// on odd ones. Source: Sanders, Speck and Traff, "Two-Tree Algorithms for Full Bandwidth Broadcast,
// Reduction and Scan", 2009.
#pragma once

#include <array>
#include <vector>

namespace tutti::schedule {

class DoubleTree {
 public:
  explicit DoubleTree(int ranks) : ranks_(ranks) {}

  struct Node {
    int parent = -1;            ///< -1: the root.
    std::vector<int> children;  ///< At most two; at most one of the root.
  };

  /// That of a rank, counted from the root, in tree 0 or 1.
  Node node(int tree, int relative) const {
    Node found = relative == 0 ? top() : in_order(tree == 0 ? relative : mirrored(relative));
    if (tree == 1) {
      if (found.parent > 0) {
        found.parent = from_mirrored(found.parent);
      }
      for (int& child : found.children) {
        child = from_mirrored(child);
      }
    }
    return found;
  }

  /// Visits (tree, parent, child), ranks of a communicator with this root.
  template <class Visit>
  void each_edge(int root, Visit visit) const {
    for (int relative = 1; relative < ranks_; ++relative) {
      for (const int tree : {0, 1}) {
        visit(tree, (node(tree, relative).parent + root) % ranks_, (relative + root) % ranks_);
      }
    }
  }

  /// Edges from the root to the deepest leaf.
  int depth() const {
    int levels = 0;
    for (int reach = 1; reach < ranks_; reach *= 2) {
      ++levels;
    }
    return levels;
  }

 private:
  /// An involution or a rotation of 1 .. P - 1 that sends even numbers to odd ones, but for one.
  int mirrored(int number) const {
    return ranks_ % 2 == 1 ? ranks_ - number : number == 1 ? ranks_ - 1 : number - 1;
  }
  int from_mirrored(int number) const {
    return ranks_ % 2 == 1 ? ranks_ - number : number == ranks_ - 1 ? 1 : number + 1;
  }
  Node top() const {
    Node found;
    int highest = 1;
    while (highest * 2 < ranks_) {
      highest *= 2;
    }
    if (ranks_ > 1) {
      found.children.push_back(highest);
    }
    return found;
  }
  Node in_order(int number) const {
    Node found;
    const int bit = number & -number;
    // Up to the next place that exists: the number with this bit cleared and the next one set, or,
    // at the right edge, with this bit cleared.
    const int above = (number ^ bit) | (bit << 1);
    found.parent = above < ranks_ ? above : number ^ bit;
    if (bit > 1) {
      found.children.push_back(number - bit / 2);
    }
    for (int reach = bit / 2; reach > 0; reach /= 2) {
      if (number + reach < ranks_) {
        found.children.push_back(number + reach);
        break;
      }
    }
    return found;
  }

  int ranks_;
};

}  // namespace tutti::schedule
