// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/launch.hpp"

#include <algorithm>
#include <string>

#include "base/check.hpp"
#include "device/kernels/direct_kernels.hpp"

namespace tutti::runners {

namespace kernels = device::kernels;
using select::Collective;

namespace {

/// Of a block, as long as there are blocks: warps on many processors of the GPU get on faster.
constexpr std::uint32_t kWarpsOfBlock = 8;
/// That may go to a peer which is not waited for: half of the banks.
constexpr std::uint64_t kUnawaitedRoundsMax = 2;

std::uint64_t up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit; }

/// The most ranks of the kernel that is taken for so many.
std::uint32_t ranks_max(int ranks) { return ranks == 2 ? 2 : ranks <= 4 ? 4 : 8; }
/// kernels::batches_of(), which is device code.
std::uint32_t batches_of(std::uint32_t most) { return most > 4 ? 1 : most > 2 ? 2 : 4; }

bool is_reducing(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter || collective == Collective::kReduceScatterBlock;
}

/// In the order of device/kernels/direct_kernels.hpp.
enum class Form { kOneShot, kTwoShot, kExchange };
enum Reduction : int { kFloat32Sum, kFloat64Sum, kFloat16Sum, kBfloat16Sum, kInt8Sum, kAny };

/// Reductions that have a kernel of their own. Complex numbers add as their parts do, 8-bit
/// integers (MPI_CHAR, which benchmarks take by default) alike with and without a sign.
Reduction reduction_of(const Call& call) {
  if (call.op != select::ReduceOp::kSum && call.op != select::ReduceOp::kAvg) {
    return kAny;
  }
  switch (call.type) {
    case select::DataType::kFloat16:
      return kFloat16Sum;
    case select::DataType::kBfloat16:
      return kBfloat16Sum;
    case select::DataType::kFloat32:
    case select::DataType::kComplex64:
      return kFloat32Sum;
    case select::DataType::kFloat64:
    case select::DataType::kComplex128:
      return kFloat64Sum;
    case select::DataType::kInt8:
    case select::DataType::kUint8:
      return kInt8Sum;
    default:
      return kAny;
  }
}

constexpr const char* kNames[] = {
#define TUTTI_KERNEL(name, body) #name,
    TUTTI_DIRECT_KERNELS
#undef TUTTI_KERNEL
    "packets_one_shot_any_8",
    "packets_two_shot_any_8", "packets_exchange_8"};

/// Where a kernel's name stands; a test compares with the words.
int kernel_of(Form form, Reduction reduction, std::uint32_t most, bool general_only) {
  constexpr int kExchange = 3;
  constexpr int kGeneral = 5;  // one_shot_any_8, two_shot_any_8, combine_any_8, exchange_8 and _2
  constexpr int kSums = 5;
  constexpr int kOfRanks = 2 * kSums;  // In two forms.
  if (general_only) {
    return kGeneral + 3 * kOfRanks + static_cast<int>(form);
  }
  if (form == Form::kExchange) {
    return most == 2 ? kExchange + 1 : kExchange;
  }
  const int of_ranks = kGeneral + (most == 2 ? 0 : most == 4 ? 1 : 2) * kOfRanks;
  const int two_shot = form == Form::kTwoShot ? 1 : 0;
  return reduction == kAny ? two_shot : of_ranks + two_shot * kSums + static_cast<int>(reduction);
}

/// The pieces of a call by peer, in bytes.
void set_pieces(const Call& call, const ScopeRank& me, kernels::DirectArguments* a) {
  const auto send = [&](const void* from, int peer, const Run& run) {
    const auto i = static_cast<std::size_t>(peer);
    a->send[i] = at(from, run.offset, call.element_bytes);
    a->send_bytes[i] = run.count * call.element_bytes;
  };
  const auto recv = [&](int peer, const Run& run) {
    const auto i = static_cast<std::size_t>(peer);
    a->recv[i] = at(call.recv, run.offset, call.element_bytes);
    a->recv_bytes[i] = run.count * call.element_bytes;
  };
  if (call.collective == Collective::kBcast && me.rank != call.root) {
    recv(call.root, Run{0, call.count});
  } else if (call.collective == Collective::kBcast) {
    for (int peer = 0; peer < me.ranks; ++peer) {
      if (peer != call.root) {
        send(call.recv, peer, Run{0, call.count});
      }
    }
  } else if (call.collective != Collective::kBarrier) {
    visit_pieces(
        call, me.rank, me.ranks, [&](int peer, const Run& run) { send(call.send, peer, run); },
        recv);
  }
}

/// 16, 4 or 1: what all pieces begin at a multiple of.
std::uint32_t alignment_of(const kernels::DirectArguments& a, int ranks) {
  std::uintptr_t bits = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(ranks); ++i) {
    bits |= a.send_bytes[i] > 0 ? reinterpret_cast<std::uintptr_t>(a.send[i]) : 0;
    bits |= reinterpret_cast<std::uintptr_t>(a.recv[i]);
  }
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
}

