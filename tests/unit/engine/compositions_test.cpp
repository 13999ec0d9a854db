// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/compositions.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "runners/mpi/mpi_runner.hpp"
#include "support/collective_cases.hpp"
#include "support/thread_mpi.hpp"

namespace tutti::engine {
namespace {

using select::Collective;
using testing::CollectiveCase;
using testing::ThreadMpi;
using testing::ThreadWorld;

constexpr Collective kAlphaCollectives[] = {Collective::kAllreduce, Collective::kReduce,
                                            Collective::kBcast, Collective::kAllgather,
                                            Collective::kReduceScatterBlock};

std::uint64_t wrong_elements(Collective collective, const std::vector<std::uint64_t>& nodes,
                             int root, std::uint64_t count, bool in_place, unsigned device_mask,
                             bool scratch_on_device) {
  const int ranks = static_cast<int>(nodes.size());
  const topology::Layout placement = topology::make_layout(nodes);
  ThreadWorld world(ranks);
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 24);
  std::atomic<std::uint64_t> staged{0};
  std::atomic<std::uint64_t> wrong{0};
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    runners::MpiRunner runner(mpi, api.get(), scratch, staged);
    Status status = mpi.make_scopes(placement.node_of[static_cast<std::size_t>(rank)]);
    CollectiveCase test(collective, rank, ranks, root, count, in_place,
                        (device_mask >> rank & 1) != 0);
    if (status.ok()) {
      status = run_alpha({.placement = placement,
                          .rank = rank,
                          .node = runner,
                          .leaders = runner,
                          .scratch_on_device = scratch_on_device,
                          .device = 0,
                          .api = api.get(),
                          .scratch = scratch},
                         test.call);
    }
    wrong += status.ok() ? test.wrong() : 1000000;
  });
  return wrong;
}

TEST(compositions, run_alpha__any_placement_root_and_memory) {
  const std::vector<std::vector<std::uint64_t>> placements = {
      {1, 1, 2, 2}, {1, 2, 1, 2}, {1, 2, 2, 2, 3}, {2, 1, 3}, {1, 1, 1, 2, 1}};
  for (const Collective collective : kAlphaCollectives) {
    for (const auto& nodes : placements) {
      for (int root = 0; root < static_cast<int>(nodes.size()); ++root) {
        for (const unsigned mask : {0U, 0b01010U, 0b11111U}) {
          const bool in_place = (root + mask) % 2 == 0;
          EXPECT_EQ(0U, wrong_elements(collective, nodes, root, 5, in_place, mask, mask != 0))
              << to_string(collective) << " on " << nodes.size() << " ranks, root " << root
              << ", device mask " << mask << ", in place " << in_place;
        }
      }
    }
  }
}

TEST(compositions, run_alpha__sizes) {
  for (const Collective collective : kAlphaCollectives) {
    for (const std::uint64_t count : {1U, 2U, 1023U}) {
      EXPECT_EQ(0U, wrong_elements(collective, {1, 2, 1, 2, 2}, 3, count, false, 0, false))
          << to_string(collective) << " count " << count;
    }
  }
}

TEST(compositions, run_alpha__refuses_what_it_has_not) {
  const topology::Layout placement = topology::make_layout({1});
  ThreadWorld world(1);
  ThreadMpi mpi(world, 0);
  runners::Scratch scratch(nullptr, 0);
  std::atomic<std::uint64_t> staged{0};
  runners::MpiRunner runner(mpi, nullptr, scratch, staged);
  runners::Call call;
  call.collective = Collective::kAlltoall;
  const Status status = run_alpha(
      {.placement = placement, .node = runner, .leaders = runner, .scratch = scratch}, call);
  EXPECT_EQ(ErrorCode::kUnsupported, status.code());
}

}  // namespace
}  // namespace tutti::engine
