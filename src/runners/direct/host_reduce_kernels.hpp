// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The reductions, as loops that the compiler turns into vector instructions. Each file that
// includes this is compiled for another instruction set, so everything stands in an unnamed
// namespace and nothing of the standard library is called: a shared inline function would be
// compiled for the widest set and then be picked for all.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "runners/direct/host_reduce_isa.hpp"

// An output that is also an input keeps its place in it: no iteration needs another's result.
#if defined(__clang__)
#define TUTTI_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define TUTTI_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace tutti::runners {
namespace {

using select::DataType;
using select::ReduceOp;

/// Bytes of partial results that are kept while one input after the other is added: half of the
/// smallest first-level cache.
constexpr std::size_t kPartialBytes = 4096;

/// An element as it lies in a user's buffer: at any address, under any type's name. Structures say
/// so themselves.
template <class T, bool is_structure = __is_class(T)>
struct Loose {
  typedef T Type __attribute__((may_alias, aligned(1)));
};
template <class T>
struct Loose<T, true> {
  using Type = T;
};
#define TUTTI_LOOSE_STRUCTURE __attribute__((packed, may_alias))

// ---- operations --------------------------------------------------------------------------------

/// Where sums and products of T wrap and do not overflow: at least as wide as int, unsigned.
template <class T>
struct Wrapping {
  using Type = T;
};
template <>
struct Wrapping<std::int8_t> {
  using Type = unsigned;
};
template <>
struct Wrapping<std::uint8_t> {
  using Type = unsigned;
};
template <>
struct Wrapping<std::int16_t> {
  using Type = unsigned;
};
template <>
struct Wrapping<std::uint16_t> {
  using Type = unsigned;
};
template <>
struct Wrapping<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using Type = std::uint64_t;
};

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Prod {
  template <class T>
  static T apply(T a, T b) {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a < b || b != b ? b : a;
  }
};
struct Land {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<int>(a != 0) & static_cast<int>(b != 0));
  }
};
struct Lor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<int>(a != 0) | static_cast<int>(b != 0));
  }
};
struct Lxor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<int>(a != 0) ^ static_cast<int>(b != 0));
  }
};
struct Band {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Bor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Bxor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class T>
struct TUTTI_LOOSE_STRUCTURE Complex {
  T real;
  T imaginary;
};
struct ComplexSum {
  template <class T>
  static Complex<T> apply(Complex<T> a, Complex<T> b) {
    return {a.real + b.real, a.imaginary + b.imaginary};
  }
};
struct ComplexProd {
  template <class T>
  static Complex<T> apply(Complex<T> a, Complex<T> b) {
    return {a.real * b.real - a.imaginary * b.imaginary,
            a.real * b.imaginary + a.imaginary * b.real};
  }
};

/// MPI 4.1 section 6.9.4. The bytes between and behind are copied like the rest.
template <class Value, class Index, std::size_t kBetween, std::size_t kBehind>
struct TUTTI_LOOSE_STRUCTURE Pair {
  Value value;
  unsigned char between[kBetween];
  Index index;
  unsigned char behind[kBehind];
};
using Int16Int = Pair<std::int16_t, std::int32_t, 2, 0>;
using Int32Int = Pair<std::int32_t, std::int32_t, 0, 0>;
using Int64Int = Pair<std::int64_t, std::int32_t, 0, 4>;
using Float32Int = Pair<float, std::int32_t, 0, 0>;
using Float64Int = Pair<double, std::int32_t, 0, 4>;
using Float32Pair = Pair<float, float, 0, 0>;
using Float64Pair = Pair<double, double, 0, 0>;

struct Minloc {
  template <class P>
  static P apply(P a, P b) {
    return b.value < a.value || (b.value == a.value && b.index < a.index) ? b : a;
  }
};
struct Maxloc {
  template <class P>
  static P apply(P a, P b) {
    return a.value < b.value || (b.value == a.value && b.index < a.index) ? b : a;
  }
};

// ---- elements that are combined as they are ----------------------------------------------------

template <class T, class Op>
struct Plain {
  using Element = typename Loose<T>::Type;

  static void combine(Element* out, const Element* a, const Element* b, std::uint64_t count) {
    TUTTI_INDEPENDENT_ITERATIONS
    for (std::uint64_t i = 0; i < count; ++i) {
      const T left = a[i];
      const T right = b[i];
      out[i] = Op::apply(left, right);
    }
  }

