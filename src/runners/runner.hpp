// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The seam between a plan and what carries it. A runner executes one collective on one scope of a
// communicator; it never knows why it was chosen.
#pragma once

#include <functional>
#include <string>

#include "base/result.hpp"
#include "runners/bootstrap.hpp"
#include "runners/call.hpp"
#include "runners/carrier.hpp"

namespace tutti::runners {

class Runner {
 public:
  virtual ~Runner() = default;
  /// Collective over the scope; returns when the result is in the call's recv buffer and the
  /// send buffer may be reused. Buffers may be host or device memory on each rank as it likes.
  /// After an error the recv buffer is undefined.
  virtual Status run(Scope scope, const Call& call) = 0;
};

/// What an MPI library offers to the engine and to the MPI runner; implemented once per MPI ABI
/// by the MPI door. The engine's only view of MPI. Agreements (Bootstrap) and messages of schedules
/// (Carrier) are on the private communicator; it reduces with the call's MPI type and operation.
class MpiLibrary : public Carrier, public Bootstrap {
 public:
  /// Makes a private duplicate of the communicator for the steps that are ours. Collective; called
  /// once it is known that there is anything to do.
  virtual Status duplicate() = 0;
  /// The MPI library's own collective on dense buffers it can read (host memory, or device memory
  /// when the MPI is device-aware). Of the whole scope it must meet the plain calls of ranks that
  /// need no staging: same communicator, same function, in place where they are.
  virtual Status collective(Scope scope, const Call& call) = 0;
  /// Whether its reductions can count more than 2^31 - 1 elements (MPI 4's _c functions).
  virtual bool has_large_counts() const { return true; }
  /// CommFacts::mpi.
  virtual std::string name() const { return {}; }
  /// How long waits of ours for a rank's message go on: while `look` is ok, which it is as long as
  /// all ranks live; where it is kUnavailable, up to the time limit. Null: up to that.
  virtual void set_look(const std::function<Status()>& look) { static_cast<void>(look); }
  /// This rank is not, or no longer, in what its peers do: what is under way may never end. Local.
  virtual void leave() {}
};

}  // namespace tutti::runners
