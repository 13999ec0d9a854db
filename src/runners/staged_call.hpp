// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Moves a call's buffers to another kind of memory for the time of the call: to pinned host
// memory for an MPI that cannot read device memory, to device memory for a CCL. Only the bytes
// the collective reads are copied in and only those it writes are copied back, so the holes of
// v-forms stay untouched.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "runners/call.hpp"
#include "runners/copies.hpp"
#include "runners/runner.hpp"
#include "runners/scratch.hpp"

namespace tutti::runners {

/// The memory that buffers are staged in.
enum class StagingMemory : std::uint8_t { kPinnedHost, kDevice };

class StagedCall {
 public:
  StagedCall() = default;
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  /// Leases memory and copies in. A side is moved when `move_send` / `move_recv` says so; the
  /// other side keeps its pointers. `device`: ordinal for StagingMemory::kDevice.
  /// Copies go through `stream`, one wait for all of a direction; null: one by one, blocking.
  Status move_in(const Call& call, const ScopeRank& me, StagingMemory memory, int device,
                 bool move_send, bool move_recv, device::Api* api, Scratch& scratch,
                 device::Stream stream = nullptr);
  const Call& call() const { return call_; }
  /// Copies what was received back to the application's buffer.
  Status move_out();
  /// After a timeout: the leased memory is never reused.
  void abandon();

 private:
  Status copy_in(const Call& call, const device::PointerInfo& target, std::span<const Run> runs,
                 const void* from, const device::PointerInfo& from_memory, void* to);

  Status stage(const Call& call, const ScopeRank& me, StagingMemory memory, int device,
               bool move_send, bool move_recv, Scratch& scratch);

  Call call_;
  Lease send_;
  Lease recv_;
  Copies copies_;  ///< After the leases: finishes before they go back.
  std::vector<CopyRun> out_;
  void* original_recv_ = nullptr;
  device::PointerInfo original_memory_;
  std::vector<std::uint64_t> send_offsets_;
  std::vector<std::uint64_t> recv_offsets_;
};

}  // namespace tutti::runners
