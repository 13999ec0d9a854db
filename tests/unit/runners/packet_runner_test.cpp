// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/sim/packet_runner.hpp"

#include <gtest/gtest.h>

#include "schedule/algorithm.hpp"

namespace tutti::runners::sim {
namespace {

constexpr std::uint64_t kNetworkMb = 50'000;
constexpr std::uint64_t kNvlinkMb = 100'000;

Cluster cluster_of(int gpus) {
  Cluster cluster;
  cluster.name = "test";
  cluster.gpus_per_node = gpus;
  cluster.nics_per_node = gpus;
  cluster.socket_of_gpu.assign(static_cast<std::size_t>(gpus), 0);
  cluster.link(LinkClass::kNvlink).mb_per_s = kNvlinkMb;
  cluster.link(LinkClass::kNetwork).mb_per_s = kNetworkMb;
  return cluster;
}

std::vector<schedule::Program> ring_allgather(const topology::Layout& layout, int ranks,
                                              std::uint64_t block) {
  schedule::Problem problem;
  problem.collective = select::Collective::kAllgather;
  problem.ranks = ranks;
  problem.counts.assign(static_cast<std::size_t>(ranks), block);
  const auto* ring = schedule::find_algorithm(select::Collective::kAllgather, "ring");
  std::vector<schedule::Program> programs;
  for (int rank = 0; rank < ranks; ++rank) {
    programs.push_back(schedule::generate(*ring, {layout, problem, rank, {}}));
  }
  return programs;
}

wire::sim::RunOptions options_of(std::uint32_t hosts) {
  wire::sim::RunOptions options;
  options.shape = *simulate::fat_tree(hosts);
  options.connection.wire.paths = 64;
  return options;
}

TEST(packet_runner, run_packets__a_ring_takes_its_rounds_over_the_network) {
  constexpr std::uint64_t kBlock = 1'000'000;
  const Cluster cluster = cluster_of(1);
  const topology::Layout layout = layout_of(cluster, 8);
  const auto programs = ring_allgather(layout, 8, kBlock);
  const auto outcome = run_packets(programs, layout, cluster, 1, options_of(8));
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  // Seven rounds of a block at 20 ps a byte, each with its latency of two to six links.
  const TimePs round = kBlock * 20;
  EXPECT_GE(outcome->end_ps, 7 * (round + 2'000'000));
  EXPECT_LE(outcome->end_ps, 7 * (round + round / 50 + 16'000'000));
  EXPECT_EQ(8U, outcome->finish_ps.size());
}

TEST(packet_runner, run_packets__within_a_node_nothing_touches_the_network) {
  constexpr std::uint64_t kBlock = 1'000'000;
  const Cluster cluster = cluster_of(4);
  const topology::Layout layout = layout_of(cluster, 4);
  const auto programs = ring_allgather(layout, 4, kBlock);
  const auto outcome = run_packets(programs, layout, cluster, 1, options_of(4));
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  // Three rounds of a block at 10 ps a byte; each waits for at most one window.
  EXPECT_GE(outcome->end_ps, 3 * kBlock * 10);
  EXPECT_LE(outcome->end_ps, 3 * (kBlock * 10 + 1'000'000));
}

TEST(packet_runner, packet_workload__refuses_a_message_that_nobody_receives) {
  const Cluster cluster = cluster_of(2);
  const topology::Layout layout = layout_of(cluster, 2);
  auto programs = ring_allgather(layout, 2, 10);
  programs[1].steps.clear();
  programs[1].dependencies.clear();
  const auto refused = packet_workload(programs, layout, cluster, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string::npos, refused.status().message().find("of rank 0: no receive"));
}

TEST(packet_runner, run_packets__needs_a_nic_for_each_gpu) {
  Cluster cluster = cluster_of(4);
  cluster.nics_per_node = 1;
  const topology::Layout layout = layout_of(cluster, 4);
  const auto programs = ring_allgather(layout, 4, 10);
  EXPECT_EQ("cluster test: a packet network needs a NIC for each GPU",
            run_packets(programs, layout, cluster, 1, options_of(4)).status().message());
}

}  // namespace
}  // namespace tutti::runners::sim
