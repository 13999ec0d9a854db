// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The alpha composition (MPICH's word, ch4): on each node to its first rank, the leader; among
// leaders; back on each node. The node step and the leader step may run on different backends.
//   allreduce            node reduce, leaders allreduce, node bcast
//   reduce               node reduce, leaders reduce to the root's node, leader to root
//   bcast                root's node bcast, leaders bcast, the other nodes' bcast
//   allgather            node gather, leaders allgatherv, node bcast
//   reduce_scatter_block node reduce, leaders reduce_scatter, node scatter
// Any placement of ranks; unequal nodes; predefined (commutative) operations only.
#pragma once

#include "runners/runner.hpp"
#include "runners/scratch.hpp"
#include "topology/layout.hpp"

namespace tutti::engine {

struct AlphaContext {
  const topology::Layout& placement;
  int rank = 0;  ///< Of this process in the communicator.
  runners::Runner& node;
  runners::Runner& leaders;
  /// Where intermediate results live: device memory when a backend wants it, else host.
  bool scratch_on_device = false;
  int device = -1;
  device::Api* api = nullptr;
  runners::Scratch& scratch;
};

Status run_alpha(const AlphaContext& context, const runners::Call& call);

}  // namespace tutti::engine
