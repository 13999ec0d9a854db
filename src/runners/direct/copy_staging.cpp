// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/copy_staging.hpp"

#include "runners/copies.hpp"

namespace tutti::runners {

namespace {

constexpr std::uint64_t kBuffers = 3;
/// Of all ranks' slots: a chunk that takes several times as long as its signal.
constexpr Bytes kBufferBytes = Bytes{16} << 20;
constexpr Bytes kSlotAlignment = 4096;

}  // namespace

Result<std::unique_ptr<CopyStaging>> CopyStaging::create(device::Api& api, int device,
                                                         const ScopeRank& me,
                                                         device::Sharing sharing) {
  std::unique_ptr<CopyStaging> self(new CopyStaging(api, device, me));
  TUTTI_RETURN_IF_ERROR(self->make(sharing));
  return self;
}

Status CopyStaging::make(device::Sharing sharing) {
  TUTTI_ASSIGN_OR_RETURN(memory_, api_.allocate_shared(device_, kBuffers * kBufferBytes, sharing));
  TUTTI_ASSIGN_OR_RETURN(send_stream_, api_.create_stream(device_));
  TUTTI_ASSIGN_OR_RETURN(take_stream_, api_.create_stream(device_));
  TUTTI_ASSIGN_OR_RETURN(sent_, api_.create_event(device_));
  TUTTI_ASSIGN_OR_RETURN(taken_, api_.create_event(device_));
  for (device::Event& event : signalled_) {
    TUTTI_ASSIGN_OR_RETURN(event, api_.create_event(device_));
  }
  return {};
}

CopyStaging::~CopyStaging() {
  if (is_abandoned_) {
    return;
  }
  const auto ignore = [](const Status& status) { static_cast<void>(status); };
  for (const device::Stream stream : {send_stream_, take_stream_}) {
    if (stream != nullptr) {
      ignore(api_.wait_stream(stream));
      ignore(api_.destroy_stream(stream));
    }
  }
  for (const device::Event event : {sent_, taken_, signalled_[0], signalled_[1]}) {
    if (event != nullptr) {
      ignore(api_.destroy_event(event));
    }
  }
  if (memory_ != nullptr) {
    ignore(api_.free_device(memory_));
  }
}

void CopyStaging::set_memories(std::span<void* const> memories) {
  memories_.assign(memories.begin(), memories.end());
}

Bytes CopyStaging::slot_bytes() const {
  return kBufferBytes / static_cast<Bytes>(me_.ranks) / kSlotAlignment * kSlotAlignment;
}

void* CopyStaging::slot(void* memory, int source) const {
  const Bytes slots = chunk_ % kBuffers * static_cast<Bytes>(me_.ranks);
  return at(memory, slots + static_cast<Bytes>(source), slot_bytes());
}

Status CopyStaging::send(const device::kernels::DirectArguments& pieces, Bytes offset, Bytes bytes,
                         device::Stream signals) {
  // Of chunk k - 2: two events take turns, and this chunk's is not recorded yet.
  TUTTI_RETURN_IF_ERROR(api_.stream_wait_event(send_stream_, signalled()));
  // Each rank begins with the one after it, so that no GPU is everybody's first.
  for (int step = 1; step < me_.ranks; ++step) {
    const auto peer = static_cast<std::size_t>((me_.rank + step) % me_.ranks);
    TUTTI_RETURN_IF_ERROR(api_.copy_async(slot(memories_[peer], me_.rank),
                                          at(pieces.send[peer], offset, 1), bytes, send_stream_));
  }
  TUTTI_RETURN_IF_ERROR(api_.record_event(sent_, send_stream_));
  TUTTI_RETURN_IF_ERROR(api_.stream_wait_event(signals, sent_));
  return api_.stream_wait_event(signals, taken_);  // Of chunk k - 1.
}

Status CopyStaging::take(const device::kernels::DirectArguments& pieces, Bytes offset, Bytes bytes,
                         device::Stream signals) {
  TUTTI_RETURN_IF_ERROR(api_.record_event(signalled(), signals));
  TUTTI_RETURN_IF_ERROR(api_.stream_wait_event(take_stream_, signalled()));
  for (int source = 0; source < me_.ranks; ++source) {
    const auto i = static_cast<std::size_t>(source);
    const bool is_own = source == me_.rank;
    if (is_own && pieces.send[i] == pieces.recv[i]) {
      continue;
    }
    TUTTI_RETURN_IF_ERROR(api_.copy_async(
        at(pieces.recv[i], offset, 1),
        is_own ? at(pieces.send[i], offset, 1) : slot(memory_, source), bytes, take_stream_));
  }
  ++chunk_;
  return api_.record_event(taken_, take_stream_);
}

Status CopyStaging::finish(device::Stream signals) {
  return api_.stream_wait_event(signals, taken_);
}

bool CopyStaging::is_idle() {
  for (const device::Stream stream : {send_stream_, take_stream_}) {
    const auto done = api_.stream_done(stream);
    if (done.ok() && !*done) {
      return false;
    }
  }
  return true;
}

}  // namespace tutti::runners
