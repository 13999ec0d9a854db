// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Arguments of the C API: what they become, and which are refused with which words.
#include "engine/c_call.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tutti::engine {
namespace {

using runners::Aliasing;
using select::Collective;

std::array<std::int32_t, 64> g_send;
std::array<std::int32_t, 64> g_recv;

CArguments arguments(Collective collective) {
  return {.collective = collective,
          .send = g_send.data(),
          .recv = g_recv.data(),
          .count = 4,
          .type = TUTTI_INT32};
}

/// What is wrong with the arguments at rank 1 of 3; empty when nothing is.
std::string wrong(const CArguments& given) {
  CCall call;
  const Status status = make_call(given, 1, 3, &call);
  EXPECT_TRUE(status.ok() || status.code() == ErrorCode::kInvalidArgument);
  return status.ok() ? "" : status.message();
}

void expect_words(const CArguments& given, const std::string& words) {
  const std::string text = wrong(given);
  EXPECT_NE(text.find(words), std::string::npos) << "'" << text << "' has no '" << words << "'";
}

TEST(CCall, make_call__reductions_count_elements_and_movements_bytes) {
  CCall sum;
  ASSERT_TRUE(make_call(arguments(Collective::kAllreduce), 0, 3, &sum).ok());
  EXPECT_EQ(sum.call.count, 4U);
  EXPECT_EQ(sum.call.element_bytes, 4U);
  EXPECT_EQ(sum.call.op, select::ReduceOp::kSum);
  EXPECT_EQ(sum.bytes, Bytes{16});
  CCall moved;
  ASSERT_TRUE(make_call(arguments(Collective::kAllgather), 0, 3, &moved).ok());
  EXPECT_EQ(moved.call.count, 16U);
  EXPECT_EQ(moved.call.element_bytes, 1U);
  EXPECT_EQ(moved.call.type, select::DataType::kByte);
  EXPECT_EQ(moved.bytes, Bytes{48});
}

TEST(CCall, make_call__the_size_is_the_same_on_every_rank) {
  const std::array<std::int64_t, 3> counts = {2, 0, 5};
  for (const Collective collective :
       {Collective::kBcast, Collective::kGather, Collective::kScatter, Collective::kAllgather,
        Collective::kAlltoall, Collective::kReduce, Collective::kAllreduce,
        Collective::kReduceScatterBlock, Collective::kAllgatherv, Collective::kReduceScatter,
        Collective::kGatherv, Collective::kScatterv, Collective::kAlltoallv}) {
    std::optional<Bytes> first;
    for (int rank = 0; rank < 3; ++rank) {
      CArguments given = arguments(collective);
      given.send_counts = given.recv_counts = counts.data();
      if (runners::has_counts(collective)) {
        given.count = counts[static_cast<std::size_t>(rank)];
      }
      CCall call;
      ASSERT_TRUE(make_call(given, rank, 3, &call).ok());
      first = rank == 0 ? call.bytes : first;
      EXPECT_EQ(call.bytes, first) << to_string(collective);
    }
    EXPECT_EQ(first.has_value(), select::has_size(collective)) << to_string(collective);
  }
}

TEST(CCall, make_call__in_place) {
  const std::array<std::int64_t, 3> counts = {4, 4, 4};
  const std::array<std::int64_t, 3> displs = {20, 10, 0};
  const auto aliased = [&](Collective collective) {
    CArguments given = arguments(collective);
    (collective == Collective::kScatter || collective == Collective::kScatterv)
        ? given.recv = TUTTI_IN_PLACE
        : given.send = TUTTI_IN_PLACE;
    given.root = 1;
    given.recv_counts = given.send_counts = counts.data();
    given.recv_displs = given.send_displs = displs.data();
    auto call = std::make_unique<CCall>();
    EXPECT_TRUE(make_call(given, 1, 3, call.get()).ok()) << to_string(collective);
    return call;
  };
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter,
        Collective::kReduceScatterBlock, Collective::kAlltoall, Collective::kAlltoallv}) {
    const auto made = aliased(collective);
    EXPECT_EQ(aliasing_of(made->call), Aliasing::kSame) << to_string(collective);
    EXPECT_EQ(made->call.send, g_recv.data());
  }
  EXPECT_EQ(aliased(Collective::kAllgather)->call.send, g_recv.data() + 4);
  EXPECT_EQ(aliased(Collective::kGather)->call.send, g_recv.data() + 4);
  EXPECT_EQ(aliased(Collective::kAllgatherv)->call.send, g_recv.data() + 10);
  EXPECT_EQ(aliased(Collective::kGatherv)->call.send, g_recv.data() + 10);
  EXPECT_EQ(aliased(Collective::kScatter)->call.recv, g_send.data() + 4);
  EXPECT_EQ(aliased(Collective::kScatterv)->call.recv, g_send.data() + 10);
}

