// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which MPI library this process uses, found at the first wrapped call. RTLD_NEXT alone is not
// enough: Python loads extension modules, and libmpi with them, with RTLD_LOCAL.
#pragma once

#include <string>

#include "mpi/entries.hpp"

namespace tutti::mpi {

struct MpiInProcess {
  Flavour flavour = Flavour::kUnknown;
  std::string path;        ///< File of the library.
  std::string other_path;  ///< Non-empty: a second MPI is loaded too; we then stay out of the way.
};

/// Finds the MPI that the code at `caller` calls. Empty path: none (the call cannot come from a
/// working MPI program).
MpiInProcess find_mpi(const void* caller);

/// Symbol of the library that find_mpi found last. With `next_in_chain` a PMPI_X is answered with
/// the next MPI_X after this library, if another preloaded tool has one.
void* mpi_lookup(const char* name);
void* mpi_lookup_next_in_chain(const char* name);

}  // namespace tutti::mpi
