// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls of the CCL runner on streams of the application, on the fakes of CUDA and NCCL.
#include <gtest/gtest.h>

#include "ccl_ranks.hpp"

namespace tutti::runners {
namespace {

using select::Collective;
using testing::CollectiveCase;

TEST(CclStream, enqueue_on__every_collective_without_waiting) {
  for (const int ranks : {1, 2, 3}) {
    const auto answers = on_ccl_ranks(ranks, [](CclRank& self) -> std::string {
      const auto stream = self.api->create_stream(self.rank);
      CHILD_OK(stream.status());
      for (const Collective collective :
           {Collective::kAllreduce, Collective::kReduce, Collective::kBcast, Collective::kGather,
            Collective::kScatter, Collective::kAllgather, Collective::kAlltoall,
            Collective::kReduceScatterBlock}) {
        for (const bool in_place : {false, true}) {
          const CollectiveCase test(collective, self.rank, self.ranks, self.ranks - 1, 321,
                                    in_place, false);
          CHILD_OK(self.runner->enqueue_on(self.placed(test, true), *stream, false));
          CHILD_OK(self.api->wait_stream(*stream));  // As the application does.
          CHILD_EXPECT(test.wrong() == 0, to_string(collective));
        }
      }
      CHILD_OK(self.runner->calls().status(/*wait=*/true));
      CHILD_OK(self.api->destroy_stream(*stream));
      return "";
    });
    EXPECT_EQ(answers, test::all_well(ranks));
  }
}

TEST(CclStream, enqueue_on__streams_in_turn_and_calls_that_wait) {
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    const device::Stream streams[] = {*self.api->create_stream(self.rank),
                                      *self.api->create_stream(self.rank)};
    std::vector<std::int64_t> values(5000, self.rank + 1);
    Call call;
    call.type = select::DataType::kInt64;
    call.op = select::ReduceOp::kSum;
    call.element_bytes = 8;
    call.count = values.size();
    call.send = call.recv = values.data();
    call.in_place = true;
    call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, self.rank};
    std::int64_t expected = 3;
    for (int turn = 0; turn < 12; ++turn) {
      CHILD_OK(turn % 4 == 3 ? self.runner->run(Scope::kWhole, call)
                             : self.runner->enqueue_on(call, streams[turn % 2], false));
      expected *= turn == 0 ? 1 : 2;
    }
    CHILD_OK(self.runner->calls().status(/*wait=*/true));
    CHILD_EXPECT(values == std::vector<std::int64_t>(5000, expected), std::to_string(values[0]));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

/// Records what `body(stream)` queues; the fake's graph is launched once, at once.
std::string captured(CclRank& self, const std::function<std::string(device::Stream)>& body) {
  const auto cuda = DynamicLibrary::open(FAKE_CUDA);
  CHILD_OK(cuda.status());
  void (*capture)(void*, int) = nullptr;
  CHILD_EXPECT(cuda->resolve("tutti_fake_capture", &capture), "no capture");
  const device::Stream stream = *self.api->create_stream(self.rank);
  capture(stream, 1);
  std::string answer = body(stream);
  capture(stream, 0);
  CHILD_OK(self.api->wait_stream(stream));
  return answer;
}

/// What a captured call may not do the fake refuses: allocate, record and ask for events.
TEST(CclStream, enqueue_on__a_captured_call_is_the_librarys_alone) {
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    const CollectiveCase test(Collective::kAllreduce, self.rank, 2, 0, 100, true, false);
    const CollectiveCase in_place(Collective::kAlltoall, self.rank, 2, 0, 100, true, false);
    const std::string answer = captured(self, [&](device::Stream stream) -> std::string {
      CHILD_OK(self.runner->enqueue_on(self.placed(test, true), stream, true));
      const Status refused = self.runner->enqueue_on(self.placed(in_place, true), stream, true);
      CHILD_EXPECT(refused.code() == ErrorCode::kUnsupported, refused.message());
      return "";
    });
    CHILD_EXPECT(answer.empty(), answer);
    CHILD_EXPECT(test.wrong() == 0, "wrong");
    const CollectiveCase after(Collective::kAlltoall, self.rank, 2, 0, 100, true, false);
    CHILD_OK(self.runner->run(Scope::kWhole, self.placed(after, true)));
    CHILD_EXPECT(after.wrong() == 0, "wrong after the capture");
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

/// NCCL's destroy and abort stay until the last graph is gone.
TEST(CclStream, end__a_graph_of_the_applications_that_stays_holds_nobody) {
  setenv("FAKE_CCL_GRAPH", "1", 1);
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    const CollectiveCase test(Collective::kAllreduce, self.rank, 2, 0, 100, true, false);
    const std::string answer = captured(self, [&](device::Stream stream) -> std::string {
      CHILD_OK(self.runner->enqueue_on(self.placed(test, true), stream, true));
      return "";
    });
    CHILD_EXPECT(answer.empty(), answer);
    self.runner.reset();  // Hangs, and the test with it, where it waits for the graph.
    CHILD_EXPECT(test.wrong() == 0, "wrong");
    static_cast<void>(self.library.release());  // A thread is in it.
    static_cast<void>(self.api.release());
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
  unsetenv("FAKE_CCL_GRAPH");
}

TEST(CclStream, enqueue_on__a_call_that_never_ends_is_a_timeout_that_all_later_calls_get) {
  setenv("FAKE_CCL_STALL", "ncclAllReduce:0", 1);
  const auto answers = on_ccl_ranks(
      2,
      [](CclRank& self) -> std::string {
        const device::Stream stream = *self.api->create_stream(self.rank);
        const CollectiveCase test(Collective::kAllreduce, self.rank, 2, 0, 100, false, false);
        const Call call = self.placed(test, true);
        CHILD_OK(self.runner->enqueue_on(call, stream, false));
        const Status status = self.runner->calls().status(/*wait=*/true);
        CHILD_EXPECT(!status.ok(), "went well");
        CHILD_EXPECT(self.rank == 1 || status.code() == ErrorCode::kTimeout, status.message());
        const Status later = self.runner->enqueue_on(call, stream, false);
        CHILD_EXPECT(later.message() == status.message(), later.message());
        CHILD_EXPECT(!self.runner->run(Scope::kWhole, call).ok(), "went well later");
        return "";
      },
      1);
  EXPECT_EQ(answers, test::all_well(2));
  unsetenv("FAKE_CCL_STALL");
}

}  // namespace
}  // namespace tutti::runners
