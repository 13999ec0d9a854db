// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/layout.hpp"

#include <algorithm>
#include <unordered_map>

namespace tutti::topology {

int Layout::ranks_per_node_max() const {
  std::size_t most = 0;
  for (const auto& ranks : ranks_of) {
    most = std::max(most, ranks.size());
  }
  return static_cast<int>(most);
}

int Layout::rails(int node) const {
  return rails_of.empty() ? static_cast<int>(ranks_of[index(node)].size()) : rails_of[index(node)];
}

bool Layout::is_consecutive() const { return std::is_sorted(node_of.begin(), node_of.end()); }

Layout make_layout(const std::vector<std::uint64_t>& identities) {
  Layout layout;
  std::unordered_map<std::uint64_t, int> nodes;
  int node = 0;
  layout.node_of.reserve(identities.size());
  layout.local_of.reserve(identities.size());
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    // Ranks of a node mostly follow each other, and programs make many communicators.
    if (rank == 0 || identities[rank] != identities[rank - 1]) {
      const auto [found, is_new] =
          nodes.try_emplace(identities[rank], static_cast<int>(layout.ranks_of.size()));
      if (is_new) {
        layout.ranks_of.emplace_back();
      }
      node = found->second;
    }
    auto& ranks = layout.ranks_of[Layout::index(node)];
    layout.node_of.push_back(node);
    layout.local_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
  return layout;
}

void set_places(const std::vector<RankPlace>& places, Layout* layout) {
  const auto place = [&](int rank) { return places[Layout::index(rank)]; };
  if (std::any_of(places.begin(), places.end(), [](const auto& one) { return one.socket >= 0; })) {
    layout->socket_of.clear();
    for (const RankPlace& one : places) {
      layout->socket_of.push_back(std::max(one.socket, 0));
    }
  }
  if (layout->nodes() < 2 ||
      std::none_of(places.begin(), places.end(), [](const auto& one) { return one.rails > 0; })) {
    return;
  }
  layout->rails_of.clear();
  for (const auto& ranks : layout->ranks_of) {
    const auto knows =
        std::find_if(ranks.begin(), ranks.end(), [&](int rank) { return place(rank).rails > 0; });
    layout->rails_of.push_back(knows != ranks.end() ? place(*knows).rails
                                                    : static_cast<int>(ranks.size()));
  }
}

Layout regular_layout(int nodes, int ranks_per_node) {
  std::vector<std::uint64_t> identities;
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank) {
    identities.push_back(static_cast<std::uint64_t>(rank / ranks_per_node));
  }
  return make_layout(identities);
}

}  // namespace tutti::topology
