// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The direct protocol: every GPU pushes lines into its slots of the others' arenas and looks for
// theirs in its own. No barrier, no registration, no remote read; user buffers are touched by
// their own GPU only, so any allocator will do.
//
// A call is cut into rounds; round r of a pair of ranks carries epoch `epoch[peer] + r` and uses
// half (epoch mod 2) of the slots. That two halves suffice, without any acknowledgement:
//  - Warps are independent: which lines a warp handles is a function of launch shape and round,
//    the same at both ends. A warp takes part in every round of the call with at least one line to
//    each peer and waits for one from each, with or without data.
//  - Within a call: a warp writes a half again in round r + 2, after it has received the peer's
//    lines of round r + 1, which the same warp there sent after it had read those of round r.
//  - Across calls: launches of a rank are ordered on one stream, each pair exchanges a line in
//  every
//    call, and a launch ends only after all its waiting is over. A launch that writes a half again
//    comes two rounds later, after one that received lines sent when the peer's earlier launch was
//    over. This holds for any change of grid, collective or size in between.
// Published forms of the idea: NCCL's LL and LL128, MSCCL++ packets, one- and two-shot push.
//
// In place. A position of the result is written by the warp and in the round that read the same
// position of the input, after it was read; so input and result may be the same memory wherever
// their pieces are.
#pragma once

#include "device/kernels/reduce.hpp"
#include "device/kernels/wire.hpp"

namespace tutti::device::kernels {

inline constexpr Word kHalves = 2;
/// Stage 0 carries what peers contribute, stage 1 results of the two-shot form.
inline constexpr Word kStages = 2;

/// Batches of lines that a warp has in flight in a round, by the most ranks a kernel is for: what
/// the registers of 512 threads hold.
TUTTI_INLINE constexpr Word batches_of(Word ranks_max) { return ranks_max > 4 ? 2 : 4; }

/// Lines that a warp handles at once.
template <class Wire>
TUTTI_INLINE constexpr Word lines_of_warp() {
  return Machine::kLanes / Wire::kLanes;
}

/// A unit that is not aligned, or not whole: what lies beyond the piece's end reads as zero.
inline __attribute__((noinline)) Unit load_odd(const Byte* from, Wide bytes, Wide at,
                                               Word alignment) {
  Unit unit{};
  TUTTI_UNROLL
  for (Word word = 0; word < 4; ++word, at += sizeof(Word)) {
    if (at + sizeof(Word) <= bytes && alignment >= sizeof(Word)) {
      unit[word] = *reinterpret_cast<const Word*>(from + at);
      continue;
    }
    Word value = 0;
    TUTTI_UNROLL
    for (Word byte = 0; byte < sizeof(Word); ++byte) {
      if (at + byte < bytes) {
        value |= static_cast<Word>(from[at + byte]) << byte * 8;
      }
    }
    unit[word] = value;
  }
  return unit;
}
inline __attribute__((noinline)) void store_odd(Byte* to, Wide bytes, Wide at, Word alignment,
                                                Unit unit) {
  TUTTI_UNROLL
  for (Word word = 0; word < 4; ++word, at += sizeof(Word)) {
    if (at + sizeof(Word) <= bytes && alignment >= sizeof(Word)) {
      *reinterpret_cast<Word*>(to + at) = unit[word];
      continue;
    }
    TUTTI_UNROLL
    for (Word byte = 0; byte < sizeof(Word); ++byte) {
      if (at + byte < bytes) {
        to[at + byte] = static_cast<Byte>(unit[word] >> byte * 8);
      }
    }
  }
}

/// One warp of one launch.
template <class Wire, Word kRanksMax>
class Warp {
 public:
  using Value = typename Wire::Value;
  static constexpr Word kBatches = batches_of(kRanksMax);
  static constexpr Word kLinesOfWarp = lines_of_warp<Wire>();

