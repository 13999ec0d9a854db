// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/node_share.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti::engine {
namespace {

NodeShare share(int node_ranks, std::initializer_list<int> cpus, int quota_cores = 0) {
  NodeShare result;
  result.node_ranks = node_ranks;
  result.quota_cores = quota_cores;
  for (const int cpu : cpus) {
    result.cpus[static_cast<std::size_t>(cpu) / 64] |= std::uint64_t{1} << (cpu % 64);
  }
  return result;
}

TEST(NodeShare, is_oversubscribed__by_cores_binding_and_quota) {
  struct Row {
    const char* what;
    std::vector<NodeShare> shares;
    bool expected;
  };
  const Row rows[] = {
      {"unbound, a core each", {share(2, {0, 1}), share(2, {0, 1})}, false},
      {"unbound, more ranks than cores", {share(3, {0, 1}), share(3, {0, 1})}, true},
      {"bound, a core each", {share(8, {3}), share(8, {70})}, false},
      {"two ranks on one core", {share(2, {5}), share(2, {5})}, true},
      {"bound to two cores each", {share(4, {0, 1}), share(4, {2, 3})}, false},
      {"three ranks on two of the cores", {share(3, {0}), share(3, {1}), share(3, {0, 1})}, true},
      {"a quota below the ranks", {share(4, {0, 1, 2, 3}, 2), share(4, {0, 1, 2, 3}, 2)}, true},
      {"a quota that suffices", {share(2, {0, 1, 2, 3}, 2), share(2, {0, 1, 2, 3}, 2)}, false},
      {"one rank that cannot tell its cores", {share(1, {})}, true},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(is_oversubscribed(row.shares), row.expected) << row.what;
  }
}

TEST(NodeShare, own_node_share__the_launcher_tells_the_ranks_of_the_node) {
  unsetenv("MPI_LOCALNRANKS");
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  unsetenv("SLURM_TASKS_PER_NODE");
  EXPECT_EQ(own_node_share(6).node_ranks, 6);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  EXPECT_EQ(own_node_share(6).node_ranks, 2);
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  setenv("SLURM_TASKS_PER_NODE", "4(x2)", 1);
  EXPECT_EQ(own_node_share(8).node_ranks, 4);
  EXPECT_EQ(own_node_share(3).node_ranks, 3);
  unsetenv("SLURM_TASKS_PER_NODE");
}

}  // namespace
}  // namespace tutti::engine
