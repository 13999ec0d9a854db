// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The CPU's reductions of every instruction set that this machine has, against the definition
// written out element by element.
#include "runners/direct/host_reduce.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.hpp"

namespace tutti::runners {
namespace {

using select::DataType;
using select::ReduceOp;

std::vector<Isa> available() {
  std::vector<Isa> found;
  for (const Isa isa : kIsas) {
    if (isa_available(isa)) {
      found.push_back(isa);
    }
  }
  return found;
}

std::string name_of(Isa isa) { return "instruction set " + std::to_string(static_cast<int>(isa)); }

template <class T>
using Fold = std::function<T(T, T)>;

template <class T>
T any_value(Random& random) {
  const std::uint64_t bits = random.next();
  if constexpr (std::is_integral_v<T>) {
    // Zeros and equal values too.
    return bits % 5 == 0 ? T{0} : static_cast<T>(bits >> 8 >> (bits % 56));
  } else {
    return static_cast<T>(static_cast<int>(bits % 1999) - 999) / static_cast<T>(7);
  }
}

/// `fold` from the left over 1 to 9 inputs, of every length around the vectors' and blocks' ends.
template <class T>
void check(DataType type, ReduceOp op, const Fold<T>& fold) {
  constexpr int kInputs = 9;
  constexpr std::size_t kOffset = 1;  // No alignment to count on.
  for (const Isa isa : available()) {
    SCOPED_TRACE(name_of(isa) + " " + select::to_string(type) + " " + select::to_string(op));
    const ReduceFunction reduce = reduce_function(isa, type, op);
    ASSERT_NE(reduce, nullptr);
    Random random(7);
    for (const std::size_t count : {1,  2,   3,   7,   8,   15,   16,   17,   31,   33,  64,
                                    65, 127, 255, 511, 513, 1023, 1025, 4095, 4097, 9000}) {
      std::vector<std::vector<T>> inputs(kInputs);
      std::vector<std::vector<unsigned char>> bytes(kInputs);
      std::vector<const void*> pointers;
      for (std::size_t r = 0; r < kInputs; ++r) {
        for (std::size_t i = 0; i < count; ++i) {
          inputs[r].push_back(any_value<T>(random));
        }
        bytes[r].resize(count * sizeof(T) + kOffset);
        std::memcpy(bytes[r].data() + kOffset, inputs[r].data(), count * sizeof(T));
        pointers.push_back(bytes[r].data() + kOffset);
      }
      for (const int used : {1, 2, 3, kInputs}) {
        std::vector<unsigned char> out(count * sizeof(T) + 2 * kOffset, 0x5a);
        reduce(out.data() + kOffset, pointers.data(), used, count);
        for (std::size_t i = 0; i < count; ++i) {
          T expected = inputs[0][i];
          for (int r = 1; r < used; ++r) {
            expected = fold(expected, inputs[static_cast<std::size_t>(r)][i]);
          }
          ASSERT_EQ(std::memcmp(out.data() + kOffset + i * sizeof(T), &expected, sizeof(T)), 0)
              << "element " << i << " of " << count << ", " << used << " inputs";
        }
        ASSERT_EQ(out.front(), 0x5a);
        ASSERT_EQ(out.back(), 0x5a);
      }
    }
  }
}

template <class T>
void check_integer(DataType type) {
  using W = std::uint64_t;
  const auto wide = [](T value) { return static_cast<W>(value); };
  check<T>(type, ReduceOp::kSum, [=](T a, T b) { return static_cast<T>(wide(a) + wide(b)); });
  check<T>(type, ReduceOp::kProd, [=](T a, T b) { return static_cast<T>(wide(a) * wide(b)); });
  check<T>(type, ReduceOp::kMin, [](T a, T b) { return std::min(a, b); });
  check<T>(type, ReduceOp::kMax, [](T a, T b) { return std::max(a, b); });
  check<T>(type, ReduceOp::kLand, [](T a, T b) { return static_cast<T>(a && b); });
  check<T>(type, ReduceOp::kLor, [](T a, T b) { return static_cast<T>(a || b); });
  check<T>(type, ReduceOp::kLxor, [](T a, T b) { return static_cast<T>(!a != !b); });
  check<T>(type, ReduceOp::kBand, [](T a, T b) { return static_cast<T>(a & b); });
  check<T>(type, ReduceOp::kBor, [](T a, T b) { return static_cast<T>(a | b); });
  check<T>(type, ReduceOp::kBxor, [](T a, T b) { return static_cast<T>(a ^ b); });
}

template <class T>
void check_real(DataType type) {
  check<T>(type, ReduceOp::kSum, [](T a, T b) { return a + b; });
  check<T>(type, ReduceOp::kProd, [](T a, T b) { return a * b; });
  check<T>(type, ReduceOp::kMin, [](T a, T b) { return std::min(a, b); });
  check<T>(type, ReduceOp::kMax, [](T a, T b) { return std::max(a, b); });
}

TEST(HostReduce, reduce_function__integers) {
  check_integer<std::int8_t>(DataType::kInt8);
  check_integer<std::uint8_t>(DataType::kUint8);
  check_integer<std::int16_t>(DataType::kInt16);
  check_integer<std::uint16_t>(DataType::kUint16);
  check_integer<std::int32_t>(DataType::kInt32);
  check_integer<std::uint32_t>(DataType::kUint32);
  check_integer<std::int64_t>(DataType::kInt64);
  check_integer<std::uint64_t>(DataType::kUint64);
}

TEST(HostReduce, reduce_function__bytes) {
  using T = std::uint8_t;
  check<T>(DataType::kByte, ReduceOp::kBand, [](T a, T b) { return static_cast<T>(a & b); });
  check<T>(DataType::kByte, ReduceOp::kBor, [](T a, T b) { return static_cast<T>(a | b); });
  check<T>(DataType::kByte, ReduceOp::kBxor, [](T a, T b) { return static_cast<T>(a ^ b); });
}

TEST(HostReduce, reduce_function__floating_point) {
  check_real<float>(DataType::kFloat32);
  check_real<double>(DataType::kFloat64);
}

template <class T>
struct Parts {
  T real;
  T imaginary;
};

template <class T>
void check_complex(DataType type) {
  for (const Isa isa : available()) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd}) {
      SCOPED_TRACE(name_of(isa) + " " + select::to_string(type) + " " + select::to_string(op));
      Random random(11);
      constexpr std::size_t kCount = 1029;
      std::vector<std::vector<Parts<T>>> inputs(3, std::vector<Parts<T>>(kCount));
      std::vector<const void*> pointers;
      for (auto& input : inputs) {
        for (Parts<T>& value : input) {
          value = {any_value<T>(random), any_value<T>(random)};
        }
        pointers.push_back(input.data());
      }
      std::vector<Parts<T>> out(kCount);
      reduce_function(isa, type, op)(out.data(), pointers.data(), 3, kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        Parts<T> expected = inputs[0][i];
        for (std::size_t r = 1; r < 3; ++r) {
          const Parts<T> a = expected;
          const Parts<T> b = inputs[r][i];
          // Each product rounds by itself.
          const volatile T products[] = {a.real * b.real, a.imaginary * b.imaginary,
                                         a.real * b.imaginary, a.imaginary * b.real};
          expected = op == ReduceOp::kSum
                         ? Parts<T>{a.real + b.real, a.imaginary + b.imaginary}
                         : Parts<T>{products[0] - products[1], products[2] + products[3]};
        }
        ASSERT_EQ(std::memcmp(&out[i], &expected, sizeof(expected)), 0) << i;
      }
    }
  }
}

