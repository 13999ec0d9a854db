// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/mpi/mpi_runner.hpp"

#include <algorithm>

#include "runners/mpi/chunked_call.hpp"
#include "runners/staged_call.hpp"

namespace tutti::runners {
namespace {

bool on_device(const device::PointerInfo& memory) {
  return memory.kind == device::MemoryKind::kDevice;
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
  StagedCall staged;
  TUTTI_RETURN_IF_ERROR(staged.move_in(call, me, StagingMemory::kPinnedHost, -1, move_send,
                                       move_recv, api_, scratch_, in_stream_));
  staged_bytes_.fetch_add(call.count * call.element_bytes, std::memory_order_relaxed);
  TUTTI_RETURN_IF_ERROR(mpi_.collective(scope, staged.call()));
  return staged.move_out();
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
  ChunkedCall chunked(call, me, chunk_elements, api_);
  ChunkedCall::Streams streams;
  if (chunked.device() >= 0) {
    TUTTI_RETURN_IF_ERROR(ensure_streams(chunked.device()));
    streams = {in_stream_, out_stream_, stream_device_};
  }
  TUTTI_RETURN_IF_ERROR(chunked.run(mpi_, scope, scratch_, streams));
  staged_bytes_.fetch_add(call.count * call.element_bytes, std::memory_order_relaxed);
  return {};
}

}  // namespace tutti::runners
