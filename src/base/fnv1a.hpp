// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv). The same on any machine, so ranks can
// compare values. Not for keys, and not against chosen input.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

class Fnv1a {
 public:
  constexpr Fnv1a() = default;
  /// Goes on from what value() returned.
  constexpr explicit Fnv1a(std::uint64_t value) : value_(value) {}

  constexpr void add_bytes(std::string_view bytes) {
    for (const char byte : bytes) {
      add_word(static_cast<unsigned char>(byte));
    }
  }
  /// As eight bytes, the least significant first.
  constexpr void add_number(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      add_word((number >> shift) & 0xff);
    }
  }
  /// One step for all 64 bits: FNV-1a if `word` is a byte. For a larger one it is faster than
  /// add_number() and mixes less: a bit changes no lower bit of the value.
  constexpr void add_word(std::uint64_t word) { value_ = (value_ ^ word) * kPrime; }

  constexpr std::uint64_t value() const { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 0x100000001b3ULL;
  static constexpr std::uint64_t kOffsetBasis = 0xcbf29ce484222325ULL;

  std::uint64_t value_ = kOffsetBasis;
};

}  // namespace tutti