bool sizes_are_known(Collective collective) {
  return collective != Collective::kGatherv && collective != Collective::kScatterv &&
         collective != Collective::kAlltoallv && collective != Collective::kAlltoallw;
}

/// Warps for so many lines: none has a second batch before all have one, for warps are spread over
/// the GPU's processors; beyond one round, rounds that are equally full, for a warp with nothing to
/// send costs as much as another.
std::uint64_t warps_for(std::uint64_t lines, std::uint32_t warp_lines, std::uint32_t batches,
                        std::uint64_t most_warps) {
  const std::uint64_t all_batches = std::max<std::uint64_t>(up(lines, most_warps * warp_lines), 1);
  const std::uint64_t batches_of_warp =
      all_batches <= batches ? all_batches : up(all_batches, batches) * batches;
  return std::max<std::uint64_t>(up(lines, batches_of_warp * warp_lines), 1);
}

/// The largest piece that any pair exchanges, equal on all ranks; known sizes only.
std::uint64_t largest_piece(const Call& call) {
  std::uint64_t count = call.count;
  if (call.collective == Collective::kAllgatherv) {
    count = *std::max_element(call.recv_counts.begin(), call.recv_counts.end());
  }
  return call.collective == Collective::kBarrier ? 0 : count * call.element_bytes;
}

/// Blocks and warps of a launch of so many warps that serve ranks in `groups` groups.
void spread(std::uint64_t warps, std::uint32_t groups, const DirectTuning& tuning,
            DirectLaunch& launch) {
  launch.blocks = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(up(warps, kWarpsOfBlock), tuning.blocks_max));
  launch.warps =
      static_cast<std::uint32_t>(std::max(up(warps, launch.blocks), up(groups, launch.blocks)));
}

/// The shape of a launch, and the warps that serve each rank in an exchange. The launch may differ
/// between ranks that do not know each other's sizes; the warps of a pair may not.
void choose_shape(const Call& call, const DirectGeometry& geometry, const DirectTuning& tuning,
                  std::uint64_t lines, std::uint32_t groups, std::uint32_t batches,
                  DirectLaunch& launch) {
  kernels::DirectArguments& a = launch.arguments;
  const std::uint64_t most_warps = std::uint64_t{tuning.blocks_max} * geometry.warps_max / groups;
  if (tuning.blocks == 0 && !sizes_are_known(call.collective)) {
    std::uint64_t most = 1;
    for (std::size_t peer = 0; peer < std::size(a.pair_warps); ++peer) {
      const std::uint64_t bytes = std::max(a.send_bytes[peer], a.recv_bytes[peer]);
      const std::uint64_t warps = warps_for(up(bytes, geometry.line_data_bytes()),
                                            geometry.warp_lines, batches, most_warps);
      a.pair_warps[peer] = static_cast<kernels::Word>(warps);
      most = std::max(most, warps);
    }
    spread(groups * most, groups, tuning, launch);
    return;
  }
  if (tuning.blocks != 0) {
    launch.blocks = std::min(tuning.blocks, kDirectBlocksMax);
    launch.warps = std::max<std::uint32_t>(std::min(std::max(tuning.warps, 1U), geometry.warps_max),
                                           static_cast<std::uint32_t>(up(groups, launch.blocks)));
  } else {
    spread(groups * warps_for(lines, geometry.warp_lines, batches, most_warps), groups, tuning,
           launch);
  }
  std::fill(std::begin(a.pair_warps), std::end(a.pair_warps),
            launch.blocks * launch.warps / groups);
}

/// Of which a rank's result is the whole.
bool is_whole(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce;
}

std::uint64_t one_shot_bytes_max(const DirectTuning& tuning, int ranks) {
  return !tuning.one_shot_default ? tuning.one_shot_bytes_max
         : ranks <= 2             ? UINT64_MAX
         : ranks <= 4             ? 64 << 10
                                  : 32 << 10;
}

