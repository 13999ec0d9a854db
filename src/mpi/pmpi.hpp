// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The PMPI functions we call, found at run time. Collectives exist in two forms: C = int, and
// C = MPI_Count for the _c functions of MPI 4.
#pragma once

#include <type_traits>

#include "mpi/flavour.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// Displacements are int beside int counts and MPI_Aint beside MPI_Count ones.
template <class C>
using Displacement = std::conditional_t<std::is_same_v<C, int>, int, MPI_Aint>;

template <class C>
struct Collectives {
  using D = Displacement<C>;
  int (*Bcast)(void*, C, MPI_Datatype, int, MPI_Comm);
  int (*Gather)(const void*, C, MPI_Datatype, void*, C, MPI_Datatype, int, MPI_Comm);
  int (*Gatherv)(const void*, C, MPI_Datatype, void*, const C*, const D*, MPI_Datatype, int,
                 MPI_Comm);
  int (*Scatter)(const void*, C, MPI_Datatype, void*, C, MPI_Datatype, int, MPI_Comm);
  int (*Scatterv)(const void*, const C*, const D*, MPI_Datatype, void*, C, MPI_Datatype, int,
                  MPI_Comm);
  int (*Allgather)(const void*, C, MPI_Datatype, void*, C, MPI_Datatype, MPI_Comm);
  int (*Allgatherv)(const void*, C, MPI_Datatype, void*, const C*, const D*, MPI_Datatype,
                    MPI_Comm);
  int (*Alltoall)(const void*, C, MPI_Datatype, void*, C, MPI_Datatype, MPI_Comm);
  int (*Alltoallv)(const void*, const C*, const D*, MPI_Datatype, void*, const C*, const D*,
                   MPI_Datatype, MPI_Comm);
  int (*Alltoallw)(const void*, const C*, const D*, const MPI_Datatype*, void*, const C*, const D*,
                   const MPI_Datatype*, MPI_Comm);
  int (*Reduce)(const void*, void*, C, MPI_Datatype, MPI_Op, int, MPI_Comm);
  int (*Allreduce)(const void*, void*, C, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Reduce_scatter)(const void*, void*, const C*, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Reduce_scatter_block)(const void*, void*, C, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Scan)(const void*, void*, C, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Exscan)(const void*, void*, C, MPI_Datatype, MPI_Op, MPI_Comm);
};

// Everything else, with mpi.h's own signatures.
#define TUTTI_PMPI_FUNCTIONS(X) \
  X(Initialized)                \
  X(Query_thread)               \
  X(Finalized)                  \
  X(Barrier)                    \
  X(Comm_rank)                  \
  X(Comm_size)                  \
  X(Comm_remote_size)           \
  X(Comm_test_inter)            \
  X(Comm_dup)                   \
  X(Comm_split)                 \
  X(Comm_compare)               \
  X(Comm_split_type)            \
  X(Comm_free)                  \
  X(Comm_create_keyval)         \
  X(Comm_free_keyval)           \
  X(Comm_get_attr)              \
  X(Comm_set_attr)              \
  X(Comm_delete_attr)           \
  X(Comm_get_errhandler)        \
  X(Comm_set_errhandler)        \
  X(Errhandler_free)            \
  X(Comm_call_errhandler)       \
  X(Comm_dup_with_info)         \
  X(Comm_set_info)              \
  X(Comm_get_info)              \
  X(Comm_group)                 \
  X(Group_compare)              \
  X(Group_size)                 \
  X(Group_translate_ranks)      \
  X(Group_free)                 \
  X(Info_create)                \
  X(Info_free)                  \
  X(Info_get)                   \
  X(Info_set)                   \
  X(Type_size_x)                \
  X(Type_get_extent)            \
  X(Type_get_true_extent)       \
  X(Type_get_envelope)          \
  X(Type_get_contents)          \
  X(Type_contiguous)            \
  X(Type_create_struct)         \
  X(Type_commit)                \
  X(Type_free)                  \
  X(Iprobe)                     \
  X(Send)                       \
  X(Recv)                       \
  X(Isend)                      \
  X(Sendrecv)                   \
  X(Irecv)                      \
  X(Iallgather)                 \
  X(Iallreduce)                 \
  X(Test)                       \
  X(Testsome)                   \
  X(Cancel)                     \
  X(Get_elements_x)             \
  X(Get_library_version)        \
  X(Reduce_local)               \
  X(Pack)                       \
  X(Pack_size)                  \
  X(Unpack)                     \
  X(Add_error_class)            \
  X(Add_error_code)             \
  X(Add_error_string)           \
  X(Error_class)                \
  X(Error_string)

struct Pmpi {
#define TUTTI_FUNCTION(name) decltype(&PMPI_##name) name = nullptr;
  TUTTI_PMPI_FUNCTIONS(TUTTI_FUNCTION)
#undef TUTTI_FUNCTION
  /// What our own steps call; `large` is null where the library has no _c functions.
  Collectives<int> small = {};
  Collectives<MPI_Count> large = {};
  /// What an application's call falls through to. Never null: without _c functions it makes
  /// ints of its counts (int_count_fallback.hpp).
  Collectives<MPI_Count> native_large = {};

  template <class C>
  const Collectives<C>& of() const {
    if constexpr (std::is_same_v<C, int>) {
      return small;
    } else {
      return large;
    }
  }
  template <class C>
  const Collectives<C>& native() const {
    if constexpr (std::is_same_v<C, int>) {
      return small;
    } else {
      return native_large;
    }
  }
};

extern Pmpi pmpi;

/// Fills `pmpi`; false when a function other than the _c forms is missing.
bool load_pmpi(Lookup lookup);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
