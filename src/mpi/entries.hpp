// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The MPI functions that the preload library wraps, with their number of arguments, and the table
// of one MPI flavour's implementations. Every argument of these functions is an integer or a
// pointer, so a dispatcher that knows nothing but their number can pass them on: on x86-64 and
// AArch64 (System V, AAPCS64) each takes one integer register or one 8-byte stack slot, and the
// bits above an int are nobody's. Another one: a line here, a member of Wrap in collectives.cpp;
// the exports follow.
#pragma once

// X(name, arguments): blocking collectives that have an _c form.
#define TUTTI_COUNTED_COLLECTIVES(X) \
  X(Bcast, 5)                        \
  X(Gather, 8)                       \
  X(Gatherv, 9)                      \
  X(Scatter, 8)                      \
  X(Scatterv, 9)                     \
  X(Allgather, 7)                    \
  X(Allgatherv, 8)                   \
  X(Alltoall, 7)                     \
  X(Alltoallv, 9)                    \
  X(Alltoallw, 9)                    \
  X(Reduce, 7)                       \
  X(Allreduce, 6)                    \
  X(Reduce_scatter, 6)               \
  X(Reduce_scatter_block, 6)         \
  X(Scan, 6)                         \
  X(Exscan, 6)

// X(name, arguments): without an _c form. The info functions carry our hints, since MPI libraries
// drop keys they do not know; what MPI_Comm_dup and MPI_Comm_split make is set up with it.
#define TUTTI_OTHER_ENTRIES(X) \
  X(Barrier, 1)                \
  X(Comm_dup, 2)               \
  X(Comm_split, 4)             \
  X(Comm_dup_with_info, 3)     \
  X(Comm_split_type, 5)        \
  X(Comm_set_info, 2)          \
  X(Comm_get_info, 2)

namespace tutti::mpi {

enum Entry : int {
#define TUTTI_ENTRY(name, arguments) k##name, k##name##_c,
  TUTTI_COUNTED_COLLECTIVES(TUTTI_ENTRY)
#undef TUTTI_ENTRY
#define TUTTI_ENTRY(name, arguments) k##name,
      TUTTI_OTHER_ENTRIES(TUTTI_ENTRY)
#undef TUTTI_ENTRY
          kEntryCount
};

/// By Entry.
inline constexpr const char* kPmpiNames[kEntryCount] = {
#define TUTTI_ENTRY(name, arguments) "PMPI_" #name, "PMPI_" #name "_c",
    TUTTI_COUNTED_COLLECTIVES(TUTTI_ENTRY)
#undef TUTTI_ENTRY
#define TUTTI_ENTRY(name, arguments) "PMPI_" #name,
        TUTTI_OTHER_ENTRIES(TUTTI_ENTRY)
#undef TUTTI_ENTRY
};

enum class Flavour : int { kUnknown, kMpich, kOpenMpi, kAbi };

/// Finds a symbol of the process's MPI library; null when it has none.
using Lookup = void* (*)(const char* name);

using Word = long;  ///< One integer register.

/// Functions with the MPI's own signatures, callable through integers. Null: none, and why.
struct FunctionTable {
  void* entries[kEntryCount] = {};
  const char* refusal = "the MPI library does not have it";
  /// Called in place of an entry that is null, with its last argument; returns an MPI error.
  int (*refuse)(const FunctionTable* table, int entry, Word last) = nullptr;
  /// Called once MPI_COMM_WORLD exists, before the program has it. Null: nothing to do.
  void (*start)() = nullptr;
};

/// The collectives, all of which have the communicator as their last argument.
constexpr bool is_collective(int entry) { return entry <= kBarrier; }

/// One per flavour compiled in; fills the table, false when the library lacks something basic.
bool fill_function_table_mpich(Lookup lookup, FunctionTable* table);
bool fill_function_table_openmpi(Lookup lookup, FunctionTable* table);
bool fill_function_table_abi(Lookup lookup, FunctionTable* table);

}  // namespace tutti::mpi
