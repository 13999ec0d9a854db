// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How the ranks of a communicator agree before there is anything faster: the engine's way to the
// outside. The MPI entry point (src/mpi) has one on PMPI, the C API one on its caller's callback
// (allgather_bootstrap.hpp). All memory is the host's; calls are collective, in the same order on
// all ranks.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "runners/call.hpp"

namespace tutti::runners {

/// This rank's place in a scope; `rank` is -1 when it does not take part.
struct ScopeRank {
  int rank = -1;
  int ranks = 0;
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  /// Gathers `bytes_each` from every rank of the communicator, in rank order.
  virtual Status allgather(const void* send, void* recv, Bytes bytes_each) = 0;
  /// Maximum over ranks, element by element, in place.
  virtual Status max_in_place(std::uint64_t* values, int count) = 0;
  /// Makes the node and leader scopes: ranks of equal `node` share one.
  virtual Status make_scopes(int node) = 0;
  /// Scope::kWhole always; the others after make_scopes(). Local.
  virtual ScopeRank scope_rank(Scope scope) const = 0;
  /// While a rank waits in a loop of ours: lets messages of the outside go on that a peer may need
  /// before it comes to the same call. Local, cheap, may do nothing.
  virtual void progress() {}
  /// The first call that failed, ok while none has: the ranks may not have come to the same answer,
  /// and no later call can recover from that.
  virtual Status failure() const { return {}; }
};

}  // namespace tutti::runners
