// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The one function of libtutti.so that libtutti-mpi.so calls. Both come from one build and stand in
// one directory; nobody else calls it. C types only, since each has a C++ runtime of its own.
#pragma once

#include "mpi/entries.hpp"
#include "tutti/tutti.h"

/// Fills the door for the MPI library `path`. `other_path` is not empty where the process has a
/// second MPI library; every call then goes to the first one untouched. `next_in_chain` finds what
/// a call falls through to under TUTTI_CHAIN, `lookup` otherwise.
extern "C" TUTTI_API void tutti_mpi_open_door(tutti::mpi::Flavour flavour, const char* path,
                                              const char* other_path, tutti::mpi::Lookup lookup,
                                              tutti::mpi::Lookup next_in_chain,
                                              tutti::mpi::Door* door);
