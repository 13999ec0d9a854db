// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which RDMA port stands behind a network interface, for the verbs wire (TUTTI_NET_WIRE=verbs). Of
// RoCE it is the port with a GID of the interface's, of InfiniBand the one whose IPoIB interface it
// is. Set-up of channels goes over the interface's IP address. Ports and GIDs are chosen by what
// users already set for NCCL (NCCL_IB_*).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/network.hpp"
#include "net/wires.hpp"
#include "wire/verbs/library.hpp"

namespace tutti::net {

/// Those of the devices that have an RDMA port, with rdma_device and rdma_port. `log`: told which
/// are left out for ports that are not active. Errors: there is no libibverbs or no device has an
/// active port that the user allows, with what there is (kUnavailable); a variable that cannot be
/// understood (kInvalidConfig).
Result<std::vector<NetDevice>> rdma_devices(const std::vector<NetDevice>& devices,
                                            const RdmaOptions& options, const Log& log);

/// The parts, for tests: sets rdma_device and rdma_port of each device that has such a port.
/// `left_out`: those whose ports are not active though NCCL_IB_HCA allows them,
/// "eth3 (mlx5_2:1 is not active)".
std::vector<NetDevice> match_ports(const std::vector<NetDevice>& devices,
                                   const std::vector<wire::verbs::Port>& ports,
                                   const std::string& hca, const std::string& net_directory,
                                   std::vector<std::string>* left_out);

/// Which of them reach the memory of the GPU that this thread uses: sets
/// NetDevice::takes_device_memory and takes_dma_buf. `copies`: may be null.
void try_device_memory(const std::shared_ptr<wire::DeviceCopies>& copies, const Log& log,
                       std::vector<NetDevice>* devices);

/// The verbs wire over one of them.
Result<Rail> open_verbs(const RailOptions& rail);

}  // namespace tutti::net
