// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Staging memory for calls whose bytes go with the GPUs' copy engines and not with kernels. A call
// is cut into chunks. Of each chunk a rank
//   (1) sends: copies its pieces from the user's buffer into its slots of the peers' memory,
//   (2) signals: a kernel of the caller's tells all peers so and waits until all have told it,
//   (3) takes: copies what the peers sent from its own memory to the user's buffer.
// User buffers are touched by their own GPU only.
//
// Three streams, one for each step, and three buffers for the chunks: while chunk k is signalled,
// chunk k + 1 is sent and chunk k - 1 is taken. With one stream less the links would idle during
// each signal. Why no further acknowledgement is needed: this rank sends chunk k, into the buffer
// of chunk k - 3, after its signal of chunk k - 2. For that it waited for every peer's, and a peer
// signals chunk k - 2 after it has taken chunk k - 3. Chunks are counted over calls, so this holds
// from one call to the next, and a call ends with its last chunk taken.
//
// In place: a position of the input is sent before its chunk is signalled, and written after.
//
// A signal that was called off must be the last that peers get to see: what is queued behind it
// still copies, into buffers that peers may be reading. A peer that needs them needs a later signal
// of this rank, too, and fails without it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "device/kernels/direct_arguments.hpp"
#include "runners/runner.hpp"

namespace tutti::runners {

class CopyStaging {
 public:
  static Result<std::unique_ptr<CopyStaging>> create(device::Api& api, int device,
                                                     const ScopeRank& me, device::Sharing sharing);
  ~CopyStaging();
  CopyStaging(const CopyStaging&) = delete;
  CopyStaging& operator=(const CopyStaging&) = delete;

  void* memory() const { return memory_; }
  /// The caller frees it, after this object's end and when no peer has it mapped any more.
  void* release_memory() { return std::exchange(memory_, nullptr); }
  /// All ranks' memory as it is mapped here, in rank order, own included. The caller unmaps it
  /// after this object's end.
  void set_memories(std::span<void* const> memories);

  /// The most bytes of a piece in one chunk, equal on all ranks.
  Bytes slot_bytes() const;

  /// Queues (1) for bytes [offset, offset + bytes) of every piece. What is queued on `signals`
  /// after it, which is to be (2), waits for that.
  Status send(const device::kernels::DirectArguments& pieces, Bytes offset, Bytes bytes,
              device::Stream signals);
  /// Queues (3) after what is queued on `signals`. Also copies the own piece, unless it is where it
  /// belongs. The chunk is counted.
  Status take(const device::kernels::DirectArguments& pieces, Bytes offset, Bytes bytes,
              device::Stream signals);
  /// What is queued on `signals` after it waits until all chunks were taken.
  Status finish(device::Stream signals);

  /// True when nothing is queued that touches the users' buffers; a stream that failed has none.
  bool is_idle();
  /// What is queued may never end: all of it stays.
  void abandon() { is_abandoned_ = true; }

 private:
  CopyStaging(device::Api& api, int device, const ScopeRank& me)
      : api_(api), device_(device), me_(me) {}
  Status make(device::Sharing sharing);
  void* slot(void* memory, int source) const;
  device::Event signalled() const { return signalled_[chunk_ % signalled_.size()]; }

  device::Api& api_;
  int device_;
  ScopeRank me_;
  void* memory_ = nullptr;  ///< Slots [buffer][source rank].
  std::vector<void*> memories_;
  device::Stream send_stream_ = nullptr;
  device::Stream take_stream_ = nullptr;
  device::Event sent_ = nullptr;
  device::Event taken_ = nullptr;
  std::array<device::Event, 2> signalled_{};  ///< Of the last chunk and the one before.
  std::uint64_t chunk_ = 0;                   ///< Chunks that were taken, in all calls.
  bool is_abandoned_ = false;
};

}  // namespace tutti::runners
