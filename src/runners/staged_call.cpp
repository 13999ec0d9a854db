// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/staged_call.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runners/runner.hpp"

namespace tutti::runners {
namespace {

constexpr device::PointerInfo kHostMemory{};

std::uint64_t total(std::span<const Run> runs) {
  std::uint64_t sum = 0;
  for (const Run& run : runs) {
    sum += run.count;
  }
  return sum;
}

std::vector<std::uint64_t> dense_offsets(std::span<const std::uint64_t> counts) {
  std::vector<std::uint64_t> offsets(counts.size());
  std::uint64_t dense = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    offsets[i] = dense;
    dense += counts[i];
  }
  return offsets;
}

}  // namespace

Status StagedCall::copy_in(const Call& call, const device::PointerInfo& target,
                           std::span<const Run> runs, const void* from,
                           const device::PointerInfo& from_memory, void* to) {
  for (const CopyRun& run : dense_copies(runs)) {
    TUTTI_RETURN_IF_ERROR(copies_.add(at(to, run.destination, call.element_bytes), target,
                                      at(from, run.source, call.element_bytes), from_memory,
                                      run.count * call.element_bytes));
  }
  return {};
}

Status StagedCall::move_in(const Call& call, const ScopeRank& me, StagingMemory memory, int device,
                           bool move_send, bool move_recv, device::Api* api, Scratch& scratch,
                           device::Stream stream) {
  copies_.use(api, stream);
  TUTTI_RETURN_IF_ERROR(stage(call, me, memory, device, move_send, move_recv, scratch));
  return copies_.finish();
}

Status StagedCall::stage(const Call& call, const ScopeRank& me, StagingMemory memory, int device,
                         bool move_send, bool move_recv, Scratch& scratch) {
  call_ = call;
  original_recv_ = call.recv;
  original_memory_ = call.recv_memory;
  const device::PointerInfo target = memory == StagingMemory::kDevice
                                         ? device::PointerInfo{device::MemoryKind::kDevice, device}
                                         : kHostMemory;
  auto lease = [&](std::uint64_t elements) {
    const Bytes bytes = elements * call.element_bytes;
    return memory == StagingMemory::kDevice ? scratch.device(device, bytes) : scratch.pinned(bytes);
  };
  const auto sends = send_runs(call, me.rank, me.ranks);
  const auto recvs = recv_runs(call, me.rank, me.ranks);
  const Aliasing aliasing = aliasing_of(call);

  if (call.collective == select::Collective::kBcast) {
    // One buffer, which the root reads and the others write.
    const auto& runs = sends.empty() ? recvs : sends;
    if (move_recv && total(runs) > 0) {
      TUTTI_ASSIGN_OR_RETURN(recv_, lease(total(runs)));
      call_.recv = recv_.data();
      call_.recv_memory = target;
      if (!sends.empty()) {
        return copy_in(call, target, sends, call.recv, call.recv_memory, recv_.data());
      }
      out_ = dense_copies(recvs);
    }
    return {};
  }

  // Aliased sides lie in one buffer, so both move or neither does; one lease holds them.
  if (aliasing == Aliasing::kSame || aliasing == Aliasing::kSendInRecv) {
    move_send = false;
  }
  if (aliasing == Aliasing::kRecvInSend) {
    move_recv = false;
  }
  if (move_recv && std::max(total(recvs), aliasing == Aliasing::kSame ? total(sends) : 0) > 0) {
    TUTTI_ASSIGN_OR_RETURN(
        recv_, lease(std::max(total(recvs), aliasing == Aliasing::kSame ? total(sends) : 0)));
    out_ = dense_copies(recvs);
    call_.recv = recv_.data();
    call_.recv_memory = target;
    if (!call.recv_offsets.empty()) {
      recv_offsets_ = dense_offsets(call.recv_counts);
      call_.recv_offsets = recv_offsets_;
    }
    if (aliasing == Aliasing::kSame) {
      TUTTI_RETURN_IF_ERROR(
          copy_in(call, target, sends, call.send, call.send_memory, recv_.data()));
      call_.send = recv_.data();
      call_.send_memory = target;
      if (!call.send_offsets.empty()) {
        send_offsets_ = dense_offsets(call.send_counts);
        call_.send_offsets = send_offsets_;
      }
    } else if (aliasing == Aliasing::kSendInRecv) {
      void* own = at(recv_.data(), own_block_offset(call_, me.rank), call.element_bytes);
      TUTTI_RETURN_IF_ERROR(copy_in(call, target, sends, call.send, call.send_memory, own));
      call_.send = own;
      call_.send_memory = target;
    }
  }
  if (move_send && total(sends) > 0) {
    TUTTI_ASSIGN_OR_RETURN(send_, lease(total(sends)));
    TUTTI_RETURN_IF_ERROR(copy_in(call, target, sends, call.send, call.send_memory, send_.data()));
    call_.send = send_.data();
    call_.send_memory = target;
    if (!call.send_offsets.empty()) {
      send_offsets_ = dense_offsets(call.send_counts);
      call_.send_offsets = send_offsets_;
    }
    if (aliasing == Aliasing::kRecvInSend) {
      // The own block is where it belongs already: nothing comes back.
      call_.recv = at(send_.data(), own_block_offset(call_, me.rank), call.element_bytes);
      call_.recv_memory = target;
    }
  }
  return {};
}

Status StagedCall::move_out() {
  for (const CopyRun& run : out_) {
    TUTTI_RETURN_IF_ERROR(copies_.add(at(original_recv_, run.source, call_.element_bytes),
                                      original_memory_,
                                      at(recv_.data(), run.destination, call_.element_bytes),
                                      call_.recv_memory, run.count * call_.element_bytes));
  }
  return copies_.finish();
}

void StagedCall::abandon() {
  send_.abandon();
  recv_.abandon();
}

}  // namespace tutti::runners
