// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/mpi/chunked_call.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::runners {

ChunkedCall::Event::~Event() {
  if (event_ != nullptr) {
    Status ignored = api_->destroy_event(event_);
    static_cast<void>(ignored);
  }
}

Status ChunkedCall::Event::record(device::Api* api, int device, device::Stream stream) {
  api_ = api;
  if (event_ == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(event_, api->create_event(device));
  }
  return api->record_event(event_, stream);
}

Status ChunkedCall::Event::wait() const {
  while (event_ != nullptr) {
    TUTTI_ASSIGN_OR_RETURN(const bool is_done, api_->event_done(event_));
    if (is_done) {
      break;
    }
  }
  return {};
}

ChunkedCall::ChunkedCall(const Call& call, const ScopeRank& me, std::uint64_t chunk,
                         device::Api* api)
    : call_(call),
      rank_(static_cast<std::uint64_t>(me.rank)),
      chunk_(chunk),
      api_(api),
      aliasing_(aliasing_of(call)) {
  const auto blocks_of = [&](const std::vector<Run>& runs) {
    return runs.empty() ? 0 : runs.front().count / call.count;
  };
  const std::uint64_t send_blocks = blocks_of(send_runs(call, me.rank, me.ranks));
  const std::uint64_t recv_blocks = blocks_of(recv_runs(call, me.rank, me.ranks));
  const bool is_bcast = call.collective == select::Collective::kBcast;
  send_.base = const_cast<void*>(is_bcast ? call.recv : call.send);
  send_.memory = is_bcast ? call.recv_memory : call.send_memory;
  send_.blocks = send_.staged_blocks = send_blocks;
  recv_.base = call.recv;
  recv_.memory = call.recv_memory;
  recv_.blocks = recv_.staged_blocks = recv_blocks;
  // In place stays in place (see Aliasing): the side that holds both is staged once, and the other
  // is a pointer into it.
  send_.is_in_other = aliasing_ == Aliasing::kSame || aliasing_ == Aliasing::kSendInRecv;
  recv_.is_in_other = aliasing_ == Aliasing::kRecvInSend;
  if (aliasing_ == Aliasing::kSame) {
    recv_.staged_blocks = std::max(send_blocks, recv_blocks);
  } else if (call.collective == select::Collective::kExscan) {
    // Rank 0 receives nothing, yet MPI wants a buffer.
    recv_.staged_blocks = std::max<std::uint64_t>(recv_blocks, 1);
  }
}

ChunkedCall::~ChunkedCall() {
  for (device::Stream stream : {streams_.in, streams_.out}) {
    if (stream != nullptr) {
      Status ignored = api_->wait_stream(stream);
      static_cast<void>(ignored);
    }
  }
}

int ChunkedCall::device() const {
  if (send_.is_on_device()) {
    return send_.memory.device;
  }
  return recv_.is_on_device() ? recv_.memory.device : -1;
}

Status ChunkedCall::lease(Scratch& scratch) {
  for (Side* side : {&send_, &recv_}) {
    if (side->staged_blocks == 0 || side->is_contiguous() || side->is_in_other) {
      continue;
    }
    for (Lease& lease : side->staging) {
      TUTTI_ASSIGN_OR_RETURN(lease,
                             scratch.pinned(side->staged_blocks * chunk_ * call_.element_bytes));
    }
  }
  return {};
}

std::uint64_t ChunkedCall::elements_of(std::uint64_t chunk) const {
  return std::min(chunk_, call_.count - chunk * chunk_);
}

void* ChunkedCall::chunk_of(const Side& side, std::uint64_t chunk) const {
  return side.is_contiguous()
             ? static_cast<void*>(at(side.base, chunk * chunk_, call_.element_bytes))
             : side.staging[chunk % kSlots].data();
}

void* ChunkedCall::own_block(void* base, std::uint64_t chunk) const {
  return at(base, rank_ * elements_of(chunk), call_.element_bytes);
}

