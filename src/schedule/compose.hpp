// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Compositions, as MPICH names them, made of generators on groups of ranks:
//   alpha  one leader per node: combine within the node, exchange among leaders, spread within it;
//   beta   flat: the generator itself;
//   gamma  flat on one node;
//   delta  as alpha, with every rank the leader of one slice of the vector.
// The parts are arguments, so any generator of the right collective may take any place.
#pragma once

#include "schedule/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti::schedule {

using Make = Program (*)(const Task&);

/// allreduce: reduce, allreduce, bcast. The work is all on the output.
Program alpha_allreduce(const Task& task, Make reduce, Make allreduce, Make bcast);
/// bcast among leaders from the root, which leads its node; then within nodes.
Program alpha_bcast(const Task& task, Make among_leaders, Make within);
/// reduce within nodes to leaders, then among them to the root, which leads its node.
Program alpha_reduce(const Task& task, Make within, Make among_leaders);
/// gather to leaders, allgather of nodes' data, bcast. Scratch of a leader 2 P n.
Program alpha_allgather(const Task& task, Make gather, Make allgather, Make bcast);
/// allreduce: reduce-scatter within nodes, one allreduce among the nodes' owners of each slice, all
/// at the same time, allgather within nodes.
Program delta_allreduce(const Task& task, Make reduce_scatter, Make allreduce, Make allgather);

}  // namespace tutti::schedule
