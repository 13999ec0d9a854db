// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries the programs of all ranks out on a simulated packet network with the shipped transport.
// Each rank has a GPU and a NIC of its own: host r of the network is rank r. What stays within a
// node goes past the network, one message of a sender after the other at the NVLink's or
// inter-socket link's rate (sim_runner.hpp, R1 and R4; no R2).
#pragma once

#include <span>

#include "base/result.hpp"
#include "runners/sim/cluster.hpp"
#include "runners/sim/sim_runner.hpp"
#include "schedule/program.hpp"
#include "simulate/workload.hpp"
#include "wire/sim/network_run.hpp"

namespace tutti::runners::sim {

/// Errors: a send without its receive.
Result<simulate::Workload> packet_workload(std::span<const schedule::Program> programs,
                                           const topology::Layout& layout, const Cluster& cluster,
                                           Bytes element_bytes);

/// `options`: the network and the transport; its rate becomes the cluster's. Errors: those of
/// packet_workload and run_network, fewer NICs than GPUs in a node, a run that does not end.
Result<SimOutcome> run_packets(std::span<const schedule::Program> programs,
                               const topology::Layout& layout, const Cluster& cluster,
                               Bytes element_bytes, wire::sim::RunOptions options);

}  // namespace tutti::runners::sim