TEST(HostReduce, reduce_function__complex_numbers_without_fused_products) {
  check_complex<float>(DataType::kComplex64);
  check_complex<double>(DataType::kComplex128);
}

/// A 16-bit format by its definition.
double value_of(std::uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  return exponent == 0
             ? sign * std::ldexp(fraction, 1 - bias - fraction_bits)
             : sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

/// Of the 65536 numbers the nearest to `value`, the even one of two.
std::uint16_t nearest(float value, int fraction_bits) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto infinity = static_cast<std::uint16_t>(0x7fff >> fraction_bits << fraction_bits);
  std::uint16_t low = 0;
  std::uint16_t high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (value_of(middle, fraction_bits) <= magnitude ? low : high) = middle;
  }
  // Infinity rounds as the number that would follow the largest.
  const double below = value_of(low, fraction_bits);
  const double above =
      high == infinity
          ? below + (below - value_of(static_cast<std::uint16_t>(low - 1), fraction_bits))
          : value_of(high, fraction_bits);
  const double to_low = magnitude - below;
  const double to_high = above - magnitude;
  const bool up = std::isinf(value) || to_high < to_low || (to_high == to_low && low % 2 != 0);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

class Half : public ::testing::TestWithParam<std::pair<DataType, int>> {
 protected:
  DataType type() const { return GetParam().first; }
  int fraction_bits() const { return GetParam().second; }

