// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The direct protocol: every GPU pushes lines into its slots of the others' arenas and looks for
// theirs in its own. No barrier, no registration, no remote read; user buffers are touched by
// their own GPU only, so any allocator will do.
//
// A call is cut into rounds; round r of a pair of ranks carries epoch e = `epoch[peer] + r` and
// uses bank (e mod 4) of the slots. In step r + 1 a warp (1) pushes round r + 1, (2) waits for
// round r, reduces it and, in the two-shot form, pushes its results, (3) collects the results of
// round r - 1. That four banks suffice, without any acknowledgement:
//  - Warps are independent: which lines a warp handles is a function of round and launch shape (in
//    an exchange: of how many warps serve the pair), the same at both ends. A warp takes part in
//    every round of the call with at least one line to each peer that it serves and, but for what
//    "Without a wait" says below, waits for one from each, with or without data. In a reduction a
//    warp serves all peers, in an exchange one; what follows is about one pair of ranks and the
//    warps that serve it.
//  - Within a call: (1) of step r + 1 writes where round r - 3 was. The warp has received round
//    r - 1 by then, which the same warp of the peer pushed in its step r - 1, after its step r - 2,
//    in which it read round r - 3. Results of round r go where those of round r - 4 were; the warp
//    has received round r, pushed by the peer in step r, after the step r - 2 that collected them.
//  - Across calls: a launch begins by pushing epochs e and e + 1, where e - 4 and e - 3 were. All
//    warps of the launch before it received its last round, e - 1, pushed by the same warp of the
//    peer after that had read e - 3; or, if that launch had one round, pushed by a launch of the
//    peer that began when its launch before was over. Launches of a rank are ordered, by their
//    stream or, where the streams differ, by events, and end when all their waiting is over, so
//    this holds for any change of grid, collective or size in between.
//  - Graphs. A launch that a graph of the application's repeats finds in `counter`, in its GPU's
//    memory, how many rounds such launches have had, and adds its own at its end. Its slots are
//    apart from those of launches that the host counts. It has as many rounds with every peer, so
//    that one number is enough; such launches of a communicator follow each other
//    (runners/graph_order.hpp). Nobody on the host sees it begin: it says itself when it has waited
//    for `limit_ticks`. Epochs carry a signature of the call above the count, so that launches of
//    different graphs take nothing of each other's.
//  - Without a wait. A rank whose piece of an exchange only goes one way need not wait for the peer
//    (`unawaited`) where the host knows that all calls before it are over at the peer, which has
//    read everything up to e - 1, and where the piece has R <= 2 rounds: e and e + 1 go where e - 4
//    and e - 3 were. The launch behind it begins with e' = e + R. If it waits, it pushes e' and
//    e' + 1, where e' - 4 and e' - 3 were, and e' - 3 <= e - 1; then it goes on as above, for the
//    peer pushes e' after it has read e' - 1. If it does not wait, the host knows again. What the
//    peer pushes meanwhile nobody reads, and it waits for every round itself. Its lines of a later
//    launch go where those stand that nobody has read: they arrive behind them, since launches of
//    a rank are ordered and stores of one GPU to one address are, too.
// Published forms of the idea: NCCL's LL and LL128, MSCCL++ packets, one- and two-shot push.
//
// In place. A position of the result is written by the warp that reads the same position of the
// input, after it was read for the last time; so input and result may be the same memory.
#pragma once

#include "device/kernels/reduce.hpp"
#include "device/kernels/wire.hpp"

