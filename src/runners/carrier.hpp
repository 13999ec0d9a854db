// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What carries a schedule: messages between the ranks of the whole scope, and reductions. MPI is
// one (runner.hpp), our transport another (net/net_carrier.hpp). All memory is the host's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "runners/call.hpp"
#include "schedule/program.hpp"

namespace tutti::runners {

class Carrier {
 public:
  virtual ~Carrier() = default;
  /// Called once before a program's first run, on all ranks in the same call.
  virtual Status prepare(const schedule::Program& program) {
    static_cast<void>(program);
    return {};
  }

  /// A run for a call of `collective` begins; all messages of the one before are complete.
  virtual void start(select::Collective collective) { static_cast<void>(collective); }
  /// The tag is the message's number among those of its program, pair and direction. A slot names a
  /// request until test_some() has said that it is complete; slots are small numbers.
  virtual Status isend(const void* data, Bytes bytes, int peer, int tag, int slot) = 0;
  virtual Status irecv(void* data, Bytes bytes, int peer, int tag, int slot) = 0;
  /// Appends the slots below `slots` that have become complete. Never blocks.
  virtual Status test_some(int slots, std::vector<int>* completed) = 0;
  /// inout = in op inout, with the call's type and operation.
  virtual Status reduce_local(const void* in, void* inout, std::uint64_t count,
                              const Call& call) = 0;

  /// A run has waited for too long; it will be abandoned. `why` with what this carrier can find
  /// out.
  virtual Status late(const Status& why) { return why; }
  /// A run has failed and none will follow. True: nothing touches the buffers of its messages any
  /// more. False: messages under way could not be taken back. Does not throw.
  virtual bool abandon() { return false; }
};

}  // namespace tutti::runners
