// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Random numbers by counter: a draw is a function of (seed, entity, counter) and of nothing else,
// so that it does not depend on the order in which entities are looked at. The mixing function is
// the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

namespace tutti::simulate {

constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// 64 random bits.
constexpr std::uint64_t draw(std::uint64_t seed, std::uint64_t entity, std::uint64_t counter) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  return mix64(mix64(seed + (entity + 1) * kGolden) + (counter + 1) * kGolden);
}

/// Maps 32 random bits to 0..bound-1 without a division.
constexpr std::uint32_t below(std::uint32_t bits, std::uint32_t bound) {
  return static_cast<std::uint32_t>((std::uint64_t{bits} * bound) >> 32);
}

}  // namespace tutti::simulate
