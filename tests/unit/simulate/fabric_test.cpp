// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/fabric.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "base/random.hpp"

namespace tutti::simulate {
namespace {

std::array<std::uint32_t, 4> counts(const Fabric& fabric) {
  std::array<std::uint32_t, 4> found{};
  for (std::uint32_t node = 0; node < fabric.nodes(); ++node) {
    ++found[static_cast<std::size_t>(fabric.kind(node))];
  }
  return found;
}

using Counts = std::array<std::uint32_t, 4>;

TEST(fabric, parse_fabric__sizes_of_every_kind) {
  EXPECT_EQ((Counts{16, 1, 0, 0}), counts(Fabric(*parse_fabric("single:16"))));
  EXPECT_EQ((Counts{64, 8, 4, 0}), counts(Fabric(*parse_fabric("leaf-spine:64:8:4"))));
  EXPECT_EQ((Counts{128, 16, 8, 0}), counts(Fabric(*parse_fabric("leaf-spine:128"))));
  EXPECT_EQ((Counts{16, 8, 8, 4}), counts(Fabric(*parse_fabric("fat-tree:16"))));
  EXPECT_EQ((Counts{128, 32, 32, 16}), counts(Fabric(*parse_fabric("fat-tree:128"))));
  EXPECT_EQ((Counts{1024, 128, 128, 64}), counts(Fabric(*parse_fabric("fat-tree:1024"))));
  EXPECT_EQ((Counts{8192, 512, 512, 256}), counts(Fabric(*parse_fabric("fat-tree:8192"))));
  EXPECT_EQ((Counts{32, 8, 4, 0}), counts(Fabric(*parse_fabric("fat-tree:32:2"))));
  // 20 hosts do not fill the fat-tree of 54: seven leaves of three, three pods.
  EXPECT_EQ((Counts{20, 7, 9, 9}), counts(Fabric(*parse_fabric("fat-tree:20"))));
  EXPECT_EQ(6144U, Fabric(*parse_fabric("fat-tree:1024")).links());
}

TEST(fabric, parse_fabric__names_what_is_wrong) {
  for (const char* text : {"", "fat-tree", "fat-tree:", "fat-tree:0", "fat-tree:16:4", "ring:4",
                           "fat-tree:x", "leaf-spine:8:0:1", "single:1048577", "single:32769",
                           "leaf-spine:4:2:4000000000", "leaf-spine:65538:2:2"}) {
    const auto shape = parse_fabric(text);
    ASSERT_FALSE(shape.ok()) << text;
    EXPECT_EQ(0U, shape.status().message().find("topology: ")) << shape.status().message();
  }
}

TEST(fabric, reverse__is_its_own_inverse_and_joins_the_same_nodes) {
  const Fabric fabric(*fat_tree(20));
  for (std::uint32_t link = 0; link < fabric.links(); ++link) {
    EXPECT_EQ(link, fabric.reverse(fabric.reverse(link)));
    EXPECT_EQ(fabric.to(link), fabric.from(fabric.reverse(link)));
    EXPECT_NE(fabric.to(link), fabric.from(link));
  }
}

/// Follows a packet with this hash at every switch; the number of links to `dst`, or 99.
std::uint32_t walk(const Fabric& fabric, std::uint32_t src, std::uint32_t dst, std::uint32_t hash) {
  std::uint32_t node = fabric.to(fabric.first_link(src));
  for (std::uint32_t links = 1; links < 8; ++links) {
    if (node == dst) {
      return links;
    }
    const std::uint32_t port = fabric.route(node, dst, hash);
    EXPECT_LT(port, fabric.ports(node));
    node = fabric.to(fabric.first_link(node) + port);
  }
  return 99;
}

TEST(fabric, route__reaches_every_host_by_the_shortest_way) {
  for (const char* text : {"single:5", "leaf-spine:18:4:3", "fat-tree:20", "fat-tree:16"}) {
    const Fabric fabric(*parse_fabric(text));
    for (std::uint32_t src = 0; src < fabric.hosts(); ++src) {
      for (std::uint32_t dst = 0; dst < fabric.hosts(); ++dst) {
        if (src == dst) {
          continue;
        }
        for (const std::uint32_t hash : {0U, 0x7fffffffU, 0xffffffffU}) {
          EXPECT_EQ(fabric.hops(src, dst), walk(fabric, src, dst, hash)) << text;
        }
      }
    }
  }
}

TEST(fabric, route__the_hash_reaches_every_equal_port) {
  const Fabric fabric(*fat_tree(128));
  const std::uint32_t leaf = fabric.to(0);
  std::set<std::uint32_t> ports;
  for (std::uint32_t i = 0; i < 100; ++i) {
    ports.insert(fabric.route(leaf, 127, static_cast<std::uint32_t>(draw(1, i, 0))));
  }
  EXPECT_EQ((std::set<std::uint32_t>{4, 5, 6, 7}), ports);
}

}  // namespace
}  // namespace tutti::simulate
