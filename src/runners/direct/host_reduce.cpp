// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/host_reduce.hpp"

#include "runners/direct/host_reduce_isa.hpp"

namespace tutti::runners {

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return true;
#if defined(TUTTI_HOST_REDUCE_X86)
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2");  // Every CPU that has it has F16C.
    case Isa::kAvx512:
      return isa_available(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
#endif
    default:
      return false;
  }
}

Isa best_isa() {
  Isa best = Isa::kBaseline;
  for (const Isa isa : kIsas) {
    best = isa_available(isa) ? isa : best;
  }
  return best;
}

ReduceFunction reduce_function(Isa isa, select::DataType type, select::ReduceOp op) {
  switch (isa) {
#if defined(TUTTI_HOST_REDUCE_X86)
    case Isa::kAvx2:
      return reduce_avx2(type, op);
    case Isa::kAvx512:
      return reduce_avx512(type, op);
#endif
    default:
      return reduce_baseline(type, op);
  }
}

}  // namespace tutti::runners
