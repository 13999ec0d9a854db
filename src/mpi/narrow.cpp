// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/narrow.hpp"

#include <algorithm>
#include <climits>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "base/log.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {
namespace {

template <class T>
int to_int(T value) {
  if (value < INT_MIN || value > INT_MAX) {
    log(LogLevel::kError, "this MPI library has no large-count (_c) functions, and " +
                              std::to_string(value) + " is over 2^31");
    return -1;
  }
  return static_cast<int>(value);
}

/// An int array's worth of counts or displacements; null stays null.
class Ints {
 public:
  template <class T>
  Ints(const T* values, int count) {
    if (values == nullptr) {
      return;
    }
    is_null_ = false;
    std::transform(values, values + count, std::back_inserter(values_), to_int<T>);
  }
  /// For an array that is not significant: it may not even be readable.
  Ints() = default;
  const int* data() const { return is_null_ ? nullptr : values_.data(); }

 private:
  bool is_null_ = true;
  std::vector<int> values_;
};

bool is_inter(MPI_Comm comm) {
  int inter = 0;
  return pmpi.Comm_test_inter(comm, &inter) == MPI_SUCCESS && inter != 0;
}

/// Ranks that an array of the call describes: those of the other group, if there is one. 0 on an
/// invalid communicator, which the MPI's own function then reports.
int peers(MPI_Comm comm) {
  int count = 0;
  const int code =
      is_inter(comm) ? pmpi.Comm_remote_size(comm, &count) : pmpi.Comm_size(comm, &count);
  return code == MPI_SUCCESS ? count : 0;
}

bool is_root(MPI_Comm comm, int root) {
  int rank = -1;
  return is_inter(comm) ? root == MPI_ROOT
                        : pmpi.Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
}

/// The form of functions without arrays: every MPI_Count becomes an int.
template <class Function>
struct Scalars;
template <class... Arguments>
struct Scalars<int (*)(Arguments...)> {
  template <auto kFunction>
  static int call(Arguments... arguments) {
    return (pmpi.native_small.*kFunction)(narrow(arguments)...);
  }

 private:
  template <class T>
  static auto narrow(T value) {
    if constexpr (std::is_same_v<T, MPI_Count>) {
      return to_int(value);
    } else {
      return value;
    }
  }
};

struct Arrays {
  using Counts = const MPI_Count*;
  using Displs = const MPI_Aint*;

  static int Gatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                     Counts counts, Displs displs, MPI_Datatype recv_type, int root,
                     MPI_Comm comm) {
    const int many = is_root(comm, root) ? peers(comm) : 0;
    const Ints c = many > 0 ? Ints(counts, many) : Ints();
    const Ints d = many > 0 ? Ints(displs, many) : Ints();
    return pmpi.native_small.Gatherv(send, to_int(send_count), send_type, recv, c.data(), d.data(),
                                     recv_type, root, comm);
  }
  static int Scatterv(const void* send, Counts counts, Displs displs, MPI_Datatype send_type,
                      void* recv, MPI_Count recv_count, MPI_Datatype recv_type, int root,
                      MPI_Comm comm) {
    const int many = is_root(comm, root) ? peers(comm) : 0;
    const Ints c = many > 0 ? Ints(counts, many) : Ints();
    const Ints d = many > 0 ? Ints(displs, many) : Ints();
    return pmpi.native_small.Scatterv(send, c.data(), d.data(), send_type, recv, to_int(recv_count),
                                      recv_type, root, comm);
  }
  static int Allgatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                        Counts counts, Displs displs, MPI_Datatype recv_type, MPI_Comm comm) {
    const int many = peers(comm);
    return pmpi.native_small.Allgatherv(send, to_int(send_count), send_type, recv,
                                        Ints(counts, many).data(), Ints(displs, many).data(),
                                        recv_type, comm);
  }
  static int Alltoallv(const void* send, Counts send_counts, Displs send_displs,
                       MPI_Datatype send_type, void* recv, Counts recv_counts, Displs recv_displs,
                       MPI_Datatype recv_type, MPI_Comm comm) {
    const int many = peers(comm);
    const bool sends = send != MPI_IN_PLACE;
    const Ints c = sends ? Ints(send_counts, many) : Ints();
    const Ints d = sends ? Ints(send_displs, many) : Ints();
    return pmpi.native_small.Alltoallv(send, c.data(), d.data(), send_type, recv,
                                       Ints(recv_counts, many).data(),
                                       Ints(recv_displs, many).data(), recv_type, comm);
  }
  static int Alltoallw(const void* send, Counts send_counts, Displs send_displs,
                       const MPI_Datatype* send_types, void* recv, Counts recv_counts,
                       Displs recv_displs, const MPI_Datatype* recv_types, MPI_Comm comm) {
    const int many = peers(comm);
    const bool sends = send != MPI_IN_PLACE;
    const Ints c = sends ? Ints(send_counts, many) : Ints();
    const Ints d = sends ? Ints(send_displs, many) : Ints();
    return pmpi.native_small.Alltoallw(send, c.data(), d.data(), send_types, recv,
                                       Ints(recv_counts, many).data(),
                                       Ints(recv_displs, many).data(), recv_types, comm);
  }
  /// The counts describe the blocks of the own group, also between two groups.
  static int Reduce_scatter(const void* send, void* recv, Counts counts, MPI_Datatype type,
                            MPI_Op op, MPI_Comm comm) {
    int many = 0;
    if (pmpi.Comm_size(comm, &many) != MPI_SUCCESS) {
      many = 0;
    }
    return pmpi.native_small.Reduce_scatter(send, recv, Ints(counts, many).data(), type, op, comm);
  }
};

}  // namespace

void fill_with_narrow(Collectives<MPI_Count>& large) {
  auto fill = [](auto& slot, auto function) {
    if (slot == nullptr) {
      slot = function;
    }
  };
#define TUTTI_SCALARS(name) \
  fill(large.name, &Scalars<decltype(large.name)>::call<&Collectives<int>::name>);
  TUTTI_SCALARS(Bcast)
  TUTTI_SCALARS(Gather)
  TUTTI_SCALARS(Scatter)
  TUTTI_SCALARS(Allgather)
  TUTTI_SCALARS(Alltoall)
  TUTTI_SCALARS(Reduce)
  TUTTI_SCALARS(Allreduce)
  TUTTI_SCALARS(Reduce_scatter_block)
  TUTTI_SCALARS(Scan)
  TUTTI_SCALARS(Exscan)
#undef TUTTI_SCALARS
  fill(large.Gatherv, &Arrays::Gatherv);
  fill(large.Scatterv, &Arrays::Scatterv);
  fill(large.Allgatherv, &Arrays::Allgatherv);
  fill(large.Alltoallv, &Arrays::Alltoallv);
  fill(large.Alltoallw, &Arrays::Alltoallw);
  fill(large.Reduce_scatter, &Arrays::Reduce_scatter);
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
