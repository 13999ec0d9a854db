// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/lzma.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace tutti {
namespace {

/// The chance that a bit is 0, of 2048.
struct Probability {
  std::uint16_t value = 1024;
};

class RangeDecoder {
 public:
  explicit RangeDecoder(std::span<const unsigned char> packed) : packed_(packed) {
    next();  // Always 0.
    for (int i = 0; i < 4; ++i) {
      code_ = code_ << 8 | next();
    }
  }

  unsigned bit(Probability& zero) {
    const std::uint32_t bound = (range_ >> 11) * zero.value;
    const bool is_one = code_ >= bound;
    if (is_one) {
      range_ -= bound;
      code_ -= bound;
      zero.value = static_cast<std::uint16_t>(zero.value - (zero.value >> 5));
    } else {
      range_ = bound;
      zero.value = static_cast<std::uint16_t>(zero.value + ((2048 - zero.value) >> 5));
    }
    normalize();
    return is_one ? 1 : 0;
  }

  /// Bits without a model, the highest first.
  unsigned direct(unsigned count) {
    unsigned value = 0;
    for (; count > 0; --count) {
      range_ >>= 1;
      const bool is_one = code_ >= range_;
      code_ -= is_one ? range_ : 0;
      value = value << 1 | (is_one ? 1 : 0);
      normalize();
    }
    return value;
  }

  /// `count` bits, the highest first; each has a model of its own for all bits before it.
  unsigned tree(Probability* models, unsigned count) {
    unsigned value = 1;
    for (unsigned i = 0; i < count; ++i) {
      value = value << 1 | bit(models[value]);
    }
    return value - (1U << count);
  }
  /// The lowest first.
  unsigned reverse_tree(Probability* models, unsigned count) {
    unsigned node = 1;
    unsigned value = 0;
    for (unsigned i = 0; i < count; ++i) {
      const unsigned one = bit(models[node]);
      node = node << 1 | one;
      value |= one << i;
    }
    return value;
  }

  bool is_past_end() const { return position_ > packed_.size(); }

 private:
  unsigned char next() {
    const std::size_t at = position_++;
    return at < packed_.size() ? packed_[at] : 0;
  }
  void normalize() {
    if (range_ < 1U << 24) {
      range_ <<= 8;
      code_ = code_ << 8 | next();
    }
  }

  std::span<const unsigned char> packed_;
  std::size_t position_ = 0;
  std::uint32_t range_ = 0xFFFFFFFF;
  std::uint32_t code_ = 0;
};

// The format's parameters: how many upper bits of the byte before choose a literal's models (lc),
// and low bits of the position a match's (pb). Of the position none choose a literal's (lp).
constexpr unsigned kBefore = 3;
constexpr unsigned kPositions = 1 << 2;

/// Lengths of matches, less the smallest (2).
struct LengthModel {
  Probability beyond_low;
  Probability beyond_middle;
  std::array<std::array<Probability, 8>, kPositions> low;
  std::array<std::array<Probability, 8>, kPositions> middle;
  std::array<Probability, 256> high;

  unsigned decode(RangeDecoder& decoder, unsigned position) {
    if (decoder.bit(beyond_low) == 0) {
      return decoder.tree(low[position].data(), 3);
    }
    if (decoder.bit(beyond_middle) == 0) {
      return 8 + decoder.tree(middle[position].data(), 3);
    }
    return 16 + decoder.tree(high.data(), 8);
  }
};

/// Distances of matches, less 1.
struct DistanceModel {
  static constexpr unsigned kModelled = 14;  ///< Slots from here on have bits without a model.
  std::array<std::array<Probability, 64>, 4> slots;
  std::array<Probability, 1 + 128 - kModelled> middle;
  std::array<Probability, 16> low;

  unsigned decode(RangeDecoder& decoder, unsigned length) {
    const unsigned slot = decoder.tree(slots[std::min(length, 3U)].data(), 6);
    if (slot < 4) {
      return slot;
    }
    const unsigned bits = (slot >> 1) - 1;
    const unsigned base = (2 | (slot & 1)) << bits;
    if (slot < kModelled) {
      return base + decoder.reverse_tree(middle.data() + (base - slot), bits);
    }
    const unsigned upper = decoder.direct(bits - 4) << 4;
    return base + upper + decoder.reverse_tree(low.data(), 4);
  }
};

/// What the last packets were: 0..6 end with a literal.
constexpr unsigned kStates = 12;
constexpr unsigned kAfterLiteral = 7;

class Unpacker {
 public:
  Unpacker(std::span<const unsigned char> packed, std::size_t bytes)
      : decoder_(packed), bytes_(bytes) {
    out_.reserve(bytes);
  }

