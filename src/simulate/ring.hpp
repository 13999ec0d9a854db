// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One priority of one link: the sender's queue and the wire behind it in one ring. Positions count
// up for ever (mod 2^32): [head, sent) is on the wire and has arrival times, [sent, tail) waits.
//
// The sender's node owns `sent` and `tail`, the receiver's node `head`. Within a window the
// receiver sees the ring as publish() left it, so the two nodes may be stepped by two threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "simulate/packet.hpp"

namespace tutti::simulate {

class Ring {
 public:
  // Sender's side.
  bool has_queued() const { return sent_ != tail_; }
  std::uint32_t queued() const { return tail_ - sent_; }
  SimPacket& next_to_send() { return slots_[sent_ & mask_]; }
  SimPacket& newest() { return slots_[(tail_ - 1) & mask_]; }
  void mark_sent() { ++sent_; }
  void drop_newest() { --tail_; }
  /// Queued or on the wire. Between windows.
  std::uint32_t in_transit() const { return tail_ - head_; }
  void push(const SimPacket& packet) {
    if (tail_ - head_seen_ == capacity_) [[unlikely]] {
      grow();
    }
    slots_[tail_ & mask_] = packet;
    ++tail_;
  }

  // Receiver's side.
  std::uint32_t head() const { return head_; }
  std::uint32_t published() const { return published_; }
  bool has_arrivals() const { return head_ != published_; }
  const SimPacket& at(std::uint32_t position) const { return read_slots_[position & read_mask_]; }
  void pop() { ++head_; }

  /// Between windows: what was sent becomes visible, what was received becomes free.
  void publish() {
    published_ = sent_;
    head_seen_ = head_;
    read_slots_ = slots_.get();
    read_mask_ = mask_;
    if (retired_) [[unlikely]] {
      retired_.reset();
    }
  }

 private:
  static constexpr std::uint32_t kFirstCapacity = 16;

  void grow() {
    const std::uint32_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ * 2;
    auto slots = std::make_unique_for_overwrite<SimPacket[]>(capacity);
    for (std::uint32_t at = head_seen_; at != tail_; ++at) {
      slots[at & (capacity - 1)] = slots_[at & mask_];
    }
    // The receiver may still be reading the slots of the window's begin.
    if (slots_.get() == read_slots_) {
      retired_ = std::move(slots_);
    }
    slots_ = std::move(slots);
    capacity_ = capacity;
    mask_ = capacity - 1;
  }

  std::unique_ptr<SimPacket[]> slots_;
  std::uint32_t mask_ = 0;
  std::uint32_t capacity_ = 0;
  std::uint32_t sent_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t head_seen_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t published_ = 0;
  std::uint32_t read_mask_ = 0;
  const SimPacket* read_slots_ = nullptr;
  std::unique_ptr<SimPacket[]> retired_;
};

}  // namespace tutti::simulate
