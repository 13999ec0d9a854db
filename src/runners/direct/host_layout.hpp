// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How a rank's shared memory is divided. For each communicator a rank has a block with counters,
// and a set of rings with data; it alone writes them, the other ranks only read. A process has few
// sets of rings, which its communicators share (host_memory.hpp; their size:
// HostMemory::default_options). All counters of a block start at 0, never go back and are never
// reset while the communicator lives.
//
// A block:
//   life, state, failed           see host_runner_peers.cpp; failed: not 0 once it has given up
//   calls_done                    calls that the rank has left: it reads nothing of them again
//   passed_by                     the last one that went another way, told before it is done
//   refused                       the last one that was refused for its arguments
//   turned_away                   the last one that was refused and that the others may not have
//                                 made, or the last before one without a number; 0: there is none
//   in_doubt                      not 0: the rank may still read what was written for calls that it
//                                 has not left, and nobody is to wait for it; a flag
//   rings_lost                    calls up to this one have no data in the rings any more, though
//                                 not all ranks have left them
//   facts_posted, facts_read      rounds of DirectHostRunner::allgather_facts(): own facts written;
//                                 those of all others read
//   staged, reduced               rounds of reductions: own input written, as a position; inputs of
//                                 all ranks read, as a key (HostLayout::round_key)
//   spread, spread_taken[w]       pieces for everybody: written; read from writer w
//   posted[r], taken[w]           pieces for reader r alone: written, with the newest streams; read
//                                 from writer w
//   calls                         what the rank calls, by the call's number; a brief collective's
//                                 data are there, too, if they are few
//   reason                        why the rank cannot take part, as text; where all can, what it
//                                 tells in allgather_facts()
// A set of rings:
//   brief slots                   data of brief collectives
//   staging, result               reductions: a round's inputs; the own shard's result
//   spread, pairs                 pieces: for everybody; one ring for each reader
//
// Each rank numbers its calls on the communicator from 1, those that go another way (MPI's own
// collectives) included. Where the calls of two ranks with one
// number differ (bytes, collective, root, operation), who reads sees it before it takes anything;
// the call fails there, and the next ones go on right, since each stream and reduction begins where
// its writer says.
//
// Positions in rings are bytes since the communicator's beginning. A ring is written from end to
// end and not only as far as a call needs: a line that was used recently is in the caches of those
// who read it, and writing it again is slower than writing one that all have let go.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.hpp"

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
  /// As publish(), and what this thread writes afterwards is not seen before the value is.
  void publish_first(std::uint64_t value) const {
    std::atomic_ref(*place_).exchange(value, std::memory_order_seq_cst);
  }
  /// As read(), and not before what this thread has read so far: it writes what it finds, so the
  /// owner writes such a value by publish_first() alone.
  std::uint64_t read_last() const {
    return std::atomic_ref(*place_).fetch_add(0, std::memory_order_seq_cst);
  }

 private:
  std::uint64_t* place_;
};

/// A call, as far as all ranks know it alike.
struct HostCallHead {
  std::uint64_t bytes = 0;  ///< 0 where only the two ends of a stream know it.
  std::uint8_t collective = 0;
  std::uint8_t type = 0;  ///< Of reductions.
  std::uint8_t op = 0;    ///< Of reductions.
  std::uint8_t unused = 0;
  std::uint16_t root = 0;  ///< Of rooted ones.
  std::uint16_t counts =
      0;  ///< A hash of the counts that all ranks pass; reduce_scatter, allgatherv.
  bool operator==(const HostCallHead&) const = default;
};
static_assert(sizeof(HostCallHead) == 16);

/// What a rank writes into a ring in one call.
struct HostStreamHead {
  Bytes start = 0;  ///< Position of its first byte, before any skip at the ring's end.
  Bytes bytes = 0;
};

