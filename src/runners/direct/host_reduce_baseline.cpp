// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reductions of host memory, compiled for any processor.
#include "runners/direct/host_reduce_kernels.hpp"

namespace tutti::runners {

ReduceFunction reduce_baseline(select::DataType type, select::ReduceOp op) {
  return kernel_of(type, op);
}

}  // namespace tutti::runners