namespace tutti::device::kernels {

inline constexpr Word kBanks = 4;
/// Stage 0 carries what peers contribute, stage 1 results of the two-shot form.
inline constexpr Word kStages = 2;

/// Batches of lines that a warp has in flight in a round, by the most ranks a kernel is for: what
/// the registers of 512 threads hold.
TUTTI_INLINE constexpr Word batches_of(Word ranks_max) {
  return ranks_max > 4 ? 1 : ranks_max > 2 ? 2 : 4;
}

/// Lines that a warp handles at once.
template <class Wire>
TUTTI_INLINE constexpr Word lines_of_warp() {
  return Hardware::kLanes / Wire::kLanes;
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

/// Units of user buffers, of any alignment and length. `kHasTails`: what is no whole word at the
/// end of a piece stays in line, too, and so do pieces shorter than a word, wherever they begin: a
/// call costs a kernel half a microsecond. The code for it is long, so not every kernel has it.
template <bool kHasTails>
class UnitAccess {
 public:
  TUTTI_INLINE explicit UnitAccess(Word alignment) : alignment_(alignment) {}

  TUTTI_INLINE Unit load(const Byte* from, Wide bytes, Wide at) const {
    if (at + kUnitBytes <= bytes && alignment_ == kUnitBytes) [[likely]] {
      return *reinterpret_cast<const Unit*>(from + at);
    }
    Unit unit{};
    if (!kHasTails && is_of_words(bytes)) {
      TUTTI_UNROLL
      for (Word word = 0; word < 4; ++word) {
        if (at + (word + 1) * sizeof(Word) <= bytes) {
          unit[word] = *reinterpret_cast<const Word*>(from + at + word * sizeof(Word));
        }
      }
      return unit;
    }
    if constexpr (kHasTails) {
      if (alignment_ >= sizeof(Word) || bytes < sizeof(Word)) {
        const Wide tail = bytes / sizeof(Word) * sizeof(Word);
        const bool has_tail = tail - at < kUnitBytes;
        Word last = 0;
        TUTTI_UNROLL
        for (Word byte = 0; byte < sizeof(Word) - 1; ++byte) {
          if (has_tail && tail + byte < bytes) {
            last |= static_cast<Word>(from[tail + byte]) << byte * 8;
          }
        }
        TUTTI_UNROLL
        for (Word word = 0; word < 4; ++word) {
          const Wide here = at + word * sizeof(Word);
          if (here < tail) {
            unit[word] = *reinterpret_cast<const Word*>(from + here);
          } else if (here == tail) {
            unit[word] = last;
          }
        }
        return unit;
      }
    }
    return at < bytes ? load_odd(from, bytes, at, alignment_) : unit;
  }
  TUTTI_INLINE void store(Byte* to, Wide bytes, Wide at, Unit unit) const {
    if (at + kUnitBytes <= bytes && alignment_ == kUnitBytes) [[likely]] {
      *reinterpret_cast<Unit*>(to + at) = unit;
    } else if (!kHasTails && is_of_words(bytes)) {
      TUTTI_UNROLL
      for (Word word = 0; word < 4; ++word) {
        if (at + (word + 1) * sizeof(Word) <= bytes) {
          *reinterpret_cast<Word*>(to + at + word * sizeof(Word)) = unit[word];
        }
      }
    } else if (at < bytes) {
      if constexpr (kHasTails) {
        if (alignment_ >= sizeof(Word) || bytes < sizeof(Word)) {
          const Wide tail = bytes / sizeof(Word) * sizeof(Word);
          Word last = 0;
          TUTTI_UNROLL
          for (Word word = 0; word < 4; ++word) {
            const Wide here = at + word * sizeof(Word);
            if (here < tail) {
              *reinterpret_cast<Word*>(to + here) = unit[word];
            } else if (here == tail) {
              last = unit[word];
            }
          }
          TUTTI_UNROLL
          for (Word byte = 0; byte < sizeof(Word) - 1; ++byte) {
            if (tail - at < kUnitBytes && tail + byte < bytes) {
              to[tail + byte] = static_cast<Byte>(last >> byte * 8);
            }
          }
          return;
        }
      }
      store_odd(to, bytes, at, alignment_, unit);
    }
  }

 private:
  /// The most common odd case stays in line: calls cost a kernel a microsecond.
  TUTTI_INLINE bool is_of_words(Wide bytes) const {
    return alignment_ >= sizeof(Word) && bytes % sizeof(Word) == 0;
  }

  Word alignment_;
};

/// Rounds of the launches before this one, where a graph repeats it and the host cannot tell.
TUTTI_INLINE Wide counted_rounds(const DirectArguments& a) {
  return a.counter != nullptr ? a.counter->rounds : 0;
}

/// One warp of those that serve the same peers; `warps` of them have `kBatches` batches in a round.
template <class Wire, Word kBatchesOfRound, bool kHasTails = false>
class Warp {
 public:
  using Value = typename Wire::Value;
  static constexpr Word kBatches = kBatchesOfRound;
  static constexpr Word kLinesOfWarp = lines_of_warp<Wire>();

  TUTTI_INLINE Warp(const DirectArguments& arguments, Word warp, Word warps, Word lane)
      : a_(arguments),
        access_(arguments.alignment),
        warp_(warp),
        warps_(warps),
        line_of_warp_(lane / Wire::kLanes),
        lane_(lane % Wire::kLanes) {}

  /// Lines of a round, over all warps.
  TUTTI_INLINE Wide round_lines() const {
    return static_cast<Wide>(kBatches) * warps_ * kLinesOfWarp;
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
        value.unit[i] =
            access_.load(static_cast<const Byte*>(from), bytes, (unit + i) * kUnitBytes);
      }
    }
    return value;
  }
  TUTTI_INLINE void store(void* to, Wide bytes, Wide unit, const Value& value) const {
    if (has_data() && to != nullptr) {
      TUTTI_UNROLL
      for (Word i = 0; i < Wire::kLaneUnits; ++i) {
        access_.store(static_cast<Byte*>(to), bytes, (unit + i) * kUnitBytes, value.unit[i]);
      }
    }
  }

