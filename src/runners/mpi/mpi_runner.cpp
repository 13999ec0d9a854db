// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/mpi/mpi_runner.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "runners/relocate.hpp"

namespace tutti::runners {
namespace {

/// Chunks in flight: one being copied in, one in the collective, one being copied out.
constexpr std::size_t kSlots = 3;

bool on_device(const device::PointerInfo& memory) {
  return memory.kind == device::MemoryKind::kDevice;
}

/// One side (send or recv) of a chunked call: where the blocks are and how a chunk of them comes
/// to, or leaves, a contiguous host buffer.
struct Side {
  void* base = nullptr;
  device::PointerInfo memory;
  std::uint64_t blocks = 0;
  std::uint64_t block_elements = 0;
  Bytes element_bytes = 1;
  std::array<Lease, kSlots> staging;
  std::uint64_t staged_blocks = 0;  ///< More than `blocks` where the other side lies here too.

  bool present() const { return blocks > 0; }
  /// One host block needs no staging: a chunk of it is contiguous where it is.
  bool direct() const { return std::max(blocks, staged_blocks) == 1 && !on_device(memory); }

  void* chunk(std::size_t slot, std::uint64_t offset) const {
    return direct() ? static_cast<void*>(at(base, offset, element_bytes)) : staging[slot].data();
  }
};

/// Calls `copy(application_address, staging_address, bytes)` for each block's part of a chunk.
template <class Copy>
Status for_each_block(const Side& side, void* staging, std::uint64_t offset, std::uint64_t elements,
                      Copy copy) {
  for (std::uint64_t block = 0; block < side.blocks; ++block) {
    std::byte* application =
        at(side.base, block * side.block_elements + offset, side.element_bytes);
    std::byte* staged = at(staging, block * elements, side.element_bytes);
    TUTTI_RETURN_IF_ERROR(copy(application, staged, elements * side.element_bytes));
  }
  return {};
}

}  // namespace

MpiRunner::~MpiRunner() {
  for (device::Stream stream : {in_stream_, out_stream_}) {
    if (stream != nullptr) {
      Status ignored = api_->destroy_stream(stream);  // The driver may be gone at exit.
      static_cast<void>(ignored);
    }
  }
}

std::uint64_t MpiRunner::chunk_elements(const Call& call, int ranks, Bytes chunk_bytes) {
  if (chunk_bytes == 0 || has_counts(call.collective) ||
      call.collective == select::Collective::kBarrier) {
    return call.count;
  }
  const Bytes row_bytes = block_count_max(call.collective, ranks) * call.element_bytes;
  return std::clamp<std::uint64_t>(chunk_bytes / row_bytes, 1,
                                   std::max<std::uint64_t>(call.count, 1));
}

Status MpiRunner::run(Scope scope, const Call& call) {
  const ScopeRank me = mpi_.scope_rank(scope);
  if (me.rank < 0) {
    return {};
  }
  const std::uint64_t chunk = chunk_elements(call, me.ranks, options_.chunk_bytes);
  if (chunk < call.count) {
    return run_chunked(scope, call, me, chunk);
  }
  return run_whole(scope, call, me);
}

Status MpiRunner::run_whole(Scope scope, const Call& call, const ScopeRank& me) {
  const bool move_send = options_.stage_device && on_device(call.send_memory);
  const bool move_recv = options_.stage_device && on_device(call.recv_memory);
  if (!move_send && !move_recv) {
    return mpi_.collective(scope, call);
  }
  TUTTI_RETURN_IF_ERROR(
      ensure_streams(move_send ? call.send_memory.device : call.recv_memory.device));
  Relocated relocated;
  TUTTI_RETURN_IF_ERROR(relocated.move_in(call, me, Place::kPinnedHost, -1, move_send, move_recv,
                                          api_, scratch_, in_stream_));
  staged_bytes_.fetch_add(call.count * call.element_bytes, std::memory_order_relaxed);
  TUTTI_RETURN_IF_ERROR(mpi_.collective(scope, relocated.call()));
  return relocated.move_out();
}

Result<device::Stream> MpiRunner::staging_stream(int device) {
  TUTTI_RETURN_IF_ERROR(ensure_streams(device));
  return in_stream_;
}

Status MpiRunner::ensure_streams(int device) {
  if (in_stream_ != nullptr && stream_device_ == device) {
    return {};
  }
  for (device::Stream* stream : {&in_stream_, &out_stream_}) {
    if (*stream != nullptr) {
      TUTTI_RETURN_IF_ERROR(api_->destroy_stream(*stream));
      *stream = nullptr;
    }
    TUTTI_ASSIGN_OR_RETURN(*stream, api_->create_stream(device));
  }
  stream_device_ = device;
  return {};
}

Status MpiRunner::run_chunked(Scope scope, const Call& call, const ScopeRank& me,
                              std::uint64_t chunk_elements) {
  const BlockCounts blocks = block_counts(call, me.rank, me.ranks);
  const bool is_bcast = call.collective == select::Collective::kBcast;
  Side send{const_cast<void*>(is_bcast ? call.recv : call.send),
            is_bcast ? call.recv_memory : call.send_memory,
            blocks.send,
            call.count,
            call.element_bytes,
            {}};
  Side recv{call.recv, call.recv_memory, blocks.recv, call.count, call.element_bytes, {}};

  const bool device_send = send.present() && on_device(send.memory);
  const bool device_recv = recv.present() && on_device(recv.memory);
  if (device_send || device_recv) {
    TUTTI_RETURN_IF_ERROR(ensure_streams(device_send ? send.memory.device : recv.memory.device));
  }
  // In place stays in place (see Aliasing): the side that holds both is staged once, and the other
  // is a pointer into it.
  const Aliasing aliasing = aliasing_of(call);
  const bool send_in_recv = aliasing == Aliasing::kSame || aliasing == Aliasing::kSendInRecv;
  const bool recv_in_send = aliasing == Aliasing::kRecvInSend;
  if (aliasing == Aliasing::kSame) {
    recv.staged_blocks = std::max(send.blocks, recv.blocks);
  } else if (call.collective == select::Collective::kExscan) {
    recv.staged_blocks = 1;  // Rank 0 receives nothing, yet MPI wants a buffer.
  }
  for (Side* side : {&send, &recv}) {
    const bool held_by_other = side == &send ? send_in_recv : recv_in_send;
    if (std::max(side->blocks, side->staged_blocks) > 0 && !side->direct() && !held_by_other) {
      for (Lease& lease : side->staging) {
        TUTTI_ASSIGN_OR_RETURN(lease, scratch_.pinned(std::max(side->blocks, side->staged_blocks) *
                                                      chunk_elements * call.element_bytes));
      }
    }
  }

  // Whatever happens, no lease may go back to the pool while a copy engine still writes to it.
  struct Drain {
    MpiRunner* runner;
    ~Drain() {
      for (device::Stream stream : {runner->in_stream_, runner->out_stream_}) {
        if (stream != nullptr) {
          Status ignored = runner->api_->wait_stream(stream);
          static_cast<void>(ignored);
        }
      }
    }
  };
  std::optional<Drain> drain;
  if (device_send || device_recv) {
    drain.emplace(Drain{this});
  }

  struct Event {
    device::Api* api = nullptr;
    device::Event event = nullptr;
    ~Event() {
      if (event != nullptr) {
        Status ignored = api->destroy_event(event);
        static_cast<void>(ignored);
      }
    }
    Status record(device::Api* table, int device, device::Stream stream) {
      api = table;
      if (event == nullptr) {
        TUTTI_ASSIGN_OR_RETURN(event, table->create_event(device));
      }
      return table->record_event(event, stream);
    }
    Status wait() const {
      while (event != nullptr) {
        TUTTI_ASSIGN_OR_RETURN(const bool done, api->event_done(event));
        if (done) {
          break;
        }
      }
      return {};
    }
  };
  std::array<Event, kSlots> copied_in;
  std::array<Event, kSlots> copied_out;

  const std::uint64_t chunks = (call.count + chunk_elements - 1) / chunk_elements;
  auto elements_of = [&](std::uint64_t chunk) {
    return std::min(chunk_elements, call.count - chunk * chunk_elements);
  };
  /// Where chunk's send (recv) data is for MPI; the same memory for aliased sides.
  auto own_block = [&](void* base, std::uint64_t chunk) {
    return at(base, static_cast<std::uint64_t>(me.rank) * elements_of(chunk), call.element_bytes);
  };
  auto recv_chunk = [&](std::uint64_t chunk) -> void* {
    if (std::max(recv.blocks, recv.staged_blocks) == 0 && aliasing == Aliasing::kNone) {
      return nullptr;
    }
    const std::uint64_t offset = chunk * chunk_elements;
    return recv_in_send ? own_block(send.chunk(chunk % kSlots, offset), chunk)
                        : recv.chunk(chunk % kSlots, offset);
  };
  auto send_chunk = [&](std::uint64_t chunk) -> void* {
    if (!send.present()) {
      return nullptr;
    }
    if (aliasing == Aliasing::kSame) {
      return recv_chunk(chunk);
    }
    if (aliasing == Aliasing::kSendInRecv) {
      return own_block(recv_chunk(chunk), chunk);
    }
    return send.chunk(chunk % kSlots, chunk * chunk_elements);
  };
  const bool stages_send = send.present() && !(send_in_recv ? recv : send).direct();
  const bool stages_recv = recv.present() && !recv_in_send && !recv.direct();
  auto copy_in = [&](std::uint64_t chunk) -> Status {
    if (!stages_send) {
      return {};
    }
    // An aliased chunk goes where the last one of this slot may still be on its way out.
    const std::size_t slot = chunk % kSlots;
    TUTTI_RETURN_IF_ERROR(copied_out[slot].wait());
    TUTTI_RETURN_IF_ERROR(
        for_each_block(send, send_chunk(chunk), chunk * chunk_elements, elements_of(chunk),
                       [&](std::byte* application, std::byte* staged, Bytes bytes) -> Status {
                         if (device_send) {
                           return api_->copy_async(staged, application, bytes, in_stream_);
                         }
                         std::memcpy(staged, application, bytes);
                         return {};
                       }));
    return device_send ? copied_in[slot].record(api_, stream_device_, in_stream_) : Status();
  };
  auto copy_out = [&](std::uint64_t chunk) -> Status {
    if (!stages_recv) {
      return {};
    }
    const std::size_t slot = chunk % kSlots;
    TUTTI_RETURN_IF_ERROR(
        for_each_block(recv, recv_chunk(chunk), chunk * chunk_elements, elements_of(chunk),
                       [&](std::byte* application, std::byte* staged, Bytes bytes) -> Status {
                         if (device_recv) {
                           return api_->copy_async(application, staged, bytes, out_stream_);
                         }
                         std::memcpy(application, staged, bytes);
                         return {};
                       }));
    return device_recv ? copied_out[slot].record(api_, stream_device_, out_stream_) : Status();
  };

  TUTTI_RETURN_IF_ERROR(copy_in(0));
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t slot = chunk % kSlots;
    if (chunk + 1 < chunks) {
      TUTTI_RETURN_IF_ERROR(copy_in(chunk + 1));
    }
    TUTTI_RETURN_IF_ERROR(copied_in[slot].wait());
    TUTTI_RETURN_IF_ERROR(copied_out[slot].wait());
    Call part = call;
    part.count = elements_of(chunk);
    part.send_memory = {};
    part.recv_memory = {};
    if (is_bcast) {
      part.recv = send.present() ? send_chunk(chunk) : recv_chunk(chunk);
    } else {
      part.send = send_chunk(chunk);
      part.recv = recv_chunk(chunk);
    }
    TUTTI_RETURN_IF_ERROR(mpi_.collective(scope, part));
    TUTTI_RETURN_IF_ERROR(copy_out(chunk));
  }
  staged_bytes_.fetch_add(call.count * call.element_bytes, std::memory_order_relaxed);
  if (device_recv) {
    TUTTI_RETURN_IF_ERROR(api_->wait_stream(out_stream_));
  }
  return {};
}

}  // namespace tutti::runners
