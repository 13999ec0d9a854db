// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which processes a communicator has, and whether all of them have this library: asked of the
// launcher, before any message of ours. `lookup` finds the MPI library's functions.
#pragma once

#include "engine/process.hpp"
#include "mpi/flavour.hpp"
#include "mpi/presence.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

#ifdef OMPI_PREDEFINED_GLOBAL
inline constexpr bool kIsOpenMpi = true;
#else
inline constexpr bool kIsOpenMpi = false;
#endif

/// Processes that do not see each other are an error in the log, once; under TUTTI_STRICT of each
/// communicator.
Status check_launcher(const engine::Process& process, int world_ranks);

/// False where every call must go to MPI untouched; an error under TUTTI_STRICT.
Result<bool> all_have_us(const engine::Process& process, MPI_Comm comm, int rank, int ranks,
                         Lookup lookup);

/// What stands in for all_have_us() where the launcher says nothing is said once.
void report_unknown_presence(int world_rank, int world_ranks, Lookup lookup);

/// Asking the store for each rank would take a node of 128 ranks 0.2 s. Each rank asks for its
/// neighbours in a binary tree alone, and tells those that have us: up, whether all below have us,
/// and down, whether all have. A rank beside one without us says no, so that every part of a tree
/// that has been cut hears it. No rank without us gets a message, and none can meet one of the
/// application's: no rank leaves its MPI_Init before it has received its own.
Status settle_world(Lookup lookup);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
