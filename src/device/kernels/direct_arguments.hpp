// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a launch of a direct kernel is told. Shared by the host side, which fills it, and the device
// side, which is compiled without any library: nothing but built-in types may appear here.
#pragma once

namespace tutti::device::kernels {

using Word = unsigned int;        ///< 32 bits.
using Wide = unsigned long long;  ///< 64 bits.
using Byte = unsigned char;

/// GPUs of one communicator.
inline constexpr int kPeersMax = 8;
/// What a lane moves at once, bytes; elements never straddle two units.
inline constexpr Wide kUnitBytes = 16;
/// Batches of lines that a warp of an exchange has in flight in a round.
inline constexpr Word kExchangeBatches = 4;
/// An exchange has warps for 2, 4 or 8 ranks: 1, 2 or 3.
constexpr Word exchange_shift(Word ranks) { return ranks > 4 ? 3 : ranks > 2 ? 2 : 1; }

/// Types and operations of a reduction, as numbers of our own: the order is that of
/// select::DataType and select::ReduceOp, which a test compares.
enum class Type : Word {
  kByte,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kBool,
  kLogical32,
  kInt16Int,
  kInt32Int,
  kInt64Int,
  kFloat32Int,
  kFloat64Int,
  kFloat32Pair,
  kFloat64Pair,
};
enum class Op : Word {
  kNone,
  kSum,
  kProd,
  kMin,
  kMax,
  kLand,
  kLor,
  kLxor,
  kBand,
  kBor,
  kBxor,
  kMinloc,
  kMaxloc,
};

/// In memory of the own device: what launches of graphs count, which the host cannot. Only launches
/// that have as many rounds with every peer use it, one after the other.
struct LaunchCounter {
  Wide rounds;         ///< Of all launches before this one.
  Word blocks;         ///< Of this one that are over.
  Word waiting_since;  ///< Hardware::ticks() of this one's first long wait; 0: none yet.
};

/// Of Hardware::ticks() at most (NVIDIA; 763 on AMD).
inline constexpr double kTicksPerSecondMost = 1e9 / (1 << 20);

/// One launch at one rank. An arena is the staging memory of one GPU, mapped into all of them:
/// slots of `slot_bytes`, indexed [bank][stage][source rank]. Only the source writes a slot, only
/// the arena's owner reads it.
struct DirectArguments {
  /// Pieces by peer. Exchange: what goes to and comes from each. Two-shot: the peer's shard of the
  /// input and of the result (null result: not wanted). One-shot: entry 0 is the whole vector.
  const void* send[kPeersMax];
  Wide send_bytes[kPeersMax];
  void* recv[kPeersMax];
  Wide recv_bytes[kPeersMax];
  void* arena[kPeersMax];
  /// Flag of the first round with each peer. Both sides of a pair count its rounds alike.
  Wide epoch[kPeersMax];
  /// Rounds by peer in an exchange (of the longer direction), else entry 0. The host divides:
  /// 64-bit divisions cost a GPU as much as a hop between GPUs.
  Word rounds[kPeersMax];
  /// Of an exchange: warps that serve the peer, the same at both ends; this launch has as many.
  Word pair_warps[kPeersMax];
  Wide lines;  ///< Of a reduction: of the vector or the largest shard.
  Wide slot_bytes;
  LaunchCounter* counter;  ///< Null: `epoch` is the whole truth.
  Word counted_rounds;     ///< What this launch adds to it.
  Word limit_ticks;        ///< Of a launch with `counter` that waits, Hardware::ticks(); 0: none.
  /// Host memory: block b stores `sequence` to done[b] when all its results can be read. Null for
  /// calls on streams: the host waits for the stream, and the words would lengthen the launch.
  Wide* done;
  Wide sequence;
  /// Host memory: nonzero ends all waiting; a kernel that waited in vain stores to `failed`.
  const Word* abort;
  Word* failed;
  Word* overdue;  ///< The same of a launch with `counter` that has waited for `limit_ticks`.
  Word* ended;    ///< Memory of the own device: as `failed`, for the launches behind.
  Word rank;
  Word ranks;
  Word blocks;     ///< Of this launch.
  Word warps;      ///< Of a block.
  Word alignment;  ///< Of all pieces: 16, 4 or 1.
  Type type;
  Op op;
  double scale = 1;  ///< Of a sum of real or complex numbers: what its result is multiplied by.
  Word gather;       ///< Two-shot: results go to all ranks (allreduce), not to their owner only.
  /// Others were queued before this launch: what it would push may be what a call that gave up left
  /// behind. It looks at `ended` before its first push. Not at `abort`: every lane's look at host
  /// memory takes the link's time, 0.7 ms for those of a launch of 64 blocks.
  Word is_queued;
  /// Of an exchange, one bit for each peer that gets pieces, gives none and is not waited for: all
  /// its calls before this one are over, and at most two rounds go to it.
  Word unawaited;
};

}  // namespace tutti::device::kernels
