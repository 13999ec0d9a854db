// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// MPI_X_c for MPI libraries that have none (Open MPI 5): a program that looks the symbol up at run
// time (mpi4py's wheels) finds ours and takes it for the library's.
#pragma once

#include "mpi/pmpi.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// Fills the functions that are null with ones that call pmpi.small. A count that does not
/// fit an int is passed as -1 and logged: MPI looks only at significant arguments, and where it
/// looks at this one it raises MPI_ERR_COUNT (MPI_ERR_ARG) on the communicator.
void fill_with_int_count_fallback(Collectives<MPI_Count>& large);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
