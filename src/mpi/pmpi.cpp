// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/pmpi.hpp"

#include "base/log.hpp"
#include "mpi/int_count_fallback.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

Lookup mpi_symbol = nullptr;
Pmpi pmpi;

bool load_pmpi(Lookup lookup) {
  mpi_symbol = lookup;
  const char* missing = nullptr;
  auto required = [&](auto& slot, const char* name) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(lookup(name));
    if (slot == nullptr) {
      missing = name;
    }
  };
  auto optional = [&](auto& slot, const char* name) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(lookup(name));
  };
#define TUTTI_FUNCTION(name) required(pmpi.name, "PMPI_" #name);
  TUTTI_PMPI_FUNCTIONS(TUTTI_FUNCTION)
#undef TUTTI_FUNCTION
#define TUTTI_FUNCTION(name, arguments)     \
  required(pmpi.small.name, "PMPI_" #name); \
  optional(pmpi.large.name, "PMPI_" #name "_c");
  TUTTI_COUNTED_COLLECTIVES(TUTTI_FUNCTION)
#undef TUTTI_FUNCTION
  pmpi.native_large = pmpi.large;
  fill_with_int_count_fallback(pmpi.native_large);
  if (missing != nullptr) {
    log(LogLevel::kError,
        std::string("the MPI library has no ") + missing + "; every call goes to it untouched");
    return false;
  }
  return true;
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
