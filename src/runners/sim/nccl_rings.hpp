// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// NCCL's ring allgather as a program, for comparison in the simulator; no algorithm of ours to run.
// A channel per NIC is a flat ring over all ranks that carries an equal stripe of every block. Each
// channel enters a node at another GPU and leaves it by another, so that every NIC carries one.
// What it leaves out: chunks within a step, protocols, the kernels' own cost (a constant per
// message, Cluster::nccl_message_ns).
#pragma once

#include "schedule/algorithm.hpp"

namespace tutti::runners::sim {

inline constexpr const char* kNcclRings = "nccl-rings";

schedule::Program nccl_rings(const schedule::Task& task);

}  // namespace tutti::runners::sim
