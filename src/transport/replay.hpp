// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which packet numbers of one direction have been seen: a window of bits behind the newest, as in
// RFC 4303 section 3.4.3. A packet is taken once; one from before the window counts as seen. Not
// the detection of duplicate chunks: a retransmission is a packet of its own. The window's length:
// connection.cpp (replay_bits_of).
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace tutti::transport {

class ReplayWindow {
 public:
  /// `size`: a power of two, at least 128; the word that the newest number is in is not whole, so
  /// 64 numbers fewer are told apart. `first`: the first number that the peer uses.
  ReplayWindow(std::uint32_t size, std::uint64_t first) : words_(size / 64), next_(first) {}

  /// Reference for expand(): one past the newest number.
  std::uint64_t next() const { return next_; }

  /// True: take() would say so.
  bool is_new(std::uint64_t number) const {
    if (number >= next_) {
      return true;
    }
    return next_ - number <= words_.size() * 64 - 64 &&
           (words_[(number / 64) & (words_.size() - 1)] & 1ULL << (number % 64)) == 0;
  }
  /// True: not seen before, and seen from now on.
  bool take(std::uint64_t number) {
    if (number >= next_) {
      advance(number);
    } else if (next_ - number > words_.size() * 64 - 64) {
      return false;
    }
    std::uint64_t& word = words_[(number / 64) & (words_.size() - 1)];
    const std::uint64_t bit = 1ULL << (number % 64);
    if ((word & bit) != 0) {
      return false;
    }
    word |= bit;
    return true;
  }

 private:
  /// Empties the words between the old newest number and the new one.
  void advance(std::uint64_t number) {
    const std::uint64_t old_word = (next_ + 63) / 64;  // The first that no number has touched.
    const std::uint64_t new_word = number / 64;
    const std::uint64_t count = new_word + 1 > old_word ? new_word + 1 - old_word : 0;
    if (count >= words_.size()) {
      words_.assign(words_.size(), 0);
    } else {
      for (std::uint64_t i = 0; i < count; ++i) {
        words_[(old_word + i) & (words_.size() - 1)] = 0;
      }
    }
    next_ = number + 1;
  }

  std::vector<std::uint64_t> words_;
  std::uint64_t next_;
};

}  // namespace tutti::transport
