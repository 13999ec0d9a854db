// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Declarations of the generators, one file each in generators/. Private to this room.
#pragma once

#include "schedule/algorithm.hpp"

namespace tutti::schedule {

class Builder;
/// Their steps as a part of another program.
void add_allgather_rings(const Task& task, Builder& builder);
void add_reduce_scatter_rings(const Task& task, Builder& builder);

#define TUTTI_GENERATOR(name)     \
  Program name(const Task& task); \
  Cost name##_cost(const Task& task);

TUTTI_GENERATOR(allgather_linear)
TUTTI_GENERATOR(allgather_ring)
TUTTI_GENERATOR(allgather_recursive_doubling)
TUTTI_GENERATOR(allgather_bruck)
TUTTI_GENERATOR(allgather_neighbor_exchange)
TUTTI_GENERATOR(allgather_rings)
TUTTI_GENERATOR(allgather_rings_xor)
TUTTI_GENERATOR(allgather_rings_knomial)
TUTTI_GENERATOR(allgather_rings_binomial_doubling)
TUTTI_GENERATOR(allgather_rings_binomial_halving)
TUTTI_GENERATOR(allgather_rings_recursive_doubling)
TUTTI_GENERATOR(allgather_rings_inter_socket)
TUTTI_GENERATOR(reduce_scatter_ring)
TUTTI_GENERATOR(reduce_scatter_pairwise)
TUTTI_GENERATOR(reduce_scatter_recursive_halving)
TUTTI_GENERATOR(reduce_scatter_rings)
TUTTI_GENERATOR(allreduce_ring)
TUTTI_GENERATOR(allreduce_recursive_doubling)
TUTTI_GENERATOR(allreduce_rabenseifner)
TUTTI_GENERATOR(allreduce_rings)
TUTTI_GENERATOR(allreduce_double_tree)
TUTTI_GENERATOR(bcast_knomial)
TUTTI_GENERATOR(bcast_chain)
TUTTI_GENERATOR(bcast_scatter_allgather)
TUTTI_GENERATOR(bcast_double_tree)
TUTTI_GENERATOR(reduce_binomial)
TUTTI_GENERATOR(reduce_chain)
TUTTI_GENERATOR(gather_binomial)
TUTTI_GENERATOR(scatter_binomial)
TUTTI_GENERATOR(alltoall_linear)
TUTTI_GENERATOR(alltoall_pairwise)
TUTTI_GENERATOR(alltoall_bruck)
TUTTI_GENERATOR(alltoall_rails)
TUTTI_GENERATOR(barrier_dissemination)
TUTTI_GENERATOR(allgather_alpha)
TUTTI_GENERATOR(allreduce_alpha)
TUTTI_GENERATOR(allreduce_delta)
TUTTI_GENERATOR(bcast_alpha)
TUTTI_GENERATOR(reduce_alpha)
#undef TUTTI_GENERATOR

}  // namespace tutti::schedule