  static std::vector<std::uint16_t> reduced(Isa isa, DataType type, ReduceOp op,
                                            const std::vector<std::vector<std::uint16_t>>& inputs) {
    std::vector<const void*> pointers;
    for (const auto& input : inputs) {
      pointers.push_back(input.data());
    }
    std::vector<std::uint16_t> out(inputs.front().size());
    reduce_function(isa, type, op)(out.data(), pointers.data(), static_cast<int>(inputs.size()),
                                   out.size());
    return out;
  }
};

TEST_P(Half, reduce_function__every_number_passes_unchanged_and_nan_stays_nan) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::uint16_t>(i);
  }
  const auto baseline = reduced(Isa::kBaseline, type(), ReduceOp::kMax, {all, all});
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(value_of(all[i], fraction_bits()))) {
      EXPECT_TRUE(std::isnan(value_of(baseline[i], fraction_bits()))) << i;
    } else {
      EXPECT_EQ(baseline[i], all[i]) << i;
    }
  }
  for (const Isa isa : available()) {
    EXPECT_EQ(reduced(isa, type(), ReduceOp::kMax, {all, all}), baseline) << name_of(isa);
  }
}

TEST_P(Half, reduce_function__combines_in_float32_and_rounds_once) {
  Random random(3);
  constexpr std::size_t kCount = 70001;
  std::vector<std::vector<std::uint16_t>> inputs(5);
  for (auto& input : inputs) {
    for (std::size_t i = 0; i < kCount; ++i) {
      // Any finite number; sums of near ones are the interesting ones.
      auto bits = static_cast<std::uint16_t>(random.next());
      if (!std::isfinite(value_of(bits, fraction_bits()))) {
        bits = static_cast<std::uint16_t>(i);
        bits = static_cast<std::uint16_t>(bits & 0x8fffU);
      }
      input.push_back(bits);
    }
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd}) {
    for (const Isa isa : available()) {
      SCOPED_TRACE(name_of(isa));
      const auto out = reduced(isa, type(), op, inputs);
      for (std::size_t i = 0; i < kCount; ++i) {
        auto sum = static_cast<float>(value_of(inputs[0][i], fraction_bits()));
        for (std::size_t r = 1; r < inputs.size(); ++r) {
          const auto next = static_cast<float>(value_of(inputs[r][i], fraction_bits()));
          sum = op == ReduceOp::kSum ? sum + next : sum * next;
        }
        if (std::isnan(sum)) {
          ASSERT_TRUE(std::isnan(value_of(out[i], fraction_bits())));
        } else {
          ASSERT_EQ(out[i], nearest(sum, fraction_bits())) << i << ": " << sum;
        }
      }
    }
  }
}

