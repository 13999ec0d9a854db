// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Rails and sockets that ranks agree on, from a topology file over virtual nodes. The process is
// configured from the environment before anything reads it.
#include "engine/placement.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "engine/communicator.hpp"
#include "support/thread_mpi.hpp"

namespace tutti::engine {
namespace {

using testing::ThreadMpi;
using testing::ThreadWorld;

constexpr int kWorld = 6;

class Environment : public ::testing::Environment {
 public:
  void SetUp() override {
    path_ = ::testing::TempDir() + "tutti-topology-" + std::to_string(getpid()) + ".json";
    std::ofstream(path_) << R"({"schema": "tutti-topology/1", "nodes": [
      {"sockets": [{}, {}], "nics": [{"rdma": true}, {"rdma": true}]}, {"rails": 5}]})";
    setenv("TUTTI_TOPOLOGY_FILE", path_.c_str(), 1);
    setenv("TUTTI_VIRTUAL_NODES", "2", 1);
    setenv("TUTTI_DEVICE", "host", 1);
    setenv("TUTTI_LOG_LEVEL", "error", 1);
  }
  void TearDown() override { static_cast<void>(unlink(path_.c_str())); }

 private:
  std::string path_;
};
const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new Environment());

TEST(placement, own_place__virtual_nodes_by_the_file) {
  std::vector<int> sockets;
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto place = own_place(Process::get(), rank, kWorld);
    EXPECT_EQ(rank < 3 ? 2 : 5, place.rails);
    sockets.push_back(place.socket);
  }
  EXPECT_EQ((std::vector<int>{0, 0, 1, -1, -1, -1}), sockets);
}

/// The layout on every rank of a communicator whose rank i is world rank `world_ranks[i]`.
std::vector<topology::Layout> layouts_of(const std::vector<int>& world_ranks,
                                         const std::string& plan) {
  const auto ranks = static_cast<int>(world_ranks.size());
  std::vector<topology::Layout> layouts(world_ranks.size());
  ThreadWorld world(ranks);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    const auto index = static_cast<std::size_t>(rank);
    const RankInfo me{.rank = rank,
                      .ranks = ranks,
                      .world_rank = world_ranks[index],
                      .world_ranks = kWorld,
                      .mpi_device_aware = false};
    auto created =
        Communicator::create(Process::get(), mpi, &mpi, me, {.plan = plan, .memory_kinds = {}});
    ASSERT_TRUE(created.ok()) << created.status().message();
    layouts[index] = (*created)->placement();
  });
  return layouts;
}

TEST(placement, agreed__every_rank_has_the_same_layout) {
  for (const auto& layout : layouts_of({0, 1, 2, 3, 4, 5}, "schedule:ring")) {
    EXPECT_EQ((std::vector<int>{2, 5}), layout.rails_of);
    EXPECT_EQ((std::vector<int>{0, 0, 1, 0, 0, 0}), layout.socket_of);
  }
}

TEST(placement, agreed__a_split_communicator_in_another_order) {
  for (const auto& layout : layouts_of({5, 2, 0}, "schedule:ring")) {
    EXPECT_EQ((std::vector<int>{0, 1, 1}), layout.node_of);
    EXPECT_EQ((std::vector<int>{5, 2}), layout.rails_of);
    EXPECT_EQ((std::vector<int>{0, 1, 0}), layout.socket_of);
  }
}

TEST(placement, agreed__nothing_where_no_plan_asks) {
  for (const auto& layout : layouts_of({0, 1, 2, 3, 4, 5}, "")) {
    EXPECT_TRUE(layout.rails_of.empty());
    EXPECT_TRUE(layout.socket_of.empty());
    EXPECT_EQ(3, layout.rails(0));
  }
}

}  // namespace
}  // namespace tutti::engine
