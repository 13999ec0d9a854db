// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/sim/wires.hpp"

#include <algorithm>

namespace tutti::runners::sim {
namespace {

std::size_t index(int number) { return topology::Layout::index(number); }

}  // namespace

Wires::Wires(const topology::Layout& layout) : layout_(layout) {
  for (const LinkClass kind : {LinkClass::kNvlink, LinkClass::kInterSocket}) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      ends_.push_back({kind, layout.node_of[index(rank)], layout.local_of[index(rank)]});
    }
  }
  for (int node = 0; node < layout.nodes(); ++node) {
    first_nic_.push_back(static_cast<std::uint32_t>(ends_.size()));
    for (int nic = 0; nic < std::max(1, layout.rails(node)); ++nic) {
      ends_.push_back({LinkClass::kNetwork, node, nic});
    }
  }
}

LinkClass Wires::kind(int from, int to) const {
  if (layout_.node_of[index(from)] != layout_.node_of[index(to)]) {
    return LinkClass::kNetwork;
  }
  return layout_.socket(from) == layout_.socket(to) ? LinkClass::kNvlink : LinkClass::kInterSocket;
}

LinkRoute Wires::route(int from, int to, std::uint32_t network_before) const {
  const LinkClass found = kind(from, to);
  if (found == LinkClass::kNetwork) {
    return {found, nic(from, network_before), nic(to, network_before)};
  }
  const int first = found == LinkClass::kNvlink ? 0 : layout_.ranks();
  return {found, static_cast<std::uint32_t>(first + from), static_cast<std::uint32_t>(first + to)};
}

std::uint32_t Wires::nic(int rank, std::uint32_t turn) const {
  const int node = layout_.node_of[index(rank)];
  const auto local = static_cast<std::uint32_t>(layout_.local_of[index(rank)]);
  const auto width = static_cast<std::uint32_t>(layout_.ranks_of[index(node)].size());
  const auto nics = static_cast<std::uint32_t>(std::max(1, layout_.rails(node)));
  if (local >= nics) {
    return first_nic_[index(node)] + local % nics;
  }
  const std::uint32_t own = (nics - local + width - 1) / width;
  return first_nic_[index(node)] + local + turn % own * width;
}

}  // namespace tutti::runners::sim
