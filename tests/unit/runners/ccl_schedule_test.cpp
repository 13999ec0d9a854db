// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Every algorithm carried by groups of the NCCL fake's messages, against the definition.
#include "runners/ccl/ccl_schedule_runner.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "ccl_ranks.hpp"
#include "select/plan.hpp"

namespace tutti::runners {
namespace {

using schedule::Algorithm;
using select::Collective;
using testing::CollectiveCase;

/// Sums 64-bit integers in the stream's order, by the CUDA fake's own means.
class HostReduce {
 public:
  std::string start() {
    const auto cuda = DynamicLibrary::open(FAKE_CUDA);
    CHILD_OK(cuda.status());
    CHILD_EXPECT(cuda->resolve("tutti_fake_enqueue", &enqueue_), "no tutti_fake_enqueue");
    return "";
  }
  DeviceReduce function() const {
    return [enqueue = enqueue_](void* inout, const void* in, std::uint64_t count,
                                select::DataType type, select::ReduceOp op,
                                device::Stream stream) -> Status {
      if (type != select::DataType::kInt64 || op != select::ReduceOp::kSum) {
        return {ErrorCode::kUnsupported, "sums of 64-bit integers only"};
      }
      enqueue(
          stream, add,
          new Work{static_cast<std::int64_t*>(inout), static_cast<const std::int64_t*>(in), count});
      return {};
    };
  }

