// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// This process's share of its node: how many ranks of the job are there and which cores they may
// use. What ranks tell each other of it decides whether they have a core each, since a rank that
// waits in a loop would otherwise take the core from the rank that it waits for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tutti::engine {

/// Fixed size, to be sent as bytes.
struct NodeShare {
  static constexpr int kCpusMax = 1024;  ///< Those behind it are not counted.
  std::int32_t node_ranks = 1;   ///< Of the job; an upper bound where the launcher does not tell.
  std::int32_t quota_cores = 0;  ///< Of the cgroup, rounded down, at least 1; 0: no quota.
  std::array<std::uint64_t, kCpusMax / 64> cpus{};  ///< Affinity, one bit each.
};

/// Of this process. `world_ranks`: of the whole job.
NodeShare own_node_share(int world_ranks);

/// Whether ranks of one node, which told these, are more than the cores they may use.
bool is_oversubscribed(const std::vector<NodeShare>& shares);

}  // namespace tutti::engine
