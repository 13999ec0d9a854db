// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Moves a call's buffers to another kind of memory for the time of the call: to pinned host
// memory for an MPI that cannot read device memory, to device memory for a CCL. Only the bytes
// the collective reads are copied in and only those it writes are copied back, so the holes of
// v-forms stay untouched. Of a regular call it may be a part: the same elements of each block.
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

struct Staging {
  StagingMemory memory = StagingMemory::kPinnedHost;
  int device = -1;  ///< Of StagingMemory::kDevice.
  /// Which sides are moved; the other one keeps its pointers.
  bool move_send = false;
  bool move_recv = false;
};

class StagedCall {
 public:
  /// Of one device; null: copies are made one by one, and block.
  struct Streams {
    device::Stream in = nullptr;
    device::Stream out = nullptr;
    int device = -1;
  };

  StagedCall() = default;
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  /// Leases memory and copies in. Copies go through `stream`, one wait for all of a direction.
  Status move_in(const Call& call, const ScopeRank& me, const Staging& staging, device::Api* api,
                 Scratch& scratch, device::Stream stream = nullptr);
  const Call& call() const { return call_; }
  /// Copies what was received back to the application's buffer.
  Status move_out();
  /// After a timeout: the leased memory is never reused.
  void abandon();

  /// The steps of the two, for `part` of each block: what they queue is waited for by the next one.
  /// Other parts of the call may follow in the same memory, none longer than the first.
  Status begin_in(const Call& call, const ScopeRank& me, const Run& part, const Staging& staging,
                  device::Api* api, Scratch& scratch, const Streams& streams);
  Status end_in();
  Status begin_out();
  Status end_out() { return copies_out_.finish(); }

 private:
  Status lease(std::uint64_t elements, const Staging& staging, Scratch& scratch, Lease* lease);
  Status copy_in(std::span<const Run> runs, const void* from, const device::PointerInfo& memory,
                 void* to);
  Status stage(const Call& call, const ScopeRank& me, const Run& part, Staging staging,
               Scratch& scratch);

  Call call_;
  Lease send_;
  Lease recv_;
  device::PointerInfo staged_memory_;
  Copies copies_in_;  ///< After the leases: finishes before they go back.
  Copies copies_out_;
  int mark_device_ = -1;  ///< Of a part, whose copies others follow on the streams; else none.
  std::vector<CopyRun> out_;
  void* original_recv_ = nullptr;
  device::PointerInfo original_memory_;
  std::vector<std::uint64_t> send_offsets_;
  std::vector<std::uint64_t> recv_offsets_;
};

}  // namespace tutti::runners
