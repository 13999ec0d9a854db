// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// From an application's arguments to a plan's run: what every wrapper shares. Reads datatypes,
// classifies buffers, asks the engine for the plan, and either calls MPI on the application's own
// arguments or turns them into a dense runners::Call and runs that.
#pragma once

#include <cstdint>

#include "mpi/session.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// A pointer to an array of counts or displacements in either width.
template <class Wide, class Narrow>
class Numbers {
 public:
  Numbers() = default;
  Numbers(const Narrow* array) : array_(array) {}             // NOLINT
  Numbers(const Wide* array) : array_(array), wide_(true) {}  // NOLINT
  std::int64_t operator[](std::size_t i) const {
    return wide_ ? static_cast<std::int64_t>(static_cast<const Wide*>(array_)[i])
                 : static_cast<std::int64_t>(static_cast<const Narrow*>(array_)[i]);
  }
  explicit operator bool() const { return array_ != nullptr; }

 private:
  const void* array_ = nullptr;
  bool wide_ = false;
};

/// A call's arguments. Reductions use recv_count and recv_type for both sides.
struct View {
  select::Collective collective = select::Collective::kBarrier;
  const void* send = nullptr;
  std::int64_t send_count = 0;
  MPI_Datatype send_type = MPI_DATATYPE_NULL;
  Numbers<MPI_Count, int> send_counts;
  Numbers<MPI_Aint, int> send_displs;
  const MPI_Datatype* send_types = nullptr;
  void* recv = nullptr;
  std::int64_t recv_count = 0;
  MPI_Datatype recv_type = MPI_DATATYPE_NULL;
  Numbers<MPI_Count, int> recv_counts;
  Numbers<MPI_Aint, int> recv_displs;
  const MPI_Datatype* recv_types = nullptr;
  MPI_Op op = MPI_OP_NULL;
  int root = 0;
};

/// Reference to a callable int(const void* send, void* recv); lives as long as the callable.
class NativeCall {
 public:
  template <class F>
  explicit NativeCall(F& function)
      : object_(&function), call_([](void* object, const void* send, void* recv) {
          return (*static_cast<F*>(object))(send, recv);
        }) {}
  int operator()(const void* send, void* recv) const { return call_(object_, send, recv); }

 private:
  void* object_;
  int (*call_)(void*, const void*, void*);
};

/// The answer to a call that this rank could not carry out. All but a refused fall-back, which
/// every rank refuses alike, breaks the communicator: the peers may be in the call, and what this
/// rank did next would meet what they still do in it. Returns an MPI code, passed to the error
/// handler.
int fail_call(Session& session, const Status& status);

/// Returns an MPI code; errors have been passed to the communicator's error handler.
int perform(Session& session, const View& view, const NativeCall& native);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
