// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/mpi/mpi_runner.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "support/collective_cases.hpp"
#include "support/thread_mpi.hpp"

namespace tutti {
namespace {

using runners::MpiRunner;
using runners::Scope;
using select::Collective;
using testing::CollectiveCase;
using testing::ThreadMpi;
using testing::ThreadWorld;

constexpr Collective kRegular[] = {
    Collective::kBcast,     Collective::kGather,   Collective::kScatter,
    Collective::kAllgather, Collective::kAlltoall, Collective::kReduce,
    Collective::kAllreduce, Collective::kScan,     Collective::kReduceScatterBlock,
};

/// Runs one collective over `ranks` threads; rank r's buffers are on the device where
/// `device_mask` has bit r. Returns wrong elements; `calls` gets the collectives rank 0 made.
std::uint64_t wrong_elements(Collective collective, int ranks, int root, std::uint64_t count,
                             bool in_place, unsigned device_mask, Bytes chunk_bytes,
                             std::size_t* calls = nullptr) {
  ThreadWorld world(ranks);
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 24);
  std::atomic<std::uint64_t> staged{0};
  std::atomic<std::uint64_t> wrong{0};
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    MpiRunner runner(mpi, api.get(), scratch, staged);
    runner.set_options({.stage_device = true, .chunk_bytes = chunk_bytes});
    CollectiveCase test(collective, rank, ranks, root, count, in_place,
                        (device_mask >> rank & 1) != 0);
    const Status status = runner.run(Scope::kWhole, test.call);
    wrong += status.ok() ? test.wrong() : 1000000;
    if (rank == 0 && calls != nullptr) {
      *calls = mpi.calls.size();
    }
  });
  return wrong;
}

TEST(mpi_runner, run__every_regular_collective_mixed_memory) {
  for (const Collective collective : kRegular) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (const unsigned mask : {0U, 1U, 0b10101U, 0b11111U}) {
        for (const bool in_place : {false, true}) {
          for (const std::uint64_t count : {1U, 7U, 64U}) {
            EXPECT_EQ(0U, wrong_elements(collective, ranks, ranks - 1, count, in_place, mask, 0))
                << to_string(collective) << " ranks " << ranks << " mask " << mask << " in place "
                << in_place << " count " << count;
          }
        }
      }
    }
  }
}

TEST(mpi_runner, run__chunks_on_every_rank_alike) {
  for (const Collective collective : kRegular) {
    for (const unsigned mask : {0U, 0b001U, 0b110U, 0b111U}) {
      for (const bool in_place : {false, true}) {
        for (const std::uint64_t count : {33U, 64U, 100U}) {
          std::size_t calls = 0;
          EXPECT_EQ(0U, wrong_elements(collective, 3, 1, count, in_place, mask, 256, &calls))
              << to_string(collective) << " mask " << mask << " in place " << in_place << " count "
              << count;
          EXPECT_GT(calls, 1U) << to_string(collective) << " was not cut";
        }
      }
    }
  }
}

TEST(mpi_runner, chunk_elements__covers_the_call_and_never_none) {
  runners::Call call;
  call.collective = Collective::kAllreduce;
  call.element_bytes = 8;
  call.count = 1000;
  EXPECT_EQ(1000U, MpiRunner::chunk_elements(call, 4, 0));
  EXPECT_EQ(16U, MpiRunner::chunk_elements(call, 4, 128));
  EXPECT_EQ(1U, MpiRunner::chunk_elements(call, 4, 1));
  EXPECT_EQ(1000U, MpiRunner::chunk_elements(call, 4, 1 << 20));
  call.collective = Collective::kAllgather;
  EXPECT_EQ(4U, MpiRunner::chunk_elements(call, 4, 128));
  call.collective = Collective::kAlltoallv;
  EXPECT_EQ(1000U, MpiRunner::chunk_elements(call, 4, 128));
}

}  // namespace
}  // namespace tutti
