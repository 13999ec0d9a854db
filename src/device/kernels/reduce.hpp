// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reduction of one unit (16 bytes) over ranks, always in rank order, so that the bits of a result
// do not depend on size, algorithm, grid or place. float16 and bfloat16 accumulate in float32 and
// round once, to nearest even; integers wrap; logical results are 0 or 1; of equal values MINLOC
// and MAXLOC keep the lower index (MPI 4.1 section 6.9.4); MIN and MAX keep the lower rank's value
// unless the other compares less or greater, so a NaN wins over all that comes before it. A sum of
// real or complex numbers is multiplied by a factor, for averages; by 1 it keeps its bits.
#pragma once

#include "device/kernels/hardware.hpp"

namespace tutti::device::kernels {

template <class To, class From>
TUTTI_INLINE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

/// How elements of a type are stored (Element), counted with (Value), and turned into each other.
template <class T>
struct Plain {
  using Element = T;
  using Value = T;
  static TUTTI_INLINE Value load(Element element) { return element; }
  static TUTTI_INLINE Element store(Value value) { return value; }
};

#if TUTTI_ON_GPU
struct Half {
  using Element = _Float16;
  using Value = float;
  static TUTTI_INLINE Value load(Element element) { return static_cast<float>(element); }
  static TUTTI_INLINE Element store(Value value) { return static_cast<_Float16>(value); }
};
#else
/// IEEE 754 binary16 by hand: C++ compilers for hosts have no such type before GCC 13.
struct Half {
  using Element = unsigned short;
  using Value = float;
  static Value load(Element element) {
    const Word sign = static_cast<Word>(element & 0x8000U) << 16;
    const Word magnitude = element & 0x7fffU;
    if (magnitude >= 0x7c00U) {
      return bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
    }
    // Scaling by a power of two turns subnormals into normal numbers exactly.
    return bit_cast<float>(sign | bit_cast<Word>(bit_cast<float>(magnitude << 13) * 0x1p112F));
  }
  static Element store(Value value) {
    const Word bits = bit_cast<Word>(value);
    const Word sign = bits >> 16 & 0x8000U;
    const Word magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
      return static_cast<Element>(sign | 0x7e00U | (magnitude >> 13 & 0x3ffU));
    }
    if (magnitude >= 0x477ff000U) {
      return static_cast<Element>(sign | 0x7c00U);  // 65520 and more round to infinity.
    }
    if (magnitude < 0x38800000U) {
      // A subnormal result: adding 0.5 leaves its 10 bits, rounded, at the end of the sum.
      return static_cast<Element>(
          sign | (bit_cast<Word>(bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U));
    }
    return static_cast<Element>(
        sign | ((magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13));
  }
};
#endif

struct Brain {
  using Element = unsigned short;
  using Value = float;
  static TUTTI_INLINE Value load(Element element) {
    return bit_cast<float>(static_cast<Word>(element) << 16);
  }
  static TUTTI_INLINE Element store(Value value) {
    const Word bits = bit_cast<Word>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
      return static_cast<Element>(bits >> 16 | 0x40U);  // A quiet NaN stays one.
    }
    return static_cast<Element>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  }
};

template <class T>
struct Complex {
  struct Element {
    T real;
    T imaginary;
  };
  using Value = Element;
  static TUTTI_INLINE Value load(const Element& element) { return element; }
  static TUTTI_INLINE Element store(const Value& value) { return value; }
};

template <class V, class I>
struct Pair {
  struct Element {
    V value;
    I index;
    /// What lies behind the index travels unread.
  };
  using Value = Element;
  static TUTTI_INLINE Value load(const Element& element) { return element; }
  static TUTTI_INLINE Element store(const Value& value) { return value; }
};

struct Sum {
  template <class T>
  static TUTTI_INLINE T apply(T a, T b) {
    return a + b;
  }
  template <class T>
  static TUTTI_INLINE T complex(T a, T b) {
    return {a.real + b.real, a.imaginary + b.imaginary};
  }
};
struct Prod {
  template <class T>
  static TUTTI_INLINE T apply(T a, T b) {
    return a * b;
  }
  template <class T>
  static TUTTI_INLINE T complex(T a, T b) {
    return {a.real * b.real - a.imaginary * b.imaginary,
            a.real * b.imaginary + a.imaginary * b.real};
  }
};
struct Min {
  template <class T>
  static TUTTI_INLINE T apply(T a, T b) {
    return b < a || b != b ? b : a;
  }
  template <class T>
  static TUTTI_INLINE T pair(T a, T b) {
    return b.value < a.value || (b.value == a.value && b.index < a.index) ? b : a;
  }
};
struct Max {
  template <class T>
  static TUTTI_INLINE T apply(T a, T b) {
    return a < b || b != b ? b : a;
  }
  template <class T>
  static TUTTI_INLINE T pair(T a, T b) {
    return a.value < b.value || (b.value == a.value && b.index < a.index) ? b : a;
  }
};
struct Land {
  template <class T>
  static TUTTI_INLINE T apply(T a, T b) {
    return static_cast<T>(a != 0 && b != 0 ? 1 : 0);
  }
};
struct Lor {
  template <class T>
  static TUTTI_INLINE T apply(T a, T b) {
    return static_cast<T>(a != 0 || b != 0 ? 1 : 0);
  }
};
struct Lxor {
  template <class T>
  static TUTTI_INLINE T apply(T a, T b) {
    return static_cast<T>((a != 0) != (b != 0) ? 1 : 0);
  }
};
struct Band {
  static TUTTI_INLINE Unit apply(Unit a, Unit b) { return a & b; }
};
struct Bor {
  static TUTTI_INLINE Unit apply(Unit a, Unit b) { return a | b; }
};
struct Bxor {
  static TUTTI_INLINE Unit apply(Unit a, Unit b) { return a ^ b; }
};
/// Sums of 8-bit integers, signed or not, four in a word: the highest bit of each is added apart,
/// so that nothing is carried from one into the next.
struct Int8Sum {
  static TUTTI_INLINE Unit apply(Unit a, Unit b) {
    constexpr Word kHighest = 0x80808080U;
    return ((a & ~kHighest) + (b & ~kHighest)) ^ ((a ^ b) & kHighest);
  }
};

/// Number of ranks that is known at run time only, and worth no unrolled code.
inline constexpr Word kAnyRanks = 0;

/// `body(rank)` for the ranks after the first, in order.
template <Word kRanksMax, class Body>
TUTTI_INLINE void for_ranks(Word count, Body body) {
  if constexpr (kRanksMax == kAnyRanks) {
    TUTTI_NO_UNROLL
    for (Word rank = 1; rank < count; ++rank) {
      body(rank);
    }
  } else {
    TUTTI_UNROLL
    for (Word rank = 1; rank < kRanksMax; ++rank) {
      if (rank < count) {
        body(rank);
      }
    }
  }
}

/// Element by element with `Combine(a, b)` on values, and `Finish(value)` on what comes of them.
template <Word kRanksMax, class T, class Combine, class Finish>
TUTTI_INLINE Unit fold(const Unit* units, Word count, Combine combine, Finish finish) {
  using Element = typename T::Element;
  constexpr Word kElements = kUnitBytes / sizeof(Element);
  struct Elements {
    Element of[kElements];
  };
  typename T::Value sums[kElements];
  const auto first = bit_cast<Elements>(units[0]);
  TUTTI_UNROLL
  for (Word i = 0; i < kElements; ++i) {
    sums[i] = T::load(first.of[i]);
  }
  const auto add = [&](Word rank) {
    const auto next = bit_cast<Elements>(units[rank]);
    TUTTI_UNROLL
    for (Word i = 0; i < kElements; ++i) {
      sums[i] = combine(sums[i], T::load(next.of[i]));
    }
  };
  for_ranks<kRanksMax>(count, add);
  Elements result;
  TUTTI_UNROLL
  for (Word i = 0; i < kElements; ++i) {
    result.of[i] = T::store(finish(sums[i]));
  }
  return bit_cast<Unit>(result);
}
template <Word kRanksMax, class T, class Combine>
TUTTI_INLINE Unit fold(const Unit* units, Word count, Combine combine) {
  return fold<kRanksMax, T>(units, count, combine, [](typename T::Value value) { return value; });
}

template <class T, class O>
struct Elementwise {
  template <Word kRanksMax>
  static TUTTI_INLINE Unit reduce(const Unit* units, Word count) {
    using Value = typename T::Value;
    return fold<kRanksMax, T>(units, count, [](Value a, Value b) { return O::apply(a, b); });
  }
};
/// A sum that is multiplied by a factor. Complex numbers are pairs of reals here.
template <class T>
struct ScaledSum {
  template <Word kRanksMax>
  static TUTTI_INLINE Unit reduce(const Unit* units, Word count, double scale) {
    using Value = typename T::Value;
    const auto factor = static_cast<Value>(scale);
    return fold<kRanksMax, T>(
        units, count, [](Value a, Value b) { return a + b; },
        [factor](Value sum) { return sum * factor; });
  }
};
template <class T, class O>
struct OfComplex {
  template <Word kRanksMax>
  static TUTTI_INLINE Unit reduce(const Unit* units, Word count) {
    using Value = typename Complex<T>::Value;
    return fold<kRanksMax, Complex<T>>(units, count,
                                       [](Value a, Value b) { return O::complex(a, b); });
  }
};
template <class P, class O>
struct OfPair {
  template <Word kRanksMax>
  static TUTTI_INLINE Unit reduce(const Unit* units, Word count) {
    using Value = typename P::Value;
    return fold<kRanksMax, P>(units, count, [](Value a, Value b) { return O::pair(a, b); });
  }
};
/// Operations on whole units.
template <class O>
struct Unitwise {
  template <Word kRanksMax>
  static TUTTI_INLINE Unit reduce(const Unit* units, Word count) {
    Unit result = units[0];
    for_ranks<kRanksMax>(count, [&](Word rank) { result = O::apply(result, units[rank]); });
    return result;
  }
};

template <Word kRanksMax, class T>
TUTTI_INLINE Unit reduce_integers(Op op, const Unit* units, Word count) {
  switch (op) {
    case Op::kSum:
      return Elementwise<Plain<T>, Sum>::template reduce<kRanksMax>(units, count);
    case Op::kProd:
      return Elementwise<Plain<T>, Prod>::template reduce<kRanksMax>(units, count);
    case Op::kMin:
      return Elementwise<Plain<T>, Min>::template reduce<kRanksMax>(units, count);
    case Op::kMax:
      return Elementwise<Plain<T>, Max>::template reduce<kRanksMax>(units, count);
    case Op::kLand:
      return Elementwise<Plain<T>, Land>::template reduce<kRanksMax>(units, count);
    case Op::kLor:
      return Elementwise<Plain<T>, Lor>::template reduce<kRanksMax>(units, count);
    default:
      return Elementwise<Plain<T>, Lxor>::template reduce<kRanksMax>(units, count);
  }
}

template <Word kRanksMax, class T>
TUTTI_INLINE Unit reduce_reals(Op op, const Unit* units, Word count, double scale) {
  switch (op) {
    case Op::kSum:
      return ScaledSum<T>::template reduce<kRanksMax>(units, count, scale);
    case Op::kProd:
      return Elementwise<T, Prod>::template reduce<kRanksMax>(units, count);
    case Op::kMin:
      return Elementwise<T, Min>::template reduce<kRanksMax>(units, count);
    default:
      return Elementwise<T, Max>::template reduce<kRanksMax>(units, count);
  }
}

template <Word kRanksMax, class T>
TUTTI_INLINE Unit reduce_complex(Op op, const Unit* units, Word count, double scale) {
  return op == Op::kSum ? ScaledSum<Plain<T>>::template reduce<kRanksMax>(units, count, scale)
                        : OfComplex<T, Prod>::template reduce<kRanksMax>(units, count);
}

template <Word kRanksMax, class V, class I>
TUTTI_INLINE Unit reduce_pairs(Op op, const Unit* units, Word count) {
  using P = Pair<V, I>;
  return op == Op::kMinloc ? OfPair<P, Min>::template reduce<kRanksMax>(units, count)
                           : OfPair<P, Max>::template reduce<kRanksMax>(units, count);
}

/// Any type with any operation that MPI defines for it; others were refused before the launch.
/// Integers in two's complement wrap alike signed and unsigned, but compare differently.
inline __attribute__((noinline)) Unit reduce_any(Type type, Op op, double scale, const Unit* units,
                                                 Word count) {
  switch (op) {
    case Op::kBand:
      return Unitwise<Band>::template reduce<kAnyRanks>(units, count);
    case Op::kBor:
      return Unitwise<Bor>::template reduce<kAnyRanks>(units, count);
    case Op::kBxor:
      return Unitwise<Bxor>::template reduce<kAnyRanks>(units, count);
    default:
      break;
  }
  switch (type) {
    case Type::kInt8:
      return reduce_integers<kAnyRanks, signed char>(op, units, count);
    case Type::kByte:
    case Type::kUint8:
    case Type::kBool:
      return reduce_integers<kAnyRanks, unsigned char>(op, units, count);
    case Type::kInt16:
      return reduce_integers<kAnyRanks, short>(op, units, count);
    case Type::kUint16:
      return reduce_integers<kAnyRanks, unsigned short>(op, units, count);
    case Type::kInt32:
    case Type::kLogical32:
      return reduce_integers<kAnyRanks, int>(op, units, count);
    case Type::kUint32:
      return reduce_integers<kAnyRanks, unsigned>(op, units, count);
    case Type::kInt64:
      return reduce_integers<kAnyRanks, long long>(op, units, count);
    case Type::kUint64:
      return reduce_integers<kAnyRanks, unsigned long long>(op, units, count);
    case Type::kFloat16:
      return reduce_reals<kAnyRanks, Half>(op, units, count, scale);
    case Type::kBfloat16:
      return reduce_reals<kAnyRanks, Brain>(op, units, count, scale);
    case Type::kFloat32:
      return reduce_reals<kAnyRanks, Plain<float>>(op, units, count, scale);
    case Type::kFloat64:
      return reduce_reals<kAnyRanks, Plain<double>>(op, units, count, scale);
    case Type::kComplex64:
      return reduce_complex<kAnyRanks, float>(op, units, count, scale);
    case Type::kComplex128:
      return reduce_complex<kAnyRanks, double>(op, units, count, scale);
    case Type::kInt16Int:
      return reduce_pairs<kAnyRanks, short, int>(op, units, count);
    case Type::kInt32Int:
      return reduce_pairs<kAnyRanks, int, int>(op, units, count);
    case Type::kInt64Int:
      return reduce_pairs<kAnyRanks, long long, int>(op, units, count);
    case Type::kFloat32Int:
      return reduce_pairs<kAnyRanks, float, int>(op, units, count);
    case Type::kFloat64Int:
      return reduce_pairs<kAnyRanks, double, int>(op, units, count);
    case Type::kFloat32Pair:
      return reduce_pairs<kAnyRanks, float, float>(op, units, count);
    case Type::kFloat64Pair:
      return reduce_pairs<kAnyRanks, double, double>(op, units, count);
  }
  return units[0];
}

/// The reduction of a kernel: one that is compiled in, or whatever the arguments name.
template <class T>
struct SumOf {
  template <Word kRanksMax>
  static TUTTI_INLINE Unit reduce(const DirectArguments& arguments, const Unit* units, Word count) {
    return ScaledSum<T>::template reduce<kRanksMax>(units, count, arguments.scale);
  }
};
template <class R>
struct Fixed {
  template <Word kRanksMax>
  static TUTTI_INLINE Unit reduce(const DirectArguments& /*arguments*/, const Unit* units,
                                  Word count) {
    return R::template reduce<kRanksMax>(units, count);
  }
};
struct Any {
  template <Word kRanksMax>
  static TUTTI_INLINE Unit reduce(const DirectArguments& arguments, const Unit* units, Word count) {
    return reduce_any(arguments.type, arguments.op, arguments.scale, units, count);
  }
};

}  // namespace tutti::device::kernels
