// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How the ranks' shared memory is divided. Each rank has an area of its own, which it alone writes:
// counters on cache lines of their own, then slots with data. Others only read it. All counters
// start at 0, never go back and are never reset.
//
//   failed                        not 0: the rank gave up; whoever waits for it gives up too
//   brief_done                    brief collectives the rank has left: it will not read them again
//   staged, reduced               rounds of reductions: own input written; inputs of all ranks read
//   spread, spread_taken[w]       pieces for everybody: written; read from writer w
//   posted[r], taken[w]           pieces for reader r alone: written; read from writer w
//   brief slots                   a sequence number with the data on it or on the lines behind it
//   staging, result               rings of reductions: a round's inputs; the own shard's result
//   spread, pairs                 rings of pieces: for everybody; one for each reader
//
// Positions in rings are bytes since the communicator's beginning. A ring is written from end to
// end and not only as far as a call needs: a line that was used recently is in the caches of those
// who read it, and writing it again is slower than writing one that all have let go.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.hpp"
#include "runners/direct/shared_segment.hpp"

namespace tutti::runners {

/// A counter in shared memory: one rank writes, others read.
class HostCounter {
 public:
  explicit HostCounter(std::byte* place) : place_(reinterpret_cast<std::uint64_t*>(place)) {}
  /// What the writer did before is seen by who reads this value.
  void publish(std::uint64_t value) const {
    std::atomic_ref(*place_).store(value, std::memory_order_release);
  }
  std::uint64_t read() const { return std::atomic_ref(*place_).load(std::memory_order_acquire); }

 private:
  std::uint64_t* place_;
};

struct HostLayout {
  /// Two cache lines: x86 fetches them in pairs.
  static constexpr Bytes kLineBytes = 128;
  static constexpr std::uint64_t kBriefSlots = 8;
  /// Largest contribution of one rank to a brief collective.
  static constexpr Bytes kBriefBytes = 4096;
  /// With a contribution of at most this many bytes it shares the sequence number's cache line.
  static constexpr Bytes kInlineBytes = 56;
  /// A ring holds at least so many of the largest rounds or pieces. Reductions need four: one being
  /// staged, one reduced, one collected, and what is lost at the ring's end.
  static constexpr Bytes kPartsPerRing = 16;
  /// Parts of rings begin on cache lines.
  static constexpr Bytes kRingUnit = 64 * kPartsPerRing;

  int ranks = 1;
  Bytes ring_bytes =
      0;  ///< Of each ring but the pairs', all of which are as long; a multiple of kRingUnit.

  /// Where the next `bytes` go: parts do not wrap around. The same for all who know the parts.
  static constexpr Bytes next_start(Bytes position, Bytes bytes, Bytes ring) {
    const Bytes offset = position % ring;
    return offset + bytes > ring ? position + (ring - offset) : position;
  }
  static constexpr Bytes round_up(Bytes bytes, Bytes unit) {
    return (bytes + unit - 1) / unit * unit;
  }
  Bytes part_bytes_max() const { return ring_bytes / kPartsPerRing; }
  Bytes pair_ring_bytes() const {
    const Bytes share = ring_bytes / static_cast<Bytes>(ranks > 1 ? ranks - 1 : 1);
    return share / kRingUnit * kRingUnit;
  }
  Bytes pair_part_bytes_max() const { return pair_ring_bytes() / kPartsPerRing; }

  enum Counters : int { kFailed, kBriefDone, kStaged, kReduced, kSpread, kSingleCounters };
  Bytes counters_bytes() const {
    return (kSingleCounters + 3 * static_cast<Bytes>(ranks)) * kLineBytes;
  }
  /// Contributions up to this size have slots of their own, close together: measured faster than in
  /// slots a page apart.
  static constexpr Bytes kShortBytes = 1024;
  /// Not powers of two: slots of equal place would fight for the same ways of a cache.
  static constexpr Bytes kShortSlotBytes = 64 + kShortBytes + 64;
  static constexpr Bytes kBriefSlotBytes = 64 + kBriefBytes + 64;
  Bytes brief_at() const { return counters_bytes(); }
  Bytes staging_at() const {
    return brief_at() + kBriefSlots * (kShortSlotBytes + kBriefSlotBytes);
  }
  Bytes result_at() const { return staging_at() + ring_bytes; }
  Bytes spread_at() const { return result_at() + ring_bytes / static_cast<Bytes>(ranks) + 64; }
  Bytes pairs_at() const { return spread_at() + ring_bytes; }
  Bytes area_bytes() const {
    return round_up(pairs_at() + static_cast<Bytes>(ranks) * pair_ring_bytes(), 4096);
  }
  Bytes area_at(int rank) const {
    return round_up(SharedSegment::kHeadBytes, 4096) + static_cast<Bytes>(rank) * area_bytes();
  }
  Bytes segment_bytes() const { return area_at(ranks); }
};

/// One rank's area.
class HostArea {
 public:
  HostArea(const HostLayout& layout, std::byte* base) : layout_(&layout), base_(base) {}

  HostCounter failed() const { return counter(HostLayout::kFailed); }
  HostCounter brief_done() const { return counter(HostLayout::kBriefDone); }
  HostCounter staged() const { return counter(HostLayout::kStaged); }
  HostCounter reduced() const { return counter(HostLayout::kReduced); }
  HostCounter spread() const { return counter(HostLayout::kSpread); }
  HostCounter spread_taken(int writer) const { return peer_counter(0, writer); }
  HostCounter posted(int reader) const { return peer_counter(1, reader); }
  HostCounter taken(int writer) const { return peer_counter(2, writer); }

  HostCounter brief_sequence(std::uint64_t brief, Bytes bytes) const {
    return HostCounter(brief_slot(brief, bytes));
  }
  std::byte* brief_data(std::uint64_t brief, Bytes bytes) const {
    return brief_slot(brief, bytes) + (bytes <= HostLayout::kInlineBytes ? 8 : 64);
  }
  std::byte* staging(Bytes position) const {
    return base_ + layout_->staging_at() + position % layout_->ring_bytes;
  }
  /// Of a round that is staged at `position`.
  std::byte* result(Bytes position) const {
    const Bytes share = position % layout_->ring_bytes / static_cast<Bytes>(layout_->ranks);
    return base_ + layout_->result_at() + share / 64 * 64;
  }
  std::byte* spread_piece(Bytes position) const {
    return base_ + layout_->spread_at() + position % layout_->ring_bytes;
  }
  std::byte* piece_for(int reader, Bytes position) const {
    const Bytes ring = layout_->pair_ring_bytes();
    return base_ + layout_->pairs_at() + static_cast<Bytes>(reader) * ring + position % ring;
  }

 private:
  HostCounter counter(int index) const {
    return HostCounter(base_ + static_cast<Bytes>(index) * HostLayout::kLineBytes);
  }
  HostCounter peer_counter(int kind, int peer) const {
    return counter(HostLayout::kSingleCounters + kind * layout_->ranks + peer);
  }
  std::byte* brief_slot(std::uint64_t brief, Bytes bytes) const {
    const std::uint64_t slot = brief % HostLayout::kBriefSlots;
    const Bytes offset = bytes <= HostLayout::kShortBytes
                             ? slot * HostLayout::kShortSlotBytes
                             : HostLayout::kBriefSlots * HostLayout::kShortSlotBytes +
                                   slot * HostLayout::kBriefSlotBytes;
    return base_ + layout_->brief_at() + offset;
  }

  const HostLayout* layout_;
  std::byte* base_;
};

}  // namespace tutti::runners
