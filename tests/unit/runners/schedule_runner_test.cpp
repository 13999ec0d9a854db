// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Every algorithm carried over messages between ranks that are threads, against the definition.
#include "runners/schedule_runner.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <set>

#include "schedule/algorithm.hpp"
#include "select/plan.hpp"
#include "support/collective_cases.hpp"
#include "support/sanitized.hpp"
#include "support/thread_mpi.hpp"

namespace tutti {
namespace {

using runners::ScheduleRunner;
using schedule::Algorithm;
using select::Collective;
using testing::CollectiveCase;
using testing::ThreadMpi;
using testing::ThreadWorld;

/// Runs a collective `calls` times over `ranks` threads on `nodes` uneven nodes, rank r's buffers
/// on the device where `device_mask` has bit r. Returns wrong elements.
std::uint64_t wrong_elements(const Algorithm& algorithm, int ranks, int nodes, int root,
                             std::uint64_t count, bool in_place, unsigned device_mask) {
  ThreadWorld world(ranks);
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 24);
  std::vector<std::uint64_t> identities;
  for (int rank = 0; rank < ranks; ++rank) {
    identities.push_back(static_cast<std::uint64_t>(rank * rank % nodes));
  }
  std::atomic<std::uint64_t> wrong{0};
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    ScheduleRunner runner(mpi, rank, api.get(), scratch, topology::make_layout(identities), 60);
    for (const schedule::Parameters parameters : {schedule::Parameters{}, {}, {3, 3}}) {
      // The second from the cache.
      CollectiveCase test(algorithm.collective, rank, ranks, root, count, in_place,
                          (device_mask >> rank & 1) != 0);
      const Status status = runner.run(algorithm.name, parameters, test.call, nullptr);
      wrong += status.ok() ? test.wrong() : 1000000;
    }
  });
  return wrong;
}

class ScheduledAlgorithm : public ::testing::TestWithParam<int> {};

TEST_P(ScheduledAlgorithm, gives_what_the_definition_says) {
  const Algorithm& algorithm = schedule::algorithms()[static_cast<std::size_t>(GetParam())];
  if (algorithm.collective == Collective::kBarrier) {
    return;  // Has no data; the validator proves it.
  }
  for (const int ranks : {1, 2, 3, 6, 7}) {
    if (std::string(algorithm.name) == "neighbor-exchange" && ranks > 1 && ranks % 2 != 0) {
      continue;
    }
    for (const bool in_place : {false, true}) {
      for (const unsigned mask : {0U, 0b1010101U, 0b1111111U}) {
        for (const std::uint64_t count : {1U, 64U, 1000U}) {
          if (kIsSanitized && (count == 64 || ranks == 6)) {
            continue;
          }
          EXPECT_EQ(0U, wrong_elements(algorithm, ranks, 3, ranks / 2, count, in_place, mask))
              << ranks << " ranks, in place " << in_place << ", mask " << mask << ", count "
              << count;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(algorithms, ScheduledAlgorithm,
                         ::testing::Range(0, static_cast<int>(schedule::algorithms().size())));

TEST(schedule_runner, run__a_peer_that_never_comes_is_an_error_in_bounded_time) {
  ThreadWorld world(2);
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 24);
  world.run([&](int rank) {
    if (rank == 1) {
      return;
    }
    ThreadMpi mpi(world, rank);
    ScheduleRunner runner(mpi, rank, api.get(), scratch, topology::regular_layout(1, 2), 0.05);
    CollectiveCase test(Collective::kAllreduce, rank, 2, 0, 8, false, false);
    const Status status = runner.run("ring", {}, test.call, nullptr);
    EXPECT_EQ(ErrorCode::kTimeout, status.code());
    EXPECT_NE(status.message().find("waits for rank 1,"), std::string::npos) << status.message();
  });
}

/// One whose messages never end, and which says so by an exception.
class ThrowingMpi : public ThreadMpi {
 public:
  using ThreadMpi::ThreadMpi;
  Status test_some(int /*slots*/, std::vector<int>* /*completed*/) override {
    throw std::bad_alloc();
  }
  bool abandon() override {
    ++abandoned;
    return false;
  }
  int abandoned = 0;
};

TEST(schedule_runner, run__an_exception_does_not_give_memory_with_messages_under_way_back) {
  ThreadWorld world(2);
  auto api = device::open("host", nullptr);
  runners::Scratch scratch(api.get(), 1 << 24);
  ThrowingMpi mpi(world, 0);
  ScheduleRunner runner(mpi, 0, api.get(), scratch, topology::regular_layout(1, 2), 60);
  // On the device: what is moved to the host is leased, as is what a reduction works in.
  constexpr std::uint64_t kCount = 1 << 13;
  constexpr Bytes kBytes = kCount * 8;
  std::set<void*> offered;
  {
    std::vector<runners::Lease> leases;
    for (int i = 0; i < 4; ++i) {
      leases.push_back(std::move(*scratch.pinned(kBytes)));
      offered.insert(leases.back().data());
    }
  }
  CollectiveCase test(Collective::kAllreduce, 0, 2, 0, kCount, false, true);
  EXPECT_THROW(static_cast<void>(runner.run("recursive-doubling", {}, test.call, nullptr)),
               std::bad_alloc);
  EXPECT_EQ(1, mpi.abandoned);
  std::vector<runners::Lease> leases;
  std::size_t again = 0;
  for (int i = 0; i < 4; ++i) {
    leases.push_back(std::move(*scratch.pinned(kBytes)));
    again += offered.count(leases.back().data());
  }
  EXPECT_LE(again, 1U);  // Three were in the call: both sides and what it works in.
}

/// Selection names algorithms that it cannot see.
TEST(schedule_runner, selection_offers_exactly_what_there_is) {
  for (int number = 0; number < kCollectiveCount; ++number) {
    const auto collective = static_cast<Collective>(number);
    const auto offered = select::schedule_names(collective);
    for (const std::string& name : offered) {
      EXPECT_NE(nullptr, schedule::find_algorithm(collective, name))
          << to_string(collective) << " " << name;
    }
    if (runners::has_counts(collective)) {
      continue;  // Some algorithms of the regular form need equal blocks, or sizes none knows.
    }
    std::vector<std::string> there_are;
    for (const Algorithm& algorithm : schedule::algorithms()) {
      if (algorithm.collective == collective) {
        there_are.emplace_back(algorithm.name);
      }
    }
    EXPECT_EQ(there_are, offered) << to_string(collective);
  }
}

}  // namespace
}  // namespace tutti
