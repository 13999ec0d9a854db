// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Finds a job that was started by the launcher of another MPI library. Each of its processes is
// then alone in MPI_COMM_WORLD (a singleton) and computes all by itself, without an error from MPI.
#pragma once

#include <string>

namespace tutti::mpi {

/// Why this process, alone in MPI_COMM_WORLD, is not meant to be, with the remedy; empty when it
/// is. Reads the variables of Hydra, Open MPI's mpirun and srun.
std::string lost_peers(bool is_open_mpi);

}  // namespace tutti::mpi
