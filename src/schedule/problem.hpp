// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a program must achieve: the collective's definition in the sense of MPI 4.1 chapter 6, in
// elements. Also names the block of each rank, which most generators work with.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/program.hpp"
#include "select/shape.hpp"

namespace tutti::schedule {

using select::Collective;

struct Problem {
  Collective collective = Collective::kAllreduce;
  int ranks = 1;
  int root = 0;
  /// Elements by rank. bcast, reduce, allreduce: one number, the vector's. allgather(v), gather(v),
  /// scatter(v), reduce_scatter(_block): each rank's block. alltoall: one number, a block's.
  /// Barrier: empty.
  std::vector<std::uint64_t> counts = {};
  /// alltoallv: elements that rank i sends to rank j at [i * ranks + j]. A generator reads the row
  /// and the column of its own rank alone; a real rank, which knows no others, gives them below.
  std::vector<std::uint64_t> matrix = {};
  std::vector<std::uint64_t> sends = {};  ///< alltoallv without a matrix: elements to each rank,
  std::vector<std::uint64_t> recvs = {};  ///< and from each.
};

/// A dense sequence of blocks, one per rank.
class Blocks {
 public:
  Blocks() = default;
  explicit Blocks(std::vector<std::uint64_t> counts);
  /// `total` elements cut into `parts` blocks of sizes that differ by at most one.
  static Blocks even(std::uint64_t total, int parts);
  /// One of them alone, of a region.
  static Region even_part(const Region& region, int parts, int part);

  int size() const { return static_cast<int>(counts_.size()); }
  std::uint64_t count(int block) const { return counts_[index(block)]; }
  std::uint64_t offset(int block) const { return offsets_[index(block)]; }
  std::uint64_t total() const { return offsets_.back(); }
  Region in(Buffer buffer, int block) const { return {buffer, offset(block), count(block)}; }
  /// Blocks [first, last) as one region.
  Region range(Buffer buffer, int first, int last) const {
    return {buffer, offset(first), offsets_[index(last)] - offset(first)};
  }

 private:
  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint64_t> offsets_{0};  ///< One more than blocks.
};

/// The problem's blocks by rank (collectives with one block per rank).
Blocks blocks_of(const Problem& problem);

/// Elements of the input and output buffer on a rank.
std::uint64_t input_count(const Problem& problem, int rank);
std::uint64_t output_count(const Problem& problem, int rank);

}  // namespace tutti::schedule
