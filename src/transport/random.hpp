// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// SplitMix64 (Steele, Lea, Flood 2014): a seeded generator of 8 bytes of state, for choices among
// paths. Not for keys.
#pragma once

#include <cstdint>

namespace tutti::transport {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  /// From 0 to `count` - 1.
  std::uint32_t below(std::uint32_t count) {
    return static_cast<std::uint32_t>((next() >> 32) * count >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace tutti::transport
