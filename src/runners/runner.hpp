// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The seam between a plan and what carries it. A runner executes one collective on one scope of a
// communicator; it never knows why it was chosen.
#pragma once

#include <cstdint>
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

/// A call that was refused on this rank, for the others: kMade with the memory they agreed on;
/// kRefused: some other rank's was refused, too, and none has counted it for its class.
enum class DoubtedCall : std::uint8_t { kNotMade, kRefused, kMadeOnHost, kMadeOnDevice };

/// What an MPI library offers to the engine and to the MPI runner; implemented once per MPI ABI
/// in src/mpi. The engine's only view of MPI. Agreements (Bootstrap) and messages of schedules
/// (Carrier) are on the private communicator; it reduces with the call's MPI type and operation.
class MpiLibrary : public Carrier, public Bootstrap {
 public:
  /// Gets a private communicator for the steps that are ours; `may_share`: with other communicators
  /// of the same ranks, whose calls are made in one order. Collective; called once it is known that
  /// there is anything to do. False, on all ranks: there is none to be had.
  virtual Result<bool> duplicate(bool may_share) = 0;
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
  /// Whether some rank's buffers in the call of that number are device memory. Collective. `kind`:
  /// of the call, not 0, to tell it from those that doubt() tells of. kMismatch, on all ranks whose
  /// call was not refused: another rank's was, which has told it by refuse(); the next agreement is
  /// in step.
  virtual Result<bool> agree_on_call(std::uint64_t call, std::uint64_t kind, bool on_device) {
    static_cast<void>(call);
    static_cast<void>(kind);
    std::uint64_t any = on_device ? 1 : 0;
    TUTTI_RETURN_IF_ERROR(max_in_place(&any, 1));
    return any != 0;
  }
  /// This rank's call of that number was refused; other ranks may be in steps of ours, unless
  /// theirs was refused as well. Which of the two is found by settle(). Local. False: it cannot be
  /// found.
  virtual bool refuse(std::uint64_t call) {
    static_cast<void>(call);
    return false;
  }
  /// This rank's call of that kind was refused, and others may agree on its memory, or make no such
  /// call: takes this rank's part in the first agreement that they come to. If that is another one,
  /// they agree anew. Local. False: it cannot.
  virtual bool doubt(std::uint64_t kind, bool on_device) {
    static_cast<void>(kind);
    static_cast<void>(on_device);
    return false;
  }
  /// The end of the oldest doubt(). Where the others come to no agreement within the seconds they
  /// count as not in it.
  virtual Result<DoubtedCall> settle_doubt(double wait_s) {
    static_cast<void>(wait_s);
    return DoubtedCall::kNotMade;
  }
  /// Before steps of ours: waits until it is known that a call which was refused here was so on all
  /// ranks, or that the others have heard of it. An error: neither.
  virtual Status settle() { return {}; }
};

}  // namespace tutti::runners
