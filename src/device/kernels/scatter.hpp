// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The scattered copy: one launch copies pieces of any alignment and length to their places (fused
// scattered copy of the UCCL paper, where packets land in bounce buffers behind their headers).
//
// A piece is a head, units and a tail. Units are the whole 16 bytes of the destination that are
// aligned there; head and tail are up to 15 bytes each. Every unit is stored by one 16-byte access.
// It is loaded by one aligned 16-byte access, too: where source and destination are not aligned
// alike, a unit of the destination is the end of one unit of the source and the beginning of the
// next, which the neighbouring lane has. A unit of the source is loaded when at least one of its
// bytes is the piece's, so no load leaves a page that the piece touches; bytes beside the piece may
// change meanwhile, and nobody looks at them.
//
// A slice is what one warp copies at once: all its loads are under way before its first store. The
// slices of a block's pieces go to its warps in turn, so long and short pieces may be mixed.
#pragma once

#include "device/kernels/hardware.hpp"
#include "device/kernels/scatter_arguments.hpp"

#if TUTTI_ON_GPU
/// Memory of a GPU or pinned memory of the host: not a block's own.
#define TUTTI_GLOBAL_MEMORY __attribute__((address_space(1)))
#else
#define TUTTI_GLOBAL_MEMORY
#endif

namespace tutti::device::kernels {

/// 2 KiB, what the registers of a warp hold where 1024 threads share a processor (NVIDIA).
inline constexpr Word kSliceUnits = 128;

template <class T>
TUTTI_INLINE T load_at(Wide address) {
  return *reinterpret_cast<const TUTTI_GLOBAL_MEMORY T*>(address);
}
template <class T>
TUTTI_INLINE void store_at(Wide address, T value) {
  *reinterpret_cast<TUTTI_GLOBAL_MEMORY T*>(address) = value;
}

/// 16 bytes that begin `shift` bytes (1 to 15) within `low`; `high` follows it in memory.
TUTTI_INLINE Unit join(Unit low, Unit high, Word shift) {
  const bool two = (shift & 8) != 0;
  const Word a[6] = {two ? low[2] : low[0],  two ? low[3] : low[1],   two ? high[0] : low[2],
                     two ? high[1] : low[3], two ? high[2] : high[0], two ? high[3] : high[1]};
  const bool one = (shift & 4) != 0;
  const Word b[5] = {one ? a[1] : a[0], one ? a[2] : a[1], one ? a[3] : a[2], one ? a[4] : a[3],
                     one ? a[5] : a[4]};
  const Word bytes = shift & 3;
  return Unit{Hardware::join_words(b[0], b[1], bytes), Hardware::join_words(b[1], b[2], bytes),
              Hardware::join_words(b[2], b[3], bytes), Hardware::join_words(b[3], b[4], bytes)};
}

/// How a piece is cut.
struct ScatterCut {
  TUTTI_INLINE explicit ScatterCut(const ScatterPiece& piece)
      : source(reinterpret_cast<Wide>(piece.source)),
        destination(reinterpret_cast<Wide>(piece.destination)),
        bytes(piece.bytes) {
    const Word unaligned = static_cast<Word>(-destination) & (kUnitBytes - 1);
    head = bytes < unaligned ? static_cast<Word>(bytes) : unaligned;
    units = (bytes - head) / kUnitBytes;
    tail = static_cast<Word>(bytes - head) & (kUnitBytes - 1);
    shift = static_cast<Word>(source + head) & (kUnitBytes - 1);
  }
  TUTTI_INLINE Wide slices() const {
    return units > kSliceUnits ? (units + kSliceUnits - 1) / kSliceUnits : bytes != 0 ? 1 : 0;
  }

  Wide source;
  Wide destination;
  Wide bytes;
  Wide units;  ///< Whole ones, behind the head.
  Word head;   ///< Bytes before the first unit.
  Word tail;   ///< Bytes behind the last unit.
  Word shift;  ///< Bytes from an aligned unit of the source to the first byte behind the head.
};

/// One lane's part of one slice: lane l has units l, l + kLanes, ...
template <Word kLanes>
class ScatterLane {
 public:
  static constexpr Word kRows = kSliceUnits / kLanes;
  static_assert(kRows >= 1 && kLanes >= 2 * kUnitBytes);
  static constexpr Wide kRowBytes = kLanes * kUnitBytes;

