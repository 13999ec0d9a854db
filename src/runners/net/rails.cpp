// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/net/rails.hpp"

#include <algorithm>

namespace tutti::runners {

std::vector<RailEnds> rails_between(const topology::Layout& layout, const std::vector<int>& devices,
                                    int sender, int receiver) {
  const auto index = topology::Layout::index;
  const auto width = [&](int rank) {
    return static_cast<int>(layout.ranks_of[index(layout.node_of[index(rank)])].size());
  };
  const int sender_devices = devices[index(sender)];
  const int receiver_devices = devices[index(receiver)];
  if (layout.node_of[index(sender)] == layout.node_of[index(receiver)]) {
    return {{layout.local_of[index(sender)] % sender_devices,
             layout.local_of[index(receiver)] % receiver_devices}};
  }
  const int wider = width(receiver) > width(sender) ? receiver : sender;
  const int both = std::min(sender_devices, receiver_devices);
  std::vector<RailEnds> rails;
  for (int rail = layout.local_of[index(wider)]; rails.empty() || rail < both;
       rail += width(wider)) {
    rails.push_back({rail % both, rail % both});
  }
  // A rank's first messages to several nodes, as in an alltoall, begin with rails of their own.
  const int nodes = layout.nodes();
  const int hops =
      (layout.node_of[index(receiver)] - layout.node_of[index(sender)] + nodes) % nodes;
  std::rotate(rails.begin(), rails.begin() + (hops - 1) % static_cast<int>(rails.size()),
              rails.end());
  return rails;
}

}  // namespace tutti::runners
