// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Proves the programs of all ranks of a collective by carrying them out on symbols: each element of
// each buffer is a set of ranks whose input elements were combined, and where in those inputs.
//  - Every send has one receive of the same number of elements, and each completes although a send
//    waits for its receive (rendezvous): no deadlock under any transport.
//  - Nothing is read that was never written, every reduction adds what is not in yet.
//  - No region is written while another unordered step of the rank reads or writes it.
//  - Regions lie within the buffers, input is not written, scratch is within its stated size.
//  - At the end every output is what the collective's definition says.
// Reads nothing but programs: it knows no generator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/problem.hpp"
#include "schedule/program.hpp"
#include "topology/layout.hpp"

namespace tutti::schedule {

struct Report {
  /// Empty: the programs are right. Else what is wrong, with rank and step; at most ten.
  std::vector<std::string> errors;
  /// Longest chain of messages that wait for one another.
  int rounds = 0;
  std::vector<std::uint64_t> sent;      ///< Elements by rank.
  std::vector<std::uint64_t> received;  ///< Elements by rank.
  std::vector<std::uint32_t> messages;  ///< Sent, by rank.

  bool ok() const { return errors.empty(); }
};

/// `in_place`: as MPI_IN_PLACE and MPI_Bcast have it, the input of a rank is a part of its output
/// (a root's output in scatter a part of its input); reduce_scatter and alltoall, whose output
/// would lie on other ranks' input, are given an input of their own.
Report validate(const Problem& problem, const std::vector<Program>& programs,
                bool in_place = false);

/// The part of validate() that needs one rank's program alone: bounds, order, unordered conflicts.
/// Cheap enough for one rank of thousands.
std::vector<std::string> validate_local(const Problem& problem, int rank, const Program& program);

/// Elements that leave each node, by node.
std::vector<std::uint64_t> network_out(const std::vector<Program>& programs,
                                       const topology::Layout& layout);

/// "rank 3, step 5 (recv from 2, tag 0, output[4, 8))"
std::string describe(int rank, std::size_t number, const Step& step);

}  // namespace tutti::schedule