struct HostLayout {
  /// Calls that a rank can be ahead of the slowest reader; brief collectives by their size.
  static constexpr std::uint64_t kInlineSlots = 32;
  static constexpr std::uint64_t kShortSlots = 16;
  static constexpr std::uint64_t kBriefSlots = 8;
  /// Largest contribution of one rank to a brief collective.
  static constexpr Bytes kBriefBytes = 4096;
  /// A call's line: number, head, then few data or a stream's head.
  static constexpr Bytes kCallLineBytes = 64;
  static constexpr Bytes kCallDataAt = sizeof(std::uint64_t) + sizeof(HostCallHead);
  /// A contribution of at most this many bytes shares the call's line.
  static constexpr Bytes kInlineBytes = kCallLineBytes - kCallDataAt;
  /// Streams to one reader that it may not have begun to take; they fit the line of `posted`.
  static constexpr int kStreamsAhead = 2;
  /// A ring holds at least so many of the largest rounds or pieces. Reductions need four: one being
  /// staged, one reduced, one collected, and what is lost at the ring's end.
  static constexpr Bytes kPartsPerRing = 16;
  /// Parts of rings begin on cache lines.
  static constexpr Bytes kRingUnit = 64 * kPartsPerRing;
  static constexpr Bytes kReasonBytes = 256;
  /// What a rank tells where communicators are derived from this one
  /// (DirectHostRunner::allgather_facts).
  static constexpr Bytes kFactsBytes = 320;

  int ranks = 1;
  /// Of each ring but the pairs', all of which together are as long; a multiple of kRingUnit.
  Bytes ring_bytes = 0;

  /// Where the next `bytes` go: parts do not wrap around. The same for all who know the parts.
  static constexpr Bytes next_start(Bytes position, Bytes bytes, Bytes ring) {
    const Bytes offset = position % ring;
    return offset + bytes > ring ? position + (ring - offset) : position;
  }
  static constexpr Bytes round_up(Bytes bytes, Bytes unit) {
    return (bytes + unit - 1) / unit * unit;
  }
  /// Where part `index` of equal parts goes, the first of them at or after `position`.
  static constexpr Bytes nth_start(Bytes position, std::uint64_t index, Bytes bytes, Bytes ring) {
    const Bytes offset = position % ring;
    const std::uint64_t in_first_lap = (ring - offset) / bytes;
    if (index < in_first_lap) {
      return position + index * bytes;
    }
    const std::uint64_t in_lap = ring / bytes;
    const std::uint64_t left = index - in_first_lap;
    return position - offset + (1 + left / in_lap) * ring + left % in_lap * bytes;
  }
  /// Orders the rounds of all reductions alike on all ranks; compare by `reaches`.
  static constexpr std::uint64_t round_key(std::uint64_t call, std::uint64_t rounds) {
    return (call << kRoundBits) + rounds;
  }
  static constexpr bool is_of_call(std::uint64_t key, std::uint64_t call) {
    return key - round_key(call, 0) < (std::uint64_t{1} << kRoundBits);
  }
  /// Right also where the keys of calls, which are few bits, begin again.
  static constexpr bool reaches(std::uint64_t key, std::uint64_t at_least) {
    return static_cast<std::int64_t>(key - at_least) >= 0;
  }
  static constexpr int kRoundBits = 28;
  /// The shortest ring with a cache line for each rank in each part.
  static constexpr Bytes ring_bytes_min(int ranks) { return static_cast<Bytes>(ranks) * kRingUnit; }
  Bytes part_bytes_max() const { return ring_bytes / kPartsPerRing; }
  Bytes pair_ring_bytes() const {
    const Bytes share = ring_bytes / static_cast<Bytes>(ranks > 1 ? ranks - 1 : 1);
    return share / kRingUnit * kRingUnit;
  }
  Bytes pair_part_bytes_max() const { return pair_ring_bytes() / kPartsPerRing; }

  // ---- a block ---------------------------------------------------------------------------------

