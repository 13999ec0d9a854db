// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/shape.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tutti::select {
namespace {

TEST(Shape, parse_collective__every_name_and_back) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    auto collective = static_cast<Collective>(i);
    EXPECT_EQ(parse_collective(to_string(collective)), collective);
  }
}

TEST(Shape, parse_collective__other_spellings) {
  EXPECT_EQ(parse_collective("reducescatter"), Collective::kReduceScatter);
  EXPECT_EQ(parse_collective("all_reduce"), Collective::kAllreduce);
  EXPECT_EQ(parse_collective("MPI_Allreduce"), Collective::kAllreduce);
  EXPECT_EQ(parse_collective("all_to_all"), Collective::kAlltoall);
  EXPECT_EQ(parse_collective("allreduc"), std::nullopt);
  EXPECT_EQ(parse_collective(""), std::nullopt);
}

TEST(Shape, is_reduction__six_of_them) {
  std::set<std::string> names;
  for (int i = 0; i < kCollectiveCount; ++i) {
    if (is_reduction(static_cast<Collective>(i))) {
      names.insert(kCollectiveNames[static_cast<std::size_t>(i)]);
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"allreduce", "exscan", "reduce", "reduce_scatter",
                                          "reduce_scatter_block", "scan"}));
}

TEST(Shape, has_size__all_but_five) {
  std::set<std::string> names;
  for (int i = 0; i < kCollectiveCount; ++i) {
    if (!has_size(static_cast<Collective>(i))) {
      names.insert(kCollectiveNames[static_cast<std::size_t>(i)]);
    }
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"alltoallv", "alltoallw", "barrier", "gatherv", "scatterv"}));
}

TEST(Shape, parse_data_type__every_name_and_back) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    auto type = static_cast<DataType>(i);
    EXPECT_EQ(parse_data_type(to_string(type)), type);
  }
  EXPECT_EQ(parse_data_type("fp16"), DataType::kFloat16);
  EXPECT_EQ(parse_data_type("bf16"), DataType::kBfloat16);
  EXPECT_EQ(parse_data_type("MPI_DOUBLE"), DataType::kFloat64);
  EXPECT_EQ(parse_data_type("float8"), std::nullopt);
}

TEST(Shape, size_of__bits_in_the_name) {
  EXPECT_EQ(size_of(DataType::kByte), 1U);
  EXPECT_EQ(size_of(DataType::kInt16), 2U);
  EXPECT_EQ(size_of(DataType::kBfloat16), 2U);
  EXPECT_EQ(size_of(DataType::kUint32), 4U);
  EXPECT_EQ(size_of(DataType::kFloat64), 8U);
  EXPECT_EQ(size_of(DataType::kComplex64), 8U);
  EXPECT_EQ(size_of(DataType::kComplex128), 16U);
  EXPECT_EQ(size_of(DataType::kOther), 0U);
}

TEST(Shape, parse_reduce_op__every_name_and_back) {
  for (int i = 0; i < kReduceOpCount; ++i) {
    auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(parse_reduce_op(to_string(op)), op);
  }
  EXPECT_EQ(parse_reduce_op("MPI_SUM"), ReduceOp::kSum);
  EXPECT_EQ(parse_reduce_op("mean"), std::nullopt);
}

TEST(Shape, has_average__real_and_complex_numbers) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(has_average(type), is_defined(ReduceOp::kSum, type) && type >= DataType::kFloat16);
    EXPECT_FALSE(is_defined(ReduceOp::kAvg, type)) << "MPI has none";
  }
}

TEST(Shape, parse_memory__two_kinds) {
  EXPECT_EQ(parse_memory("host"), Memory::kHost);
  EXPECT_EQ(parse_memory("device"), Memory::kDevice);
  EXPECT_EQ(parse_memory("managed"), std::nullopt);
}

}  // namespace
}  // namespace tutti::select