  static void reduce(void* out, const void* const* inputs, int input_count, std::uint64_t count) {
    auto* result = static_cast<Element*>(out);
    auto input = [inputs](int i) { return static_cast<const Element*>(inputs[i]); };
    if (input_count == 1) {
      __builtin_memmove(out, inputs[0], count * sizeof(T));
      return;
    }
    if (input_count == 2) {
      combine(result, input(0), input(1), count);
      return;
    }
    constexpr std::uint64_t kBlock = kPartialBytes / sizeof(T);
    alignas(64) T partial[kBlock];
    for (std::uint64_t done = 0; done < count; done += kBlock) {
      const std::uint64_t block = count - done < kBlock ? count - done : kBlock;
      combine(partial, input(0) + done, input(1) + done, block);
      for (int i = 2; i < input_count - 1; ++i) {
        combine(partial, partial, input(i) + done, block);
      }
      combine(result + done, partial, input(input_count - 1) + done, block);
    }
  }
};

// ---- 16-bit floating point ---------------------------------------------------------------------

inline float float_of_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline std::uint32_t bits_of_float(float value) { return __builtin_bit_cast(std::uint32_t, value); }

/// IEEE 754 binary16. Signalling NaNs become quiet and keep their payload, as F16C does it.
struct Float16 {
  static float widen(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1fU;
    const std::uint32_t fraction = half & 0x3ffU;
    if (exponent == 0) {
      return float_of_bits(sign | bits_of_float(static_cast<float>(fraction) * 0x1p-24F));
    }
    if (exponent == 0x1f) {
      return float_of_bits(sign | 0x7f800000U | (fraction != 0 ? 0x400000U : 0U) | fraction << 13);
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
  }

  static std::uint16_t narrow(float value) {
    const std::uint32_t bits = bits_of_float(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000U) {
      half = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
    } else if (magnitude >= 0x477ff000U) {  // 65520 and more round to infinity.
      half = 0x7c00U;
    } else if (magnitude < 0x38800000U) {
      // Below 2^-14: the unit in the last place of 0.5 is that of a subnormal, 2^-24.
      half = bits_of_float(float_of_bits(magnitude) + 0.5F) - bits_of_float(0.5F);
    } else {
      half = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
    }
    return static_cast<std::uint16_t>(sign | half);
  }
};

/// The upper half of a binary32.
struct Bfloat16 {
  static float widen(std::uint16_t value) { return float_of_bits(std::uint32_t{value} << 16); }

  static std::uint16_t narrow(float value) {
    const std::uint32_t bits = bits_of_float(value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
  }
};

using Loose16 = Loose<std::uint16_t>::Type;

template <class Format>
void widen(float* out, const Loose16* in, std::uint64_t count) {
  TUTTI_INDEPENDENT_ITERATIONS
  for (std::uint64_t i = 0; i < count; ++i) {
    out[i] = Format::widen(in[i]);
  }
}

template <class Format>
void narrow(Loose16* out, const float* in, std::uint64_t count) {
  TUTTI_INDEPENDENT_ITERATIONS
  for (std::uint64_t i = 0; i < count; ++i) {
    out[i] = Format::narrow(in[i]);
  }
}

#if defined(__F16C__)
template <>
void widen<Float16>(float* out, const Loose16* in, std::uint64_t count) {
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
  for (; i < count; ++i) {
    out[i] = Float16::widen(in[i]);
  }
}

template <>
void narrow<Float16>(Loose16* out, const float* in, std::uint64_t count) {
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < count; ++i) {
    out[i] = Float16::narrow(in[i]);
  }
}
#endif

/// Combined in float32, rounded once.
template <class Format, class Op>
struct Widened {
  static void reduce(void* out, const void* const* inputs, int input_count, std::uint64_t count) {
    if (input_count == 1) {
      __builtin_memmove(out, inputs[0], count * sizeof(std::uint16_t));
      return;
    }
    constexpr std::uint64_t kBlock = kPartialBytes / sizeof(float);
    alignas(64) float partial[kBlock];
    alignas(64) float next[kBlock];
    for (std::uint64_t done = 0; done < count; done += kBlock) {
      const std::uint64_t block = count - done < kBlock ? count - done : kBlock;
      widen<Format>(partial, static_cast<const Loose16*>(inputs[0]) + done, block);
      for (int i = 1; i < input_count; ++i) {
        widen<Format>(next, static_cast<const Loose16*>(inputs[i]) + done, block);
        Plain<float, Op>::combine(partial, partial, next, block);
      }
      narrow<Format>(static_cast<Loose16*>(out) + done, partial, block);
    }
  }
};

// ---- the table ---------------------------------------------------------------------------------

template <class T>
ReduceFunction bitwise_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kBand:
      return Plain<T, Band>::reduce;
    case ReduceOp::kBor:
      return Plain<T, Bor>::reduce;
    case ReduceOp::kBxor:
      return Plain<T, Bxor>::reduce;
    default:
      return nullptr;
  }
}