/// Sets which part of the send buffer goes to each rank, and where the result goes. Returns the
/// bytes that a warp's lines are cut from.
std::uint64_t cut_reduction(const Call& call, const ScopeRank& me, bool one_shot,
                            kernels::DirectArguments& a) {
  const auto ranks = static_cast<std::size_t>(me.ranks);
  const std::uint64_t bytes = call.count * call.element_bytes;
  const bool receives = call.collective != Collective::kReduce || me.rank == call.root;
  if (one_shot) {
    a.send[0] = call.send;
    a.send_bytes[0] = bytes;
    a.recv[0] = receives ? call.recv : nullptr;
    return bytes;
  }
  if (is_whole(call.collective)) {
    // Shards of whole units, so that no element is cut.
    const std::uint64_t shard = up(up(bytes, kernels::kUnitBytes), ranks) * kernels::kUnitBytes;
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      const std::uint64_t begin = std::min(peer * shard, bytes);
      a.send[peer] = at(call.send, begin, 1);
      a.send_bytes[peer] = std::min(shard, bytes - begin);
      a.recv[peer] = receives ? at(call.recv, begin, 1) : nullptr;
    }
    a.gather = 1;
    return shard;
  }
  std::uint64_t offset = 0;
  std::uint64_t most = 0;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    const std::uint64_t count = call.recv_counts.empty() ? call.count : call.recv_counts[peer];
    a.send[peer] = at(call.send, offset, call.element_bytes);
    a.send_bytes[peer] = count * call.element_bytes;
    most = std::max<std::uint64_t>(most, a.send_bytes[peer]);
    offset += count;
  }
  a.recv[static_cast<std::size_t>(me.rank)] = call.recv;
  return most;
}

}  // namespace

std::span<const char* const> direct_kernel_names() { return kNames; }

std::uint64_t direct_slot_bytes(const DirectGeometry& geometry, int ranks,
                                std::uint32_t blocks_max) {
  // General kernels, which are for 8 ranks, also run on fewer, with fewer batches.
  return static_cast<std::uint64_t>(batches_of(ranks_max(ranks))) * blocks_max *
         geometry.warps_max * geometry.warp_lines * geometry.line_bytes();
}

std::uint64_t direct_arena_bytes(const DirectGeometry& geometry, int ranks,
                                 std::uint32_t blocks_max) {
  constexpr std::uint64_t kBanksAndStages = 8;
  return kBanksAndStages * static_cast<std::uint64_t>(ranks) *
         direct_slot_bytes(geometry, ranks, blocks_max);
}

std::uint64_t direct_first_epoch(std::uint64_t next, std::uint64_t rounds) {
  constexpr std::uint64_t kFlags = std::uint64_t{1} << 32;
  constexpr std::uint64_t kBanks = 4;
  const std::uint64_t wrap = up(next, kFlags) * kFlags;
  if (wrap - next >= rounds) {
    return next;
  }
  return wrap + (next % kBanks == 0 ? kBanks : next % kBanks);
}

bool direct_needs_copy(const Call& call) {
  return call.collective == Collective::kReduceScatter && aliasing_of(call) == Aliasing::kSame &&
         std::any_of(call.recv_counts.begin(), call.recv_counts.end(),
                     [&](std::uint64_t count) { return count != call.recv_counts.front(); });
}

LargePairs large_pairs(const Call& call, const ScopeRank& me, std::uint64_t pair_bytes_max) {
  LargePairs large;
  if (pair_bytes_max == UINT64_MAX || sizes_are_known(call.collective)) {
    return large;
  }
  kernels::DirectArguments a{};
  set_pieces(call, me, &a);
  const bool is_rooted = select::is_rooted(call.collective) && me.rank != call.root;
  std::uint32_t meant = 0;  // Peers that the call may give anything to, or take from.
  for (int peer = 0; peer < me.ranks; ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    const bool is_apart = is_rooted && peer != call.root && peer != me.rank;
    const bool is_large = std::max(a.send_bytes[i], a.recv_bytes[i]) > pair_bytes_max;
    large.peers |= is_apart || is_large ? 1U << peer : 0;
    meant |= is_apart || peer == me.rank ? 0 : 1U << peer;
  }
  const std::uint32_t own = 1U << me.rank;
  large.has_large = (large.peers & meant) != 0;
  large.has_others = !large.has_large || (meant & ~large.peers) != 0;
  if (!large.has_large) {
    large.peers &= ~own;
  } else if (!large.has_others) {
    large.peers |= own;
  }
  return large;
}

Call only_pairs(const Call& call, const ScopeRank& me, std::uint32_t peers, CountsOfPairs* counts) {
  Call some = call;
  const auto keep = [peers](std::span<const std::uint64_t> all, std::vector<std::uint64_t>* kept) {
    kept->assign(all.begin(), all.end());
    for (std::size_t peer = 0; peer < kept->size(); ++peer) {
      (*kept)[peer] = (peers >> peer & 1) != 0 ? (*kept)[peer] : 0;
    }
    return std::span<const std::uint64_t>(*kept);
  };
  some.send_counts = keep(call.send_counts, &counts->send);
  some.recv_counts = keep(call.recv_counts, &counts->recv);
  // The one piece of a rank that has no counts, or of the root beside them.
  const int other = select::is_rooted(call.collective) ? call.root : me.rank;
  some.count = (peers >> other & 1) != 0 ? call.count : 0;
  return some;
}

