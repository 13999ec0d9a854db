// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/virtual_nodes.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/fnv1a.hpp"

namespace tutti::engine {

namespace {

VirtualNode node_of_equals(int count, int world_rank, int world_ranks) {
  const std::int64_t number = static_cast<std::int64_t>(world_rank) * count / world_ranks;
  // The first rank r with r * count / world_ranks == number, rounded down.
  const auto first = [&](std::int64_t node) { return (node * world_ranks + count - 1) / count; };
  return {.number = static_cast<int>(number),
          .first_rank = static_cast<int>(first(number)),
          .ranks = static_cast<int>(first(number + 1) - first(number))};
}

}  // namespace

VirtualNode virtual_node(const VirtualNodes& nodes, int world_rank, int world_ranks) {
  if (nodes.sizes.empty()) {
    return node_of_equals(nodes.count, world_rank, world_ranks);
  }
  VirtualNode node;
  while (true) {
    const int size = nodes.sizes[static_cast<std::size_t>(node.number) % nodes.sizes.size()];
    node.ranks = std::min(size, world_ranks - node.first_rank);
    if (world_rank < node.first_rank + node.ranks) {
      return node;
    }
    node.first_rank += node.ranks;
    ++node.number;
  }
}

namespace {

std::uint64_t hash_of_machine() {
  char host[256] = {};
  static_cast<void>(gethostname(host, sizeof(host) - 1));
  std::string identity = host;
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  identity += boot_id;
  Fnv1a hash;
  hash.add_bytes(identity);
  return hash.value();
}

}  // namespace

std::uint64_t machine_identity() {
  static const std::uint64_t identity = hash_of_machine();  // Asked for by each communicator.
  return identity;
}

std::uint64_t node_identity(const VirtualNodes& nodes, int world_rank, int world_ranks) {
  return nodes.count > 0
             ? static_cast<std::uint64_t>(virtual_node(nodes, world_rank, world_ranks).number)
             : machine_identity();
}

void announce_virtual_node(const VirtualNodes& nodes, int world_rank, int world_ranks) {
  if (nodes.count > 0) {
    const std::string id =
        "tutti-virtual-node-" + std::to_string(virtual_node(nodes, world_rank, world_ranks).number);
    static_cast<void>(setenv("NCCL_HOSTID", id.c_str(), 0));
  }
}

}  // namespace tutti::engine
