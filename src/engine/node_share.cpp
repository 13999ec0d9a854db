// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/node_share.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/config.hpp"
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

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The least quota of a process's cgroup and those above it; 0: none.
int own_quota_cores() {
  int least = 0;
  const auto take = [&least](int cores) {
    least = least == 0 ? cores : cores == 0 ? least : std::min(least, cores);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/a/b" (v2), "4:cpu,cpuacct:/a/b" (v1).
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) {
      continue;
    }
    std::string group = line.substr(second + 1);
    // In a container the path may be the host's: what is mounted is looked at from its root, too.
    for (;; group = group.substr(0, group.rfind('/'))) {
      const std::string end = group == "/" ? "" : group;
      if (is_v2) {
        take(quota_of_cpu_max(first_line("/sys/fs/cgroup" + end + "/cpu.max")));
      } else {
        const std::string at = "/sys/fs/cgroup/cpu" + end;
        const std::string quota = first_line(at + "/cpu.cfs_quota_us");
        if (!quota.empty() && quota[0] != '-') {
          take(quota_of_cpu_max(quota + " " + first_line(at + "/cpu.cfs_period_us")));
        }
      }
      if (end.empty()) {
        break;
      }
    }
  }
  return least;
}

}  // namespace

int quota_of_cpu_max(const std::string& cpu_max) {
  std::istringstream words(cpu_max);
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
  if (!(words >> quota_us >> period_us) || quota_us <= 0 || period_us <= 0) {
    return 0;
  }
  return static_cast<int>(std::clamp<std::int64_t>(quota_us / period_us, 1, NodeShare::kCpusMax));
}

NodeShare own_node_share(int world_ranks) {
  NodeShare share;
  const int told = node_ranks_of_launcher();
  share.node_ranks = told > 0 ? std::min(told, world_ranks) : world_ranks;
  share.quota_cores = own_quota_cores();
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
  decltype(NodeShare::cpus) all{};
  bool all_alike = true;
  for (const NodeShare& share : shares) {
    all_alike &= share.cpus == shares.front().cpus;
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
