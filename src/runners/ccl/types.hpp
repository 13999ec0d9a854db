// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A call's type and operation in NCCL's words, and why NCCL cannot run a reduction. Depends on the
// pair alone, so every rank of a call comes to the same answer.
#pragma once

#include <cstddef>
#include <optional>

#include "ccl/ccl.hpp"
#include "select/shape.hpp"

namespace tutti::runners {

/// One element of a select::DataType is `count_factor` elements of `type`.
struct Translation {
  ccl::NcclType type = ccl::NcclType::kUint8;
  std::size_t count_factor = 1;
  bool as_bytes = false;  ///< NCCL has no such type: it can move the element, not compute with it.

  bool operator==(const Translation&) const = default;
};

/// How an element travels. Absent for kOther, whose size is not known here.
std::optional<Translation> translate(select::DataType type);

/// Absent for what NCCL has no operation for, kNone among it.
std::optional<ccl::NcclOp> translate_op(select::ReduceOp op);

}  // namespace tutti::runners
