// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the MPI library does that its headers do not say, found by trying it on a communicator of
// this rank alone (ask_alone()). When it is asked: ask_library_types().
#pragma once

#include <array>
#include <cstdint>

#include "mpi/flavour.hpp"
#include "select/shape.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// Our types that a predefined one may mean, the likeliest first.
using Candidates = std::array<select::DataType, 2>;
/// What the library's reductions take a type for, by operation.
using Meaning = std::array<select::DataType, select::kReduceOpCount>;

/// Sets `meaning` of each operation that is ours on a candidate: to the first candidate on which
/// ours computes what the library's does on `type`, or to kOther. Other entries stay.
void ask_meaning(MPI_Comm alone, MPI_Datatype type, const Candidates& candidates, Meaning* meaning);

/// For aliasing_error().
void ask_aliasing_errors(MPI_Comm alone);
/// The error that the library gives where a call's input lies where its output goes, without
/// MPI_IN_PLACE; MPI_SUCCESS where it does not look for that. Known after ask_aliasing_errors().
int aliasing_error(select::Collective collective, std::uint64_t elements);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
