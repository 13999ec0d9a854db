// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The seam between a plan and what carries it. A runner executes one collective on one scope of a
// communicator; it never knows why it was chosen.
#pragma once

#include "base/result.hpp"
#include "runners/call.hpp"
#include "runners/carrier.hpp"

namespace tutti::runners {

/// This rank's place in a scope; `rank` is -1 when it does not take part.
struct ScopeRank {
  int rank = -1;
  int ranks = 0;
};

class Runner {
 public:
  virtual ~Runner() = default;
  /// Collective over the scope; returns when the result is in the call's recv buffer and the
  /// send buffer may be reused. Buffers may be host or device memory on each rank as it likes.
  /// After an error the recv buffer is undefined.
  virtual Status run(Scope scope, const Call& call) = 0;
};

/// What an MPI library offers to the engine and to the MPI runner; implemented once per MPI ABI
/// by the front door. The engine's only view of MPI. As a carrier of schedules it has messages on
/// the private communicator, and reduces with the call's MPI type and operation.
class MpiLibrary : public Carrier {
 public:
  /// Makes a private duplicate of the communicator for the steps that are ours. Collective; called
  /// once it is known that there is anything to do.
  virtual Status duplicate() = 0;
  /// Gathers `bytes_each` from every rank of the communicator, host memory, rank order.
  virtual Status allgather(const void* send, void* recv, Bytes bytes_each) = 0;
  /// Maximum over ranks, element by element, in place.
  virtual Status max_in_place(std::uint64_t* values, int count) = 0;
  /// Makes the node and leader scopes: ranks of equal `node` share one. Collective.
  virtual Status make_scopes(int node) = 0;
  virtual ScopeRank scope_rank(Scope scope) const = 0;
  /// The MPI library's own collective on dense buffers it can read (host memory, or device memory
  /// when the MPI is device-aware). Of the whole scope it must meet the plain calls of ranks that
  /// need no staging: same communicator, same function, in place where they are.
  virtual Status collective(Scope scope, const Call& call) = 0;
};

}  // namespace tutti::runners
