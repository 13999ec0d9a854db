// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Integer square and cube roots, rounded down: the same on every machine.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti::transport {

inline std::uint64_t square_root(std::uint64_t x) {
  if (x < 2) {
    return x;
  }
  // Newton from above falls until it is there.
  std::uint64_t root = 1ULL << ((std::bit_width(x) + 1) / 2);
  while (true) {
    const std::uint64_t next = (root + x / root) / 2;
    if (next >= root) {
      return root;
    }
    root = next;
  }
}

/// For x below 2^96.
inline std::uint64_t cube_root(unsigned __int128 x) {
  std::uint64_t root = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const std::uint64_t candidate = root | 1ULL << bit;
    if (static_cast<unsigned __int128>(candidate) * candidate * candidate <= x) {
      root = candidate;
    }
  }
  return root;
}

}  // namespace tutti::transport
