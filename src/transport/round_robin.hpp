// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Who sends next among connections: a queue of indices, each in it once, and deficit round robin
// over it (Shreedhar and Varghese 1995): equal bytes, whatever the chunk sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/types.hpp"

namespace tutti::transport {

/// First in, first out; an index that is in it is not added again.
class IndexQueue {
 public:
  explicit IndexQueue(std::uint32_t count) : next_(count, kAbsent), previous_(count, kAbsent) {}

  bool is_empty() const { return head_ == kEnd; }
  std::uint32_t front() const { return head_; }
  bool holds(std::uint32_t index) const { return next_[index] != kAbsent; }

  void push(std::uint32_t index) {
    if (holds(index)) {
      return;
    }
    next_[index] = kEnd;
    previous_[index] = tail_;
    (tail_ == kEnd ? head_ : next_[tail_]) = index;
    tail_ = index;
  }
  void remove(std::uint32_t index) {
    if (!holds(index)) {
      return;
    }
    (previous_[index] == kEnd ? head_ : next_[previous_[index]]) = next_[index];
    (next_[index] == kEnd ? tail_ : previous_[next_[index]]) = previous_[index];
    next_[index] = kAbsent;
  }
  void pop() { remove(head_); }
  void rotate() {
    if (head_ == tail_) {
      return;
    }
    const std::uint32_t index = head_;
    remove(index);
    push(index);
  }

 private:
  static constexpr std::uint32_t kEnd = 0xffffffff;
  static constexpr std::uint32_t kAbsent = 0xfffffffe;

  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> previous_;
  std::uint32_t head_ = kEnd;
  std::uint32_t tail_ = kEnd;
};

class RoundRobin {
 public:
  static constexpr std::int64_t kQuantumBytes = 64 * 1024;

  explicit RoundRobin(std::uint32_t count) : queue_(count), deficit_bytes_(count) {}

  bool is_empty() const { return queue_.is_empty(); }
  std::uint32_t front() const { return queue_.front(); }

  /// It has data that may leave now.
  void add(std::uint32_t index) {
    if (!queue_.holds(index)) {
      deficit_bytes_[index] = 0;
      queue_.push(index);
    }
  }
  void remove(std::uint32_t index) { queue_.remove(index); }
  void remove_front() { queue_.pop(); }

  /// The front may send a chunk of up to `bytes`; else it has gone to the end with one quantum
  /// more.
  bool may_take(std::uint32_t bytes) {
    std::int64_t& deficit = deficit_bytes_[queue_.front()];
    if (deficit >= bytes) {
      return true;
    }
    deficit += kQuantumBytes;
    queue_.rotate();
    return false;
  }
  void take(std::uint32_t bytes) { deficit_bytes_[queue_.front()] -= bytes; }

 private:
  IndexQueue queue_;
  std::vector<std::int64_t> deficit_bytes_;
};

}  // namespace tutti::transport
