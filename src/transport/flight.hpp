// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The sender's account of chunks: each number from the peer's cumulative acknowledgement up to the
// next one is in the air, lost (waiting to be sent again), or acknowledged. In the air it is on two
// lists, both in the order of transmission: one of all, which RACK and the timeout walk, and one of
// its path, which the same-path rule walks. No decision is made here: that is loss.hpp.
//
// The ring of chunks begins small and doubles, in memory that was taken at the start: many
// connections whose windows are small then stay in the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/types.hpp"

namespace tutti::transport {

enum class ChunkState : std::uint8_t { kNone, kInFlight, kLost, kAcknowledged };

/// One line of the cache.
struct alignas(64) Chunk {
  TimeNs sent_ns = 0;       ///< Its latest transmission.
  TimeNs overtaken_ns = 0;  ///< When one sent later was first known to be here; 0: not yet.
  Bytes offset = 0;         ///< In its message.
  std::uint64_t order = 0;  ///< Transmissions of the connection before its latest one.
  std::uint32_t bytes = 0;
  std::uint32_t message = 0;  ///< Index of the send (outgoing.hpp).
  std::uint32_t slot = 0;
  PathId path = 0;
  std::uint16_t next = 0;  ///< Links hold the low bits of numbers (Flight::link).
  std::uint16_t previous = 0;
  std::uint16_t path_next = 0;
  std::uint16_t path_previous = 0;
  std::uint8_t transmissions = 0;  ///< 255: or more.
  std::uint8_t flags = 0;          ///< kFlagEnd, kFlagCancelled, kFlagTruncated
  bool is_light = false;           ///< At most one other was in the air when it was sent.
  bool was_overdue = false;        ///< RACK gave up a transmission of it, by what it has learnt.
  ChunkState state = ChunkState::kNone;
};
static_assert(sizeof(Chunk) == 64);

class Flight {
 public:
  /// `capacity`: a power of two, 64 to kChunksMax.
  Flight(std::uint32_t capacity, std::uint32_t paths, std::uint64_t first_chunk);

  std::uint64_t base() const { return base_; }  ///< All before are acknowledged.
  std::uint64_t next() const { return next_; }
  bool is_full() const { return next_ - base_ >= capacity_; }
  Bytes inflight_bytes() const { return inflight_bytes_; }
  std::uint64_t inflight_chunks() const { return inflight_chunks_; }
  Bytes lost_bytes() const { return lost_bytes_; }
  Bytes path_inflight_bytes(PathId path) const { return paths_[path].bytes; }

  bool holds(std::uint64_t number) const { return number >= base_ && number < next_; }
  Chunk& at(std::uint64_t number) { return ring_[number & mask_]; }
  const Chunk& at(std::uint64_t number) const { return ring_[number & mask_]; }
  bool is_in_flight(std::uint64_t number) const {
    return holds(number) && at(number).state == ChunkState::kInFlight;
  }

  /// A new chunk; it is not in the air before transmit(). Not if is_full().
  std::uint64_t add();
  /// Puts a new or lost chunk into the air, or one in the air to the end of the lists.
  void transmit(TimeNs now, std::uint64_t number, PathId path);
  /// From the air to the queue of the lost.
  void lose(std::uint64_t number);
  /// The chunk's bytes, once; 0 and no change if it is acknowledged already.
  bool acknowledge(std::uint64_t number);
  /// All before `number` have been acknowledged one by one.
  void advance(std::uint64_t number) { base_ = number; }

  static constexpr std::uint64_t kNoChunk = UINT64_MAX;
  std::uint64_t oldest() const { return number_of(head_); }  ///< In the air; kNoChunk.
  std::uint64_t newest() const { return number_of(tail_); }
  std::uint64_t after(std::uint64_t number) const { return number_of(at(number).next); }
  std::uint64_t before(std::uint64_t number) const { return number_of(at(number).previous); }
  std::uint64_t first_lost() const { return number_of(lost_head_); }
  std::uint64_t before_on_path(std::uint64_t number) const {
    return number_of(at(number).path_previous);
  }
  std::uint64_t orders() const { return next_order_; }

  /// Of the 64 chunks from `base64`, which are not acknowledged (only numbers that exist).
  std::uint64_t open_bits(std::uint64_t base64) const;
  /// Bits for the caller's use, cleared by transmit() and acknowledge().
  std::uint64_t& marks(std::uint64_t base64) { return marks_[(base64 / 64) & words_mask_]; }

  /// Aborts if sums and lists disagree.
  void check() const;

 private:
  static constexpr std::uint16_t kNil = 0xffff;
  static constexpr std::uint32_t kRingMin = 64;
  /// Numbers that a link tells apart: more than are ever here at once.
  static constexpr std::uint64_t kLinks = 2 * std::uint64_t{kChunksMax};
  static_assert(kLinks <= kNil);

  struct PathList {
    std::uint16_t head = kNil;
    std::uint16_t tail = kNil;
    Bytes bytes = 0;
  };

