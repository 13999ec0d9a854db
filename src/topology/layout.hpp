// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Where the ranks of a communicator sit: what schedules and compositions need to know of a cluster.
// Equal on all ranks. Any layout is allowed: unequal nodes, round-robin placement, nodes with fewer
// NICs than others.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::topology {

struct Layout {
  std::vector<int> node_of;                ///< By rank; nodes are numbered by their lowest rank.
  std::vector<int> local_of;               ///< By rank: index among the ranks of its node.
  std::vector<std::vector<int>> ranks_of;  ///< By node: its ranks, ascending.
  std::vector<int> socket_of;              ///< By rank, within its node; empty: one socket each.
  std::vector<int> rails_of;               ///< By node: NICs; empty: as many as the node has ranks.

  int ranks() const { return static_cast<int>(node_of.size()); }
  int nodes() const { return static_cast<int>(ranks_of.size()); }
  int ranks_per_node_max() const;
  int rails(int node) const;
  int socket(int rank) const { return socket_of.empty() ? 0 : socket_of[index(rank)]; }
  /// True when every node's ranks are consecutive and nodes follow in order.
  bool is_consecutive() const;

  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
};

/// From one identity per rank (a host's hash): ranks with equal identities share a node.
Layout make_layout(const std::vector<std::uint64_t>& identities);
/// What each rank knows of where it runs.
struct RankPlace {
  int rails = 0;    ///< Of its node; 0: unknown.
  int socket = -1;  ///< Its own, within its node; -1: unknown.
};
/// Fills in sockets and rails from one entry per rank, the same list on every rank. Where nobody
/// knows anything the layout stays as it was; else an unknown socket is 0, and a node's rails
/// are what its lowest rank that knows says, or as many as its ranks. One node alone needs none.
void set_places(const std::vector<RankPlace>& places, Layout* layout);
/// `nodes` nodes of `ranks_per_node` consecutive ranks each.
Layout regular_layout(int nodes, int ranks_per_node);

}  // namespace tutti::topology
