// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/virtual_nodes.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::engine {
namespace {

TEST(virtual_nodes, node_identity__cuts_the_world_into_equal_runs) {
  EXPECT_EQ(0U, node_identity({.count = 2, .sizes = {}}, 0, 4));
  EXPECT_EQ(0U, node_identity({.count = 2, .sizes = {}}, 1, 4));
  EXPECT_EQ(1U, node_identity({.count = 2, .sizes = {}}, 2, 4));
  EXPECT_EQ(1U, node_identity({.count = 2, .sizes = {}}, 3, 4));
  EXPECT_EQ(machine_identity(), node_identity({}, 3, 4));
}

TEST(virtual_nodes, virtual_node__runs_cover_the_world) {
  for (int nodes = 1; nodes <= 9; ++nodes) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (int rank = 0; rank < ranks; ++rank) {
        const VirtualNode node = virtual_node({.count = nodes, .sizes = {}}, rank, ranks);
        EXPECT_LE(node.first_rank, rank);
        EXPECT_LT(rank, node.first_rank + node.ranks);
        EXPECT_EQ(node.number,
                  virtual_node({.count = nodes, .sizes = {}}, node.first_rank, ranks).number);
        const int last = node.first_rank + node.ranks - 1;
        EXPECT_EQ(node.number, virtual_node({.count = nodes, .sizes = {}}, last, ranks).number);
        EXPECT_TRUE(last + 1 == ranks ||
                    virtual_node({.count = nodes, .sizes = {}}, last + 1, ranks).number >
                        node.number);
      }
    }
  }
}

TEST(virtual_nodes, virtual_node__of_given_sizes) {
  const VirtualNodes nodes{.count = 3, .sizes = {5, 4, 3}};
  const auto numbers = [&](int ranks) {
    std::vector<int> found;
    for (int rank = 0; rank < ranks; ++rank) {
      const VirtualNode node = virtual_node(nodes, rank, ranks);
      EXPECT_LE(node.first_rank, rank);
      EXPECT_LT(rank, node.first_rank + node.ranks);
      found.push_back(node.number);
    }
    return found;
  };
  EXPECT_EQ((std::vector<int>{0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2}), numbers(12));
  EXPECT_EQ((std::vector<int>{0, 0, 0}), numbers(3));
  EXPECT_EQ(3, virtual_node(nodes, 13, 14).number);  // Over and over.
  EXPECT_EQ(2, virtual_node(nodes, 13, 14).ranks);   // The world ends within it.
}

}  // namespace
}  // namespace tutti::engine