  std::uint64_t number_of(std::uint16_t link) const {
    return link == kNil ? kNoChunk : base_ + ((link - base_) & (kLinks - 1));
  }
  static std::uint16_t link(std::uint64_t number) {
    return static_cast<std::uint16_t>(number & (kLinks - 1));
  }
  Chunk& linked(std::uint16_t link) { return ring_[link & mask_]; }
  void grow();
  void leave(std::uint64_t number);
  void unlink_lost(Chunk& chunk);

  std::uint64_t capacity_;
  std::vector<Chunk> ring_;
  std::uint64_t mask_;  ///< ring_.size() - 1
  std::vector<std::uint64_t>
      acknowledged_;  ///< Bit ring, twice the capacity; valid in [base, next).
  std::vector<std::uint64_t> marks_;
  std::uint64_t words_mask_;  ///< Of both.
  std::vector<PathList> paths_;
  std::uint64_t base_;
  std::uint64_t next_;
  std::uint64_t next_order_ = 0;
  std::uint64_t inflight_chunks_ = 0;
  Bytes inflight_bytes_ = 0;
  Bytes lost_bytes_ = 0;
  std::uint16_t head_ = kNil;
  std::uint16_t tail_ = kNil;
  std::uint16_t lost_head_ = kNil;
  std::uint16_t lost_tail_ = kNil;
};

// What each chunk passes, here: calls from few places, which the compiler joins.

inline std::uint64_t Flight::add() {
  if (next_ - base_ == ring_.size()) [[unlikely]] {
    grow();
  }
  const std::uint64_t number = next_++;
  at(number) = Chunk{};
  acknowledged_[(number / 64) & words_mask_] &= ~(1ULL << (number % 64));
  return number;
}

inline void Flight::transmit(TimeNs now, std::uint64_t number, PathId path) {
  Chunk& chunk = at(number);
  if (chunk.state == ChunkState::kLost) {
    unlink_lost(chunk);
  } else if (chunk.state == ChunkState::kInFlight) {
    leave(number);
  }
  const std::uint16_t here = link(number);
  chunk.state = ChunkState::kInFlight;
  chunk.sent_ns = now;
  chunk.overtaken_ns = 0;
  chunk.is_light = inflight_chunks_ < 2;
  chunk.order = next_order_++;
  chunk.path = path;
  chunk.transmissions += chunk.transmissions < 255 ? 1 : 0;
  marks(number) &= ~(1ULL << (number % 64));

  chunk.next = kNil;
  chunk.previous = tail_;
  (tail_ == kNil ? head_ : linked(tail_).next) = here;
  tail_ = here;

  PathList& list = paths_[path];
  chunk.path_next = kNil;
  chunk.path_previous = list.tail;
  (list.tail == kNil ? list.head : linked(list.tail).path_next) = here;
  list.tail = here;

  list.bytes += chunk.bytes;
  inflight_bytes_ += chunk.bytes;
  ++inflight_chunks_;
}

inline void Flight::leave(std::uint64_t number) {
  Chunk& chunk = at(number);
  (chunk.previous == kNil ? head_ : linked(chunk.previous).next) = chunk.next;
  (chunk.next == kNil ? tail_ : linked(chunk.next).previous) = chunk.previous;
  PathList& list = paths_[chunk.path];
  (chunk.path_previous == kNil ? list.head : linked(chunk.path_previous).path_next) =
      chunk.path_next;
  (chunk.path_next == kNil ? list.tail : linked(chunk.path_next).path_previous) =
      chunk.path_previous;
  list.bytes -= chunk.bytes;
  inflight_bytes_ -= chunk.bytes;
  --inflight_chunks_;
}

inline void Flight::unlink_lost(Chunk& chunk) {
  (chunk.previous == kNil ? lost_head_ : linked(chunk.previous).next) = chunk.next;
  (chunk.next == kNil ? lost_tail_ : linked(chunk.next).previous) = chunk.previous;
  lost_bytes_ -= chunk.bytes;
}

inline bool Flight::acknowledge(std::uint64_t number) {
  Chunk& chunk = at(number);
  if (chunk.state == ChunkState::kInFlight) {
    leave(number);
  } else if (chunk.state == ChunkState::kLost) {
    unlink_lost(chunk);
  } else {
    return false;
  }
  chunk.state = ChunkState::kAcknowledged;
  const std::uint64_t bit = 1ULL << (number % 64);
  acknowledged_[(number / 64) & words_mask_] |= bit;
  marks(number) &= ~bit;
  return true;
}

inline std::uint64_t Flight::open_bits(std::uint64_t base64) const {
  std::uint64_t bits = ~acknowledged_[(base64 / 64) & words_mask_];
  if (base64 >= next_ || base64 + 64 <= base_) {
    return 0;
  }
  if (base64 < base_) {
    bits &= ~0ULL << (base_ - base64);
  }
  if (next_ - base64 < 64) {
    bits &= (1ULL << (next_ - base64)) - 1;
  }
  return bits;
}

}  // namespace tutti::transport
