// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A regular call in chunks through the MPI library's own collective: the copy of one chunk overlaps
// the collective of another. Counts and offsets in elements.
#pragma once

#include <array>

#include "runners/runner.hpp"
#include "runners/scratch.hpp"

namespace tutti::runners {

class ChunkedCall {
 public:
  /// What copies in and what copies out; null where no buffer is device memory. On one device.
  struct Streams {
    device::Stream in = nullptr;
    device::Stream out = nullptr;
    int device = -1;
  };

  /// `chunk`: elements of each block at a time, equal on all ranks.
  ChunkedCall(const Call& call, const ScopeRank& me, std::uint64_t chunk, device::Api* api);
  ChunkedCall(const ChunkedCall&) = delete;
  ChunkedCall& operator=(const ChunkedCall&) = delete;
  /// Waits for the copies: no lease may go back to its pool while one still writes to it.
  ~ChunkedCall();

  /// On which run() needs streams; -1: none.
  int device() const;
  /// Once.
  Status run(MpiLibrary& mpi, Scope scope, Scratch& scratch, const Streams& streams);

 private:
  /// In flight: one being copied in, one in the collective, one being copied out.
  static constexpr std::size_t kSlots = 3;

  /// Where the blocks of send or recv are, and how a chunk of them comes to, or leaves, a
  /// contiguous host buffer.
  struct Side {
    void* base = nullptr;
    device::PointerInfo memory;
    std::uint64_t blocks = 0;
    std::uint64_t staged_blocks = 0;  ///< More than `blocks` where the other side lies here too.
    bool is_in_other = false;         ///< In place: staged with the other side.
    std::array<Lease, kSlots> staging;

    bool is_present() const { return blocks > 0; }
    bool is_on_device() const { return is_present() && memory.kind == device::MemoryKind::kDevice; }
    /// One host block needs no staging: a chunk of it is contiguous where it is.
    bool is_contiguous() const {
      return staged_blocks == 1 && memory.kind != device::MemoryKind::kDevice;
    }
  };

  /// Done when the copies before it are.
  class Event {
   public:
    Event() = default;
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event();
    Status record(device::Api* api, int device, device::Stream stream);
    /// At once where nothing was recorded.
    Status wait() const;

   private:
    device::Api* api_ = nullptr;
    device::Event event_ = nullptr;
  };

  Status lease(Scratch& scratch);
  std::uint64_t elements_of(std::uint64_t chunk) const;
  void* chunk_of(const Side& side, std::uint64_t chunk) const;
  void* own_block(void* base, std::uint64_t chunk) const;
  void* send_chunk(std::uint64_t chunk) const;
  void* recv_chunk(std::uint64_t chunk) const;
  Call part(std::uint64_t chunk) const;
  Status copy_in(std::uint64_t chunk);
  Status copy_out(std::uint64_t chunk);
  Status copy_blocks(const Side& side, void* staged, std::uint64_t chunk, bool is_in) const;

  const Call& call_;
  std::uint64_t rank_;
  std::uint64_t chunk_;
  device::Api* api_;
  Streams streams_;
  Aliasing aliasing_;
  Side send_;
  Side recv_;
  std::array<Event, kSlots> copied_in_;
  std::array<Event, kSlots> copied_out_;
};

}  // namespace tutti::runners
