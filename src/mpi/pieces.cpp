// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/pieces.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace tutti::mpi::TUTTI_FLAVOUR {

Result<std::vector<Piece>> pieces_of(const Arguments& arguments, const Side& side) {
  std::vector<Piece> result;
  const auto ranks = static_cast<std::size_t>(arguments.ranks());
  const std::size_t blocks = side.form == Form::kAbsent ? 0 : side.form == Form::kOne ? 1 : ranks;
  for (std::size_t i = 0; i < blocks; ++i) {
    Piece piece{side.offset_of(i), side.count_of(i), side.has_types ? side.types[i] : side.type,
                side.layout};
    if (side.has_types && piece.count > 0 && !type_layout(piece.type, &piece.layout)) {
      return Status::mpi(MPI_ERR_TYPE, std::string(select::to_string(arguments.view().collective)) +
                                           ": no datatype for rank " + std::to_string(i));
    }
    result.push_back(piece);
  }
  return result;
}

PieceSpan span_of(const Piece& piece) {
  if (piece.count == 0) {
    return {};
  }
  const std::int64_t last = (piece.count - 1) * piece.layout.extent;
  return {std::min<std::int64_t>(0, last) + piece.layout.true_lower,
          static_cast<Bytes>(std::abs(last) + piece.layout.true_extent)};
}

std::vector<Piece> near_pieces(const Piece& piece) {
  constexpr std::int64_t kFarBytes = std::int64_t{1} << 20;
  const std::int64_t step = std::abs(piece.layout.extent);
  if (piece.count <= 1 || piece.layout.dense || step < kFarBytes ||
      step / 2 < piece.layout.true_extent) {
    return {piece};
  }
  std::vector<Piece> parts;
  for (std::int64_t i = 0; i < piece.count; ++i) {
    parts.push_back({piece.offset + i * piece.layout.extent, 1, piece.type, piece.layout});
  }
  return parts;
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
