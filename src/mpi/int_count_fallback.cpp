// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/int_count_fallback.hpp"

#include <algorithm>
#include <climits>
#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/log.hpp"
#include "mpi/comm_state.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {
namespace {

template <class T>
bool is_int(T value) {
  return value >= INT_MIN && value <= INT_MAX;
}

std::string too_large(std::int64_t value) {
  return "this MPI library has no large-count (_c) functions, and " + std::to_string(value) +
         " is over 2^31";
}

/// A count; the MPI refuses -1 in its own words.
template <class T>
int to_int(T value) {
  if (!is_int(value)) {
    log(LogLevel::kError, too_large(value));
    return -1;
  }
  return static_cast<int>(value);
}

/// An int array's worth of counts; null stays null.
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

/// The same of displacements. No int says that one of them is wrong: -1 is a place like any other,
/// before the buffer. So a call with one that is too far is refused here.
class Displacements {
 public:
  Displacements(const MPI_Aint* values, const MPI_Count* counts, int count) {
    if (values == nullptr) {
      return;
    }
    is_null_ = false;
    values_.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const bool matters = counts == nullptr || counts[i] != 0;
      if (matters && !is_int(values[i])) {
        status_ = Status(ErrorCode::kUnsupported, too_large(values[i]));
      } else if (matters) {
        values_[i] = static_cast<int>(values[i]);
      }
    }
  }
  Displacements() = default;
  const int* data() const { return is_null_ ? nullptr : values_.data(); }
  /// Bad: the call must not be made.
  const Status& status() const { return status_; }

 private:
  bool is_null_ = true;
  std::vector<int> values_;
  Status status_;
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
    return (pmpi.small.*kFunction)(narrow(arguments)...);
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

  /// Of gatherv and scatterv: not significant but at the root.
  struct RootSide {
    RootSide(Counts sent, Displs from, int root, MPI_Comm comm) {
      if (const int many = is_root(comm, root) ? peers(comm) : 0; many > 0) {
        counts = Ints(sent, many);
        displs = Displacements(from, sent, many);
      }
    }
    Ints counts;
    Displacements displs;
  };

  /// Of alltoallv and alltoallw; in place there is no sending side.
  struct BothSides {
    BothSides(const void* send, Counts sent, Displs sent_from, Counts received, Displs received_at,
              int many)
        : sends(send != MPI_IN_PLACE),
          send_counts(sends ? Ints(sent, many) : Ints()),
          send_displs(sends ? Displacements(sent_from, sent, many) : Displacements()),
          recv_displs(received_at, received, many) {}
    const Status& status() const {
      return send_displs.status().ok() ? recv_displs.status() : send_displs.status();
    }

    const bool sends;
    const Ints send_counts;
    const Displacements send_displs;
    const Displacements recv_displs;
  };

  static int Gatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                     Counts counts, Displs displs, MPI_Datatype recv_type, int root,
                     MPI_Comm comm) {
    const RootSide it(counts, displs, root, comm);
    return !it.displs.status().ok()
               ? raise(comm, it.displs.status())
               : pmpi.small.Gatherv(send, to_int(send_count), send_type, recv, it.counts.data(),
                                    it.displs.data(), recv_type, root, comm);
  }
  static int Scatterv(const void* send, Counts counts, Displs displs, MPI_Datatype send_type,
                      void* recv, MPI_Count recv_count, MPI_Datatype recv_type, int root,
                      MPI_Comm comm) {
    const RootSide it(counts, displs, root, comm);
    return !it.displs.status().ok()
               ? raise(comm, it.displs.status())
               : pmpi.small.Scatterv(send, it.counts.data(), it.displs.data(), send_type, recv,
                                     to_int(recv_count), recv_type, root, comm);
  }
  static int Allgatherv(const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                        Counts counts, Displs displs, MPI_Datatype recv_type, MPI_Comm comm) {
    const int many = peers(comm);
    const Displacements d(displs, counts, many);
    if (!d.status().ok()) {
      return raise(comm, d.status());
    }
    return pmpi.small.Allgatherv(send, to_int(send_count), send_type, recv,
                                 Ints(counts, many).data(), d.data(), recv_type, comm);
  }
  static int Alltoallv(const void* send, Counts send_counts, Displs send_displs,
                       MPI_Datatype send_type, void* recv, Counts recv_counts, Displs recv_displs,
                       MPI_Datatype recv_type, MPI_Comm comm) {
    const int many = peers(comm);
    const BothSides it(send, send_counts, send_displs, recv_counts, recv_displs, many);
    return !it.status().ok()
               ? raise(comm, it.status())
               : pmpi.small.Alltoallv(send, it.send_counts.data(), it.send_displs.data(), send_type,
                                      recv, Ints(recv_counts, many).data(), it.recv_displs.data(),
                                      recv_type, comm);
  }
  static int Alltoallw(const void* send, Counts send_counts, Displs send_displs,
                       const MPI_Datatype* send_types, void* recv, Counts recv_counts,
                       Displs recv_displs, const MPI_Datatype* recv_types, MPI_Comm comm) {
    const int many = peers(comm);
    const BothSides it(send, send_counts, send_displs, recv_counts, recv_displs, many);
    return !it.status().ok()
               ? raise(comm, it.status())
               : pmpi.small.Alltoallw(send, it.send_counts.data(), it.send_displs.data(),
                                      send_types, recv, Ints(recv_counts, many).data(),
                                      it.recv_displs.data(), recv_types, comm);
  }
  /// The counts describe the blocks of the own group, also between two groups.
  static int Reduce_scatter(const void* send, void* recv, Counts counts, MPI_Datatype type,
                            MPI_Op op, MPI_Comm comm) {
    int many = 0;
    if (pmpi.Comm_size(comm, &many) != MPI_SUCCESS) {
      many = 0;
    }
    return pmpi.small.Reduce_scatter(send, recv, Ints(counts, many).data(), type, op, comm);
  }
};

/// The communicator is the last argument of all of them.
template <class Function>
struct Guarded;
template <class... Arguments>
struct Guarded<int (*)(Arguments...)> {
  template <int (*kFunction)(Arguments...)>
  static int call(Arguments... arguments) {
    const MPI_Comm comm = std::get<sizeof...(Arguments) - 1>(std::tuple(arguments...));
    return guarded_code(comm, [&] { return kFunction(arguments...); });
  }
};

}  // namespace

void fill_with_int_count_fallback(Collectives<MPI_Count>& large) {
  auto fill = [](auto& slot, auto function) {
    if (slot == nullptr) {
      slot = function;
    }
  };
#define TUTTI_SCALARS(name)                              \
  fill(large.name, &Guarded<decltype(large.name)>::call< \
                       &Scalars<decltype(large.name)>::call<&Collectives<int>::name>>);
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
#define TUTTI_ARRAYS(name) fill(large.name, &Guarded<decltype(large.name)>::call<&Arrays::name>);
  TUTTI_ARRAYS(Gatherv)
  TUTTI_ARRAYS(Scatterv)
  TUTTI_ARRAYS(Allgatherv)
  TUTTI_ARRAYS(Alltoallv)
  TUTTI_ARRAYS(Alltoallw)
  TUTTI_ARRAYS(Reduce_scatter)
#undef TUTTI_ARRAYS
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
