// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A cluster as the node model sees it (docs/simulation.md): equal nodes, three kinds of link, a few
// numbers each. Read from a file of format tutti-cluster/1. Rates are in MB/s (10^6 bytes), which
// is bytes per microsecond; delays in nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/layout.hpp"

namespace tutti::runners::sim {

/// Name and version of the format; a new number when old readers would misread a file.
inline constexpr const char* kClusterSchema = "tutti-cluster/1";

enum class LinkClass : std::uint8_t {
  kNvlink,       ///< Between GPUs of one socket.
  kInterSocket,  ///< Between GPUs of different sockets of one node.
  kNetwork,      ///< Between nodes.
};
inline constexpr int kLinkKinds = 3;
const char* to_string(LinkClass kind);  ///< "nvlink", "inter_socket", "network"

struct LinkModel {
  std::uint64_t mb_per_s = 0;    ///< One direction of one end; 0: the cluster has no such link.
  std::uint64_t message_ns = 0;  ///< A message holds its sender's engine that long before
                                 ///< its first byte moves.
  std::uint64_t incast_percent = 100;  ///< Of mb_per_s, what two and more messages into one end
                                       ///< share.
  bool shares_inbound = true;          ///< False: each pair has links of its own (a mesh).
};

struct Cluster {
  std::string name;
  int gpus_per_node = 1;
  int nics_per_node = 1;
  std::vector<int> socket_of_gpu;  ///< One entry per GPU.
  LinkModel links[kLinkKinds];
  /// network.message_ns of NCCL's rings, which do not go by messages of an MPI library.
  std::uint64_t nccl_message_ns = 0;

  const LinkModel& link(LinkClass kind) const { return links[static_cast<std::size_t>(kind)]; }
  LinkModel& link(LinkClass kind) { return links[static_cast<std::size_t>(kind)]; }
};

/// Errors: "<file>:<line>: <key>: what is wrong; remedy".
Result<Cluster> parse_cluster(const std::string& text, const std::string& file);
Result<Cluster> load_cluster(const std::string& file);

/// Ranks on nodes of the cluster: consecutive, a GPU each; the last node may be part full.
topology::Layout layout_of(const Cluster& cluster, int ranks);

}  // namespace tutti::runners::sim
