// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reductions of host memory, compiled for AVX-512.
#include "runners/direct/host_reduce_kernels.hpp"

namespace tutti::runners {

ReduceFunction reduce_avx512(select::DataType type, select::ReduceOp op) {
  const bool is_complex = type == DataType::kComplex64 || type == DataType::kComplex128;
  if (is_complex && op == ReduceOp::kProd) {
    // GCC 12 makes vfmaddsub of complex products in spite of -ffp-contract=off (its bug 106902).
    return reduce_avx2(type, op);
  }
  return kernel_of(type, op);
}

}  // namespace tutti::runners
