// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/channel_placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace tutti::net {
namespace {

constexpr bool kSends = true;
constexpr bool kReceives = false;

std::size_t one(Placement& placement, std::uint64_t peer, bool sends) {
  return placement.next(peer, sends, 1).at(0);
}

/// How many more channels the fullest engine has than the emptiest.
std::size_t unevenness(const std::vector<std::size_t>& channels) {
  const auto [least, most] = std::minmax_element(channels.begin(), channels.end());
  return *most - *least;
}

TEST(Placement, ARingAmongTreesHasItsChannelsOnDifferentEngines) {
  // Of four ranks with two channels, as NCCL 2.28 connects rank 0: a ring's channel that a tree
  // has, too, is made with the tree, and others come between it and the ring's rest.
  Placement two(2);
  const std::size_t send_1 = one(two, 1, kSends);
  one(two, 2, kReceives);
  one(two, 2, kSends);
  one(two, 1, kReceives);
  const std::size_t receive_0 = one(two, 3, kReceives);
  const std::size_t receive_1 = one(two, 3, kReceives);
  const std::size_t send_0 = one(two, 1, kSends);
  EXPECT_NE(send_0, send_1);
  EXPECT_NE(receive_0, receive_1);
}

TEST(Placement, FewChannelsBothWaysDoNotShareAnEngine) {
  for (const std::size_t engines : {2, 3, 4, 8}) {
    Placement placement(engines);
    std::set<std::size_t> chosen;
    for (std::size_t i = 0; i < engines / 2; ++i) {
      EXPECT_TRUE(chosen.insert(one(placement, 1, kSends)).second) << engines;
      EXPECT_TRUE(chosen.insert(one(placement, 2, kReceives)).second) << engines;
    }
  }
}

TEST(Placement, APeersChannelsAreOnAllEnginesInTurn) {
  for (std::size_t engines = 1; engines <= 9; ++engines) {
    for (const bool sends : {kSends, kReceives}) {
      Placement placement(engines);
      for (std::uint64_t peer = 0; peer < 5; ++peer) {
        std::vector<std::size_t> channels(engines);
        for (std::size_t i = 0; i < 3 * engines; ++i) {
          ++channels.at(one(placement, peer, sends));
          EXPECT_LE(unevenness(channels), 1U) << engines << " engines, channel " << i;
        }
      }
    }
  }
}

TEST(Placement, ManyPeersOfAsManyChannelsEachFillAllEngines) {
  for (const std::size_t engines : {2, 4, 6, 8}) {
    for (std::size_t of_a_peer = 1; of_a_peer <= 2 * engines; ++of_a_peer) {
      Placement placement(engines);
      std::vector<std::size_t> channels(engines);
      for (std::uint64_t peer = 0; peer < 12 * engines; ++peer) {
        for (std::size_t i = 0; i < of_a_peer; ++i) {
          ++channels.at(one(placement, peer, kSends));
          ++channels.at(one(placement, peer, kReceives));
        }
      }
      EXPECT_EQ(unevenness(channels), 0U) << engines << " engines, " << of_a_peer << " channels";
    }
  }
}

TEST(Placement, SubConnectionsAreOnDifferentEngines) {
  for (std::size_t engines = 1; engines <= 9; ++engines) {
    for (std::size_t sub_connections = 1; sub_connections <= 10; ++sub_connections) {
      Placement placement(engines);
      for (std::uint64_t i = 0; i < 50; ++i) {
        const auto chosen = placement.next(i % 7, i % 3 == 0, sub_connections);
        EXPECT_EQ(chosen.size(), std::min(sub_connections, engines));
        EXPECT_EQ(std::set(chosen.begin(), chosen.end()).size(), chosen.size());
        EXPECT_LT(*std::max_element(chosen.begin(), chosen.end()), engines);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::net