  /// To a slot of somebody's arena.
  TUTTI_INLINE void push(void* arena, Word stage, Word source, Word batch, Wide epoch,
                         const Value& value) const {
    Wire::put(slot(arena, stage, source, epoch) + line_at(batch), lane_, value, epoch);
  }
  /// One look at a line of the own arena.
  TUTTI_INLINE bool look(void* arena, Word stage, Word source, Word batch, Wide epoch,
                         Value* value) const {
    return Wire::get(slot(arena, stage, source, epoch) + line_at(batch), lane_, epoch, value);
  }

  /// False: a call before this one was ended. A push of this one would carry a valid epoch and what
  /// that one left in the buffers: a live peer would take it for a result.
  TUTTI_INLINE bool begin() {
    if (a_.is_queued == 0 || Hardware::all(Hardware::get_word(a_.ended) == 0)) {
      return true;
    }
    give_up();
    return false;
  }

  /// Repeats `look_at_all` until it is true on every lane. False when the wait was called off.
  template <class Look>
  TUTTI_INLINE bool wait(Look look_at_all) {
    for (Word looks = 0; !given_up_; ++looks) {
      if (Hardware::all(look_at_all())) {
        return true;
      }
      Hardware::relax();
      if (looks == Hardware::kLooksBetweenAborts) {
        looks = 0;
        if (Hardware::get_word(a_.abort) != 0) {
          give_up();
        } else if (is_over_limit()) {
          Hardware::put_word(a_.overdue, Word{1});
        }
      }
    }
    return false;
  }

 private:
  /// Of a launch that no host waits for, since its first long wait. The time is in memory: a wait
  /// has no register left.
  TUTTI_INLINE bool is_over_limit() const {
    if (a_.limit_ticks == 0) {
      return false;
    }
    const Word now = Hardware::ticks() | 1U;
    const Word since = Hardware::get_word(&a_.counter->waiting_since);
    if (since == 0) {
      Hardware::put_word(&a_.counter->waiting_since, now);
    }
    // Signed: another warp's begin may be later than this look.
    return since != 0 && static_cast<int>(now - since) > static_cast<int>(a_.limit_ticks);
  }
  TUTTI_INLINE void give_up() {
    given_up_ = true;
    Hardware::put_word(a_.failed, Word{1});
    Hardware::put_word(a_.ended, Word{1});
    Hardware::fence_system();  // The host reads `failed` once the block's word has come.
  }
  TUTTI_INLINE Wide slot_line(Word batch) const {
    return (static_cast<Wide>(batch) * warps_ + warp_) * kLinesOfWarp;
  }
  TUTTI_INLINE Wide line_at(Word batch) const {
    return (slot_line(batch) + line_of_warp_) * Wire::kBytes;
  }
  TUTTI_INLINE Byte* slot(void* arena, Word stage, Word source, Wide epoch) const {
    const Word bank = static_cast<Word>(epoch % kBanks);
    return static_cast<Byte*>(arena) +
           ((bank * kStages + stage) * a_.ranks + source) * a_.slot_bytes;
  }

  const DirectArguments& a_;
  UnitAccess<kHasTails> access_;
  Word warp_;
  Word warps_;
  Word line_of_warp_;
  Word lane_;
  bool given_up_ = false;
};