TEST_P(Half, divide__rounds_once) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::uint16_t>(i);
  }
  auto divided = all;
  divide(divided.data(), divided.size(), type(), 3);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto value = static_cast<float>(value_of(all[i], fraction_bits()));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(value_of(divided[i], fraction_bits()))) << i;
    } else {
      ASSERT_EQ(divided[i], nearest(value / 3, fraction_bits())) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Half,
                         ::testing::Values(std::pair(DataType::kFloat16, 10),
                                           std::pair(DataType::kBfloat16, 7)));

template <class T>
void check_division(DataType type, std::uint64_t count) {
  std::vector<T> values = {T(1), T(-10), T(0.5), T(7)};
  std::vector<T> expected;
  for (const T value : values) {
    expected.push_back(value / T(7));
  }
  divide(values.data(), count, type, 7);
  EXPECT_EQ(values, expected);
}

TEST(HostReduce, divide__each_part_of_a_number) {
  check_division<float>(DataType::kFloat32, 4);
  check_division<double>(DataType::kFloat64, 4);
  check_division<float>(DataType::kComplex64, 2);
  check_division<double>(DataType::kComplex128, 2);
}

TEST(HostReduce, reduce_function__minimum_and_maximum_with_a_nan_are_nan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : available()) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<float> left(100, 1);
      std::vector<float> right(100, 2);
      left[3] = right[50] = left[99] = right[99] = nan;
      const void* inputs[] = {left.data(), right.data()};
      std::vector<float> out(100);
      reduce_function(isa, DataType::kFloat32, op)(out.data(), inputs, 2, 100);
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (i == 3 || i == 50 || i == 99) {
          EXPECT_TRUE(std::isnan(out[i])) << name_of(isa) << " " << i;
        } else {
          EXPECT_EQ(out[i], op == ReduceOp::kMin ? 1 : 2) << name_of(isa) << " " << i;
        }
      }
    }
  }
}

/// A C compiler's layout of a pair, all bytes set.
template <class V, class I>
struct ValueAndIndex {
  V value;
  I index;
};

template <class V, class I>
void check_pair(DataType type) {
  using P = ValueAndIndex<V, I>;
  ASSERT_EQ(sizeof(P), select::size_of(type));
  Random random(17);
  constexpr std::size_t kCount = 515;
  std::vector<std::vector<P>> inputs(5, std::vector<P>(kCount));
  std::vector<const void*> pointers;
  for (auto& input : inputs) {
    for (P& pair : input) {
      const std::uint64_t bits[] = {random.next(), random.next()};
      std::memcpy(&pair, bits, sizeof(pair));
      pair.value = static_cast<V>(random.below(3));
      pair.index = static_cast<I>(random.below(4));
    }
    pointers.push_back(input.data());
  }
  for (const ReduceOp op : {ReduceOp::kMinloc, ReduceOp::kMaxloc}) {
    for (const Isa isa : available()) {
      SCOPED_TRACE(name_of(isa) + " " + select::to_string(type));
      std::vector<P> out(kCount);
      reduce_function(isa, type, op)(out.data(), pointers.data(), 5, kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        std::size_t best = 0;
        for (std::size_t r = 1; r < inputs.size(); ++r) {
          const P& a = inputs[best][i];
          const P& b = inputs[r][i];
          const bool better = op == ReduceOp::kMinloc ? b.value < a.value : b.value > a.value;
          best = better || (b.value == a.value && b.index < a.index) ? r : best;
        }
        // With what lies between and behind.
        ASSERT_EQ(std::memcmp(&out[i], &inputs[best][i], sizeof(P)), 0) << i;
      }
    }
  }
}