  bool run() {
    while (out_.size() < bytes_) {
      const unsigned position = static_cast<unsigned>(out_.size()) % kPositions;
      if (decoder_.bit(is_match_[state_][position]) == 0) {
        literal();
      } else if (!match(position)) {
        return false;
      }
      if (decoder_.is_past_end()) {
        return false;
      }
    }
    return true;
  }
  std::vector<unsigned char> take() { return std::move(out_); }

 private:
  void literal() {
    const unsigned before = out_.empty() ? 0 : out_.back();
    Probability* models = literals_[before >> (8 - kBefore)].data();
    unsigned symbol = 1;
    if (state_ >= kAfterLiteral) {  // Not what the last match would have gone on with.
      unsigned other = out_[out_.size() - distances_[0] - 1];
      while (symbol < 0x100) {
        const unsigned expected = (other >> 7) & 1;
        other <<= 1;
        const unsigned one = decoder_.bit(models[((1 + expected) << 8) + symbol]);
        symbol = symbol << 1 | one;
        if (one != expected) {
          break;
        }
      }
    }
    while (symbol < 0x100) {
      symbol = symbol << 1 | decoder_.bit(models[symbol]);
    }
    out_.push_back(static_cast<unsigned char>(symbol));
    state_ = state_ < 4 ? 0 : state_ < 10 ? state_ - 3 : state_ - 6;
  }

  bool match(unsigned position) {
    const bool follows_literal = state_ < kAfterLiteral;
    unsigned length = 0;
    if (decoder_.bit(is_repeat_[state_]) == 0) {
      length = new_length_.decode(decoder_, position);
      std::rotate(distances_.begin(), distances_.end() - 1, distances_.end());
      distances_[0] = distance_.decode(decoder_, length);
      state_ = follows_literal ? 7 : 10;
    } else if (const unsigned which = repeated(position); which == kOneByte) {
      state_ = follows_literal ? 9 : 11;
      return copy(1);
    } else {
      std::rotate(distances_.begin(), distances_.begin() + which, distances_.begin() + which + 1);
      length = repeat_length_.decode(decoder_, position);
      state_ = follows_literal ? 8 : 11;
    }
    return copy(length + 2);
  }

  /// Which of the last four distances, or kOneByte: one byte at the last.
  unsigned repeated(unsigned position) {
    if (decoder_.bit(is_repeat_0_[state_]) == 0) {
      return decoder_.bit(is_long_[state_][position]) == 0 ? kOneByte : 0;
    }
    if (decoder_.bit(is_repeat_1_[state_]) == 0) {
      return 1;
    }
    return decoder_.bit(is_repeat_2_[state_]) == 0 ? 2 : 3;
  }

  bool copy(std::size_t length) {
    const std::size_t distance = std::size_t{distances_[0]} + 1;
    if (distance > out_.size() || length > bytes_ - out_.size()) {
      return false;
    }
    for (std::size_t i = 0; i < length; ++i) {
      out_.push_back(out_[out_.size() - distance]);
    }
    return true;
  }

  static constexpr unsigned kOneByte = 4;
  using PerState = std::array<Probability, kStates>;

  RangeDecoder decoder_;
  std::size_t bytes_;
  std::vector<unsigned char> out_;
  unsigned state_ = 0;
  std::array<unsigned, 4> distances_{};
  std::array<std::array<Probability, kPositions>, kStates> is_match_;
  std::array<std::array<Probability, kPositions>, kStates> is_long_;
  PerState is_repeat_, is_repeat_0_, is_repeat_1_, is_repeat_2_;
  LengthModel new_length_, repeat_length_;
  DistanceModel distance_;
  std::array<std::array<Probability, 0x300>, 1 << kBefore> literals_;
};

}  // namespace

Result<std::vector<unsigned char>> unpack_lzma(std::span<const unsigned char> packed,
                                               std::size_t bytes) {
  Unpacker unpacker(packed, bytes);
  if (!unpacker.run()) {
    return Status(ErrorCode::kInvalidArgument, "LZMA stream is damaged");
  }
  return unpacker.take();
}

}  // namespace tutti