  /// Two cache lines, since x86 fetches them in pairs; one where many ranks have many counters.
  static constexpr int kWideRanksMax = 8;
  Bytes line_bytes() const { return ranks <= kWideRanksMax ? 128 : 64; }
  enum Counters : int { kHead, kCallsDone, kStaged, kReduced, kSpread, kSingleCounters };
  /// Words of the first line.
  enum Head : int { kLife, kState, kFailed, kFactsPosted, kFactsRead };
  Bytes calls_at() const {
    return (kSingleCounters + 3 * static_cast<Bytes>(ranks)) * line_bytes();
  }
  Bytes reason_at() const { return calls_at() + kInlineSlots * kCallLineBytes; }
  /// In the place of reason(), which tells why there is no runner: a rank with facts has one.
  Bytes facts_at() const { return reason_at(); }
  Bytes block_bytes() const { return facts_at() + std::max(kReasonBytes, kFactsBytes); }

  // ---- a set of rings --------------------------------------------------------------------------

  /// Contributions up to this size have slots of their own, close together: measured faster than in
  /// slots a page apart.
  static constexpr Bytes kShortBytes = 1024;
  /// Not powers of two: slots of equal place would fight for the same ways of a cache.
  static constexpr Bytes kShortSlotBytes = kShortBytes + 64;
  static constexpr Bytes kBriefSlotBytes = kBriefBytes + 64;
  static constexpr Bytes kSlotsBytes =
      kShortSlots * kShortSlotBytes + kBriefSlots * kBriefSlotBytes;
  static constexpr std::uint64_t slots(Bytes bytes) {
    return bytes <= kInlineBytes ? kInlineSlots : bytes <= kShortBytes ? kShortSlots : kBriefSlots;
  }
  static constexpr Bytes staging_at() { return kSlotsBytes; }
  Bytes result_at() const { return staging_at() + ring_bytes; }
  Bytes spread_at() const {
    return result_at() + round_up(ring_bytes / static_cast<Bytes>(ranks), 64) + 64;
  }
  Bytes pairs_at() const { return spread_at() + ring_bytes; }
  /// Of a set that serves any number of ranks.
  static constexpr Bytes set_bytes(Bytes ring_bytes) {
    return round_up(kSlotsBytes + 4 * ring_bytes + 128, 4096);
  }
};

/// One rank's block and rings, as it or another rank has mapped them.
class HostArea {
 public:
  HostArea(const HostLayout& layout, int owner, std::byte* block, std::byte* rings)
      : layout_(layout), owner_(owner), block_(block), rings_(rings) {}

  HostCounter life() const { return head(HostLayout::kLife); }
  HostCounter state() const { return head(HostLayout::kState); }
  HostCounter failed() const { return head(HostLayout::kFailed); }
  char* reason() const { return reinterpret_cast<char*>(block_ + layout_.reason_at()); }
  /// Rounds of facts that the rank has written, and of which it has read those of the others.
  HostCounter facts_posted() const { return head(HostLayout::kFactsPosted); }
  HostCounter facts_read() const { return head(HostLayout::kFactsRead); }
  std::byte* facts() const { return block_ + layout_.facts_at(); }
  HostCounter calls_done() const { return counter(HostLayout::kCallsDone); }
  HostCounter passed_by() const {  // Beside calls_done, which is written with it.
    return HostCounter(line(HostLayout::kCallsDone) + sizeof(std::uint64_t));
  }
  HostCounter refused() const {
    return HostCounter(line(HostLayout::kCallsDone) + 2 * sizeof(std::uint64_t));
  }
  /// Not 0: of the rank's calls some were refused, and the others may not have made them. The
  /// number of the last one that has passed then: the rank is in no call.
  static HostCounter turned_away(std::byte* calls_line) {
    return HostCounter(calls_line + 3 * sizeof(std::uint64_t));
  }
  static HostCounter in_doubt(std::byte* calls_line) {
    return HostCounter(calls_line + 4 * sizeof(std::uint64_t));
  }
  HostCounter rings_lost() const {
    return HostCounter(line(HostLayout::kCallsDone) + 5 * sizeof(std::uint64_t));
  }
  /// Where calls_done and passed_by are, for pass_by().
  std::byte* calls_line() const { return line(HostLayout::kCallsDone); }
  static void pass_by(std::byte* calls_line, std::uint64_t call) {
    HostCounter(calls_line + sizeof(std::uint64_t)).publish(call);
    HostCounter(calls_line).publish(call);
  }
  HostCounter staged() const { return counter(HostLayout::kStaged); }
  HostCounter reduced() const { return counter(HostLayout::kReduced); }
  HostCounter spread() const { return counter(HostLayout::kSpread); }
  HostCounter spread_taken(int writer) const { return peer_counter(0, writer); }
  HostCounter posted(int reader) const { return HostCounter(peer_line(1, reader)); }
  HostCounter taken(int writer) const { return peer_counter(2, writer); }

