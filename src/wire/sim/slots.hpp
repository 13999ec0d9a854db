// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What one host has in the network: a place for the header of each of its packets. The host itself
// takes places; a receiver reads them while the host may be taking more, so places never move;
// they are given back between windows.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.hpp"
#include "transport/types.hpp"

namespace tutti::wire::sim {

struct Slot {
  transport::Transmission transmission;
  std::uint16_t arrived = 0;  ///< Fragments, of the packet's own count.
  std::uint16_t died = 0;
  bool ecn = false;      ///< Of any fragment.
  bool trimmed = false;  ///< Any fragment was: told to the receiver already.
};

class Slots {
 public:
  std::uint32_t take() {
    if (free_.empty()) {
      grow();
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void give_back(std::uint32_t index) { free_.push_back(index); }
  Slot& at(std::uint32_t index) {
    // Block b holds the places from kFirst * (2^b - 1) on.
    const std::uint32_t size = std::bit_floor(index / kFirst + 1);
    return blocks_[static_cast<std::uint32_t>(std::countr_zero(size))][index - kFirst * (size - 1)];
  }

 private:
  static constexpr std::uint32_t kFirst = 32;

  void grow() {
    CHECK(used_ < blocks_.size(), "packets in the network");
    const std::uint32_t first = kFirst * ((1U << used_) - 1);
    const std::uint32_t count = kFirst << used_;
    blocks_[used_++] = std::make_unique_for_overwrite<Slot[]>(count);
    for (std::uint32_t i = count; i > 0; --i) {
      free_.push_back(first + i - 1);
    }
  }

  std::array<std::unique_ptr<Slot[]>, 20> blocks_;
  std::uint32_t used_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace tutti::wire::sim
