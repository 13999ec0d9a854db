// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A data movement as a dense runners::Call of bytes: blocks where the application has them, or, of
// types with gaps, packed in host memory.
#pragma once

#include "mpi/arguments.hpp"
#include "mpi/comm_state.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// A rank is its own peer, and of that pair it sees both ends: plans that copy the block rely on
/// it. kMismatch: it has another number of bytes for itself than it takes from itself.
Status check_own_block(const Arguments& arguments);

/// Carries a data movement by a plan that is not the MPI's own collective, with an even own block.
Status run_movement(CommState& state, const Arguments& arguments, const engine::Route& route);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