/// A warp that serves all peers: reductions.
template <class Wire, Word kRanksMax, Word kBatchesOfRound>
class ReducingWarp : public Warp<Wire, kBatchesOfRound> {
 public:
  using Base = Warp<Wire, kBatchesOfRound>;
  using Value = typename Wire::Value;

  TUTTI_INLINE ReducingWarp(const DirectArguments& arguments, Word warp, Word lane)
      : Base(arguments, warp, arguments.blocks * arguments.warps, lane), a_(arguments) {
    void* own = nullptr;
    TUTTI_UNROLL
    for (Word peer = 0; peer < kRanksMax; ++peer) {
      own = peer == a_.rank ? a_.arena[peer] : own;
    }
    own_ = own;
    if constexpr (kRanksMax <= 2) {
      rounds_before_ = counted_rounds(arguments);
    }
  }
  /// True for the peers that there are; false for this rank itself.
  TUTTI_INLINE bool is_peer(Word peer) const {
    return peer != a_.rank && (kRanksMax <= 2 || peer < a_.ranks);
  }
  /// To this rank's slot in the arena of `peer`.
  TUTTI_INLINE void push(Word peer, Word stage, Word batch, Wide round, const Value& value) const {
    Base::push(a_.arena[peer], stage, a_.rank, batch, a_.epoch[peer] + rounds_before() + round,
               value);
  }
  /// One look at the line of `peer` in the own arena.
  TUTTI_INLINE bool look(Word peer, Word stage, Word batch, Wide round, Value* value) const {
    return Base::look(own_, stage, peer, batch, a_.epoch[peer] + rounds_before() + round, value);
  }

 private:
  /// The kernels of more than two ranks have no register left for it.
  TUTTI_INLINE Wide rounds_before() const {
    if constexpr (kRanksMax <= 2) {
      return rounds_before_;
    } else {
      return counted_rounds(a_);
    }
  }

  const DirectArguments& a_;
  void* own_;
  Wide rounds_before_ = 0;
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

/// `body(batch)` for the batches that a warp has in a round of so many lines.
template <class W, class Body>
TUTTI_INLINE void for_batches(const W& warp, Wide round, Wide lines, Body body) {
  TUTTI_UNROLL
  for (Word batch = 0; batch < W::kBatches; ++batch) {
    if (warp.is_active(round, batch, lines)) {
      body(batch);
    }
  }
}

/// `body(peer)` for the other ranks. Unrolled, so that a peer's pointers are found at known places.
template <Word kRanksMax, class W, class Body>
TUTTI_INLINE void for_peers(const W& warp, Body body) {
  TUTTI_UNROLL
  for (Word peer = 0; peer < kRanksMax; ++peer) {
    if (warp.is_peer(peer)) {
      body(peer);
    }
  }
}

/// Every rank gets every vector and reduces all of it: allreduce and reduce of small vectors.
template <class R, class Wire, Word kRanksMax, Word kBatches>
TUTTI_INLINE void one_shot_rounds(const DirectArguments& a, Wide rounds, Word warp_index,
                                  Word lane) {
  using W = ReducingWarp<Wire, kRanksMax, kBatches>;
  using Value = typename W::Value;
  W warp(a, warp_index, lane);
  if (!warp.begin()) {
    return;
  }
  const Wide lines = a.lines;
  const auto load = [&](Wide round, Word batch) TUTTI_INLINE_LAMBDA {
    return warp.load(a.send[0], a.send_bytes[0], warp.unit(round, batch));
  };
  const auto push = [&](Wide round) TUTTI_INLINE_LAMBDA {
    Value values[W::kBatches];
    for_batches(warp, round, lines,
                [&](Word batch) TUTTI_INLINE_LAMBDA { values[batch] = load(round, batch); });
    for_batches(warp, round, lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
      for_peers<kRanksMax>(warp, [&](Word peer) TUTTI_INLINE_LAMBDA {
        warp.push(peer, 0, batch, round, values[batch]);
      });
    });
  };
  for (Wide step = 0; step <= rounds; ++step) {
    if (step < rounds) {
      push(step);
    }
    if (step == 0) {
      continue;
    }
    const Wide round = step - 1;
    Value values[W::kBatches][kRanksMax];
    for_batches(warp, round, lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
      const Value own = load(round, batch);
      TUTTI_UNROLL
      for (Word peer = 0; peer < kRanksMax; ++peer) {
        values[batch][peer] = own;
      }
    });
    if (!warp.wait([&]() TUTTI_INLINE_LAMBDA {
          bool all = true;
          for_batches(warp, round, lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
            for_peers<kRanksMax>(warp, [&](Word peer) TUTTI_INLINE_LAMBDA {
              all &= warp.look(peer, 0, batch, round, &values[batch][peer]);
            });
          });
          return all;
        })) {
      return;
    }
    for_batches(warp, round, lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
      warp.store(a.recv[0], a.send_bytes[0], warp.unit(round, batch),
                 reduce_values<R>(a, values[batch]));
    });
  }
}

