// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/staged_call.hpp"

#include <algorithm>

#include "runners/runner.hpp"

namespace tutti::runners {
namespace {

std::uint64_t total(std::span<const Run> runs) {
  std::uint64_t sum = 0;
  for (const Run& run : runs) {
    sum += run.count;
  }
  return sum;
}

/// `part` of each block of `block` elements.
std::vector<Run> parts_of(const std::vector<Run>& runs, std::uint64_t block, const Run& part) {
  std::vector<Run> parts;
  for (const Run& run : runs) {
    for (std::uint64_t first = run.offset; first < run.offset + run.count; first += block) {
      parts.push_back({first + part.offset, part.count});
    }
  }
  return parts;
}

/// Offsets of the blocks when they lie one behind the other; none stay none.
void make_dense(std::span<const std::uint64_t> counts, std::vector<std::uint64_t>* dense,
                std::span<const std::uint64_t>* offsets) {
  if (offsets->empty()) {
    return;
  }
  std::uint64_t end = 0;
  for (const std::uint64_t count : counts) {
    dense->push_back(end);
    end += count;
  }
  *offsets = *dense;
}

}  // namespace

Status StagedCall::move_in(const Call& call, const ScopeRank& me, const Staging& staging,
                           device::Api* api, Scratch& scratch, device::Stream stream) {
  TUTTI_RETURN_IF_ERROR(
      begin_in(call, me, {0, call.count}, staging, api, scratch, {stream, stream, -1}));
  return end_in();
}

Status StagedCall::move_out() {
  TUTTI_RETURN_IF_ERROR(begin_out());
  return end_out();
}

Status StagedCall::begin_in(const Call& call, const ScopeRank& me, const Run& part,
                            const Staging& staging, device::Api* api, Scratch& scratch,
                            const Streams& streams) {
  const bool is_whole = part.count == call.count;
  copies_in_.use(api, streams.in);
  copies_out_.use(api, streams.out);
  mark_device_ = is_whole ? -1 : streams.device;
  TUTTI_RETURN_IF_ERROR(stage(call, me, part, staging, scratch));
  return is_whole ? Status() : copies_in_.mark(mark_device_);
}

Status StagedCall::end_in() {
  TUTTI_RETURN_IF_ERROR(copies_out_.finish());
  return copies_in_.finish();
}

Status StagedCall::lease(std::uint64_t elements, const Staging& staging, Scratch& scratch,
                         Lease* lease) {
  if (lease->data() != nullptr) {
    return {};
  }
  const Bytes bytes = elements * call_.element_bytes;
  TUTTI_ASSIGN_OR_RETURN(*lease, staging.memory == StagingMemory::kDevice
                                     ? scratch.device(staging.device, bytes)
                                     : scratch.pinned(bytes));
  return {};
}

Status StagedCall::copy_in(std::span<const Run> runs, const void* from,
                           const device::PointerInfo& memory, void* to) {
  if (runs.empty()) {
    return {};
  }
  // There an earlier part may still be on its way out.
  TUTTI_RETURN_IF_ERROR(copies_out_.finish());
  for (const CopyRun& run : dense_copies(runs)) {
    TUTTI_RETURN_IF_ERROR(copies_in_.add(at(to, run.destination, call_.element_bytes),
                                         staged_memory_, at(from, run.source, call_.element_bytes),
                                         memory, run.count * call_.element_bytes));
  }
  return {};
}

Status StagedCall::stage(const Call& call, const ScopeRank& me, const Run& part, Staging staging,
                         Scratch& scratch) {
  call_ = call;
  call_.count = part.count;
  out_.clear();
  original_recv_ = call.recv;
  original_memory_ = call.recv_memory;
  staged_memory_ = {};
  if (staging.memory == StagingMemory::kDevice) {
    staged_memory_ = {device::MemoryKind::kDevice, staging.device};
  }
  std::vector<Run> sends = send_runs(call, me.rank, me.ranks);
  std::vector<Run> recvs = recv_runs(call, me.rank, me.ranks);
  const bool is_bcast = call.collective == select::Collective::kBcast;
  const Aliasing aliasing = aliasing_of(call);
  const bool is_one_buffer = is_bcast || aliasing == Aliasing::kSame;
  const bool is_send_in_recv = is_one_buffer || aliasing == Aliasing::kSendInRecv;
  if (part.count != call.count) {
    sends = parts_of(sends, call.count, part);
    recvs = parts_of(recvs, call.count, part);
    // A part of one block is where it is as dense as can be.
    staging.move_send |= sends.size() > 1;
    staging.move_recv |= recvs.size() > 1 || (is_one_buffer && sends.size() > 1);
    const auto move_on = [&](auto* buffer) {
      return buffer == nullptr ? nullptr : at(buffer, part.offset, call.element_bytes);
    };
    call_.send = move_on(call.send);
    call_.recv = move_on(call.recv);
  }
  std::uint64_t received = total(recvs);
  if (is_one_buffer) {
    received = std::max(received, total(sends));
  } else if (call.collective == select::Collective::kExscan) {
    received = part.count;  // Rank 0 receives nothing, yet MPI wants a buffer.
  }
  // Aliased sides lie in one buffer, so both move or neither does; one lease holds them.
  if (staging.move_recv && aliasing != Aliasing::kRecvInSend && received > 0) {
    TUTTI_RETURN_IF_ERROR(lease(received, staging, scratch, &recv_));
    out_ = dense_copies(recvs);
    call_.recv = recv_.data();
    call_.recv_memory = staged_memory_;
    make_dense(call.recv_counts, &recv_offsets_, &call_.recv_offsets);
    if (is_bcast) {
      return copy_in(sends, call.recv, call.recv_memory, recv_.data());  // Of the root.
    }
    if (is_send_in_recv) {
      call_.send = aliasing == Aliasing::kSame
                       ? recv_.data()
                       : at(recv_.data(), own_block_offset(call_, me.rank), call.element_bytes);
      call_.send_memory = staged_memory_;
      make_dense(call.send_counts, &send_offsets_, &call_.send_offsets);
      return copy_in(sends, call.send, call.send_memory, const_cast<void*>(call_.send));
    }
  }
  if (staging.move_send && !is_send_in_recv && total(sends) > 0) {
    TUTTI_RETURN_IF_ERROR(lease(total(sends), staging, scratch, &send_));
    call_.send = send_.data();
    call_.send_memory = staged_memory_;
    make_dense(call.send_counts, &send_offsets_, &call_.send_offsets);
    if (aliasing == Aliasing::kRecvInSend) {
      // The own block is where it belongs already: nothing comes back.
      call_.recv = at(send_.data(), own_block_offset(call_, me.rank), call.element_bytes);
      call_.recv_memory = staged_memory_;
    }
    return copy_in(sends, call.send, call.send_memory, send_.data());
  }
  return {};
}

Status StagedCall::begin_out() {
  for (const CopyRun& run : out_) {
    TUTTI_RETURN_IF_ERROR(copies_out_.add(at(original_recv_, run.source, call_.element_bytes),
                                          original_memory_,
                                          at(recv_.data(), run.destination, call_.element_bytes),
                                          call_.recv_memory, run.count * call_.element_bytes));
  }
  return mark_device_ < 0 ? Status() : copies_out_.mark(mark_device_);
}

void StagedCall::abandon() {
  send_.abandon();
  recv_.abandon();
}

}  // namespace tutti::runners