TEST(HostReduce, reduce_function__pairs_keep_the_lowest_index_and_their_padding) {
  check_pair<std::int16_t, std::int32_t>(DataType::kInt16Int);
  check_pair<std::int32_t, std::int32_t>(DataType::kInt32Int);
  check_pair<std::int64_t, std::int32_t>(DataType::kInt64Int);
  check_pair<float, std::int32_t>(DataType::kFloat32Int);
  check_pair<double, std::int32_t>(DataType::kFloat64Int);
  check_pair<float, float>(DataType::kFloat32Pair);
  check_pair<double, double>(DataType::kFloat64Pair);
}

TEST(HostReduce, reduce_function__logicals_of_one_and_four_bytes) {
  const auto check_logical = [](DataType type, auto zero) {
    using T = decltype(zero);
    check<T>(type, ReduceOp::kLand, [](T a, T b) { return static_cast<T>(a && b); });
    check<T>(type, ReduceOp::kLor, [](T a, T b) { return static_cast<T>(a || b); });
    check<T>(type, ReduceOp::kLxor, [](T a, T b) { return static_cast<T>(!a != !b); });
  };
  check_logical(DataType::kBool, std::uint8_t{});
  check_logical(DataType::kLogical32, std::uint32_t{});
}

TEST(HostReduce, reduce_function__may_write_over_an_input) {
  for (const Isa isa : available()) {
    for (const int inputs : {2, 3, 5}) {
      for (int same = 0; same < inputs; ++same) {
        constexpr std::size_t kCount = 3001;
        std::vector<std::vector<float>> values(static_cast<std::size_t>(inputs));
        std::vector<const void*> pointers;
        std::vector<float> expected(kCount);
        for (std::size_t r = 0; r < values.size(); ++r) {
          for (std::size_t i = 0; i < kCount; ++i) {
            values[r].push_back(static_cast<float>(r * 100000 + i));
            expected[i] += values[r][i];
          }
          pointers.push_back(values[r].data());
        }
        auto& target = values[static_cast<std::size_t>(same)];
        reduce_function(isa, DataType::kFloat32, ReduceOp::kSum)(target.data(), pointers.data(),
                                                                 inputs, kCount);
        EXPECT_EQ(target, expected) << name_of(isa) << " input " << same << " of " << inputs;
      }
    }
  }
}

TEST(HostReduce, reduce_function__may_write_below_an_input_of_the_same_buffer) {
  for (const Isa isa : available()) {
    for (const int inputs : {1, 2, 4}) {
      for (const std::size_t shift : {1, 3, 16, 100, 2000}) {
        constexpr std::size_t kCount = 5003;
        std::vector<std::int32_t> buffer(kCount + shift);
        std::vector<std::int32_t> other(kCount);
        std::vector<std::int32_t> expected(kCount);
        for (std::size_t i = 0; i < buffer.size(); ++i) {
          buffer[i] = static_cast<std::int32_t>(i * 7);
        }
        for (std::size_t i = 0; i < kCount; ++i) {
          other[i] = static_cast<std::int32_t>(i);
          expected[i] = buffer[i + shift] + (inputs - 1) * other[i];
        }
        std::vector<const void*> pointers(static_cast<std::size_t>(inputs), other.data());
        pointers.back() = buffer.data() + shift;
        reduce_function(isa, DataType::kInt32, ReduceOp::kSum)(buffer.data(), pointers.data(),
                                                               inputs, kCount);
        buffer.resize(kCount);
        EXPECT_EQ(buffer, expected) << name_of(isa) << " " << inputs << " inputs, shift " << shift;
      }
    }
  }
}

TEST(HostReduce, reduce_function__offers_what_mpi_defines_and_nothing_else) {
  for (int type = 0; type < select::kDataTypeCount; ++type) {
    for (int op = 0; op < select::kReduceOpCount; ++op) {
      for (const Isa isa : available()) {
        const auto t = static_cast<DataType>(type);
        const auto o = static_cast<ReduceOp>(op);
        EXPECT_EQ(reduce_function(isa, t, o) != nullptr, select::is_defined(o, t))
            << name_of(isa) << " " << select::to_string(t) << " " << select::to_string(o);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::runners