/// Every rank reduces its shard of all vectors and, where `gather` says so, sends the result to
/// all: reduce-scatter, and allreduce and reduce of larger vectors.
template <class R, class Wire, Word kRanksMax, Word kBatches>
class TwoShot {
 public:
  using W = ReducingWarp<Wire, kRanksMax, kBatches>;
  using Value = typename W::Value;

  TUTTI_INLINE TwoShot(const DirectArguments& arguments, Word warp, Word lane)
      : a_(arguments), warp_(arguments, warp, lane) {
    TUTTI_UNROLL
    for (Word peer = 0; peer < kRanksMax; ++peer) {
      if (peer == a_.rank) {
        own_bytes_ = a_.send_bytes[peer];
        own_send_ = a_.send[peer];
        own_recv_ = a_.recv[peer];
      }
    }
  }

  TUTTI_INLINE void run(Wide rounds) {
    if (!warp_.begin()) {
      return;
    }
    for (Wide step = 0; step <= rounds + 1; ++step) {
      if (step < rounds) {
        push(step);
      }
      // One array for both: with one each the kernel of two ranks has too few registers, and 64 MiB
      // took 6 % longer.
      Value values[kBatches][kRanksMax];
      if (step > 0 && step <= rounds && !reduce(step - 1, values)) {
        return;
      }
      // Results of a round are collected one step later: their way overlaps the next round's.
      if (step > 1 && a_.gather != 0 && !collect(step - 2, values)) {
        return;
      }
    }
  }
  /// run(1), straight on.
  TUTTI_INLINE void run_single() {
    if (warp_.begin()) {
      push(0);
      Value values[kBatches][kRanksMax];
      if (reduce(0, values) && a_.gather != 0) {
        collect(0, values);
      }
    }
  }

 private:
  /// Sends the peers their shards.
  TUTTI_INLINE void push(Wide round) const {
    Value values[kBatches][kRanksMax];
    for_batches(warp_, round, a_.lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
      for_peers<kRanksMax>(warp_, [&](Word peer) TUTTI_INLINE_LAMBDA {
        values[batch][peer] =
            warp_.load(a_.send[peer], a_.send_bytes[peer], warp_.unit(round, batch));
      });
    });
    for_batches(warp_, round, a_.lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
      for_peers<kRanksMax>(warp_, [&](Word peer) TUTTI_INLINE_LAMBDA {
        warp_.push(peer, 0, batch, round, values[batch][peer]);
      });
    });
  }
  /// Reduces the own shard, once all have sent theirs, and passes the result on.
  TUTTI_INLINE bool reduce(Wide round, Value (&values)[kBatches][kRanksMax]) {
    for_batches(warp_, round, a_.lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
      const Value own = warp_.load(own_send_, own_bytes_, warp_.unit(round, batch));
      TUTTI_UNROLL
      for (Word peer = 0; peer < kRanksMax; ++peer) {
        values[batch][peer] = own;
      }
    });
    if (!wait(0, round, values)) {
      return false;
    }
    for_batches(warp_, round, a_.lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
      const Value result = reduce_values<R>(a_, values[batch]);
      if (a_.gather != 0) {
        for_peers<kRanksMax>(warp_, [&](Word peer) TUTTI_INLINE_LAMBDA {
          warp_.push(peer, 1, batch, round, result);
        });
      }
      warp_.store(own_recv_, own_bytes_, warp_.unit(round, batch), result);
    });
    return true;
  }
  /// Stores the peers' results.
  TUTTI_INLINE bool collect(Wide round, Value (&values)[kBatches][kRanksMax]) {
    if (!wait(1, round, values)) {
      return false;
    }
    for_batches(warp_, round, a_.lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
      for_peers<kRanksMax>(warp_, [&](Word peer) TUTTI_INLINE_LAMBDA {
        warp_.store(a_.recv[peer], a_.send_bytes[peer], warp_.unit(round, batch),
                    values[batch][peer]);
      });
    });
    return true;
  }
  /// Waits for what peers sent in a stage of a round.
  TUTTI_INLINE bool wait(Word stage, Wide round, Value (&values)[kBatches][kRanksMax]) {
    return warp_.wait([&]() TUTTI_INLINE_LAMBDA {
      bool all = true;
      for_batches(warp_, round, a_.lines, [&](Word batch) TUTTI_INLINE_LAMBDA {
        for_peers<kRanksMax>(warp_, [&](Word peer) TUTTI_INLINE_LAMBDA {
          all &= warp_.look(peer, stage, batch, round, &values[batch][peer]);
        });
      });
      return all;
    });
  }

  const DirectArguments& a_;
  W warp_;
  Wide own_bytes_ = 0;
  const void* own_send_ = nullptr;
  void* own_recv_ = nullptr;
};

