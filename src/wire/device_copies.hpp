// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a wire needs of GPUs to bring payloads into their memory that a NIC has put elsewhere.
// Wires know no GPU library: net/gpu implements it. Unless it says otherwise, all calls come from
// the thread that drives the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"

namespace tutti::wire {

class DeviceCopies {
 public:
  static constexpr std::size_t kPiecesMax = 256;

  struct Piece {
    const std::byte* from = nullptr;  ///< In memory of add_source().
    std::byte* to = nullptr;          ///< In the GPU's memory.
    std::size_t bytes = 0;
  };
  enum class State : std::uint8_t { kUnderWay, kEnded, kFailed };

  virtual ~DeviceCopies() = default;

  /// The GPU whose memory that is; -1: it is the host's. Any thread.
  virtual int device_of(const void* memory) = 0;
  /// Memory of the GPU that this thread uses, to try out what a NIC can do; empty: it uses none.
  /// Lives as long as this.
  virtual std::span<std::byte> trial_memory() = 0;
  /// So that later copies to that memory of a GPU wait for nothing; takes milliseconds the first
  /// time. Any thread. Errors: none can be made.
  virtual Status prepare(const void* memory) = 0;
  /// After prepare(): what copies to that GPU are done without, and why; empty: nothing. Any
  /// thread.
  virtual std::string shortfall(int device) {
    (void)device;
    return {};
  }
  /// Memory of the host that pieces lie in, until it is removed: no copy is under way then.
  virtual void add_source(std::span<std::byte> memory) = 0;
  virtual void remove_source(std::span<std::byte> memory) = 0;
  /// Queues up to kPiecesMax copies to one GPU, in no order, by one launch. 0: as many as possible
  /// are under way. Errors: the GPU takes none; only then it has waited, for those it had begun.
  virtual Result<std::uint64_t> start(int device, std::span<const Piece> pieces) = 0;
  /// Of what start() gave, which is void once it is not under way. Never blocks.
  virtual State state(std::uint64_t copies) = 0;
};

}  // namespace tutti::wire
