// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// MPI datatypes and operations in our words. Several MPI types mean one of ours (MPI_INT,
// MPI_INT32_T and MPI_INTEGER are int32), so that ranks which name it differently choose alike.
#pragma once

#include <cstdint>

#include "mpi/flavour.hpp"
#include "select/shape.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// A handle as a number; MPICH's are ints, the others' pointers.
template <class Handle>
std::uintptr_t handle_bits(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uintptr_t>(handle);
  } else {
    return static_cast<std::uintptr_t>(static_cast<unsigned>(handle));
  }
}
template <class Handle>
Handle handle_from(std::uintptr_t bits) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(bits);
  } else {
    return static_cast<Handle>(bits);
  }
}

/// Fills the tables; after load_pmpi.
void load_types();

/// Asks the library once which predefined types its operations take and what they compute, so that
/// a reduction of ours is the library's: MPI_CHAR is a number to MPICH and Open MPI though not to
/// the standard, MPI_MIN of MPI_OFFSET is unsigned in Open MPI. Local, and raises nothing: on a
/// communicator of this rank alone an operation is checked and not carried out. After MPI_Init;
/// where there is no MPI_COMM_SELF (the sessions model) the standard's meaning holds. Returns a
/// hash of the answers, for the ranks to compare.
std::uint64_t ask_library_types();

/// Basic type of a reduction by an operation; kOther for what only the MPI library can reduce, or
/// report as an error.
select::DataType data_type(MPI_Datatype type, select::ReduceOp op);
/// Whether the handle is one of the MPI library's own basic types that are known here.
bool is_predefined_type(MPI_Datatype type);
/// kUser for what is not predefined.
select::ReduceOp reduce_op(MPI_Op op);

/// How elements of a type lie in memory. Bytes.
struct TypeLayout {
  std::uint64_t size = 0;
  std::int64_t extent = 0;
  std::int64_t true_lower = 0;
  std::int64_t true_extent = 0;
  /// Elements are their bytes in order without gaps: memory is the message.
  bool dense = false;
};
/// Errors (an invalid handle) leave size = 0 and valid = false.
bool type_layout(MPI_Datatype type, TypeLayout* layout);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
