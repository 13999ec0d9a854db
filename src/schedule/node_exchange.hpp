// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How the ranks of one node come to hold what each of them holds: the step of Parallel Rings
// within a node. The forms are those that Barati Sedeh, Grant and Afsahi compare, and one of ours
// (XOR).
#pragma once

#include <functional>
#include <vector>

#include "schedule/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti::schedule {

enum class NodeForm : std::uint8_t {
  kLinear,             ///< Each to all others, nearest rank first.
  kXor,                ///< Each to all others; at no time do two ranks of a node send to one.
  kKnomial,            ///< A k-nomial tree from each rank.
  kBinomialDoubling,   ///< A binomial tree from each rank, the nearest child first.
  kBinomialHalving,    ///< A binomial tree from each rank, the farthest child first.
  kRecursiveDoubling,  ///< Pairs exchange all they know, twice as far each time (fold.hpp).
  /// Three phases that send each block between sockets once and never two to one rank: within the
  /// socket; once to each other socket; within the socket what came across.
  kInterSocket,
};

class NodeExchange {
 public:
  NodeExchange(const Task& task, NodeForm form);

  /// Regions that the rank with this local index holds, the same list on every rank of the node.
  using Held = std::function<std::vector<Region>(int local)>;
  void add(Builder& builder, const Held& held) const;

  /// Longest chain of messages.
  static int rounds(NodeForm form, const Task& task);
  /// Sent by the rank of the largest node that sends most, where each holds one part.
  static std::uint64_t parts_sent(NodeForm form, const Task& task);

 private:
  void add_linear(Builder& builder, const Held& held) const;
  void add_trees(Builder& builder, const Held& held) const;
  void add_recursive_doubling(Builder& builder, const Held& held) const;
  void add_inter_socket(Builder& builder, const Held& held) const;

  struct Branch {
    int parent;  ///< -1 at the root.
    std::vector<int> children;
  };
  /// Place of a rank in the tree whose root is `relative` ranks before it.
  Branch branch(int relative) const;
  int peer(int local) const { return ranks_[topology::Layout::index(local)]; }

  NodeForm form_;
  Parameters parameters_;
  const std::vector<int>& ranks_;  ///< Of this node, by local index.
  int width_;
  int local_;
  std::vector<std::vector<int>> sockets_;  ///< Local indices by socket.
  std::vector<int> socket_of_;             ///< By local index: into sockets_.
};

}  // namespace tutti::schedule
