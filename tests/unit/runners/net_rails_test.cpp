// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Schedules over our transport on several rails.
#include "runners/net/rails.hpp"

#include <gtest/gtest.h>

namespace tutti::runners {
namespace {

using Rails = std::vector<RailEnds>;

std::vector<int> all_have(int ranks, int devices) {
  return std::vector<int>(static_cast<std::size_t>(ranks), devices);
}

TEST(Rails, ALocalRankHasTheRailOfItsNumber) {
  const topology::Layout layout = topology::regular_layout(2, 4);
  for (int local = 0; local < 4; ++local) {
    EXPECT_EQ(rails_between(layout, all_have(8, 4), local, 4 + local), (Rails{{local, local}}));
    EXPECT_EQ(rails_between(layout, all_have(8, 2), 4 + local, local),
              (Rails{{local % 2, local % 2}}));
    EXPECT_EQ(rails_between(layout, all_have(8, 1), local, 4 + local), (Rails{{0, 0}}));
  }
  // Between different local ranks the sender's, at both ends: a rail need not reach another one.
  EXPECT_EQ(rails_between(layout, all_have(8, 4), 1, 6), (Rails{{1, 1}}));
  EXPECT_EQ(rails_between(layout, all_have(8, 4), 6, 1), (Rails{{2, 2}}));
}

TEST(Rails, MoreDevicesThanRanksAreSharedOut) {
  const topology::Layout layout = topology::regular_layout(2, 2);
  EXPECT_EQ(rails_between(layout, all_have(4, 4), 0, 2), (Rails{{0, 0}, {2, 2}}));
  EXPECT_EQ(rails_between(layout, all_have(4, 4), 1, 3), (Rails{{1, 1}, {3, 3}}));
  EXPECT_EQ(rails_between(layout, all_have(4, 3), 1, 3), (Rails{{1, 1}}));
}

TEST(Rails, MessagesToSeveralNodesBeginWithRailsOfTheirOwn) {
  const topology::Layout layout = topology::regular_layout(4, 1);
  for (int sender = 0; sender < 4; ++sender) {
    for (int hops = 1; hops < 4; ++hops) {
      const Rails rails = rails_between(layout, all_have(4, 4), sender, (sender + hops) % 4);
      ASSERT_EQ(rails.size(), 4U);
      for (int message = 0; message < 4; ++message) {
        const int rail = (message + hops - 1) % 4;
        EXPECT_EQ(rails[static_cast<std::size_t>(message)], (RailEnds{rail, rail}));
      }
    }
  }
}

TEST(Rails, TheNodeWithMoreRanksSays) {
  // Node 0 has ranks 0 and 1, node 1 ranks 2 to 5: rank 1 is in the rings of local ranks 1 and 3.
  const topology::Layout layout = topology::make_layout({0, 0, 1, 1, 1, 1});
  EXPECT_EQ(rails_between(layout, all_have(6, 4), 1, 5), (Rails{{3, 3}}));
  EXPECT_EQ(rails_between(layout, all_have(6, 4), 5, 1), (Rails{{3, 3}}));
  EXPECT_EQ(rails_between(layout, all_have(6, 4), 0, 4), (Rails{{2, 2}}));
}

TEST(Rails, ANodeWithFewerDevicesUsesThoseThatBothHave) {
  const topology::Layout layout = topology::regular_layout(2, 4);
  const std::vector<int> devices = {4, 4, 4, 4, 2, 2, 2, 2};
  EXPECT_EQ(rails_between(layout, devices, 3, 7), (Rails{{1, 1}}));
  EXPECT_EQ(rails_between(layout, devices, 7, 3), (Rails{{1, 1}}));
}

TEST(Rails, WithinANodeEachEndHasItsOwn) {
  const topology::Layout layout = topology::regular_layout(2, 4);
  EXPECT_EQ(rails_between(layout, all_have(8, 4), 4, 7), (Rails{{0, 3}}));
  EXPECT_EQ(rails_between(layout, all_have(8, 3), 3, 2), (Rails{{0, 2}}));
}

}  // namespace
}  // namespace tutti::runners