  /// One of the newest streams to a reader.
  struct Stream {
    HostCounter call;  ///< Of this number, published after the head is written.
    HostStreamHead* head;
  };
  Stream stream(int reader, std::uint64_t index) const {
    constexpr Bytes kWord = sizeof(std::uint64_t);
    std::byte* const entry = peer_line(1, reader) + kWord +
                             index % HostLayout::kStreamsAhead * (kWord + sizeof(HostStreamHead));
    return {HostCounter(entry), reinterpret_cast<HostStreamHead*>(entry + kWord)};
  }

  /// Published after the rest of the line is written.
  HostCounter call_number(std::uint64_t call) const { return HostCounter(call_line(call)); }
  HostCallHead* call_head(std::uint64_t call) const {
    return reinterpret_cast<HostCallHead*>(call_line(call) + sizeof(std::uint64_t));
  }
  /// Of what the rank gives to everybody in a call that is not brief.
  HostStreamHead* call_stream(std::uint64_t call) const {
    return reinterpret_cast<HostStreamHead*>(call_line(call) + HostLayout::kCallDataAt);
  }
  std::byte* brief_data(std::uint64_t call, Bytes bytes) const {
    if (bytes <= HostLayout::kInlineBytes) {
      return call_line(call) + HostLayout::kCallDataAt;
    }
    const std::uint64_t slot = call % HostLayout::slots(bytes);
    return rings_ + (bytes <= HostLayout::kShortBytes
                         ? slot * HostLayout::kShortSlotBytes
                         : HostLayout::kShortSlots * HostLayout::kShortSlotBytes +
                               slot * HostLayout::kBriefSlotBytes);
  }
  std::byte* staging(Bytes position) const {
    return rings_ + HostLayout::staging_at() + position % layout_.ring_bytes;
  }
  /// Of a round that is staged at `position`.
  std::byte* result(Bytes position) const {
    const Bytes share = position % layout_.ring_bytes / static_cast<Bytes>(layout_.ranks);
    return rings_ + layout_.result_at() + share / 64 * 64;
  }
  std::byte* spread_piece(Bytes position) const {
    return rings_ + layout_.spread_at() + position % layout_.ring_bytes;
  }
  std::byte* piece_for(int reader, Bytes position) const {
    const Bytes ring = layout_.pair_ring_bytes();
    const auto index = static_cast<Bytes>(reader < owner_ ? reader : reader - 1);
    return rings_ + layout_.pairs_at() + index * ring + position % ring;
  }

 private:
  HostCounter head(int word) const {
    return HostCounter(block_ + static_cast<Bytes>(word) * sizeof(std::uint64_t));
  }
  std::byte* line(int index) const {
    return block_ + static_cast<Bytes>(index) * layout_.line_bytes();
  }
  std::byte* peer_line(int kind, int peer) const {
    return line(HostLayout::kSingleCounters + kind * layout_.ranks + peer);
  }
  HostCounter counter(int index) const { return HostCounter(line(index)); }
  HostCounter peer_counter(int kind, int peer) const { return HostCounter(peer_line(kind, peer)); }
  std::byte* call_line(std::uint64_t call) const {
    return block_ + layout_.calls_at() +
           call % HostLayout::kInlineSlots * HostLayout::kCallLineBytes;
  }

  HostLayout layout_;
  int owner_;
  std::byte* block_;
  std::byte* rings_;
};

}  // namespace tutti::runners
