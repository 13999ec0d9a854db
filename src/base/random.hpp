// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), in the two forms that are needed: a generator with
// 8 bytes of state, and draws by counter, which are a function of (seed, entity, counter) and of
// nothing else, so that they do not depend on the order in which entities are looked at. Equal on
// any machine. Not for keys.
#pragma once

#include <cstdint>

namespace tutti {

/// What a SplitMix64's state grows by: 2^64 over the golden ratio, odd.
inline constexpr std::uint64_t kGolden64 = 0x9e3779b97f4a7c15ULL;

/// SplitMix64's output function: each bit of the result depends on each bit of `x`.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// 64 random bits.
constexpr std::uint64_t draw(std::uint64_t seed, std::uint64_t entity, std::uint64_t counter) {
  return mix64(mix64(seed + (entity + 1) * kGolden64) + (counter + 1) * kGolden64);
}

/// Maps 32 random bits to 0..bound-1 without a division.
constexpr std::uint32_t below(std::uint32_t bits, std::uint32_t bound) {
  return static_cast<std::uint32_t>((std::uint64_t{bits} * bound) >> 32);
}

class Random {
 public:
  constexpr explicit Random(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() { return mix64(state_ += kGolden64); }

  /// From 0 to `count` - 1.
  constexpr std::uint32_t below(std::uint32_t count) {
    return tutti::below(static_cast<std::uint32_t>(next() >> 32), count);
  }

 private:
  std::uint64_t state_;
};

}  // namespace tutti
