// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// From a call to the launch that carries it: which kernel, on how many blocks, with which
// arguments. Pure. The kernel, the shape of the launch and the rounds follow from what both ends of
// every pair know; pointers are the rank's own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "device/kernels/direct_arguments.hpp"
#include "runners/call.hpp"
#include "runners/runner.hpp"

namespace tutti::runners {

/// How data and flags share memory between the GPUs of a communicator, agreed by its ranks.
enum class DirectWire : std::uint8_t {
  kLines,    ///< 112 of 128 bytes are data; needs NVLink (or one GPU, or the host device).
  kPackets,  ///< Half of 256 bytes; works wherever peers are mapped.
};

/// What the device makes of a line and a warp; must be what the kernels were compiled with.
struct DirectGeometry {
  DirectWire wire = DirectWire::kLines;
  /// Lines that a warp handles at once: 4 on NVIDIA, 8 on AMD, 1 on the host device.
  std::uint32_t warp_lines = 4;
  /// Warps of a block, at most: AMD's have 64 lanes, and a block 512 threads everywhere.
  std::uint32_t warps_max = 16;
  /// NVIDIA's image has kernels for packets only of the general kind, "packets_exchange_8".
  bool general_only = false;

  std::uint64_t line_data_bytes() const { return wire == DirectWire::kLines ? 112 : 128; }
  std::uint64_t line_bytes() const { return wire == DirectWire::kLines ? 128 : 256; }
  friend bool operator==(const DirectGeometry&, const DirectGeometry&) = default;
};

/// Blocks that any launch has at most: the slots of an arena are made for these, of the geometry's
/// warps. Two launches of so many fit on a GPU side by side, not any number: those on streams take
/// turns (stream_calls.hpp).
inline constexpr std::uint32_t kDirectBlocksMax = 64;

/// The same of launches that an application's graph repeats, whose slots are apart: a quarter of a
/// GPU's blocks carries what short calls have.
inline constexpr std::uint32_t kDirectCapturedBlocksMax = 32;

/// What is tuned, equal on all ranks. Zero: the default for the number of ranks and the size.
struct DirectTuning {
  std::uint32_t blocks = 0;
  std::uint32_t blocks_max = kDirectBlocksMax;  ///< Of the default shapes.
  std::uint32_t warps = 0;                      ///< Of a block.
  /// Largest vector that every rank reduces whole.
  std::uint64_t one_shot_bytes_max = UINT64_MAX;
  bool one_shot_default = true;  ///< False: `one_shot_bytes_max` counts.
  /// Largest piece, bytes, that two ranks exchange in a call whose sizes no rank knows of all
  /// others; larger ones are left to another (large_pairs()).
  std::uint64_t pair_bytes_max = UINT64_MAX;
  /// Of each piece in a chunk of a call that is copied, at most; zero: what the slots hold.
  Bytes copy_chunk_bytes = 0;
};

/// Bytes of a slot of an arena, and of the whole arena: [bank 4][stage 2][source rank], for
/// launches of at most so many blocks.
std::uint64_t direct_slot_bytes(const DirectGeometry& geometry, int ranks,
                                std::uint32_t blocks_max = kDirectBlocksMax);
std::uint64_t direct_arena_bytes(const DirectGeometry& geometry, int ranks,
                                 std::uint32_t blocks_max = kDirectBlocksMax);

/// Names of all kernels; DirectLaunch::kernel counts in it.
std::span<const char* const> direct_kernel_names();

struct DirectLaunch {
  int kernel = 0;
  std::uint32_t blocks = 1;
  std::uint32_t warps = 1;  ///< Of a block.
  /// Epochs that the launch uses with each peer.
  std::array<std::uint64_t, device::kernels::kPeersMax> rounds{};
  /// Peers that a rank need not wait for once they have completed all calls before, one bit each:
  /// they send it nothing (direct.hpp, "Without a wait").
  std::uint32_t send_only_peers = 0;
  /// Bytes that go to each peer and come from it, as the peer must see them too.
  std::array<Bytes, device::kernels::kPeersMax> send_bytes{};
  std::array<Bytes, device::kernels::kPeersMax> recv_bytes{};
  /// All but arenas, epochs and the words of completion.
  device::kernels::DirectArguments arguments{};
};

/// The first epoch, from `next` on, of a launch that uses `rounds` of them. Packets carry the low
/// 32 bits as their flag, and 0 is what a line holds that was never written: a launch that would
/// come to it begins behind it, in the same bank.
std::uint64_t direct_first_epoch(std::uint64_t next, std::uint64_t rounds);

/// True where the result may not be written before all input was read, wherever the pieces are:
/// reduce_scatter in place with unequal blocks. The caller then gives a copy of the input.
bool direct_needs_copy(const Call& call);

/// Of a gatherv, scatterv, alltoallv or alltoallw: the ranks whose pieces plan_direct() leaves out,
/// one bit each. Both ends of a pair know its sizes and come to the same answer; a rank's own piece
/// goes with what else it has.
struct LargePairs {
  std::uint32_t peers = 0;
  bool has_large = false;  ///< Somebody else has to carry the pieces of `peers`.
  bool has_others = true;  ///< Something is left for the launch.
};
LargePairs large_pairs(const Call& call, const ScopeRank& me, std::uint64_t pair_bytes_max);

/// The call without the pieces of all ranks but those of `peers`; counts are kept in `counts`.
struct CountsOfPairs {
  std::vector<std::uint64_t> send;
  std::vector<std::uint64_t> recv;
};
Call only_pairs(const Call& call, const ScopeRank& me, std::uint32_t peers, CountsOfPairs* counts);

/// A call that select's refusal() let through, on 1 to 8 ranks.
DirectLaunch plan_direct(const Call& call, const ScopeRank& me, const DirectGeometry& geometry,
                         const DirectTuning& tuning);

}  // namespace tutti::runners
