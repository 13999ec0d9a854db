// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The list of direct kernels: what images hold and the host side asks for. A kernel's name is its
// form, its reduction and the most ranks it is for: "two_shot_float32_sum_4", "exchange_8". Ranks 2
// are exactly two; 4 is for one to four; 8 for one to eight. What has no kernel of its own is
// reduced by "any"; an exchange has one kernel for two ranks and one for more.
//
// Usage: define TUTTI_KERNEL(name, body), where body(arguments, warp, lane) runs one warp.
#pragma once

#include "device/kernels/direct.hpp"

namespace tutti::device::kernels {

using OfInt8 = Fixed<Unitwise<Int8Sum>>;

}  // namespace tutti::device::kernels

#define TUTTI_DIRECT_KERNELS_OF(ranks)                                                      \
  TUTTI_KERNEL(one_shot_float32_sum_##ranks, (one_shot<SumOf<Plain<float>>, Wire, ranks>))  \
  TUTTI_KERNEL(one_shot_float64_sum_##ranks, (one_shot<SumOf<Plain<double>>, Wire, ranks>)) \
  TUTTI_KERNEL(one_shot_float16_sum_##ranks, (one_shot<SumOf<Half>, Wire, ranks>))          \
  TUTTI_KERNEL(one_shot_bfloat16_sum_##ranks, (one_shot<SumOf<Brain>, Wire, ranks>))        \
  TUTTI_KERNEL(one_shot_int8_sum_##ranks, (one_shot<OfInt8, Wire, ranks>))                  \
  TUTTI_KERNEL(two_shot_float32_sum_##ranks, (two_shot<SumOf<Plain<float>>, Wire, ranks>))  \
  TUTTI_KERNEL(two_shot_float64_sum_##ranks, (two_shot<SumOf<Plain<double>>, Wire, ranks>)) \
  TUTTI_KERNEL(two_shot_float16_sum_##ranks, (two_shot<SumOf<Half>, Wire, ranks>))          \
  TUTTI_KERNEL(two_shot_bfloat16_sum_##ranks, (two_shot<SumOf<Brain>, Wire, ranks>))        \
  TUTTI_KERNEL(two_shot_int8_sum_##ranks, (two_shot<OfInt8, Wire, ranks>))

#define TUTTI_DIRECT_KERNELS                             \
  TUTTI_KERNEL(one_shot_any_8, (one_shot<Any, Wire, 8>)) \
  TUTTI_KERNEL(two_shot_any_8, (two_shot<Any, Wire, 8>)) \
  TUTTI_KERNEL(combine_any_8, (combine<Any>))            \
  TUTTI_KERNEL(exchange_8, (exchange<Wire, 8>))          \
  TUTTI_KERNEL(exchange_2, (exchange<Wire, 2>))          \
  TUTTI_DIRECT_KERNELS_OF(2)                             \
  TUTTI_DIRECT_KERNELS_OF(4)                             \
  TUTTI_DIRECT_KERNELS_OF(8)