/// Where a chunk's data is for MPI; the same memory for aliased sides.
void* ChunkedCall::recv_chunk(std::uint64_t chunk) const {
  if (recv_.is_in_other) {
    return own_block(chunk_of(send_, chunk), chunk);
  }
  return recv_.staged_blocks > 0 || aliasing_ != Aliasing::kNone ? chunk_of(recv_, chunk) : nullptr;
}

void* ChunkedCall::send_chunk(std::uint64_t chunk) const {
  if (!send_.is_present()) {
    return nullptr;
  }
  switch (aliasing_) {
    case Aliasing::kSame:
      return recv_chunk(chunk);
    case Aliasing::kSendInRecv:
      return own_block(recv_chunk(chunk), chunk);
    default:
      return chunk_of(send_, chunk);
  }
}

Call ChunkedCall::part(std::uint64_t chunk) const {
  Call part = call_;
  part.count = elements_of(chunk);
  part.send_memory = {};
  part.recv_memory = {};
  if (call_.collective == select::Collective::kBcast) {
    part.recv = send_.is_present() ? send_chunk(chunk) : recv_chunk(chunk);
  } else {
    part.send = send_chunk(chunk);
    part.recv = recv_chunk(chunk);
  }
  return part;
}

/// Each block's part of a chunk, into staging memory (`is_in`) or out of it.
Status ChunkedCall::copy_blocks(const Side& side, void* staged, std::uint64_t chunk,
                                bool is_in) const {
  const std::uint64_t elements = elements_of(chunk);
  const Bytes bytes = elements * call_.element_bytes;
  for (std::uint64_t block = 0; block < side.blocks; ++block) {
    void* const there = at(side.base, block * call_.count + chunk * chunk_, call_.element_bytes);
    void* const here = at(staged, block * elements, call_.element_bytes);
    void* const to = is_in ? here : there;
    const void* const from = is_in ? there : here;
    if (side.is_on_device()) {
      TUTTI_RETURN_IF_ERROR(api_->copy_async(to, from, bytes, is_in ? streams_.in : streams_.out));
    } else {
      std::memcpy(to, from, bytes);
    }
  }
  return {};
}

Status ChunkedCall::copy_in(std::uint64_t chunk) {
  if (!send_.is_present() || (send_.is_in_other ? recv_ : send_).is_contiguous()) {
    return {};
  }
  // An aliased chunk goes where the last one of this slot may still be on its way out.
  const std::size_t slot = chunk % kSlots;
  TUTTI_RETURN_IF_ERROR(copied_out_[slot].wait());
  TUTTI_RETURN_IF_ERROR(copy_blocks(send_, send_chunk(chunk), chunk, /*is_in=*/true));
  return send_.is_on_device() ? copied_in_[slot].record(api_, streams_.device, streams_.in)
                              : Status();
}

Status ChunkedCall::copy_out(std::uint64_t chunk) {
  if (!recv_.is_present() || recv_.is_in_other || recv_.is_contiguous()) {
    return {};
  }
  TUTTI_RETURN_IF_ERROR(copy_blocks(recv_, recv_chunk(chunk), chunk, /*is_in=*/false));
  return recv_.is_on_device()
             ? copied_out_[chunk % kSlots].record(api_, streams_.device, streams_.out)
             : Status();
}

Status ChunkedCall::run(MpiLibrary& mpi, Scope scope, Scratch& scratch, const Streams& streams) {
  streams_ = streams;
  TUTTI_RETURN_IF_ERROR(lease(scratch));
  const std::uint64_t chunks = (call_.count + chunk_ - 1) / chunk_;
  TUTTI_RETURN_IF_ERROR(copy_in(0));
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + 1 < chunks) {
      TUTTI_RETURN_IF_ERROR(copy_in(chunk + 1));
    }
    TUTTI_RETURN_IF_ERROR(copied_in_[chunk % kSlots].wait());
    TUTTI_RETURN_IF_ERROR(copied_out_[chunk % kSlots].wait());
    TUTTI_RETURN_IF_ERROR(mpi.collective(scope, part(chunk)));
    TUTTI_RETURN_IF_ERROR(copy_out(chunk));
  }
  return recv_.is_on_device() ? api_->wait_stream(streams_.out) : Status();
}

}  // namespace tutti::runners
