// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/ccl/types.hpp"

namespace tutti::runners {

using ccl::NcclOp;
using ccl::NcclType;
using select::DataType;
using select::ReduceOp;

std::optional<Translation> translate(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return Translation{.type = NcclType::kInt8};
    case DataType::kUint8:
      return Translation{.type = NcclType::kUint8};
    case DataType::kInt32:
      return Translation{.type = NcclType::kInt32};
    case DataType::kUint32:
      return Translation{.type = NcclType::kUint32};
    case DataType::kInt64:
      return Translation{.type = NcclType::kInt64};
    case DataType::kUint64:
      return Translation{.type = NcclType::kUint64};
    case DataType::kFloat16:
      return Translation{.type = NcclType::kFloat16};
    case DataType::kBfloat16:
      return Translation{.type = NcclType::kBfloat16};
    case DataType::kFloat32:
      return Translation{.type = NcclType::kFloat32};
    case DataType::kFloat64:
      return Translation{.type = NcclType::kFloat64};
    // A complex number is its two parts, and adding complex numbers adds the parts.
    case DataType::kComplex64:
      return Translation{.type = NcclType::kFloat32, .count_factor = 2};
    case DataType::kComplex128:
      return Translation{.type = NcclType::kFloat64, .count_factor = 2};
    case DataType::kByte:
    case DataType::kInt16:
    case DataType::kUint16:
      return Translation{.type = NcclType::kUint8,
                         .count_factor = static_cast<std::size_t>(select::size_of(type)),
                         .as_bytes = true};
    default:  // Logical types, pairs and what is not known here.
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<NcclOp> translate_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return NcclOp::kSum;
    case ReduceOp::kProd:
      return NcclOp::kProd;
    case ReduceOp::kMin:
      return NcclOp::kMin;
    case ReduceOp::kMax:
      return NcclOp::kMax;
    default:
      return std::nullopt;
  }
}

}  // namespace tutti::runners
