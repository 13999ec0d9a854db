// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The functions of libtutti.so that libtutti-mpi.so calls. Both come from one build and stand in
// one directory; nobody else calls them. C types only, since each has a C++ runtime of its own.
#pragma once

#include "mpi/entries.hpp"
#include "tutti/tutti.h"

/// Fills the table for the MPI library `path`. `other_path` is not empty where the process has a
/// second MPI library; every call then goes to the first one untouched.
extern "C" TUTTI_API void tutti_mpi_fill_table(tutti::mpi::Flavour flavour, const char* path,
                                               const char* other_path, tutti::mpi::Lookup lookup,
                                               tutti::mpi::FunctionTable* table);

/// Logs that the tool `path`, to which calls were handed, does not bring them back.
extern "C" TUTTI_API void tutti_mpi_report_tool(const char* path);

/// Logs, at the end of the process, that the MPI library `path` was used past libtutti-mpi.so.
extern "C" TUTTI_API void tutti_mpi_report_unseen(const char* path);

/// Around the MPI library's initialization, and while it hands data to a PMIx launcher in there, if
/// it passes us: this process tells the others that it has us (presence.hpp). `has_fortran`: it has
/// Fortran functions of its MPI library that call past us.
extern "C" TUTTI_API void tutti_mpi_before_init(tutti::mpi::Flavour flavour, const char* other_path,
                                                int has_fortran, tutti::mpi::Lookup lookup);
extern "C" TUTTI_API void tutti_mpi_before_commit();
extern "C" TUTTI_API void tutti_mpi_after_init();

namespace tutti::mpi {

/// True when this build serves the MPI libraries of this ABI.
bool supports_abi(Flavour flavour);

}  // namespace tutti::mpi
