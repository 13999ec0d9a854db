// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's communicator on ranks that are threads. The process is configured from the
// environment, so main() sets it before anything reads it: the host device, no CCL.
#include "engine/communicator.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "base/log.hpp"
#include "support/collective_cases.hpp"
#include "support/thread_mpi.hpp"

namespace tutti::engine {
namespace {

using select::Collective;
using select::DataType;
using select::Memory;
using select::ReduceOp;
using testing::CollectiveCase;
using testing::ThreadMpi;
using testing::ThreadWorld;

class Environment : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("TUTTI_DEVICE", "host", 1);
    setenv("TUTTI_LOG_LEVEL", "error", 1);
  }
};
const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new Environment());

RankInfo rank_info(int rank, int ranks) {
  return {.rank = rank,
          .ranks = ranks,
          .world_rank = rank,
          .world_ranks = ranks,
          .mpi_device_aware = false};
}

template <class Body>
void on_ranks(int ranks, const Hints& hints, Body body) {
  ThreadWorld world(ranks);
  world.run([&](int rank) {
    ThreadMpi mpi(world, rank);
    auto created = Communicator::create(Process::get(), mpi, &mpi, rank_info(rank, ranks), hints);
    ASSERT_TRUE(created.ok()) << created.status().message();
    body(rank, **created);
  });
}

TEST(communicator, route__mixed_memory_gives_every_rank_the_same_mode) {
  std::mutex mutex;
  std::vector<std::set<Memory>> modes(40);
  on_ranks(4, {}, [&](int rank, Communicator& comm) {
    for (std::size_t call = 0; call < modes.size(); ++call) {
      // Each rank's memory changes from call to call, each in its own rhythm.
      const int device = (call / static_cast<std::size_t>(rank + 1)) % 2 == 0 ? 0 : -1;
      auto route =
          comm.route(Collective::kAllreduce, 1 << 20, DataType::kInt64, ReduceOp::kSum, device);
      ASSERT_TRUE(route.ok());
      const std::lock_guard lock(mutex);
      modes[call].insert((*route)->memory);
    }
  });
  for (const auto& seen : modes) {
    EXPECT_EQ(1U, seen.size());
  }
  EXPECT_EQ(Memory::kDevice, *modes[0].begin());
}

TEST(communicator, route__asserted_kinds_need_no_agreement) {
  const std::uint64_t before = Process::get().counters().agreements;
  on_ranks(2, {.plan = {}, .memory_kinds = "cuda:device"}, [&](int, Communicator& comm) {
    auto route = comm.route(Collective::kAllreduce, 1 << 20, DataType::kInt64, ReduceOp::kSum, 0);
    ASSERT_TRUE(route.ok());
    EXPECT_EQ(Memory::kDevice, (*route)->memory);
  });
  EXPECT_EQ(before, Process::get().counters().agreements);
  on_ranks(2, {.plan = {}, .memory_kinds = "system,mpi"},
           [&](int, Communicator& comm) { EXPECT_TRUE(comm.is_inert()); });
}

TEST(communicator, route__a_refused_plan_is_a_counted_fallback) {
  on_ranks(2, {.plan = "ccl-beta", .memory_kinds = {}}, [&](int, Communicator& comm) {
    auto route = comm.route(Collective::kBcast, 1 << 20, DataType::kByte, ReduceOp::kNone, 0);
    ASSERT_TRUE(route.ok());
    EXPECT_FALSE(select::is<select::CclPlan>((*route)->plan));
    ASSERT_NE(nullptr, (*route)->fallbacks);
    EXPECT_GE((*route)->fallbacks->load(), 1U);
  });
  EXPECT_NE(std::string::npos, Process::get().counters().json().find("ccl-beta refused"));
}

