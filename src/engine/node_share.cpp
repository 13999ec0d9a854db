// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/node_share.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/config.hpp"
#include "base/cpu_quota.hpp"
#include "discover/discover.hpp"

namespace tutti::engine {
namespace {

/// How many ranks the launcher has started on this node, under the names that launchers use.
int node_ranks_of_launcher() {
  for (const char* name :
       {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE",
        "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_TASKS_PER_NODE"}) {
    const int ranks = std::atoi(environment_value(name).c_str());
    if (ranks > 0) {
      return ranks;
    }
  }
  return 0;
}

}  // namespace

NodeShare own_node_share(int world_ranks) {
  NodeShare share;
  const int told = node_ranks_of_launcher();
  share.node_ranks = told > 0 ? std::min(told, world_ranks) : world_ranks;
  share.quota_cores = std::min(cpu_quota_cores(), NodeShare::kCpusMax);
  for (const int cpu : discover::own_cpus()) {
    if (cpu < NodeShare::kCpusMax) {
      share.cpus[static_cast<std::size_t>(cpu) / 64] |= std::uint64_t{1} << (cpu % 64);
    }
  }
  return share;
}

bool is_oversubscribed(const std::vector<NodeShare>& shares) {
  const auto count = [](const auto& cpus) {
    int cores = 0;
    for (const std::uint64_t word : cpus) {
      cores += std::popcount(word);
    }
    return cores;
  };
  if (shares.empty()) {
    return false;
  }
  decltype(NodeShare::cpus) all = shares.front().cpus;
  bool all_alike = true;
  for (const NodeShare& share : shares) {
    if (share.cpus == shares.front().cpus) {
      continue;  // Unbound: nothing new. Every communicator asks.
    }
    all_alike = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] |= share.cpus[i];
    }
  }
  const int cores = count(all);
  return std::any_of(shares.begin(), shares.end(), [&](const NodeShare& share) {
    // Ranks that are bound, each to cores of its own, do not meet those of other communicators.
    const int ranks = all_alike ? share.node_ranks : static_cast<int>(shares.size());
    return ranks > cores || (share.quota_cores > 0 && share.node_ranks > share.quota_cores);
  });
}

}  // namespace tutti::engine
