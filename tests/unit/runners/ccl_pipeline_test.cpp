// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Pipelines of the CCL runner: how a call is cut, and that the chunks together are the call.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "ccl_ranks.hpp"
#include "runners/ccl/chunk.hpp"

namespace tutti::runners {
namespace {

using select::Collective;
using select::DataType;
using select::Pipeline;
using select::ReduceOp;
using testing::CollectiveCase;

constexpr Pipeline kPipelines[] = {Pipeline::kStreams, Pipeline::kComms};

TEST(Chunk, chunks_of__no_chunk_is_empty) {
  EXPECT_EQ(chunks_of(0, 4, 4), 0);
  EXPECT_EQ(chunks_of(1, 4, 4), 1);
  EXPECT_EQ(chunks_of(4, 4, 4), 1);
  EXPECT_EQ(chunks_of(5, 4, 4), 2);
  EXPECT_EQ(chunks_of(17, 4, 4), 4);
  EXPECT_EQ(chunks_of(3, 16, 16), 3);
  EXPECT_EQ(chunks_of(std::numeric_limits<std::uint64_t>::max(), 1, 16), 16);
}

TEST(Chunk, chunk_run__covers_the_elements_in_order_and_aligned) {
  for (const Bytes element_bytes : {1, 2, 3, 4, 8, 16, 24}) {
    for (const std::uint64_t count :
         {std::uint64_t{1}, std::uint64_t{16}, std::uint64_t{17}, std::uint64_t{1000},
          std::uint64_t{65537}, (std::uint64_t{1} << 60) - 1}) {
      for (int wanted = 1; wanted <= select::kPipelineChunksMax; ++wanted) {
        const int chunks = chunks_of(count, element_bytes, wanted);
        std::uint64_t next = 0;
        std::uint64_t largest = 0;
        std::uint64_t least = count;
        for (int i = 0; i < chunks; ++i) {
          const auto run = chunk_run(count, element_bytes, i, chunks);
          ASSERT_EQ(run.offset, next);
          ASSERT_GT(run.count, 0U);
          ASSERT_EQ(run.offset * element_bytes % kChunkAlignment, 0U);
          next += run.count;
          largest = std::max(largest, run.count);
          least = i + 1 < chunks ? std::min(least, run.count) : least;
        }
        ASSERT_EQ(next, count);
        ASSERT_LE(largest - std::min(least, largest), kChunkAlignment);
      }
    }
  }
}

TEST(Chunk, chunk__blocks_keep_their_places) {
  std::array<std::byte, 64> send{};
  std::array<std::byte, 64> recv{};
  Call call;
  call.collective = Collective::kAlltoall;
  call.send = send.data();
  call.recv = recv.data();
  call.count = 20;
  const PipelineChunk chunk(call, {1, 3}, {16, 4});
  EXPECT_EQ(chunk.call().collective, Collective::kAlltoallv);
  EXPECT_EQ(chunk.call().send, send.data());
  EXPECT_EQ(std::vector<std::uint64_t>(chunk.call().recv_offsets.begin(),
                                       chunk.call().recv_offsets.end()),
            (std::vector<std::uint64_t>{16, 36, 56}));
  call.collective = Collective::kGather;
  call.recv = nullptr;
  const PipelineChunk gathered(call, {1, 3}, {16, 4});
  EXPECT_EQ(gathered.call().send, send.data() + 16);
  EXPECT_EQ(gathered.call().recv, nullptr);
}

/// Every collective that is cut, in place and not, from every kind of memory.
std::string carries_all(CclRank& self, Pipeline pipeline, int chunks, std::uint64_t count) {
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kReduce, Collective::kBcast, Collective::kGather,
        Collective::kScatter, Collective::kAllgather, Collective::kAlltoall,
        Collective::kReduceScatterBlock}) {
    for (const bool in_place : {false, true}) {
      // The last rank is in host memory once: it goes through scratch beside the others.
      for (const bool mixed : {false, true}) {
        const int root = self.ranks - 1;
        const CollectiveCase test(collective, self.rank, self.ranks, root, count, in_place, false);
        const Call call = self.placed(test, !mixed || self.rank != root);
        const std::string what = std::string(to_string(collective)) + " of " +
                                 std::to_string(count) + (in_place ? " in place" : "") + " in " +
                                 std::to_string(chunks);
        const Status status = self.runner->run_pipeline(pipeline, chunks, call);
        CHILD_EXPECT(status.ok(), what + ": " + status.message());
        CHILD_EXPECT(test.wrong() == 0, what);
      }
    }
  }
  return "";
}

TEST(CclPipeline, run_pipeline__equals_the_definition) {
  for (const int ranks : {1, 2, 3}) {
    const auto answers = on_ccl_ranks(ranks, [](CclRank& self) -> std::string {
      const std::string made = self.add_streams(4);
      CHILD_EXPECT(made.empty(), made);
      for (const Pipeline pipeline : kPipelines) {
        for (const int chunks : {2, 3}) {
          for (const std::uint64_t count : {0, 1, 7, 1001}) {
            const std::string answer = carries_all(self, pipeline, chunks, count);
            CHILD_EXPECT(answer.empty(), answer);
          }
        }
      }
      return "";
    });
    EXPECT_EQ(answers, test::all_well(ranks));
  }
}