TEST(CCall, make_call__displacements_left_out_are_dense) {
  const std::array<std::int64_t, 3> counts = {2, 0, 5};
  CArguments given = arguments(Collective::kAllgatherv);
  given.count = 0;
  given.recv_counts = counts.data();
  CCall call;
  ASSERT_TRUE(make_call(given, 1, 3, &call).ok());
  EXPECT_EQ(call.recv_offsets, (std::vector<std::uint64_t>{0, 8, 8}));
  EXPECT_EQ(call.recv_counts, (std::vector<std::uint64_t>{8, 0, 20}));
}

TEST(CCall, make_call__buffers_that_a_rank_has_not_may_be_null) {
  CArguments given = arguments(Collective::kReduce);
  given.recv = nullptr;  // The root is rank 0.
  EXPECT_EQ(wrong(given), "");
  given = arguments(Collective::kGather);
  given.recv = nullptr;
  EXPECT_EQ(wrong(given), "");
  given = arguments(Collective::kScatterv);
  given.send = nullptr;
  EXPECT_EQ(wrong(given), "");
  given = arguments(Collective::kAllreduce);
  given.send = given.recv = nullptr;
  given.count = 0;
  EXPECT_EQ(wrong(given), "");
}

TEST(CCall, make_call__a_side_that_a_rank_has_not_is_empty) {
  const std::array<std::int64_t, 3> counts = {4, 0, 4};
  for (const Collective collective : {Collective::kGatherv, Collective::kScatterv}) {
    const bool gathers = collective == Collective::kGatherv;
    for (const int rank : {0, 1, 2}) {  // The root, a rank with nothing, one with something.
      CArguments given = arguments(collective);
      given.send_counts = given.recv_counts = counts.data();
      given.count = counts[static_cast<std::size_t>(rank)];
      CCall call;
      ASSERT_TRUE(make_call(given, rank, 3, &call).ok());
      EXPECT_EQ(gathers ? call.is_recv_empty : call.is_send_empty, rank != 0) << rank;
      EXPECT_EQ(gathers ? call.is_send_empty : call.is_recv_empty, rank == 1) << rank;
    }
  }
}

TEST(CCall, make_call__wrong_arguments_are_named) {
  CArguments given = arguments(Collective::kAllreduce);
  given.count = -1;
  expect_words(given, "allreduce: count is negative: -1");
  given = arguments(Collective::kAllreduce);
  given.count = INT64_MAX;
  expect_words(given, "more than any memory");
  // Bytes, and of all ranks together: their number would wrap.
  given = arguments(Collective::kAllgather);
  given.count = std::int64_t{1} << 58;
  given.type = TUTTI_COMPLEX128;
  expect_words(given, "more than any memory");
  given = arguments(Collective::kAlltoall);
  given.count = std::int64_t{1} << 57;
  expect_words(given, "more than any memory");
  given = arguments(Collective::kAllreduce);
  given.type = static_cast<tutti_type_t>(24);
  expect_words(given, "type 24");
  given.type = static_cast<tutti_type_t>(-1);
  expect_words(given, "type -1");
  given = arguments(Collective::kAllreduce);
  given.op = static_cast<tutti_op_t>(0);
  expect_words(given, "operation 0");
  given.op = static_cast<tutti_op_t>(14);
  expect_words(given, "operation 14");
  given.op = TUTTI_AVG;
  given.type = TUTTI_INT32;
  expect_words(given, "'avg' is not defined for int32");
  given = arguments(Collective::kAllreduce);
  given.type = TUTTI_FLOAT32;
  given.op = TUTTI_BAND;
  expect_words(given, "not defined for float32");
  given = arguments(Collective::kBcast);
  given.root = 3;
  expect_words(given, "root 3");
  given.root = -1;
  expect_words(given, "root -1");
  given = arguments(Collective::kAllreduce);
  given.send = nullptr;
  expect_words(given, "send is null");
  given = arguments(Collective::kAllreduce);
  given.recv = nullptr;
  expect_words(given, "recv is null");
  given = arguments(Collective::kReduce);  // Rank 1 is not the root.
  given.send = TUTTI_IN_PLACE;
  expect_words(given, "cannot be TUTTI_IN_PLACE");
  given = arguments(Collective::kScatter);
  given.recv = TUTTI_IN_PLACE;
  expect_words(given, "cannot be TUTTI_IN_PLACE");
  const std::array<std::int64_t, 3> sent = {1, 4, 1};
  const std::array<std::int64_t, 3> received = {1, 3, 1};
  given = arguments(Collective::kAlltoallv);
  given.send_counts = sent.data();
  given.recv_counts = received.data();
  expect_words(given, "this rank's own entry");
  expect_words(arguments(Collective::kAllgatherv), "recv_counts is null");
  expect_words(arguments(Collective::kReduceScatter), "recv_counts is null");
  const std::array<std::int64_t, 3> counts = {2, 3, -5};
  given = arguments(Collective::kAllgatherv);
  given.recv_counts = counts.data();
  expect_words(given, "recv_counts is negative");
  const std::array<std::int64_t, 3> good = {2, 3, 5};
  given.recv_counts = good.data();
  expect_words(given, "send_count is not this rank's entry");
}

}  // namespace
}  // namespace tutti::engine
