// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/flight.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace tutti::transport {

Flight::Flight(std::uint32_t capacity, std::uint32_t paths, std::uint64_t first_chunk)
    : capacity_(capacity),
      ring_(std::min(capacity, kRingMin)),
      mask_(ring_.size() - 1),
      acknowledged_(capacity / 64 * 2),
      marks_(capacity / 64 * 2),
      words_mask_(marks_.size() - 1),
      paths_(paths),
      base_(first_chunk),
      next_(first_chunk) {
  ring_.reserve(capacity);
}

void Flight::grow() {
  const std::uint64_t size = ring_.size();
  ring_.resize(2 * size);
  mask_ = 2 * size - 1;
  for (std::uint64_t n = base_; n < next_; ++n) {
    if ((n & size) != 0) {
      at(n) = ring_[n & (size - 1)];
    }
  }
}

void Flight::lose(std::uint64_t number) {
  leave(number);
  Chunk& chunk = at(number);
  chunk.state = ChunkState::kLost;
  marks(number) &= ~(1ULL << (number % 64));
  const std::uint16_t here = link(number);
  chunk.next = kNil;
  chunk.previous = lost_tail_;
  (lost_tail_ == kNil ? lost_head_ : linked(lost_tail_).next) = here;
  lost_tail_ = here;
  lost_bytes_ += chunk.bytes;
}

void Flight::check() const {
  Bytes inflight = 0;
  Bytes lost = 0;
  std::uint64_t chunks = 0;
  std::vector<Bytes> path_bytes(paths_.size());
  for (std::uint64_t n = base_; n < next_; ++n) {
    const Chunk& chunk = at(n);
    if (chunk.state == ChunkState::kInFlight) {
      inflight += chunk.bytes;
      path_bytes[chunk.path] += chunk.bytes;
      ++chunks;
    } else if (chunk.state == ChunkState::kLost) {
      lost += chunk.bytes;
    }
    const bool is_open = (open_bits(n & ~63ULL) >> (n % 64) & 1) != 0;
    CHECK(is_open == (chunk.state != ChunkState::kAcknowledged), std::to_string(n));
  }
  CHECK(inflight == inflight_bytes_, std::to_string(inflight_bytes_));
  CHECK(lost == lost_bytes_, std::to_string(lost_bytes_));
  CHECK(chunks == inflight_chunks_, std::to_string(inflight_chunks_));
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    CHECK(path_bytes[p] == paths_[p].bytes, std::to_string(p));
  }
  std::uint64_t listed = 0;
  for (std::uint64_t n = oldest(); n != kNoChunk; n = after(n)) {
    CHECK(at(n).state == ChunkState::kInFlight, std::to_string(n));
    CHECK(after(n) == kNoChunk || at(after(n)).order > at(n).order, std::to_string(n));
    ++listed;
  }
  CHECK(listed == chunks, std::to_string(listed));
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    Bytes on_path = 0;
    for (std::uint64_t n = number_of(paths_[p].tail); n != kNoChunk; n = before_on_path(n)) {
      CHECK(at(n).state == ChunkState::kInFlight && at(n).path == p, std::to_string(n));
      on_path += at(n).bytes;
    }
    CHECK(on_path == paths_[p].bytes, std::to_string(p));
  }
  for (std::uint64_t n = first_lost(); n != kNoChunk; n = after(n)) {
    CHECK(at(n).state == ChunkState::kLost, std::to_string(n));
    lost -= at(n).bytes;
  }
  CHECK(lost == 0, std::to_string(lost));
}

}  // namespace tutti::transport