/// Calls of one batch in one round, so all short ones, have code of their own: a GPU fetches what
/// it has not carried out lately, and what the general form steps over costs it a microsecond.
template <class Wire>
TUTTI_INLINE bool is_single(const DirectArguments& a) {
  return a.lines <= static_cast<Wide>(a.blocks * a.warps) * lines_of_warp<Wire>();
}

template <class R, class Wire, Word kRanksMax>
TUTTI_INLINE void one_shot(const DirectArguments& a, Word warp_index, Word lane) {
  if (is_single<Wire>(a)) {
    one_shot_rounds<R, Wire, kRanksMax, 1>(a, 1, warp_index, lane);
  } else {
    one_shot_rounds<R, Wire, kRanksMax, batches_of(kRanksMax)>(a, a.rounds[0], warp_index, lane);
  }
}

template <class R, class Wire, Word kRanksMax>
TUTTI_INLINE void two_shot(const DirectArguments& a, Word warp_index, Word lane) {
  if (is_single<Wire>(a)) {
    TwoShot<R, Wire, kRanksMax, 1>(a, warp_index, lane).run_single();
  } else {
    TwoShot<R, Wire, kRanksMax, batches_of(kRanksMax)>(a, warp_index, lane).run(a.rounds[0]);
  }
}

/// What an exchange has to do with one rank.
struct PairPieces {
  const Byte* send = nullptr;
  Wide send_bytes = 0;
  Byte* recv = nullptr;
  Wide recv_bytes = 0;
  void* arena = nullptr;  ///< The peer's.
  void* own = nullptr;    ///< This rank's.
  Wide epoch = 0;
  Wide rounds = 0;
  Word warps = 0;
};

/// One peer's pieces. Both ends of a pair know what goes either way: only that is sent, and a line
/// for each warp and round.
template <class Wire, Word kBatches>
TUTTI_INLINE void exchange_rounds(const DirectArguments& a, const PairPieces& pair, Wide rounds,
                                  Word peer, Word warp_index, Word warps, Word lane) {
  using W = Warp<Wire, kBatches, kBatches == 1>;
  using Value = typename W::Value;
  W warp(a, warp_index, warps, lane);
  if (!warp.begin()) {
    return;
  }
  const auto for_pieces = [&](Wide round, Wide bytes, auto body) TUTTI_INLINE_LAMBDA {
    TUTTI_UNROLL
    for (Word batch = 0; batch < kBatches; ++batch) {
      if (batch == 0 || warp.batch_line(round, batch) * (Wire::kUnits * kUnitBytes) < bytes) {
        body(batch);
      }
    }
  };
  const bool waits = peer != a.rank && (a.unawaited >> peer & 1) == 0;
  for (Wide step = 0; step <= rounds; ++step) {
    Value values[kBatches];
    if (step < rounds) {
      for_pieces(step, pair.send_bytes, [&](Word batch) TUTTI_INLINE_LAMBDA {
        values[batch] = warp.load(pair.send, pair.send_bytes, warp.unit(step, batch));
      });
      for_pieces(step, pair.send_bytes, [&](Word batch) TUTTI_INLINE_LAMBDA {
        if (peer == a.rank) {
          warp.store(pair.recv, pair.recv_bytes, warp.unit(step, batch), values[batch]);
        } else {
          warp.push(pair.arena, 0, a.rank, batch, pair.epoch + step, values[batch]);
        }
      });
    }
    if (step == 0 || !waits) {
      continue;
    }
    const Wide round = step - 1;
    if (!warp.wait([&]() TUTTI_INLINE_LAMBDA {
          bool all = true;
          for_pieces(round, pair.recv_bytes, [&](Word batch) TUTTI_INLINE_LAMBDA {
            all &= warp.look(pair.own, 0, peer, batch, pair.epoch + round, &values[batch]);
          });
          return all;
        })) {
      return;
    }
    for_pieces(round, pair.recv_bytes, [&](Word batch) TUTTI_INLINE_LAMBDA {
      warp.store(pair.recv, pair.recv_bytes, warp.unit(round, batch), values[batch]);
    });
  }
}

