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

}  // namespace
}  // namespace tutti::engine