  TUTTI_INLINE Warp(const DirectArguments& arguments, Word warp, Word lane)
      : a_(arguments),
        warp_(warp),
        warps_(arguments.blocks * arguments.warps),
        line_of_warp_(lane / Wire::kLanes),
        lane_(lane % Wire::kLanes) {
    Byte* own = nullptr;
    TUTTI_UNROLL
    for (Word peer = 0; peer < kRanksMax; ++peer) {
      own = peer == a_.rank ? static_cast<Byte*>(a_.arena[peer]) : own;
    }
    own_ = own;
  }

  /// True for the peers that there are; false for this rank itself.
  TUTTI_INLINE bool is_peer(Word peer) const {
    return peer != a_.rank && (kRanksMax <= 2 || peer < a_.ranks);
  }

  /// Lines of a round, over all warps.
  TUTTI_INLINE Wide round_lines() const {
    return static_cast<Wide>(kBatches) * warps_ * kLinesOfWarp;
  }
  static TUTTI_INLINE Wide lines_of(Wide bytes) {
    return (bytes + Wire::kUnits * kUnitBytes - 1) / (Wire::kUnits * kUnitBytes);
  }
  /// At least one: a call is never silent.
  TUTTI_INLINE Wide rounds_of(Wide lines) const {
    const Wide rounds = (lines + round_lines() - 1) / round_lines();
    return rounds == 0 ? 1 : rounds;
  }
  /// First line of a batch in the message, over the lanes of the warp.
  TUTTI_INLINE Wide batch_line(Wide round, Word batch) const {
    return round * round_lines() + slot_line(batch);
  }
  /// The first batch of a round always goes, so that each warp sends and receives a line.
  TUTTI_INLINE bool is_active(Wide round, Word batch, Wide lines) const {
    return batch == 0 || batch_line(round, batch) < lines;
  }
  /// First unit of this lane's line.
  TUTTI_INLINE Wide unit(Wide round, Word batch) const {
    return (batch_line(round, batch) + line_of_warp_) * Wire::kUnits + lane_ * Wire::kLaneUnits;
  }
  TUTTI_INLINE bool has_data() const { return Wire::kLanes == 1 || lane_ < Wire::kUnits; }

  TUTTI_INLINE Value load(const void* from, Wide bytes, Wide unit) const {
    Value value{};
    if (has_data()) {
      TUTTI_UNROLL
      for (Word i = 0; i < Wire::kLaneUnits; ++i) {
        value.unit[i] = load_unit(static_cast<const Byte*>(from), bytes, (unit + i) * kUnitBytes);
      }
    }
    return value;
  }
  TUTTI_INLINE void store(void* to, Wide bytes, Wide unit, const Value& value) const {
    if (has_data() && to != nullptr) {
      TUTTI_UNROLL
      for (Word i = 0; i < Wire::kLaneUnits; ++i) {
        store_unit(static_cast<Byte*>(to), bytes, (unit + i) * kUnitBytes, value.unit[i]);
      }
    }
  }

  /// To this rank's slot in the arena of `peer`.
  TUTTI_INLINE void push(Word peer, Word stage, Word batch, Wide epoch, const Value& value) const {
    Wire::put(slot(static_cast<Byte*>(a_.arena[peer]), stage, a_.rank, epoch) + line_at(batch),
              lane_, value, epoch);
  }
  /// One look at the line of `peer` in the own arena.
  TUTTI_INLINE bool look(Word peer, Word stage, Word batch, Wide epoch, Value* value) const {
    return Wire::get(slot(own_, stage, peer, epoch) + line_at(batch), lane_, epoch, value);
  }

  /// Repeats `look_at_all` until it is true on every lane. False when the wait was called off.
  template <class Look>
  TUTTI_INLINE bool wait(Look look_at_all) {
    constexpr Word kLooksBetweenAborts = 1024;
    for (Word looks = 0; !given_up_; ++looks) {
      if (Machine::all(look_at_all())) {
        return true;
      }
      Machine::relax();
      if (looks == kLooksBetweenAborts) {
        looks = 0;
        if (Machine::get_word(a_.abort) != 0) {
          give_up();
        }
      }
    }
    return false;
  }

