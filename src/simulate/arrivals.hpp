// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What arrives at one switch within a window, in the order of (time, source). A key is the time
// since the window's begin above the number of the source ring; a ring's own packets come in the
// order of their times, so that a key need not say which packet it stands for.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "simulate/ring.hpp"

namespace tutti::simulate {

class ArrivalMerge {
 public:
  static constexpr int kSourceBits = 16;
  static std::uint32_t source(std::uint64_t key) { return key & ((1U << kSourceBits) - 1); }

  void clear(TimePs start_ps, TimePs end_ps) {
    start_ps_ = start_ps;
    end_ps_ = end_ps;
    keys_.clear();
  }

  void add(std::uint32_t source, const Ring& ring) {
    for (std::uint32_t at = ring.head(); at != ring.published(); ++at) {
      const TimePs time_ps = ring.at(at).time_ps;
      if (time_ps >= end_ps_) {
        break;
      }
      keys_.push_back((time_ps - start_ps_) << kSourceBits | source);
    }
  }

  /// Valid until the next clear().
  std::span<const std::uint64_t> sorted() {
    if (keys_.size() > kFew) {
      spread();
    }
    insertion_sort();
    return keys_;
  }

 private:
  static constexpr std::size_t kFew = 24;
  static constexpr std::size_t kBuckets = 256;

  /// One pass of a counting sort by the high bits of the time; what stays out of order is near.
  void spread() {
    const int bits = static_cast<int>(std::bit_width(end_ps_ - start_ps_ - 1)) + kSourceBits;
    const int shift = std::max(0, bits - std::countr_zero(kBuckets));
    counts_.fill(0);
    for (const std::uint64_t key : keys_) {
      ++counts_[key >> shift];
    }
    std::uint32_t sum = 0;
    for (std::uint32_t& count : counts_) {
      sum += std::exchange(count, sum);
    }
    other_.resize(keys_.size());
    for (const std::uint64_t key : keys_) {
      other_[counts_[key >> shift]++] = key;
    }
    keys_.swap(other_);
  }

  void insertion_sort() {
    for (std::size_t i = 1; i < keys_.size(); ++i) {
      const std::uint64_t key = keys_[i];
      std::size_t at = i;
      for (; at > 0 && keys_[at - 1] > key; --at) {
        keys_[at] = keys_[at - 1];
      }
      keys_[at] = key;
    }
  }

  TimePs start_ps_ = 0;
  TimePs end_ps_ = 0;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint64_t> other_;
  std::array<std::uint32_t, kBuckets> counts_{};
};

}  // namespace tutti::simulate