TEST(CclPipeline, run_pipeline__most_chunks) {
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    const std::string made = self.add_streams(select::kPipelineChunksMax);
    CHILD_EXPECT(made.empty(), made);
    for (const Pipeline pipeline : kPipelines) {
      for (const std::uint64_t count : {31, 32, 33, 50'000}) {
        const std::string answer = carries_all(self, pipeline, select::kPipelineChunksMax, count);
        CHILD_EXPECT(answer.empty(), answer);
      }
    }
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

/// The result of one reduction, bit by bit; without a `pipeline` not cut.
std::string reduce_into(CclRank& self, std::optional<Pipeline> pipeline, DataType type, ReduceOp op,
                        std::vector<std::byte>* result) {
  constexpr std::uint64_t kCount = 333;
  const Bytes element_bytes = select::size_of(type);
  std::vector<std::byte> input(kCount * element_bytes);
  for (std::size_t i = 0; i < input.size(); ++i) {
    // Small positive numbers of every type, different on each rank.
    input[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(self.rank) * 3) % 0x38);
  }
  result->assign(input.size(), std::byte{0xff});
  Call call;
  call.type = type;
  call.op = op;
  call.element_bytes = element_bytes;
  call.count = kCount;
  call.send = input.data();
  call.recv = result->data();
  call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, self.rank};
  CHILD_OK(pipeline ? self.runner->run_pipeline(*pipeline, 3, call)
                    : self.runner->run(Scope::kWhole, call));
  return "";
}

TEST(CclPipeline, run_pipeline__every_operation_and_type_as_when_not_cut) {
  const auto answers = on_ccl_ranks(2, [](CclRank& self) -> std::string {
    const std::string made = self.add_streams(3);
    CHILD_EXPECT(made.empty(), made);
    select::CommFacts facts;
    facts.ranks = self.ranks;
    facts.ccl_usable = true;
    int carried = 0;
    for (int type = 0; type < select::kDataTypeCount; ++type) {
      for (int op = 0; op < select::kReduceOpCount; ++op) {
        const select::Shape shape{Collective::kAllreduce, 4096, static_cast<DataType>(type),
                                  static_cast<ReduceOp>(op), select::Memory::kDevice};
        if (!refusal(*select::parse_plan("ccl-streams(3)"), shape, facts).empty()) {
          continue;
        }
        ++carried;
        std::vector<std::byte> whole;
        const std::string failed = reduce_into(self, std::nullopt, shape.type, shape.op, &whole);
        CHILD_EXPECT(failed.empty(), failed);
        for (const Pipeline pipeline : kPipelines) {
          std::vector<std::byte> cut;
          const std::string answer = reduce_into(self, pipeline, shape.type, shape.op, &cut);
          CHILD_EXPECT(answer.empty(), answer);
          CHILD_EXPECT(cut == whole, std::string(to_string(shape.type)) + to_string(shape.op));
        }
      }
    }
    CHILD_EXPECT(carried == 48, std::to_string(carried));
    return "";
  });
  EXPECT_EQ(answers, test::all_well(2));
}

/// An allreduce of three chunks; what became of it.
Status three_chunks(CclRank& self, Pipeline pipeline) {
  const CollectiveCase test(Collective::kAllreduce, self.rank, self.ranks, 0, 600, false, false);
  return self.runner->run_pipeline(pipeline, 3, self.placed(test, true));
}

TEST(CclPipeline, run_pipeline__a_chunk_that_fails_ends_the_call_on_every_rank) {
  setenv("FAKE_CCL_FAIL", "ncclAllReduce:1@0", 1);
  for (const Pipeline pipeline : kPipelines) {
    const auto answers = on_ccl_ranks(2, [&](CclRank& self) -> std::string {
      const std::string made = self.add_streams(3);
      CHILD_EXPECT(made.empty(), made);
      CHILD_EXPECT(!three_chunks(self, pipeline).ok(), "went well");
      const Status after = three_chunks(self, pipeline);
      CHILD_EXPECT(after.message().starts_with("nccl: this communicator failed before"),
                   after.message());
      return "";
    });
    EXPECT_EQ(answers, test::all_well(2));
  }
  unsetenv("FAKE_CCL_FAIL");
}

TEST(CclPipeline, run_pipeline__a_chunk_that_never_ends_is_a_timeout) {
  setenv("FAKE_CCL_STALL", "ncclAllReduce:1", 1);
  for (const Pipeline pipeline : kPipelines) {
    const auto answers = on_ccl_ranks(
        2,
        [&](CclRank& self) -> std::string {
          const std::string made = self.add_streams(3);
          CHILD_EXPECT(made.empty(), made);
          const Status status = three_chunks(self, pipeline);
          CHILD_EXPECT(!status.ok(), "went well");
          CHILD_EXPECT(self.rank == 1 || status.code() == ErrorCode::kTimeout, status.message());
          return "";
        },
        2);
    EXPECT_EQ(answers, test::all_well(2));
  }
  unsetenv("FAKE_CCL_STALL");
}

}  // namespace
}  // namespace tutti::runners