  const DirectArguments& arguments() const { return a_; }

 private:
  TUTTI_INLINE void give_up() {
    given_up_ = true;
    *static_cast<volatile Word*>(a_.failed) = 1;
  }
  TUTTI_INLINE Wide slot_line(Word batch) const {
    return (static_cast<Wide>(batch) * warps_ + warp_) * kLinesOfWarp;
  }
  TUTTI_INLINE Wide line_at(Word batch) const {
    return (slot_line(batch) + line_of_warp_) * Wire::kBytes;
  }
  TUTTI_INLINE Byte* slot(Byte* arena, Word stage, Word source, Wide epoch) const {
    const Word half = static_cast<Word>(epoch % kHalves);
    return arena + ((half * kStages + stage) * a_.ranks + source) * a_.slot_bytes;
  }

  TUTTI_INLINE Unit load_unit(const Byte* from, Wide bytes, Wide at) const {
    if (at + kUnitBytes <= bytes && a_.alignment == kUnitBytes) [[likely]] {
      return *reinterpret_cast<const Unit*>(from + at);
    }
    return at < bytes ? load_odd(from, bytes, at, a_.alignment) : Unit{};
  }
  TUTTI_INLINE void store_unit(Byte* to, Wide bytes, Wide at, Unit unit) const {
    if (at + kUnitBytes <= bytes && a_.alignment == kUnitBytes) [[likely]] {
      *reinterpret_cast<Unit*>(to + at) = unit;
    } else if (at < bytes) {
      store_odd(to, bytes, at, a_.alignment, unit);
    }
  }

  const DirectArguments& a_;
  Word warp_;
  Word warps_;
  Word line_of_warp_;
  Word lane_;
  Byte* own_;
  bool given_up_ = false;
};

/// Reduces the units of one lane over ranks.
template <class R, class Value, Word kRanksMax>
TUTTI_INLINE Value reduce_values(const DirectArguments& a, const Value (&values)[kRanksMax]) {
  constexpr Word kLaneUnits = sizeof(Value) / sizeof(Unit);
  Value result;
  TUTTI_UNROLL
  for (Word i = 0; i < kLaneUnits; ++i) {
    Unit units[kRanksMax];
    TUTTI_UNROLL
    for (Word rank = 0; rank < kRanksMax; ++rank) {
      units[rank] = values[rank].unit[i];
    }
    result.unit[i] = R::template reduce<kRanksMax>(a, units, kRanksMax <= 2 ? 2 : a.ranks);
  }
  return result;
}

/// Every rank gets every vector and reduces all of it: allreduce and reduce of small vectors.
template <class R, class Wire, Word kRanksMax>
TUTTI_INLINE void one_shot(const DirectArguments& a, Word warp_index, Word lane) {
  using W = Warp<Wire, kRanksMax>;
  using Value = typename W::Value;
  W warp(a, warp_index, lane);
  const Wide lines = W::lines_of(a.send_bytes[0]);
  const Wide rounds = warp.rounds_of(lines);
  for (Wide round = 0; round < rounds; ++round) {
    Value values[W::kBatches][kRanksMax];
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      if (warp.is_active(round, batch, lines)) {
        const Value own = warp.load(a.send[0], a.send_bytes[0], warp.unit(round, batch));
        TUTTI_UNROLL
        for (Word peer = 0; peer < kRanksMax; ++peer) {
          values[batch][peer] = own;
        }
      }
    }
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      if (warp.is_active(round, batch, lines)) {
        TUTTI_UNROLL
        for (Word peer = 0; peer < kRanksMax; ++peer) {
          if (warp.is_peer(peer)) {
            warp.push(peer, 0, batch, a.epoch[peer] + round, values[batch][peer]);
          }
        }
      }
    }
    if (!warp.wait([&] {
          bool all = true;
          TUTTI_UNROLL
          for (Word batch = 0; batch < W::kBatches; ++batch) {
            if (warp.is_active(round, batch, lines)) {
              TUTTI_UNROLL
              for (Word peer = 0; peer < kRanksMax; ++peer) {
                if (warp.is_peer(peer)) {
                  all &= warp.look(peer, 0, batch, a.epoch[peer] + round, &values[batch][peer]);
                }
              }
            }
          }
          return all;
        })) {
      return;
    }
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      if (warp.is_active(round, batch, lines)) {
        warp.store(a.recv[0], a.send_bytes[0], warp.unit(round, batch),
                   reduce_values<R>(a, values[batch]));
      }
    }
  }
}

