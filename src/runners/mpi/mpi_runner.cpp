// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/mpi/mpi_runner.hpp"

#include <algorithm>
#include <array>

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
  const bool is_cut = chunk < call.count;
  const bool stages = is_cut || options_.stage_device;
  const Staging staging{.memory = StagingMemory::kPinnedHost,
                        .device = -1,
                        .move_send = stages && on_device(call.send_memory),
                        .move_recv = stages && on_device(call.recv_memory)};
  StagedCall::Streams streams;
  if (staging.move_send || staging.move_recv) {
    TUTTI_RETURN_IF_ERROR(
        ensure_streams(staging.move_send ? call.send_memory.device : call.recv_memory.device));
    streams = {in_stream_, out_stream_, stream_device_};
  } else if (!is_cut) {
    return mpi_.collective(scope, call);
  }
  staged_bytes_.fetch_add(call.count * call.element_bytes, std::memory_order_relaxed);
  // In flight: one being copied in, one in the collective, one being copied out.
  std::array<StagedCall, 3> slots;
  const auto slot_of = [&](std::uint64_t first) -> StagedCall& {
    return slots[first == 0 ? 0 : first / chunk % slots.size()];
  };
  const auto begin = [&](std::uint64_t first) {
    return slot_of(first).begin_in(call, me, {first, std::min(chunk, call.count - first)}, staging,
                                   api_, scratch_, streams);
  };
  TUTTI_RETURN_IF_ERROR(begin(0));
  std::uint64_t first = 0;
  do {
    if (first + chunk < call.count) {
      TUTTI_RETURN_IF_ERROR(begin(first + chunk));
    }
    StagedCall& staged = slot_of(first);
    TUTTI_RETURN_IF_ERROR(staged.end_in());
    TUTTI_RETURN_IF_ERROR(mpi_.collective(scope, staged.call()));
    TUTTI_RETURN_IF_ERROR(staged.begin_out());
    first += chunk;
  } while (first < call.count);
  for (StagedCall& staged : slots) {
    TUTTI_RETURN_IF_ERROR(staged.end_out());
  }
  return {};
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

}  // namespace tutti::runners
