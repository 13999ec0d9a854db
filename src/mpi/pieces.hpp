// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A side of a call as pieces: runs of elements of one type, one for each block, and where their
// bytes lie. Offsets in bytes from the side's buffer.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "mpi/arguments.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

struct Piece {
  std::int64_t offset = 0;  ///< Of the first element's origin.
  std::int64_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  TypeLayout layout;

  Bytes bytes() const { return static_cast<Bytes>(count) * layout.size; }
};

/// Errors: a type that MPI does not know, before anything of the call is sent.
Result<std::vector<Piece>> pieces_of(const Arguments& arguments, const Side& side);

/// Where a piece's bytes lie around its first element: from `lower`, `span` bytes.
struct PieceSpan {
  std::int64_t lower = 0;
  Bytes span = 0;
};

PieceSpan span_of(const Piece& piece);

/// A piece whose elements lie far from each other as pieces of one element; else the piece itself.
std::vector<Piece> near_pieces(const Piece& piece);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