  TUTTI_INLINE ScatterLane(const ScatterCut& cut, Wide slice, Word lane)
      : lane_(lane), shift_(cut.shift) {
    const Wide first = slice * kSliceUnits;
    const Wide left = cut.units - first;
    const bool is_last = left <= kSliceUnits;
    units_ = static_cast<Word>(is_last ? left : kSliceUnits);
    const Wide begin = cut.head + first * kUnitBytes;
    to_ = cut.destination + begin + lane * kUnitBytes;
    // With a shift the last unit ends in one more unit of the source.
    const Wide from = cut.source + begin - shift_ + lane * kUnitBytes;
    const Word sources = units_ + (shift_ != 0 && units_ != 0 ? 1 : 0);
    TUTTI_UNROLL
    for (Word row = 0; row < kRows; ++row) {
      unit_[row] = row * kLanes + lane < sources ? load_at<Unit>(from + row * kRowBytes) : Unit{};
    }
    unit_[kRows] =
        lane == 0 && kSliceUnits < sources ? load_at<Unit>(from + kRows * kRowBytes) : Unit{};
    // The first lanes take the head, the others the tail.
    const bool is_head = lane < kUnitBytes;
    const Word at = is_head ? lane : lane - kUnitBytes;
    has_byte_ = is_head ? slice == 0 && at < cut.head : is_last && at < cut.tail;
    const Wide place = is_head ? at : cut.bytes - cut.tail + at;
    byte_to_ = cut.destination + place;
    byte_ = has_byte_ ? load_at<Byte>(cut.source + place) : Byte{0};
  }

  /// Whether any lane has a unit of `row`.
  TUTTI_INLINE bool has(Word row) const { return row * kLanes < units_; }
  TUTTI_INLINE bool is_shifted() const { return shift_ != 0; }
  /// What the lane before this one (lane 0 is behind the last) needs for its unit of `row`.
  TUTTI_INLINE Unit for_lane_before(Word row) const {
    return lane_ == 0 ? unit_[row + 1] : unit_[row];
  }
  /// `next`: of the lane behind this one, with a shift.
  TUTTI_INLINE void store(Word row, Unit next) const {
    if (row * kLanes + lane_ < units_) {
      store_at(to_ + row * kRowBytes, is_shifted() ? join(unit_[row], next, shift_) : unit_[row]);
    }
  }
  TUTTI_INLINE void store_byte() const {
    if (has_byte_) {
      store_at(byte_to_, byte_);
    }
  }

 private:
  Unit unit_[kRows + 1];
  Wide to_;
  Wide byte_to_;
  Word lane_;
  Word shift_;
  Word units_;
  Byte byte_;
  bool has_byte_;
};

/// copy(cut, slice) for each slice that is warp `warp`'s, of `warps` that share the pieces.
template <class Copy>
TUTTI_INLINE void for_slices(const ScatterPiece* pieces, Word count, Word warp, Word warps,
                             Copy copy) {
  Wide turn = warp;
  TUTTI_NO_UNROLL
  for (Word i = 0; i < count; ++i) {
    const ScatterCut cut(pieces[i]);
    const Wide slices = cut.slices();
    TUTTI_NO_UNROLL
    for (; turn < slices; turn += warps) {
      copy(cut, turn);
    }
    turn -= slices;
  }
}

/// Of block `block`: its pieces, and which of the blocks that share them it is.
struct ScatterShare {
  TUTTI_INLINE ScatterShare(const ScatterArguments& arguments, Word block)
      : part(block & ((1U << arguments.split_shift) - 1)),
        parts(1U << arguments.split_shift),
        first(static_cast<Wide>(block >> arguments.split_shift) * arguments.group),
        count(arguments.count - first < arguments.group ? static_cast<Word>(arguments.count - first)
                                                        : arguments.group) {}
  Word part;
  Word parts;
  Wide first;
  Word count;
};

#if TUTTI_ON_GPU

TUTTI_INLINE void copy_slice(const ScatterCut& cut, Wide slice, Word lane) {
  using Lane = ScatterLane<Hardware::kLanes>;
  const Lane own(cut, slice, lane);
  TUTTI_UNROLL
  for (Word row = 0; row < Lane::kRows; ++row) {
    if (!own.has(row)) {
      break;
    }
    Unit next{};
    if (own.is_shifted()) {
      next = Hardware::from_lane_behind(own.for_lane_before(row), lane);
    }
    own.store(row, next);
  }
  own.store_byte();
}

/// One thread. `words`: memory of the block's own for kScatterGroupMax pieces.
TUTTI_INLINE void scatter(const ScatterArguments& arguments, Wide* words) {
  constexpr Word kPieceWords = sizeof(ScatterPiece) / sizeof(Wide);
  const Word thread = Hardware::thread();
  const Word lane = thread % Hardware::kLanes;
  const ScatterShare share(arguments, Hardware::block());
  // Pieces are often in the host's memory, a microsecond away: one trip for all of the block.
  if (thread < share.count * kPieceWords) {
    words[thread] = load_at<Wide>(reinterpret_cast<Wide>(arguments.pieces + share.first) +
                                  thread * sizeof(Wide));
  }
  Hardware::block_barrier();
  constexpr Word kWarps = kScatterThreads / Hardware::kLanes;
  for_slices(reinterpret_cast<const ScatterPiece*>(words), share.count,
             share.part * kWarps + thread / Hardware::kLanes, share.parts * kWarps,
             [lane](const ScatterCut& cut, Wide slice)
                 TUTTI_INLINE_LAMBDA { copy_slice(cut, slice, lane); });
}

#endif

}  // namespace tutti::device::kernels
