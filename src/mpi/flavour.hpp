// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// mpi.h of the flavour this file is compiled for (TUTTI_FLAVOUR is mpich, openmpi or abi), made
// safe for a library that is loaded before, or without, any MPI: nothing here may need a symbol
// of libmpi at load time.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>

#include "mpi/entries.hpp"

#define TUTTI_PASTE_INNER(a, b) a##b
#define TUTTI_PASTE(a, b) TUTTI_PASTE_INNER(a, b)

namespace tutti::mpi::TUTTI_FLAVOUR {

/// Finds a symbol of the process's MPI library; set once by load_pmpi().
extern Lookup mpi_symbol;

/// Whether an error of MPI_Testsome is raised on the communicator of the message that has it. MPICH
/// raises it on none, which ends the job: there each message is tested alone. Not everywhere, since
/// each test makes progress, and gives up the core where ranks share it: with four ranks on two
/// cores a ring over Open MPI takes three times as long.
#ifdef OMPI_PREDEFINED_GLOBAL
inline constexpr bool kTestsomeKnowsCommunicator = true;
#else
inline constexpr bool kTestsomeKnowsCommunicator = false;
#endif

}  // namespace tutti::mpi::TUTTI_FLAVOUR

#ifdef OMPI_PREDEFINED_GLOBAL
// Open MPI's handles are addresses of its exported objects: look them up instead of linking, each
// once at each place that names it, since a look-up costs more than a small collective.
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global)                           \
  (reinterpret_cast<type>([]() -> void* {                              \
    static std::atomic<void*> tutti_found{nullptr};                    \
    void* tutti_object = tutti_found.load(std::memory_order_relaxed);  \
    if (tutti_object == nullptr) {                                     \
      tutti_object = ::tutti::mpi::TUTTI_FLAVOUR::mpi_symbol(#global); \
      tutti_found.store(tutti_object, std::memory_order_relaxed);      \
    }                                                                  \
    return tutti_object;                                               \
  }()))
#endif