TEST(process, fallback__is_reported_once_whatever_the_communicators_size) {
  Process& process = Process::get();
  configure_log(LogLevel::kWarn, "");
  ::testing::internal::CaptureStderr();
  for (const char* const ranks : {"9", "10", "9"}) {
    process.fallback("direct refused: this communicator has " + std::string(ranks) + " ranks", true)
        .fetch_add(1);
  }
  process.fallback("direct refused: there are 9 nodes", false);
  const std::string said = ::testing::internal::GetCapturedStderr();
  configure_log(process.config().log_level, process.config().log_file);
  const std::size_t first = said.find("WARN fall-back: direct refused: this communicator has 9");
  ASSERT_NE(std::string::npos, first) << said;
  EXPECT_EQ(std::string::npos, said.find("WARN", first + 1)) << said;
  // Each text is counted.
  const std::string counted = process.counters().json();
  EXPECT_NE(std::string::npos,
            counted.find(R"({"count":2,"text":"direct refused: this communicator has 9)"));
  EXPECT_NE(std::string::npos,
            counted.find(R"({"count":1,"text":"direct refused: this communicator has 10)"));
}

TEST(communicator, route__a_hint_for_all_asks_no_ccl_for_what_it_does_not_have) {
  on_ranks(2, {.plan = "ccl", .memory_kinds = {}}, [&](int, Communicator& comm) {
    for (const Collective collective :
         {Collective::kBarrier, Collective::kScan, Collective::kExscan}) {
      auto route = comm.route(collective, 64, DataType::kInt64, ReduceOp::kSum, 0);
      ASSERT_TRUE(route.ok());
      EXPECT_EQ(nullptr, (*route)->fallbacks) << to_string(collective);
    }
  });
}

TEST(communicator, pass_by__of_a_known_route_is_heard_in_shared_memory_that_came_about_since) {
  on_ranks(2, {.plan = "direct", .memory_kinds = "system"}, [&](int rank, Communicator& comm) {
    comm.pass_by();
    auto route = comm.route(Collective::kAllreduce, 24, DataType::kInt64, ReduceOp::kSum, -1);
    ASSERT_TRUE(route.ok());
    ASSERT_TRUE((*route)->is_in_shared_memory()) << to_string((*route)->plan);
    CollectiveCase first(Collective::kAllreduce, rank, 2, 0, 3, false, false);
    ASSERT_TRUE(comm.run(**route, first.call).ok());
    if (rank == 0) {
      static_cast<void>(comm.pass_by_watched({*route, (*route)->calls}));
    } else {
      CollectiveCase second(Collective::kAllreduce, rank, 2, 0, 3, false, false);
      EXPECT_EQ(comm.run(**route, second.call).code(), ErrorCode::kMismatch);
    }
    static_cast<void>(comm.pass_by_watched(
        {*route, (*route)->calls}));  // The last look for the line was before there was a runner.
    CollectiveCase last(Collective::kAllreduce, rank, 2, 0, 3, false, false);
    const Status status = comm.run(**route, last.call);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(0U, last.wrong());
  });
}

TEST(communicator, run__staged_and_chunked_result_is_right) {
  on_ranks(3, {}, [&](int rank, Communicator& comm) {
    // 3 MiB in device memory: over the 1 MiB chunk of the default configuration.
    const std::uint64_t count = 3 * (1 << 17);
    for (const bool in_place : {false, true}) {
      CollectiveCase test(Collective::kAllreduce, rank, 3, 0, count, in_place, rank != 1);
      auto route = comm.route(Collective::kAllreduce, count * 8, DataType::kInt64, ReduceOp::kSum,
                              rank != 1 ? 0 : -1);
      ASSERT_TRUE(route.ok());
      EXPECT_FALSE((*route)->native_flat);
      ASSERT_TRUE(comm.run(**route, test.call).ok());
      EXPECT_EQ(0U, test.wrong());
    }
  });
}

TEST(communicator, route__barrier_never_agrees_on_memory) {
  const std::uint64_t before = Process::get().counters().agreements;
  on_ranks(2, {}, [&](int, Communicator& comm) {
    ASSERT_TRUE(comm.route(Collective::kBarrier, 0, DataType::kByte, ReduceOp::kNone, -1).ok());
  });
  EXPECT_EQ(before, Process::get().counters().agreements);
}

}  // namespace
}  // namespace tutti::engine