/// Every rank reduces its shard of all vectors and, where `gather` says so, sends the result to
/// all: reduce-scatter, and allreduce and reduce of larger vectors.
template <class R, class Wire, Word kRanksMax>
TUTTI_INLINE void two_shot(const DirectArguments& a, Word warp_index, Word lane) {
  using W = Warp<Wire, kRanksMax>;
  using Value = typename W::Value;
  W warp(a, warp_index, lane);
  Wide longest = 0;
  Wide own_bytes = 0;
  void* own_recv = nullptr;
  TUTTI_UNROLL
  for (Word peer = 0; peer < kRanksMax; ++peer) {
    const bool exists = kRanksMax <= 2 || peer < a.ranks;
    longest = exists && a.send_bytes[peer] > longest ? a.send_bytes[peer] : longest;
    if (peer == a.rank) {
      own_bytes = a.send_bytes[peer];
      own_recv = a.recv[peer];
    }
  }
  const Wide lines = W::lines_of(longest);
  const Wide rounds = warp.rounds_of(lines);
  for (Wide round = 0; round < rounds; ++round) {
    Value values[W::kBatches][kRanksMax];
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      if (warp.is_active(round, batch, lines)) {
        TUTTI_UNROLL
        for (Word peer = 0; peer < kRanksMax; ++peer) {
          if (kRanksMax <= 2 || peer < a.ranks) {
            values[batch][peer] =
                warp.load(a.send[peer], a.send_bytes[peer], warp.unit(round, batch));
          }
        }
      }
    }
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      if (warp.is_active(round, batch, lines)) {
        TUTTI_UNROLL
        for (Word peer = 0; peer < kRanksMax; ++peer) {
          if (warp.is_peer(peer)) {
            warp.push(peer, 0, batch, a.epoch[peer] + round, values[batch][peer]);
          }
        }
      }
    }
    if (!warp.wait([&] {
          bool all = true;
          TUTTI_UNROLL
          for (Word batch = 0; batch < W::kBatches; ++batch) {
            if (warp.is_active(round, batch, lines)) {
              TUTTI_UNROLL
              for (Word peer = 0; peer < kRanksMax; ++peer) {
                if (warp.is_peer(peer)) {
                  all &= warp.look(peer, 0, batch, a.epoch[peer] + round, &values[batch][peer]);
                }
              }
            }
          }
          return all;
        })) {
      return;
    }
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      if (warp.is_active(round, batch, lines)) {
        const Value result = reduce_values<R>(a, values[batch]);
        if (a.gather != 0) {
          TUTTI_UNROLL
          for (Word peer = 0; peer < kRanksMax; ++peer) {
            if (warp.is_peer(peer)) {
              warp.push(peer, 1, batch, a.epoch[peer] + round, result);
            }
          }
        }
        warp.store(own_recv, own_bytes, warp.unit(round, batch), result);
      }
    }
    if (a.gather == 0) {
      continue;
    }
    if (!warp.wait([&] {
          bool all = true;
          TUTTI_UNROLL
          for (Word batch = 0; batch < W::kBatches; ++batch) {
            if (warp.is_active(round, batch, lines)) {
              TUTTI_UNROLL
              for (Word peer = 0; peer < kRanksMax; ++peer) {
                if (warp.is_peer(peer)) {
                  all &= warp.look(peer, 1, batch, a.epoch[peer] + round, &values[batch][peer]);
                }
              }
            }
          }
          return all;
        })) {
      return;
    }
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      if (warp.is_active(round, batch, lines)) {
        TUTTI_UNROLL
        for (Word peer = 0; peer < kRanksMax; ++peer) {
          if (warp.is_peer(peer)) {
            warp.store(a.recv[peer], a.send_bytes[peer], warp.unit(round, batch),
                       values[batch][peer]);
          }
        }
      }
    }
  }
}

