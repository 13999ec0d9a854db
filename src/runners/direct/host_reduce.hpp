// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reductions of several vectors by the CPU: out = ((x0 op x1) op x2) op ..., in that order and in
// no other, so that a result has the same bits however a vector was cut and whichever instruction
// set ran. float16 and bfloat16 are combined in float32 and rounded once, to nearest even. Integer
// sums and products wrap. A minimum or maximum keeps the left operand unless the right one is
// better. Of pairs with equal values the lower index wins; the whole element is copied, padding
// included.
#pragma once

#include <cstdint>

#include "select/shape.hpp"

namespace tutti::runners {

/// `out` may be one of the inputs, or start below the elements it is made of in the same buffer;
/// inputs are read forwards, at most a few KB ahead of what is written. No alignment is asked for.
/// `input_count` is at least 1; `count` is in elements.
using ReduceFunction = void (*)(void* out, const void* const* inputs, int input_count,
                                std::uint64_t count);

/// Which instructions a reduction is compiled for.
enum class Isa : std::uint8_t { kBaseline, kAvx2, kAvx512 };
inline constexpr Isa kIsas[] = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512};

/// This build has them and this CPU runs them.
bool isa_available(Isa isa);
/// The widest of the available.
Isa best_isa();

/// Null where MPI does not define `op` for `type`, for kUser and for kOther.
ReduceFunction reduce_function(Isa isa, select::DataType type, select::ReduceOp op);

/// Each of `count` elements by `divisor`, rounded once; of a type that select::has_average().
void divide(void* data, std::uint64_t count, select::DataType type, int divisor);

}  // namespace tutti::runners
