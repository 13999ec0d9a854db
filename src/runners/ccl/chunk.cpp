// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/ccl/chunk.hpp"

#include <algorithm>
#include <numeric>

#include "base/check.hpp"

namespace tutti::runners {

using select::Collective;

namespace {

/// Elements that fill whole units of kChunkAlignment.
std::uint64_t grain(Bytes element_bytes) {
  return kChunkAlignment / std::gcd(kChunkAlignment, element_bytes);
}

std::uint64_t grains(std::uint64_t count, Bytes element_bytes) {
  const std::uint64_t each = grain(element_bytes);
  return count / each + (count % each != 0 ? 1 : 0);
}

}  // namespace

int chunks_of(std::uint64_t count, Bytes element_bytes, int chunks) {
  return static_cast<int>(
      std::min(grains(count, element_bytes), static_cast<std::uint64_t>(chunks)));
}

Run chunk_run(std::uint64_t count, Bytes element_bytes, int index, int chunks) {
  const std::uint64_t all = grains(count, element_bytes);
  const auto parts = static_cast<std::uint64_t>(chunks);
  // The first chunks have one grain more where it does not come out even.
  const auto begin = [&](std::uint64_t part) {
    return std::min(count,
                    (all / parts * part + std::min(part, all % parts)) * grain(element_bytes));
  };
  const auto part = static_cast<std::uint64_t>(index);
  return {begin(part), begin(part + 1) - begin(part)};
}

PipelineChunk::PipelineChunk(const Call& call, const ScopeRank& me, const Run& run) : call_(call) {
  const auto ranks = static_cast<std::size_t>(me.ranks);
  const auto move_send = [&] {
    call_.send = call.send == nullptr ? nullptr : at(call.send, run.offset, call.element_bytes);
  };
  const auto move_recv = [&] {
    call_.recv = call.recv == nullptr ? nullptr : at(call.recv, run.offset, call.element_bytes);
  };
  // The others have no blocks: counts would make blocks of a buffer that is not theirs.
  const bool is_root = me.rank == call.root;
  call_.count = run.count;
  counts_.assign(ranks, run.count);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    offsets_.push_back(rank * call.count + run.offset);
  }
  switch (call.collective) {
    case Collective::kBcast:
    case Collective::kReduce:
    case Collective::kAllreduce:
      move_send();
      move_recv();
      return;
    case Collective::kGather:
    case Collective::kAllgather:
      call_.collective =
          call.collective == Collective::kGather ? Collective::kGatherv : Collective::kAllgatherv;
      move_send();
      if (call.collective == Collective::kAllgather || is_root) {
        call_.recv_counts = counts_;
        call_.recv_offsets = offsets_;
      }
      return;
    case Collective::kScatter:
      call_.collective = Collective::kScatterv;
      move_recv();
      if (is_root) {
        call_.send_counts = counts_;
        call_.send_offsets = offsets_;
      }
      return;
    case Collective::kAlltoall:
      call_.collective = Collective::kAlltoallv;
      call_.send_counts = call_.recv_counts = counts_;
      call_.send_offsets = call_.recv_offsets = offsets_;
      return;
    case Collective::kReduceScatterBlock:
      move_recv();
      call_.send_offsets = offsets_;
      return;
    default:
      CHECK(false, select::to_string(call.collective));
  }
}

}  // namespace tutti::runners