/// Every rank gives each peer a piece: allgather, alltoall, bcast, gather, scatter, their v-forms
/// and barrier. Pieces are of any sizes. A warp serves one rank, this one included: the code is
/// short, and what goes to different peers does not wait for each other.
template <class Wire, Word kRanksMax>
TUTTI_INLINE void exchange(const DirectArguments& a, Word warp_index, Word lane) {
  const Word shift = exchange_shift(kRanksMax <= 2 ? 2 : a.ranks);
  const Word peer = warp_index & ((1U << shift) - 1);
  const Word warp = warp_index >> shift;
  PairPieces pair;
  // Selected one by one: a place in the arguments that is not known to the compiler makes it copy
  // them all to memory.
  TUTTI_UNROLL
  for (Word rank = 0; rank < kRanksMax; ++rank) {
    if (rank == peer) {
      pair = {static_cast<const Byte*>(a.send[rank]),
              a.send_bytes[rank],
              static_cast<Byte*>(a.recv[rank]),
              a.recv_bytes[rank],
              a.arena[rank],
              pair.own,
              a.epoch[rank] + counted_rounds(a),
              a.rounds[rank],
              a.pair_warps[rank]};
    }
    pair.own = rank == a.rank ? a.arena[rank] : pair.own;
  }
  const Word warps = pair.warps;
  // Warps that are left over, ranks that there are not, and pieces that stay where they are.
  if (warp >= warps || peer >= a.ranks || pair.rounds == 0) {
    return;
  }
  const Wide most = pair.send_bytes > pair.recv_bytes ? pair.send_bytes : pair.recv_bytes;
  const Wide single_bytes =
      static_cast<Wide>(warps) * (lines_of_warp<Wire>() * Wire::kUnits * kUnitBytes);
  if (most <= single_bytes) {
    exchange_rounds<Wire, 1>(a, pair, 1, peer, warp, warps, lane);
  } else {
    exchange_rounds<Wire, kExchangeBatches>(a, pair, pair.rounds, peer, warp, warps, lane);
  }
}

/// By one thread of each block, once all warps of the block are done: the last block of the launch
/// counts its rounds for the next one.
TUTTI_INLINE void count_launch(const DirectArguments& a) {
  if (a.counter != nullptr && Hardware::add_word(&a.counter->blocks, 1) == a.blocks - 1) {
    a.counter->blocks = 0;
    a.counter->waiting_since = 0;
    a.counter->rounds += a.counted_rounds;
  }
}

/// recv[0] = send[0] op send[1], which may be the same memory: a local reduction, unit by unit.
template <class R>
TUTTI_INLINE void combine(const DirectArguments& a, Word warp_index, Word lane) {
  const Wide units = (a.send_bytes[0] + kUnitBytes - 1) / kUnitBytes;
  const Wide step = static_cast<Wide>(a.blocks) * a.warps * Hardware::kLanes;
  const UnitAccess<false> access(a.alignment);
  for (Wide unit = static_cast<Wide>(warp_index) * Hardware::kLanes + lane; unit < units;
       unit += step) {
    const Wide at = unit * kUnitBytes;
    Unit values[2];
    TUTTI_UNROLL
    for (Word i = 0; i < 2; ++i) {
      values[i] = access.load(static_cast<const Byte*>(a.send[i]), a.send_bytes[0], at);
    }
    access.store(static_cast<Byte*>(a.recv[0]), a.send_bytes[0], at,
                 R::template reduce<2>(a, values, 2));
  }
}

}  // namespace tutti::device::kernels
