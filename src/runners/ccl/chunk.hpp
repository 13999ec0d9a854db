// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Cuts a call into chunks that the library carries one beside the other. Pure; every rank cuts
// alike, since it looks at the count and the element's size alone. What is cut is the vector of
// allreduce, reduce and bcast, and each block of the collectives of blocks, whose chunks are
// therefore calls with gaps between their blocks.
#pragma once

#include <vector>

#include "runners/call.hpp"
#include "runners/runner.hpp"

namespace tutti::runners {

/// Chunks begin at multiples of this many bytes from the start of what is cut: the width of the
/// library's vector loads, which it leaves for slower ones on other addresses.
inline constexpr Bytes kChunkAlignment = 16;

/// How many chunks, none of them empty, `count` elements make: `chunks` or fewer.
int chunks_of(std::uint64_t count, Bytes element_bytes, int chunks);
/// Elements of chunk `index` of `chunks`, a number that chunks_of() gave.
Run chunk_run(std::uint64_t count, Bytes element_bytes, int index, int chunks);

/// One chunk as a call of its own. Gather, scatter, allgather and alltoall become their v-forms;
/// reduce_scatter_block, which has none with gaps, keeps its name and gets send_offsets.
class PipelineChunk {
 public:
  /// `call`: of a collective that select::Plan's pipelines can carry.
  PipelineChunk(const Call& call, const ScopeRank& me, const Run& run);
  PipelineChunk(const PipelineChunk&) = delete;
  PipelineChunk& operator=(const PipelineChunk&) = delete;
  const Call& call() const { return call_; }

 private:
  Call call_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint64_t> offsets_;
};

}  // namespace tutti::runners
