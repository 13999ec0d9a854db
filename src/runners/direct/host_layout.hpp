// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How the ranks' shared memory is divided. Each rank has an area of its own, which it alone writes:
// counters on cache lines of their own, then slots with data. Others only read it. All counters
// start at 0, never go back and are never reset.
//
//   failed               not 0: the rank gave up; whoever waits for it gives up too
//   brief_done           brief collectives the rank has left: what it will not read again
//   staged, reduced      rounds of reductions: input put into the staging slot; inputs of all read
//   spread, spread_taken[w]       pieces for everybody: posted; read from writer w
//   posted[r], taken[w]           pieces for reader r alone: posted; read from writer w
//   brief slots          a sequence number with the data on the lines behind it
//   staging, result      slots of reductions: a round's inputs for others; the own shard's result
//   spread, pair slots   pieces; those for one reader are smaller, so that all readers have some
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
  /// Rounds of a reduction whose slots are in use: one being staged, one reduced, one collected.
  static constexpr std::uint64_t kRoundSlots = 3;
  static constexpr std::uint64_t kPieceSlots = 4;

  int ranks = 1;
  Bytes slot_bytes = 0;  ///< Staging, result and spread slots; a multiple of 64.

  static constexpr Bytes round_up(Bytes bytes, Bytes unit) {
    return (bytes + unit - 1) / unit * unit;
  }
  Bytes pair_slot_bytes() const {
    const Bytes share = slot_bytes / static_cast<Bytes>(ranks > 1 ? ranks - 1 : 1);
    return share < 64 ? 64 : share / 64 * 64;
  }

  enum Counters : int { kFailed, kBriefDone, kStaged, kReduced, kSpread, kSingleCounters };
  Bytes counters_bytes() const {
    return (kSingleCounters + 3 * static_cast<Bytes>(ranks)) * kLineBytes;
  }
  /// Not a power of two: slots of equal place would fight for the same ways of a cache.
  static constexpr Bytes kBriefSlotBytes = 64 + kBriefBytes + 64;
  Bytes brief_at() const { return counters_bytes(); }
  Bytes staging_at() const { return brief_at() + kBriefSlots * kBriefSlotBytes; }
  Bytes result_at() const { return staging_at() + kRoundSlots * slot_bytes; }
  Bytes spread_at() const { return result_at() + kRoundSlots * slot_bytes; }
  Bytes pairs_at() const { return spread_at() + kPieceSlots * slot_bytes; }
  Bytes area_bytes() const {
    const Bytes pairs = static_cast<Bytes>(ranks) * kPieceSlots * pair_slot_bytes();
    return round_up(pairs_at() + pairs, 4096);
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

  HostCounter brief_sequence(std::uint64_t brief) const { return HostCounter(brief_slot(brief)); }
  std::byte* brief_data(std::uint64_t brief, Bytes bytes) const {
    return brief_slot(brief) + (bytes <= HostLayout::kInlineBytes ? 8 : 64);
  }
  std::byte* staging(std::uint64_t round) const {
    return base_ + layout_->staging_at() + round % HostLayout::kRoundSlots * layout_->slot_bytes;
  }
  std::byte* result(std::uint64_t round) const {
    return base_ + layout_->result_at() + round % HostLayout::kRoundSlots * layout_->slot_bytes;
  }
  std::byte* spread_piece(std::uint64_t piece) const {
    return base_ + layout_->spread_at() + piece % HostLayout::kPieceSlots * layout_->slot_bytes;
  }
  std::byte* piece_for(int reader, std::uint64_t piece) const {
    const std::uint64_t slot = static_cast<std::uint64_t>(reader) * HostLayout::kPieceSlots +
                               piece % HostLayout::kPieceSlots;
    return base_ + layout_->pairs_at() + slot * layout_->pair_slot_bytes();
  }

 private:
  HostCounter counter(int index) const {
    return HostCounter(base_ + static_cast<Bytes>(index) * HostLayout::kLineBytes);
  }
  HostCounter peer_counter(int kind, int peer) const {
    return counter(HostLayout::kSingleCounters + kind * layout_->ranks + peer);
  }
  std::byte* brief_slot(std::uint64_t brief) const {
    return base_ + layout_->brief_at() +
           brief % HostLayout::kBriefSlots * HostLayout::kBriefSlotBytes;
  }

  const HostLayout* layout_;
  std::byte* base_;
};

}  // namespace tutti::runners
