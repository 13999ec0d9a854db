// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/placement.hpp"

#include <algorithm>

#include "discover/discover.hpp"
#include "engine/virtual_nodes.hpp"

namespace tutti::engine {
namespace {

int own_socket(Process& process, const topology::Machine& machine) {
  device::Api* const api = process.device();
  const int device = api == nullptr ? -1 : api->current_device();
  if (device >= 0) {
    const auto pci = api->pci_address(device);
    const int socket = pci.ok() ? topology::socket_of_gpu(machine, *pci) : -1;
    if (socket >= 0) {
      return socket;
    }
  }
  return topology::socket_of_cpus(machine, discover::own_cpus());
}

}  // namespace

topology::RankPlace own_place(Process& process, int world_rank, int world_ranks) {
  const VirtualNodes& nodes = process.config().virtual_nodes;
  const topology::TopologyFile& file = process.topology_file();
  if (nodes.count > 0) {
    const VirtualNode node = virtual_node(nodes, world_rank, world_ranks);
    const auto* entry = topology::entry_for(file, "", node.number);
    if (entry == nullptr) {
      return {};
    }
    const auto sockets = static_cast<int>(entry->machine.sockets.size());
    return {.rails = topology::rail_count(entry->machine),
            .socket = sockets == 0 ? -1 : (world_rank - node.first_rank) * sockets / node.ranks};
  }
  const auto* entry = topology::entry_for(file, discover::host_name(), -1);
  const topology::Machine& machine = entry != nullptr ? entry->machine : process.machine();
  return {.rails = std::min(topology::rail_count(machine), topology::kRailsMax),
          .socket = own_socket(process, machine)};
}

}  // namespace tutti::engine
