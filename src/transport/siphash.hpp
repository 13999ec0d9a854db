// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// SipHash with a 64-bit tag (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): a
// keyed tag for short inputs. Not a general hash and not encryption. SipHash-2-4 is what the paper
// proposes; 1-3, with half the rounds, is what languages hash with. Checked against the vectors of
// the paper's appendix A and its reference code, and of CPython. In the core because it is called
// for every packet, on a header that lies in cache, and must not pull a library into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/types.hpp"

namespace tutti::transport {

/// `kRounds` for each word, `kLastRounds` at the end. The input may come in pieces: each but the
/// last a multiple of 8 bytes long.
template <int kRounds, int kLastRounds>
class SipHash {
 public:
  explicit SipHash(const Key& key)
      : v0_(key.low ^ 0x736f6d6570736575ULL),
        v1_(key.high ^ 0x646f72616e646f6dULL),
        v2_(key.low ^ 0x6c7967656e657261ULL),
        v3_(key.high ^ 0x7465646279746573ULL) {}

  void add_word(std::uint64_t word) {
    v3_ ^= word;
    rounds<kRounds>();
    v0_ ^= word;
    bytes_ += 8;
  }

  void add_words(std::span<const std::byte> bytes) {
    const std::byte* const end = bytes.data() + bytes.size() / 8 * 8;
    for (const std::byte* at = bytes.data(); at != end; at += 8) {
      add_word(load(at));
    }
  }

  /// Adds the last piece, of any length, and gives the tag.
  [[gnu::always_inline]] std::uint64_t finish(std::span<const std::byte> bytes = {}) const {
    // A local copy stays in registers: what is read by a pointer to bytes may be any other object.
    SipHash it = *this;
    it.add_words(bytes);
    const std::size_t rest = bytes.size() % 8;
    it.add_word((it.bytes_ + rest) << 56 | tail(bytes, rest));
    it.v2_ ^= 0xff;
    it.template rounds<kLastRounds>();
    return it.v0_ ^ it.v1_ ^ it.v2_ ^ it.v3_;
  }

 private:
  static std::uint64_t load(const std::byte* bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof(word));  // Little-endian hosts only; packet.cpp asserts it.
    return word;
  }

  /// The last `rest` bytes as a word: less than 8, of which a longer piece gives the ones before.
  static std::uint64_t tail(std::span<const std::byte> bytes, std::size_t rest) {
    if (rest == 0) {
      return 0;
    }
    if (bytes.size() >= 8) {
      return load(bytes.data() + bytes.size() - 8) >> (64 - 8 * rest);
    }
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), rest);
    return word;
  }

  static std::uint64_t rotate(std::uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

  template <int kCount>
  void rounds() {
    round();
    if constexpr (kCount > 1) {
      rounds<kCount - 1>();
    }
  }

  void round() {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = rotate(v1_, 13) ^ v0_;
    v3_ = rotate(v3_, 16) ^ v2_;
    v0_ = rotate(v0_, 32);
    v2_ += v1_;
    v0_ += v3_;
    v1_ = rotate(v1_, 17) ^ v2_;
    v3_ = rotate(v3_, 21) ^ v0_;
    v2_ = rotate(v2_, 32);
  }

  std::uint64_t v0_;
  std::uint64_t v1_;
  std::uint64_t v2_;
  std::uint64_t v3_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tutti::transport
