// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/layout.hpp"

#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

TEST(layout, make_layout__any_order_unequal_nodes) {
  const Layout layout = make_layout({70, 80, 70, 70, 90});
  EXPECT_EQ(5, layout.ranks());
  EXPECT_EQ(3, layout.nodes());
  EXPECT_EQ((std::vector<int>{0, 1, 0, 0, 2}), layout.node_of);
  EXPECT_EQ((std::vector<int>{0, 0, 1, 2, 0}), layout.local_of);
  EXPECT_EQ((std::vector<int>{0, 2, 3}), layout.ranks_of[0]);
  EXPECT_EQ(3, layout.ranks_per_node_max());
  EXPECT_FALSE(layout.is_consecutive());
  EXPECT_TRUE(make_layout({5, 5, 6, 7}).is_consecutive());
}

TEST(layout, rails__as_many_as_ranks_unless_told) {
  Layout layout = make_layout({1, 1, 2});
  EXPECT_EQ(2, layout.rails(0));
  EXPECT_EQ(1, layout.rails(1));
  layout.rails_of = {1, 4};
  EXPECT_EQ(1, layout.rails(0));
  EXPECT_EQ(4, layout.rails(1));
}

TEST(layout, set_places__nothing_known_changes_nothing) {
  Layout layout = make_layout({1, 1, 2});
  set_places({{}, {}, {}}, &layout);
  EXPECT_TRUE(layout.socket_of.empty());
  EXPECT_TRUE(layout.rails_of.empty());
}

TEST(layout, set_places__what_is_known_goes_to_all) {
  // Round-robin placement; the lowest rank of a node that knows decides its rails.
  Layout layout = make_layout({1, 2, 1, 2, 3});
  set_places({{.rails = 0, .socket = 1},
              {.rails = 1, .socket = -1},
              {.rails = 4, .socket = 0},
              {.rails = 2, .socket = 3},
              {}},
             &layout);
  EXPECT_EQ((std::vector<int>{1, 0, 0, 3, 0}), layout.socket_of);
  EXPECT_EQ((std::vector<int>{4, 1, 1}), layout.rails_of);
}

TEST(layout, set_places__one_node_has_no_rails) {
  Layout layout = make_layout({1, 1});
  set_places({{.rails = 8, .socket = 0}, {.rails = 8, .socket = 1}}, &layout);
  EXPECT_TRUE(layout.rails_of.empty());
  EXPECT_EQ((std::vector<int>{0, 1}), layout.socket_of);
}

TEST(layout, regular_layout__consecutive_nodes) {
  const Layout layout = regular_layout(3, 4);
  EXPECT_EQ(12, layout.ranks());
  EXPECT_EQ(2, layout.node_of[8]);
  EXPECT_EQ(3, layout.local_of[11]);
  EXPECT_TRUE(layout.is_consecutive());
}

}  // namespace
}  // namespace tutti::topology
