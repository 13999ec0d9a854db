// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/ccl/types.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::runners {

using ccl::NcclOp;
using ccl::NcclType;
using select::DataType;
using select::ReduceOp;

namespace {

template <class From, class To>
struct Row {
  From from;
  To to;
};
constexpr Row<DataType, Translation> kTypes[] = {
    {DataType::kInt8, {.type = NcclType::kInt8}},
    {DataType::kUint8, {.type = NcclType::kUint8}},
    {DataType::kInt32, {.type = NcclType::kInt32}},
    {DataType::kUint32, {.type = NcclType::kUint32}},
    {DataType::kInt64, {.type = NcclType::kInt64}},
    {DataType::kUint64, {.type = NcclType::kUint64}},
    {DataType::kFloat16, {.type = NcclType::kFloat16}},
    {DataType::kBfloat16, {.type = NcclType::kBfloat16}},
    {DataType::kFloat32, {.type = NcclType::kFloat32}},
    {DataType::kFloat64, {.type = NcclType::kFloat64}},
    // A complex number is its two parts, and adding complex numbers adds the parts.
    {DataType::kComplex64, {.type = NcclType::kFloat32, .count_factor = 2}},
    {DataType::kComplex128, {.type = NcclType::kFloat64, .count_factor = 2}},
    {DataType::kByte, {.type = NcclType::kUint8, .as_bytes = true}},
    {DataType::kInt16, {.type = NcclType::kUint8, .count_factor = 2, .as_bytes = true}},
    {DataType::kUint16, {.type = NcclType::kUint8, .count_factor = 2, .as_bytes = true}},
};
constexpr Row<ReduceOp, NcclOp> kOps[] = {{ReduceOp::kSum, NcclOp::kSum},
                                          {ReduceOp::kProd, NcclOp::kProd},
                                          {ReduceOp::kMin, NcclOp::kMin},
                                          {ReduceOp::kMax, NcclOp::kMax},
                                          {ReduceOp::kAvg, NcclOp::kAvg}};

template <class From, class To, std::size_t kRows>
std::optional<To> find(const Row<From, To> (&rows)[kRows], From from) {
  const auto* const row = std::find_if(std::begin(rows), std::end(rows),
                                       [&](const auto& one) { return one.from == from; });
  return row == std::end(rows) ? std::nullopt : std::optional<To>(row->to);
}

}  // namespace

std::optional<Translation> translate(DataType type) { return find(kTypes, type); }
std::optional<NcclOp> translate_op(ReduceOp op) { return find(kOps, op); }

}  // namespace tutti::runners