DirectLaunch plan_direct(const Call& call, const ScopeRank& me, const DirectGeometry& geometry,
                         const DirectTuning& tuning) {
  CHECK(me.ranks >= 1 && me.ranks <= kernels::kPeersMax, std::to_string(me.ranks));
  DirectLaunch launch;
  kernels::DirectArguments& a = launch.arguments;
  const auto ranks = static_cast<std::size_t>(me.ranks);
  const auto self = static_cast<std::size_t>(me.rank);
  std::uint32_t most = geometry.general_only ? 8 : ranks_max(me.ranks);
  std::uint64_t line_owner_bytes = 0;  // What a warp's lines are cut from.
  const bool reduces = is_reducing(call.collective);
  bool one_shot = false;
  std::uint32_t left_out = 0;
  if (reduces) {
    const Reduction reduction = geometry.general_only ? kAny : reduction_of(call);
    most = reduction != kAny ? most : 8;
    one_shot = is_whole(call.collective) &&
               call.count * call.element_bytes <= one_shot_bytes_max(tuning, me.ranks);
    line_owner_bytes = cut_reduction(call, me, one_shot, a);
    launch.kernel = kernel_of(one_shot ? Form::kOneShot : Form::kTwoShot, reduction, most,
                              geometry.general_only);
    a.type = static_cast<kernels::Type>(call.type);
    const bool is_average = call.op == select::ReduceOp::kAvg;
    a.op = is_average ? kernels::Op::kSum : static_cast<kernels::Op>(call.op);
    a.scale = is_average ? 1.0 / me.ranks : 1.0;
  } else {
    set_pieces(call, me, &a);
    left_out = large_pairs(call, me, tuning.pair_bytes_max).peers;
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      if ((left_out >> peer & 1) != 0) {
        a.send[peer] = a.recv[peer] = nullptr;
        a.send_bytes[peer] = a.recv_bytes[peer] = 0;
      }
    }
    line_owner_bytes = largest_piece(call);
    launch.kernel = kernel_of(Form::kExchange, kAny, most, geometry.general_only);
  }

  // Warps that serve the same ranks: all of them in a reduction, one in an exchange.
  const std::uint32_t groups =
      reduces ? 1 : 1U << kernels::exchange_shift(static_cast<kernels::Word>(me.ranks));
  const std::uint32_t batches = reduces ? batches_of(most) : kernels::kExchangeBatches;
  const std::uint64_t lines = up(line_owner_bytes, geometry.line_data_bytes());
  choose_shape(call, geometry, tuning, lines, groups, batches, launch);
  const auto rounds_of = [&](std::uint64_t of, std::uint64_t warps) {
    return std::max<std::uint64_t>(up(of, batches * warps * geometry.warp_lines), 1);
  };
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    const std::uint64_t bytes = std::max(a.send_bytes[peer], a.recv_bytes[peer]);
    const std::uint64_t pair_lines = reduces ? lines : up(bytes, geometry.line_data_bytes());
    const std::uint64_t rounds =
        (left_out >> peer & 1) != 0 ? 0 : rounds_of(pair_lines, a.pair_warps[peer]);
    launch.rounds[peer] = peer == self ? 0 : rounds;
    launch.send_bytes[peer] = a.send_bytes[one_shot ? 0 : peer];
    launch.recv_bytes[peer] = reduces ? a.send_bytes[one_shot ? 0 : self] : a.recv_bytes[peer];
    if (!reduces) {
      // The own piece is copied, unless it is where it belongs.
      const bool is_copied = bytes > 0 && a.recv[peer] != nullptr && a.send[peer] != a.recv[peer];
      a.rounds[peer] = static_cast<kernels::Word>(peer == self && !is_copied ? 0 : rounds);
      const bool is_send_only = launch.rounds[peer] > 0 && rounds <= kUnawaitedRoundsMax &&
                                a.recv_bytes[peer] == 0 && call.collective != Collective::kBarrier;
      launch.send_only_peers |= is_send_only ? 1U << peer : 0;
    }
  }
  if (reduces) {
    a.lines = lines;
    a.rounds[0] =
        static_cast<kernels::Word>(rounds_of(lines, std::uint64_t{launch.blocks} * launch.warps));
  }
  a.rank = static_cast<kernels::Word>(me.rank);
  a.ranks = static_cast<kernels::Word>(me.ranks);
  a.blocks = launch.blocks;
  a.warps = launch.warps;
  a.alignment = alignment_of(a, me.ranks);
  a.slot_bytes = direct_slot_bytes(geometry, me.ranks);
  return launch;
}

}  // namespace tutti::runners
