// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which ranks share a node. TUTTI_VIRTUAL_NODES=k cuts the ranks of MPI_COMM_WORLD into k equal
// runs, 5,4,3 into runs of 5, 4 and 3 ranks, so that multi-node rules and compositions run on one
// machine.
#pragma once

#include <cstdint>

#include "base/config.hpp"

namespace tutti::engine {

/// Identity of this rank's machine, equal exactly on the ranks of one: a hash of the host name and
/// the boot id.
std::uint64_t machine_identity();
/// The run of MPI_COMM_WORLD's ranks that a rank belongs to.
struct VirtualNode {
  int number = 0;
  int first_rank = 0;
  int ranks = 0;
};
VirtualNode virtual_node(const VirtualNodes& nodes, int world_rank, int world_ranks);
/// Identity of this rank's node: its machine, or its virtual node.
std::uint64_t node_identity(const VirtualNodes& nodes, int world_rank, int world_ranks);

/// Tells NCCL and RCCL that virtual nodes are hosts of their own (NCCL_HOSTID), so that traffic
/// between them takes the network. Must run before the library makes its first communicator.
void announce_virtual_node(const VirtualNodes& nodes, int world_rank, int world_ranks);

}  // namespace tutti::engine