template <class T>
ReduceFunction logical_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kLand:
      return Plain<T, Land>::reduce;
    case ReduceOp::kLor:
      return Plain<T, Lor>::reduce;
    case ReduceOp::kLxor:
      return Plain<T, Lxor>::reduce;
    default:
      return nullptr;
  }
}

/// `Shape<Op>::reduce` for the operations that numbers with an order have.
template <template <class> class Shape>
ReduceFunction ordered_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return Shape<Sum>::reduce;
    case ReduceOp::kProd:
      return Shape<Prod>::reduce;
    case ReduceOp::kMin:
      return Shape<Min>::reduce;
    case ReduceOp::kMax:
      return Shape<Max>::reduce;
    default:
      return nullptr;
  }
}

template <class T>
struct PlainOf {
  template <class Op>
  using Shape = Plain<T, Op>;
};
template <class Format>
struct WidenedOf {
  template <class Op>
  using Shape = Widened<Format, Op>;
};

template <class T>
ReduceFunction integer_of(ReduceOp op) {
  if (const ReduceFunction found = ordered_of<PlainOf<T>::template Shape>(op)) {
    return found;
  }
  const ReduceFunction found = logical_of<T>(op);
  return found != nullptr ? found : bitwise_of<T>(op);
}

template <class T>
ReduceFunction complex_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return Plain<Complex<T>, ComplexSum>::reduce;
    case ReduceOp::kProd:
      return Plain<Complex<T>, ComplexProd>::reduce;
    default:
      return nullptr;
  }
}

template <class P>
ReduceFunction pair_of(ReduceOp op) {
  static_assert(sizeof(P) == 8 || sizeof(P) == 16);
  switch (op) {
    case ReduceOp::kMinloc:
      return Plain<P, Minloc>::reduce;
    case ReduceOp::kMaxloc:
      return Plain<P, Maxloc>::reduce;
    default:
      return nullptr;
  }
}

ReduceFunction kernel_of(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::kByte:
      return bitwise_of<std::uint8_t>(op);
    case DataType::kInt8:
      return integer_of<std::int8_t>(op);
    case DataType::kUint8:
      return integer_of<std::uint8_t>(op);
    case DataType::kInt16:
      return integer_of<std::int16_t>(op);
    case DataType::kUint16:
      return integer_of<std::uint16_t>(op);
    case DataType::kInt32:
      return integer_of<std::int32_t>(op);
    case DataType::kUint32:
      return integer_of<std::uint32_t>(op);
    case DataType::kInt64:
      return integer_of<std::int64_t>(op);
    case DataType::kUint64:
      return integer_of<std::uint64_t>(op);
    case DataType::kFloat16:
      return ordered_of<WidenedOf<Float16>::Shape>(op);
    case DataType::kBfloat16:
      return ordered_of<WidenedOf<Bfloat16>::Shape>(op);
    case DataType::kFloat32:
      return ordered_of<PlainOf<float>::Shape>(op);
    case DataType::kFloat64:
      return ordered_of<PlainOf<double>::Shape>(op);
    case DataType::kComplex64:
      return complex_of<float>(op);
    case DataType::kComplex128:
      return complex_of<double>(op);
    case DataType::kBool:
      return logical_of<std::uint8_t>(op);
    case DataType::kLogical32:
      return logical_of<std::uint32_t>(op);
    case DataType::kInt16Int:
      return pair_of<Int16Int>(op);
    case DataType::kInt32Int:
      return pair_of<Int32Int>(op);
    case DataType::kInt64Int:
      return pair_of<Int64Int>(op);
    case DataType::kFloat32Int:
      return pair_of<Float32Int>(op);
    case DataType::kFloat64Int:
      return pair_of<Float64Int>(op);
    case DataType::kFloat32Pair:
      return pair_of<Float32Pair>(op);
    case DataType::kFloat64Pair:
      return pair_of<Float64Pair>(op);
    case DataType::kOther:
      break;
  }
  return nullptr;
}

}  // namespace
}  // namespace tutti::runners
