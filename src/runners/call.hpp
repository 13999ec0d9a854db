// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A collective call at one rank, free of MPI: dense elements, explicit pointers. The entry point
// (src/mpi, the C API) has already turned datatypes into elements (data movement: bytes) and
// MPI_IN_PLACE into pointers, so a runner never meets either. Counts and offsets are in elements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "device/device.hpp"
#include "select/shape.hpp"

namespace tutti::runners {

/// Part of a communicator that a step of a composition runs on.
enum class Scope : std::uint8_t {
  kWhole,
  kNode,     ///< The ranks of this rank's node, in communicator order.
  kLeaders,  ///< The first rank of each node, in the order of those ranks. Others do not take part.
};
inline constexpr int kScopeCount = 3;

struct Call {
  select::Collective collective = select::Collective::kAllreduce;
  select::DataType type = select::DataType::kByte;
  select::ReduceOp op = select::ReduceOp::kNone;
  Bytes element_bytes = 1;
  int root = 0;  ///< In the scope's numbering; rooted collectives only.

  /// Null where the rank does not send or receive. With MPI_IN_PLACE they alias: alltoall and
  /// reductions have send == recv, allgather has send == recv + own block. Equal pointers alone
  /// mean nothing: `in_place` says it. Bcast uses recv on every rank (the root reads it).
  const void* send = nullptr;
  void* recv = nullptr;
  device::PointerInfo send_memory;
  device::PointerInfo recv_memory;
  bool in_place = false;

  /// Elements per block of regular forms.
  std::uint64_t count = 0;
  /// v-forms and reduce_scatter, one entry per rank of the scope; empty where not significant.
  std::span<const std::uint64_t> send_counts;
  std::span<const std::uint64_t> send_offsets;
  std::span<const std::uint64_t> recv_counts;
  std::span<const std::uint64_t> recv_offsets;

  /// The application's MPI_Datatype and MPI_Op of a reduction, for the MPI's own collectives.
  std::uintptr_t mpi_type = 0;
  std::uintptr_t mpi_op = 0;
};

/// How a side of a call is described.
enum class SideForm : std::uint8_t {
  kAbsent,  ///< Not significant at this rank (or there is no such buffer).
  kOne,     ///< count elements.
  kBlocks,  ///< count elements for each rank.
  kCounts,  ///< A count for each rank.
};
struct SideForms {
  SideForm send = SideForm::kAbsent;
  SideForm recv = SideForm::kAbsent;
};
/// `is_root`: of rooted collectives.
SideForms forms_of(select::Collective collective, bool is_root);

/// The largest block count of any rank, equal on all: what pipelining divides by.
std::uint64_t block_count_max(select::Collective collective, int ranks);

/// True when `collective` takes per-rank counts (gatherv, ..., alltoallw, reduce_scatter).
bool has_counts(select::Collective collective);

/// MPI_IN_PLACE as pointers. An MPI library may run another algorithm in place, so a rank that
/// moves its buffers elsewhere must stay in place there: the other ranks do.
enum class Aliasing : std::uint8_t {
  kNone,
  kSame,        ///< send == recv: reductions, alltoall(v, w).
  kSendInRecv,  ///< send is the own block of recv: allgather(v), gather(v) at the root.
  kRecvInSend,  ///< recv is the own block of send: scatter(v) at the root.
};
Aliasing aliasing_of(const Call& call);
/// Whether MPI_IN_PLACE may stand for a side that the rank has.
bool may_be_in_place(select::Collective collective, bool sends, bool is_root);
/// Offset of the own block in the buffer that holds it; kSendInRecv and kRecvInSend.
std::uint64_t own_block_offset(const Call& call, int rank);

/// One side of a call as an entry point knows it; what it has not is zero.
struct CallSide {
  const void* buffer = nullptr;
  device::PointerInfo memory;
  bool in_place = false;    ///< Its data is where may_be_in_place() has it, in the other side.
  std::uint64_t count = 0;  ///< Of a block.
  std::span<const std::uint64_t> counts;
  std::span<const std::uint64_t> offsets;
};
/// Fills in all of `call` that follows from its sides, at `rank`. Of a reduce_scatter `recv` has
/// the counts.
void set_sides(const CallSide& send, const CallSide& recv, int rank, Call* call);

/// Whether this rank's part has device memory.
inline bool is_on_device(const Call& call) {
  return call.send_memory.kind == device::MemoryKind::kDevice ||
         call.recv_memory.kind == device::MemoryKind::kDevice;
}

/// A run of elements of a buffer.
struct Run {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
};

/// What the rank reads and writes, block by block in rank order (empty blocks included).
std::vector<Run> send_runs(const Call& call, int rank, int ranks);
std::vector<Run> recv_runs(const Call& call, int rank, int ranks);

/// Of gather, scatter, allgather, alltoall and their v- and w-forms: `to(peer, run)` for what of
/// the send buffer goes to each peer, `from(peer, run)` for where in the recv buffer its piece
/// comes; both of the own piece, too. Peers are in no order, and those without a piece may be left
/// out.
template <class To, class From>
void visit_pieces(const Call& call, int rank, int ranks, const To& to, const From& from) {
  using select::Collective;
  const bool is_gather =
      call.collective == Collective::kGather || call.collective == Collective::kGatherv;
  const bool is_scatter =
      call.collective == Collective::kScatter || call.collective == Collective::kScatterv;
  const bool is_root = rank == call.root;
  const auto visit_all = [&](const auto& visit, std::span<const std::uint64_t> counts,
                             std::span<const std::uint64_t> offsets) {
    std::uint64_t dense = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      const auto i = static_cast<std::size_t>(peer);
      const std::uint64_t count = counts.empty() ? call.count : counts[i];
      visit(peer, Run{offsets.empty() ? dense : offsets[i], count});
      dense += count;
    }
  };
  const bool is_allgather =
      call.collective == Collective::kAllgather || call.collective == Collective::kAllgatherv;
  if (is_gather) {
    to(call.root, Run{0, call.count});
  } else if (is_scatter) {
    from(call.root, Run{0, call.count});
  }
  for (int peer = 0; is_allgather && peer < ranks; ++peer) {
    to(peer, Run{0, call.count});
  }
  if (is_scatter ? is_root : !is_gather && !is_allgather) {
    visit_all(to, call.send_counts, call.send_offsets);
  }
  if (is_gather ? is_root : !is_scatter) {
    visit_all(from, call.recv_counts, call.recv_offsets);
  }
}

/// For messages: "0.5 s (TUTTI_TIMEOUT, or the communicator's own limit)".
std::string time_limit(double timeout_s);

/// What a message adds to that: "; " and `known`, who holds the call up; empty: nobody knows.
std::string held_up_by(const std::string& known = "");

/// Neighbouring runs joined and empty ones dropped: what a copy loop should walk.
struct CopyRun {
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  std::uint64_t count = 0;
};

/// Copies that pack `runs` densely in order: source offsets are the runs', destinations dense.
std::vector<CopyRun> dense_copies(std::span<const Run> runs);

inline std::byte* at(void* base, std::uint64_t offset, Bytes element_bytes) {
  return static_cast<std::byte*>(base) + offset * element_bytes;
}
inline const std::byte* at(const void* base, std::uint64_t offset, Bytes element_bytes) {
  return static_cast<const std::byte*>(base) + offset * element_bytes;
}

}  // namespace tutti::runners
