// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The MPI library's own collective on copies in host memory, for one that cannot read GPU memory.
#pragma once

#include "mpi/arguments.hpp"
#include "mpi/comm_state.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// The application's own call, with its counts, types, displacements and MPI_IN_PLACE, on copies of
/// its device buffers: this rank does exactly what the ranks do that stage nothing, so that the
/// MPI's choice of algorithm and of segments is the same on all. `code`: what MPI returned.
Status run_native_staged(CommState& state, const Arguments& arguments, const NativeCall& native,
                         int* code);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
