// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// When each of a fixed number of items (connections) wants to be looked at: a hierarchical timing
// wheel (Varghese and Lauck 1987) of 11 levels with 64 slots each, so that a slot of the lowest
// level is one nanosecond and any time fits. Not a list of timers: an item has one time, the
// earliest of its own table (timers.hpp) or the moment its pacing lets it send. Setting and
// clearing are O(1); the earliest time is exact.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/types.hpp"

namespace tutti::transport {

class TimingWheel {
 public:
  explicit TimingWheel(std::uint32_t items);

  /// kNever clears. A time that has passed is due at once.
  void set(std::uint32_t item, TimeNs time_ns) {
    if (items_[item].time_ns != time_ns) {
      change(item, time_ns);
    }
  }
  TimeNs time_of(std::uint32_t item) const { return items_[item].time_ns; }

  /// The earliest time; kNever.
  TimeNs next() const;

  /// Takes out one item whose time is not after `now`, earliest first; false: none.
  bool pop(TimeNs now, std::uint32_t* item);

 private:
  static constexpr int kBits = 6;
  static constexpr int kSlots = 1 << kBits;
  static constexpr int kLevels = 11;
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct Item {
    TimeNs time_ns = kNever;
    std::uint32_t next = kNone;
    std::uint32_t previous = kNone;  ///< kNone: first of its slot.
    std::uint16_t slot = 0;          ///< level * kSlots + index
  };

  void change(std::uint32_t item, TimeNs time_ns);
  void link(std::uint32_t item);
  void unlink(std::uint32_t item);
  int first_slot() const;

  std::vector<Item> items_;
  std::array<std::uint32_t, kLevels * kSlots> heads_;
  std::array<std::uint64_t, kLevels> occupied_{};
  TimeNs base_ns_ = 0;  ///< All times before it have been popped; positions are relative to it.
  mutable TimeNs next_ns_ = kNever;
  mutable bool next_is_known_ = true;
};

}  // namespace tutti::transport
