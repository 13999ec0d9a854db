// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What this rank tells the others of where it runs: how many rails its node has and which socket is
// its own (which node: virtual_nodes.hpp). By the topology file (TUTTI_TOPOLOGY_FILE) for the nodes
// that it describes, else as discovered. Only what all ranks exchanged goes into a layout
// (Communicator::agree_placement): one rank's own view must never choose an algorithm.
#pragma once

#include "engine/process.hpp"
#include "topology/layout.hpp"

namespace tutti::engine {

/// A virtual node is no machine, so nothing is discovered for it: the file's entry gives its rails,
/// and as many sockets as the entry lists share its ranks out in order. A real rank's socket is
/// that of its current GPU, else the one to which its CPUs all belong.
topology::RankPlace own_place(Process& process, int world_rank, int world_ranks);

}  // namespace tutti::engine
