// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runners/ccl/types.hpp"

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
    ReduceOp::kBxor, ReduceOp::kMinloc, ReduceOp::kMaxloc, ReduceOp::kUser};

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

TEST(CclTypes, translate_op__four_operations) {
  EXPECT_EQ(translate_op(ReduceOp::kSum), NcclOp::kSum);
  EXPECT_EQ(translate_op(ReduceOp::kProd), NcclOp::kProd);
  EXPECT_EQ(translate_op(ReduceOp::kMin), NcclOp::kMin);
  EXPECT_EQ(translate_op(ReduceOp::kMax), NcclOp::kMax);
  EXPECT_EQ(std::count_if(std::begin(kAllOps), std::end(kAllOps),
                          [](ReduceOp op) { return translate_op(op).has_value(); }),
            4);
}

TEST(CclTypes, refusal__ten_types_with_four_operations_and_complex_sums_run) {
  for (const DataType type : kAllTypes) {
    const bool plain = type != DataType::kByte && type != DataType::kInt16 &&
                       type != DataType::kUint16 && type != DataType::kOther;
    const bool complex = type == DataType::kComplex64 || type == DataType::kComplex128;
    for (const ReduceOp op : kAllOps) {
      const bool basic = op == ReduceOp::kSum || op == ReduceOp::kProd || op == ReduceOp::kMin ||
                         op == ReduceOp::kMax;
      const bool runs =
          op == ReduceOp::kNone || (plain && (complex ? op == ReduceOp::kSum : basic));
      EXPECT_EQ(refusal(type, op).empty(), runs)
          << select::to_string(type) << " " << select::to_string(op);
    }
  }
}

TEST(CclTypes, refusal__says_why) {
  EXPECT_EQ(refusal(DataType::kInt32, ReduceOp::kBxor), "NCCL has no operation for bxor");
  EXPECT_EQ(refusal(DataType::kInt16, ReduceOp::kSum), "NCCL cannot reduce int16");
  EXPECT_EQ(refusal(DataType::kOther, ReduceOp::kMax), "NCCL cannot reduce other");
  EXPECT_EQ(refusal(DataType::kComplex64, ReduceOp::kProd),
            "NCCL reduces complex64 with sum only, not prod");
  EXPECT_EQ(refusal(DataType::kFloat32, ReduceOp::kMin), "");
}

}  // namespace
}  // namespace tutti::runners
