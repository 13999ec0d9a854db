// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which link a message between two ranks takes. A link has ends: a GPU's NVLink and inter-socket
// ends, one of each per rank, and the NICs' ends. An end sends by one engine and receives what
// comes in.
#pragma once

#include <cstdint>
#include <vector>

#include "runners/sim/cluster.hpp"
#include "topology/layout.hpp"

namespace tutti::runners::sim {

struct LinkEnd {
  LinkClass kind = LinkClass::kNvlink;
  int node = 0;
  int index = 0;  ///< Of the GPU or NIC within its node.
};

struct LinkRoute {
  LinkClass kind = LinkClass::kNvlink;
  std::uint32_t from = 0;  ///< Into Wires::ends().
  std::uint32_t to = 0;
};

class Wires {
 public:
  explicit Wires(const topology::Layout& layout);

  const std::vector<LinkEnd>& ends() const { return ends_; }
  LinkClass kind(int from, int to) const;
  /// `network_before`: messages that `from` sends to other nodes before this one, in the order of
  /// its program. A rank with several NICs takes them in turn; ranks that outnumber the NICs
  /// share them.
  LinkRoute route(int from, int to, std::uint32_t network_before) const;

 private:
  std::uint32_t nic(int rank, std::uint32_t turn) const;

  const topology::Layout& layout_;
  std::vector<LinkEnd> ends_;
  std::vector<std::uint32_t> first_nic_;  ///< By node, into ends_.
};

}  // namespace tutti::runners::sim
