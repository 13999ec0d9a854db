// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which MPI library this process uses, found at the first wrapped call. RTLD_NEXT alone is not
// enough: Python loads extension modules, and libmpi with them, with RTLD_LOCAL.
#pragma once

#include <cstdint>
#include <string>

#include "mpi/entries.hpp"

namespace tutti::mpi {

struct MpiInProcess {
  Flavour flavour = Flavour::kUnknown;
  std::string path;        ///< File of the library.
  std::string other_path;  ///< Non-empty: a second MPI is loaded too; we then stay out of the way.
  /// Open MPI's Fortran functions are loaded, some of which may not come past us.
  bool has_fortran_past_us = false;
};

/// Finds the MPI that the code at `caller` calls. Empty path: none (the call cannot come from a
/// working MPI program).
MpiInProcess find_mpi(const void* caller);

/// The next definition of `name` after this library's, as the code at `caller` would find it
/// without us; null when there is none.
void* next_symbol(const char* name, const void* caller);

/// Symbol of the library that find_mpi found last; never one of this library's own.
void* mpi_lookup(const char* name);

/// MPI_X of another tool that stands behind this library in the linker's order (preloaded, or
/// linked to the program); null when the next one is the MPI library's.
void* tool_lookup(const char* name);

/// Symbol of the library that the code at `caller` calls, whichever find_mpi has found.
void* mpi_lookup_of(const void* caller, const char* name);

/// Addresses of the code of the library that find_mpi found last.
struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  bool contains(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= begin && at < end;
  }
};
AddressRange mpi_addresses();

/// File that defines the code or object at an address; empty when it is nobody's.
std::string file_of(const void* address);

/// File of an MPI library of this process that was initialised, finalised since or not; empty:
/// none.
std::string initialised_mpi();

}  // namespace tutti::mpi
