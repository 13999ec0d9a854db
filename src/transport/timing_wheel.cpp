// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/timing_wheel.hpp"

#include <algorithm>
#include <bit>

namespace tutti::transport {

TimingWheel::TimingWheel(std::uint32_t items) : items_(items) { heads_.fill(kNone); }

void TimingWheel::change(std::uint32_t item, TimeNs time_ns) {
  Item& it = items_[item];
  if (it.time_ns != kNever) {
    unlink(item);
    next_is_known_ = next_is_known_ && it.time_ns > next_ns_;
  }
  it.time_ns = time_ns;
  if (time_ns != kNever) {
    link(item);
    if (next_is_known_) {
      next_ns_ = std::min(next_ns_, time_ns);
    }
  }
}

// The level is the highest group of 6 bits in which the time differs from the base: all slots of a
// lower level come before all of a higher one.
void TimingWheel::link(std::uint32_t item) {
  Item& it = items_[item];
  const TimeNs time_ns = std::max(it.time_ns, base_ns_);
  const int level = (63 - std::countl_zero((time_ns ^ base_ns_) | 1)) / kBits;
  const auto index = static_cast<int>(time_ns >> (level * kBits) & (kSlots - 1));
  it.slot = static_cast<std::uint16_t>(level * kSlots + index);
  it.previous = kNone;
  it.next = heads_[it.slot];
  if (it.next != kNone) {
    items_[it.next].previous = item;
  }
  heads_[it.slot] = item;
  occupied_[static_cast<std::size_t>(level)] |= 1ULL << index;
}

void TimingWheel::unlink(std::uint32_t item) {
  Item& it = items_[item];
  if (it.next != kNone) {
    items_[it.next].previous = it.previous;
  }
  if (it.previous != kNone) {
    items_[it.previous].next = it.next;
    return;
  }
  heads_[it.slot] = it.next;
  if (it.next == kNone) {
    occupied_[it.slot / kSlots] &= ~(1ULL << (it.slot % kSlots));
  }
}

int TimingWheel::first_slot() const {
  for (int level = 0; level < kLevels; ++level) {
    const std::uint64_t occupied = occupied_[static_cast<std::size_t>(level)];
    if (occupied != 0) {
      return level * kSlots + std::countr_zero(occupied);
    }
  }
  return -1;
}

TimeNs TimingWheel::next() const {
  if (!next_is_known_) {
    next_ns_ = kNever;
    const int slot = first_slot();
    if (slot >= 0) {
      for (std::uint32_t i = heads_[static_cast<std::size_t>(slot)]; i != kNone;
           i = items_[i].next) {
        next_ns_ = std::min(next_ns_, items_[i].time_ns);
      }
    }
    next_is_known_ = true;
  }
  return next_ns_;
}

bool TimingWheel::pop(TimeNs now, std::uint32_t* item) {
  while (next() <= now && next() != kNever) {
    const int slot = first_slot();
    if (slot < 0) {
      break;
    }
    std::uint32_t first = heads_[static_cast<std::size_t>(slot)];
    if (slot < kSlots) {  // The lowest level: all items of a slot are of one time, or late.
      base_ns_ = std::max(base_ns_, items_[first].time_ns);
      unlink(first);
      items_[first].time_ns = kNever;
      next_is_known_ = false;
      *item = first;
      return true;
    }
    // Spread the slot over the levels below it, seen from its earliest time.
    base_ns_ = std::max(base_ns_, next_ns_);
    occupied_[static_cast<std::size_t>(slot / kSlots)] &= ~(1ULL << (slot % kSlots));
    heads_[static_cast<std::size_t>(slot)] = kNone;
    while (first != kNone) {
      const std::uint32_t following = items_[first].next;
      link(first);
      first = following;
    }
  }
  return false;
}

}  // namespace tutti::transport
