// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which types and operations NCCL and RCCL are given.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runners/ccl/types.hpp"
#include "select/plan.hpp"

namespace tutti::runners {
namespace {

using ccl::NcclOp;
using ccl::NcclType;
using select::DataType;
using select::ReduceOp;

constexpr DataType kAllTypes[] = {
    DataType::kByte,    DataType::kInt8,      DataType::kUint8,      DataType::kInt16,
    DataType::kUint16,  DataType::kInt32,     DataType::kUint32,     DataType::kInt64,
    DataType::kUint64,  DataType::kFloat16,   DataType::kBfloat16,   DataType::kFloat32,
    DataType::kFloat64, DataType::kComplex64, DataType::kComplex128, DataType::kOther};
constexpr ReduceOp kAllOps[] = {
    ReduceOp::kNone, ReduceOp::kSum,    ReduceOp::kProd,   ReduceOp::kMin,  ReduceOp::kMax,
    ReduceOp::kLand, ReduceOp::kLor,    ReduceOp::kLxor,   ReduceOp::kBand, ReduceOp::kBor,
    ReduceOp::kBxor, ReduceOp::kMinloc, ReduceOp::kMaxloc, ReduceOp::kAvg,  ReduceOp::kUser};

TEST(CclTypes, translate__arithmetic_types_stay) {
  EXPECT_EQ(translate(DataType::kInt8), (Translation{NcclType::kInt8, 1, false}));
  EXPECT_EQ(translate(DataType::kUint8), (Translation{NcclType::kUint8, 1, false}));
  EXPECT_EQ(translate(DataType::kInt32), (Translation{NcclType::kInt32, 1, false}));
  EXPECT_EQ(translate(DataType::kUint32), (Translation{NcclType::kUint32, 1, false}));
  EXPECT_EQ(translate(DataType::kInt64), (Translation{NcclType::kInt64, 1, false}));
  EXPECT_EQ(translate(DataType::kUint64), (Translation{NcclType::kUint64, 1, false}));
  EXPECT_EQ(translate(DataType::kFloat16), (Translation{NcclType::kFloat16, 1, false}));
  EXPECT_EQ(translate(DataType::kBfloat16), (Translation{NcclType::kBfloat16, 1, false}));
  EXPECT_EQ(translate(DataType::kFloat32), (Translation{NcclType::kFloat32, 1, false}));
  EXPECT_EQ(translate(DataType::kFloat64), (Translation{NcclType::kFloat64, 1, false}));
}

TEST(CclTypes, translate__complex_numbers_are_two_parts) {
  EXPECT_EQ(translate(DataType::kComplex64), (Translation{NcclType::kFloat32, 2, false}));
  EXPECT_EQ(translate(DataType::kComplex128), (Translation{NcclType::kFloat64, 2, false}));
}

TEST(CclTypes, translate__what_nccl_does_not_know_travels_as_bytes) {
  EXPECT_EQ(translate(DataType::kByte), (Translation{NcclType::kUint8, 1, true}));
  EXPECT_EQ(translate(DataType::kInt16), (Translation{NcclType::kUint8, 2, true}));
  EXPECT_EQ(translate(DataType::kUint16), (Translation{NcclType::kUint8, 2, true}));
  EXPECT_EQ(translate(DataType::kOther), std::nullopt);
}

TEST(CclTypes, translate__keeps_the_size_of_an_element) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  for (const DataType type : kAllTypes) {
    if (const auto translation = translate(type)) {
      EXPECT_EQ(kSizes[static_cast<int>(translation->type)] * translation->count_factor,
                select::size_of(type))
          << select::to_string(type);
    }
  }
}

TEST(CclTypes, translate_op__five_operations) {
  EXPECT_EQ(translate_op(ReduceOp::kSum), NcclOp::kSum);
  EXPECT_EQ(translate_op(ReduceOp::kProd), NcclOp::kProd);
  EXPECT_EQ(translate_op(ReduceOp::kMin), NcclOp::kMin);
  EXPECT_EQ(translate_op(ReduceOp::kMax), NcclOp::kMax);
  EXPECT_EQ(translate_op(ReduceOp::kAvg), NcclOp::kAvg);
  EXPECT_EQ(std::count_if(std::begin(kAllOps), std::end(kAllOps),
                          [](ReduceOp op) { return translate_op(op).has_value(); }),
            5);
}

/// Selection refuses what NCCL has not; what it lets through, the runner must be able to say.
TEST(CclTypes, translate__everything_that_selection_lets_through) {
  select::CommFacts facts;
  facts.ranks = 2;
  facts.ccl_usable = true;
  int passed = 0;
  for (const DataType type : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      if (op == ReduceOp::kNone) {
        continue;
      }
      const select::Shape shape{select::Collective::kAllreduce, 64, type, op,
                                select::Memory::kDevice};
      const auto translation = translate(type);
      const bool exact =
          translation && !translation->as_bytes && translate_op(op) &&
          (op == ReduceOp::kAvg ? select::has_average(type)
                                : translation->count_factor == 1 || op == ReduceOp::kSum);
      const std::string refusal = select::refusal(select::CclPlan(), shape, facts);
      EXPECT_EQ(exact, refusal.empty())
          << select::to_string(type) << " " << select::to_string(op) << ": " << refusal;
      passed += refusal.empty() ? 1 : 0;
    }
  }
  // Ten types with four operations, complex sums, and averages of four real and the complex types.
  EXPECT_EQ(passed, 10 * 4 + 2 + 4 + 2);
}

}  // namespace
}  // namespace tutti::runners
