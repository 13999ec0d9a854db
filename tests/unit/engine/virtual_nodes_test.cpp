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

TEST(virtual_nodes, make_placement__any_order_unequal_nodes) {
  const Placement placement = make_placement({70, 80, 70, 70, 90});
  EXPECT_EQ(3, placement.nodes());
  EXPECT_EQ((std::vector<int>{0, 1, 0, 0, 2}), placement.node_of);
  EXPECT_EQ((std::vector<int>{0, 0, 1, 2, 0}), placement.local_of);
  EXPECT_EQ((std::vector<int>{0, 2, 3}), placement.ranks_of[0]);
  EXPECT_EQ(3, placement.ranks_per_node_max());
  EXPECT_FALSE(placement.is_consecutive());
  EXPECT_TRUE(make_placement({5, 5, 6, 7}).is_consecutive());
}

}  // namespace
}  // namespace tutti::engine