/// Every rank gives each peer a piece: allgather, alltoall, bcast, gather, scatter, their v-forms
/// and barrier. Pieces are of any sizes; both ends of a pair know what goes either way.
template <class Wire, Word kRanksMax>
TUTTI_INLINE void exchange(const DirectArguments& a, Word warp_index, Word lane) {
  using W = Warp<Wire, kRanksMax>;
  using Value = typename W::Value;
  W warp(a, warp_index, lane);
  Wide lines[kRanksMax];  // Of a pair, in the direction that has more.
  Wide rounds[kRanksMax];
  Wide rounds_max = 0;
  TUTTI_UNROLL
  for (Word peer = 0; peer < kRanksMax; ++peer) {
    const Wide bytes =
        a.send_bytes[peer] > a.recv_bytes[peer] ? a.send_bytes[peer] : a.recv_bytes[peer];
    const bool is_self = peer == a.rank;
    const bool is_copied = is_self && a.send[peer] != a.recv[peer] && a.recv[peer] != nullptr;
    lines[peer] = W::lines_of(bytes);
    rounds[peer] = warp.is_peer(peer) || is_copied ? warp.rounds_of(lines[peer]) : 0;
    rounds_max = rounds[peer] > rounds_max ? rounds[peer] : rounds_max;
  }
  for (Wide round = 0; round < rounds_max; ++round) {
    Value values[W::kBatches][kRanksMax];
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      TUTTI_UNROLL
      for (Word peer = 0; peer < kRanksMax; ++peer) {
        if (round < rounds[peer] && warp.is_active(round, batch, lines[peer])) {
          values[batch][peer] =
              warp.load(a.send[peer], a.send_bytes[peer], warp.unit(round, batch));
        }
      }
    }
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      TUTTI_UNROLL
      for (Word peer = 0; peer < kRanksMax; ++peer) {
        if (round < rounds[peer] && warp.is_active(round, batch, lines[peer])) {
          if (warp.is_peer(peer)) {
            warp.push(peer, 0, batch, a.epoch[peer] + round, values[batch][peer]);
          } else {
            warp.store(a.recv[peer], a.recv_bytes[peer], warp.unit(round, batch),
                       values[batch][peer]);
          }
        }
      }
    }
    if (!warp.wait([&] {
          bool all = true;
          TUTTI_UNROLL
          for (Word batch = 0; batch < W::kBatches; ++batch) {
            TUTTI_UNROLL
            for (Word peer = 0; peer < kRanksMax; ++peer) {
              if (warp.is_peer(peer) && round < rounds[peer] &&
                  warp.is_active(round, batch, lines[peer])) {
                all &= warp.look(peer, 0, batch, a.epoch[peer] + round, &values[batch][peer]);
              }
            }
          }
          return all;
        })) {
      return;
    }
    TUTTI_UNROLL
    for (Word batch = 0; batch < W::kBatches; ++batch) {
      TUTTI_UNROLL
      for (Word peer = 0; peer < kRanksMax; ++peer) {
        if (warp.is_peer(peer) && round < rounds[peer] &&
            warp.is_active(round, batch, lines[peer])) {
          warp.store(a.recv[peer], a.recv_bytes[peer], warp.unit(round, batch),
                     values[batch][peer]);
        }
      }
    }
  }
}

}  // namespace tutti::device::kernels
