// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What every carrier of schedules asks about a call: which problem it is, and whether its buffers
// lie as programs have them.
#pragma once

#include "runners/call.hpp"
#include "schedule/problem.hpp"
#include "schedule/program.hpp"

namespace tutti::runners {

/// Addresses of a program's three buffers: input, output, scratch.
struct ProgramBuffers {
  std::byte* base[3] = {};
  Bytes element_bytes = 1;

  std::byte* at(const schedule::Region& region) const {
    return base[static_cast<std::size_t>(region.buffer)] + region.offset * element_bytes;
  }
  Bytes bytes(const schedule::Region& region) const { return region.count * element_bytes; }
};

schedule::Problem problem_of(const Call& call, int ranks);

/// Whether a call has this problem; allocates nothing.
bool is_problem_of(const schedule::Problem& problem, const Call& call);

/// Blocks lie one behind the other, as programs have them.
bool is_dense(std::span<const std::uint64_t> counts, std::span<const std::uint64_t> offsets);

/// In place, programs read the input only to copy it to where it belongs in the output, except
/// where MPI puts the output elsewhere in the input (reduce_scatter) or on all of it (alltoall).
bool needs_own_input(const Call& call);

/// Elements of the rank's input.
std::uint64_t input_elements(const Call& call, int rank, int ranks);

}  // namespace tutti::runners
