// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The arguments of a collective, whichever it is and in whichever width of counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/units.hpp"
#include "mpi/flavour.hpp"
#include "select/shape.hpp"

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
  bool is_same_array(const Numbers& other) const { return array_ == other.array_; }
  explicit operator bool() const { return array_ != nullptr; }

 private:
  const void* array_ = nullptr;
  bool wide_ = false;
};

/// A call's arguments. Reductions use recv_count and recv_type for both sides. What a call has not
/// is zero, which is no handle: null handles of Open MPI would have to be looked up.
struct View {
  select::Collective collective = select::Collective::kBarrier;
  const void* send = nullptr;
  std::int64_t send_count = 0;
  MPI_Datatype send_type{};
  Numbers<MPI_Count, int> send_counts;
  Numbers<MPI_Aint, int> send_displs;
  const MPI_Datatype* send_types = nullptr;
  void* recv = nullptr;
  std::int64_t recv_count = 0;
  MPI_Datatype recv_type{};
  Numbers<MPI_Count, int> recv_counts;
  Numbers<MPI_Aint, int> recv_displs;
  const MPI_Datatype* recv_types = nullptr;
  MPI_Op op{};
  int root = 0;
};

/// The MPI library's own collective with the application's arguments but for the buffers: reference
/// to a callable int(const void* send, void* recv), which lives longer.
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

/// A call that was refused on this rank, its root, for what only a root can get wrong
/// (engine::Communicator::doubt_call()), as far as the others know it, and its buffers.
struct RefusedAtRoot {
  select::Collective collective;
  int root;
  std::optional<Bytes> bytes;
  select::DataType type;
  select::ReduceOp op;
  const void* send;
  const void* recv;
  bool may_be_apart;  ///< The others may be in steps of ours (engine::Communicator::refuse()).
  bool has_number;    ///< MPI found it, in a call that was remembered: not in doubt.
  bool is_agreed;     ///< The ranks have agreed on the call's memory: others made it.
};

}  // namespace tutti::mpi::TUTTI_FLAVOUR