 private:
  struct Work {
    std::int64_t* inout;
    const std::int64_t* in;
    std::uint64_t count;
  };
  static void add(void* argument) {
    const std::unique_ptr<Work> work(static_cast<Work*>(argument));
    for (std::uint64_t i = 0; i < work->count; ++i) {
      work->inout[i] += work->in[i];
    }
  }
  void (*enqueue_)(void* stream, void (*function)(void*), void* argument) = nullptr;
};

/// Ranks on `nodes` nodes of different sizes, in an order that is none.
topology::Layout uneven(int ranks, int nodes) {
  std::vector<std::uint64_t> identities;
  for (int rank = 0; rank < ranks; ++rank) {
    identities.push_back(static_cast<std::uint64_t>(rank * rank % nodes));
  }
  return topology::make_layout(identities);
}

bool carries(const Algorithm& algorithm, int ranks) {
  const select::SchedulePlan plan{algorithm.name, select::Backend::kCcl};
  select::CommFacts facts;
  facts.ranks = ranks;
  facts.ccl_usable = true;
  facts.device_reduces = true;
  select::Shape shape{algorithm.collective, 64, select::DataType::kInt64, select::ReduceOp::kSum,
                      select::Memory::kDevice};
  return select::refusal(plan, shape, facts).empty();
}

/// One algorithm on one layout. The third call finds the second's program.
std::string carries_right(CclRank& self, CclScheduleRunner& runner, const Algorithm& algorithm) {
  struct Variant {
    std::uint64_t count;
    bool in_place;
    bool mixed;  ///< Odd ranks are in host memory.
    schedule::Parameters parameters;
  };
  constexpr Variant kVariants[] = {{1, false, false, {}},
                                   {501, true, false, {}},
                                   {501, false, true, {}},
                                   {64, false, false, {.radix = 3, .segments = 3}}};
  for (const Variant& variant : kVariants) {
    const CollectiveCase test(algorithm.collective, self.rank, self.ranks, self.ranks / 2,
                              variant.count, variant.in_place, false);
    const Call call = self.placed(test, !variant.mixed || self.rank % 2 == 0);
    const std::string what = std::string(to_string(algorithm.collective)) + " " + algorithm.name +
                             " of " + std::to_string(variant.count);
    const Status status = runner.run(algorithm.name, variant.parameters, call);
    CHILD_EXPECT(status.ok(), what + ": " + status.message());
    CHILD_EXPECT(test.wrong() == 0, what);
  }
  return "";
}

class CclSchedule : public ::testing::TestWithParam<int> {};

TEST_P(CclSchedule, run__every_algorithm_equals_the_definition) {
  const int ranks = GetParam();
  const auto answers = on_ccl_ranks(ranks, [](CclRank& self) -> std::string {
    HostReduce reduce;
    const std::string started = reduce.start();
    CHILD_EXPECT(started.empty(), started);
    int carried = 0;
    for (const int nodes : {1, 3}) {
      CclScheduleRunner runner(*self.runner, *self.library, *self.api, self.rank, self.mpi,
                               *self.scratch, uneven(self.ranks, nodes), reduce.function());
      for (const Algorithm& algorithm : schedule::algorithms()) {
        if (carries(algorithm, self.ranks)) {
          const std::string answer = carries_right(self, runner, algorithm);
          CHILD_EXPECT(answer.empty(), answer + " on nodes modulo " + std::to_string(nodes));
          ++carried;
        }
      }
    }
    CHILD_EXPECT(carried > 60, std::to_string(carried));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(ranks));
}

// The algorithms themselves are the same under a sanitizer, where processes take long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
INSTANTIATE_TEST_SUITE_P(ranks, CclSchedule, ::testing::Values(1, 2, 3, 5));
#else
INSTANTIATE_TEST_SUITE_P(ranks, CclSchedule, ::testing::Range(1, 8));
#endif

TEST(CclScheduleRunner, run__blocks_with_gaps_and_of_many_sizes) {
  const auto answers = on_ccl_ranks(3, [](CclRank& self) -> std::string {
    CclScheduleRunner runner(*self.runner, *self.library, *self.api, self.rank, self.mpi,
                             *self.scratch, uneven(3, 2), {});
    const std::vector<std::uint64_t> counts = {5, 0, 9};
    const std::vector<std::uint64_t> offsets = {11, 2, 0};
    const auto self_index = static_cast<std::size_t>(self.rank);
    std::vector<std::uint8_t> send(counts[self_index], static_cast<std::uint8_t>(self.rank + 1));
    std::vector<std::uint8_t> recv(16, 0xee);
    Call call;
    call.collective = Collective::kAllgatherv;
    call.send = send.data();
    call.recv = recv.data();
    call.count = counts[self_index];
    call.recv_counts = counts;
    call.recv_offsets = offsets;
    call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, self.rank};
    for (const char* name : {"ring", "bruck", "rings"}) {
      std::fill(recv.begin(), recv.end(), std::uint8_t{0xee});
      CHILD_OK(runner.run(name, {}, call));
      std::vector<std::uint8_t> expected(16, 3);
      expected[9] = expected[10] = 0xee;
      std::fill(expected.begin() + 11, expected.end(), std::uint8_t{1});
      CHILD_EXPECT(recv == expected, name);
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(3));
}

/// An allgather around the ring on a runner that knows no reduction.
Status ring(CclRank& self) {
  CclScheduleRunner runner(*self.runner, *self.library, *self.api, self.rank, self.mpi,
                           *self.scratch, uneven(self.ranks, 1), {});
  const CollectiveCase test(Collective::kAllgather, self.rank, self.ranks, 0, 64, false, false);
  return runner.run("ring", {}, self.placed(test, true));
}

TEST(CclScheduleRunner, run__a_message_that_fails_ends_the_call_and_all_later_ones) {
  setenv("FAKE_CCL_FAIL", "ncclSend:1@0", 1);
  const auto answers = on_ccl_ranks(3, [](CclRank& self) -> std::string {
    const Status status = ring(self);
    if (self.rank != 0) {
      return "";  // The fake ends its peers' waiting when rank 0 aborts, with or without an
                  // error.
    }
    CHILD_EXPECT(!status.ok(), "went well");
    const Status after = ring(self);
    CHILD_EXPECT(after.message().starts_with("nccl: this communicator failed before"),
                 after.message());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(3));
  unsetenv("FAKE_CCL_FAIL");
}

TEST(CclScheduleRunner, run__a_round_that_never_ends_is_a_timeout) {
  setenv("FAKE_CCL_STALL", "ncclRecv", 1);
  const auto answers = on_ccl_ranks(
      2,
      [](CclRank& self) -> std::string {
        const Status status = ring(self);
        CHILD_EXPECT(!status.ok(), "went well");
        return "";
      },
      1);
  EXPECT_EQ(answers, test::all_well(2));
  unsetenv("FAKE_CCL_STALL");
}

}  // namespace
}  // namespace tutti::runners
