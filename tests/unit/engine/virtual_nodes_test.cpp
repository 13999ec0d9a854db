// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/virtual_nodes.hpp"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

TEST(virtual_nodes, node_identity__cuts_the_world_into_equal_runs) {
  EXPECT_EQ(0U, node_identity(2, 0, 4));
  EXPECT_EQ(0U, node_identity(2, 1, 4));
  EXPECT_EQ(1U, node_identity(2, 2, 4));
  EXPECT_EQ(1U, node_identity(2, 3, 4));
  EXPECT_EQ(machine_identity(), node_identity(0, 3, 4));
}

TEST(virtual_nodes, virtual_node__runs_cover_the_world) {
  for (int nodes = 1; nodes <= 9; ++nodes) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (int rank = 0; rank < ranks; ++rank) {
        const VirtualNode node = virtual_node(nodes, rank, ranks);
        EXPECT_LE(node.first_rank, rank);
        EXPECT_LT(rank, node.first_rank + node.ranks);
        EXPECT_EQ(node.number, virtual_node(nodes, node.first_rank, ranks).number);
        const int last = node.first_rank + node.ranks - 1;
        EXPECT_EQ(node.number, virtual_node(nodes, last, ranks).number);
        EXPECT_TRUE(last + 1 == ranks || virtual_node(nodes, last + 1, ranks).number > node.number);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::engine
