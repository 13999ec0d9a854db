// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/direct_runner.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/fnv1a.hpp"
#include "runners/direct/deferred_free.hpp"
#include "runners/direct/direct_control.hpp"
#include "runners/staged_call.hpp"

namespace tutti::runners {

using select::Collective;

namespace {

/// Of a call that is copied, queued at most: a full queue would hold the host up beyond all
/// time-outs.
constexpr std::size_t kChunksAhead = 4;

/// Of a reduce_scatter.
Bytes input_bytes(const Call& call) {
  Bytes bytes = 0;
  for (const std::uint64_t count : call.recv_counts) {
    bytes += count * call.element_bytes;
  }
  return bytes;
}

}  // namespace

DirectRunner::~DirectRunner() {
  begin_end();
  if (broken_) {
    module_.abandon();
    if (copies_ != nullptr) {
      copies_->abandon();
    }
    if (stream_ != nullptr) {
      StreamCalls::abandon(api_, device_, stream_);
    }
    return;  // A kernel that never ended may still use all of it, and memory of peers.
  }
  DeferredFree deferred{.opened = std::move(opened_),
                        .memories = std::move(deferred_),
                        .pinned = control_,
                        .module = std::move(module_),
                        .liveness = std::move(liveness_),
                        .graphs = calls_->graphs()};
  free_when_alone(api_, device_, std::move(deferred));
}

void DirectRunner::begin_end() {
  const auto ignore = [](const Status& status) { static_cast<void>(status); };
  calls_->leave(kOurs);
  if (broken_ || std::exchange(has_ended_, true)) {
    return;
  }
  liveness_.end();  // Now: the driver may be busy until the process ends.
  await_receivers();
  const device::RelaxedCapture relaxed(api_);
  if (calls_->graphs()->load() > 0) {
    control_->closed = 1;  // A graph that is launched after this does nothing.
    ignore(api_.copy_async(ended_, &control_->closed, sizeof(*ended_), stream_));
  }
  if (stream_ != nullptr) {
    ignore(api_.wait_stream(stream_));
    ignore(api_.destroy_stream(stream_));
  }
  for (const Kernel& kernel : kernels_) {
    if (kernel.launcher != nullptr) {
      ignore(api_.destroy_launcher(kernel.launcher));
    }
  }
  end_copies();  // Its streams end before the memory that they use goes.
  if (arena_ != nullptr) {
    deferred_.push_back(arena_);
  }
  if (calls_->graphs()->load() == 0 && StreamCalls::is_quiet(api_, device_)) {
    close_peer_memory(api_, std::exchange(opened_, {}), liveness_);
  }
}

void DirectRunner::end_copies() {
  if (copies_ != nullptr) {
    deferred_.push_back(copies_->release_memory());
    copies_.reset();
  }
}

device::LaunchShape DirectRunner::shape_of(const DirectLaunch& launch) const {
  const auto lanes = static_cast<std::uint32_t>(api_.warp_threads());
  return {.grid = {launch.blocks, 1, 1}, .block = {launch.warps * lanes, 1, 1}};
}

std::string DirectRunner::description() const {
  return std::string(api_.name()) + " " + module_.target() +
         (geometry_.wire == DirectWire::kLines ? ", 128-byte lines, " : ", 8-byte packets, ") +
         std::to_string(arena_bytes() >> 20) + " MiB of staging memory" +
         (options_.sharing == device::Sharing::kDescriptor ? " by descriptors"
          : options_.sharing == device::Sharing::kFabric   ? " by handles of the fabric"
                                                           : "") +
         (no_graphs_.empty() ? "" : ", plain launches: " + no_graphs_);
}

Bytes DirectRunner::arena_bytes() const {
  const Bytes captured = capture_refusal().empty()
                             ? direct_arena_bytes(geometry_, me_.ranks, kDirectCapturedBlocksMax)
                             : 0;
  return direct_arena_bytes(geometry_, me_.ranks) + captured;
}

Status DirectRunner::run(Scope scope, const Call& call) {
  if (scope != Scope::kWhole) {
    return Status(ErrorCode::kUnsupported, "direct carries whole communicators only");
  }
  return end_if_broken(run_by(&DirectRunner::carry, call));
}

Status DirectRunner::run_copied(const Call& call) {
  return end_if_broken(run_by(&DirectRunner::carry_copied, call));
}

Status DirectRunner::end_if_broken(Status status) {
  if (!status.ok() && broken_) {
    calls_->end(status);
  }
  return status;
}

Status DirectRunner::run_by(Carrier carrier, const Call& call) {
  TUTTI_RETURN_IF_ERROR(calls_->ready(kOurs));
  has_run_ = true;
  const bool move_send = !call.send_memory.is_usable_on(device_);
  const bool move_recv = !call.recv_memory.is_usable_on(device_);
  if (!move_send && !move_recv && !direct_needs_copy(call)) [[likely]] {
    return (this->*carrier)(call);
  }
  const device::RelaxedCapture relaxed(api_);
  StagedCall staged;
  Status status = staged.move_in(call, me_, {StagingMemory::kDevice, device_, move_send, move_recv},
                                 &api_, scratch_, stream_);
  Call moved = staged.call();
  Lease copy;
  if (status.ok()) {
    status = copy_input(&moved, stream_, &copy);
  }
  if (status.ok()) {
    status = (this->*carrier)(moved);
  }
  if (!status.ok()) {
    if (broken_ || status.code() != ErrorCode::kMismatch) {
      broken_ = true;  // The peers are in the call.
      staged.abandon();
      copy.abandon();
    }
    return status;
  }
  return staged.move_out();
}

Status DirectRunner::copy_input(Call* call, device::Stream stream, Lease* copy) {
  if (!direct_needs_copy(*call)) {
    return {};
  }
  const Bytes bytes = input_bytes(*call);
  TUTTI_ASSIGN_OR_RETURN(*copy, scratch_.device(device_, bytes, /*may_wait=*/false));
  TUTTI_RETURN_IF_ERROR(api_.copy_async(copy->data(), call->send, bytes, stream));
  call->send = copy->data();
  call->in_place = false;
  return {};
}

Status DirectRunner::enqueue(const Call& call, device::Stream stream) {
  TUTTI_RETURN_IF_ERROR(calls_->check(kOurs));
  TUTTI_RETURN_IF_ERROR(check_on_device(call, device_));
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_, stream));
  if (std::exchange(has_run_, false)) {
    const device::RelaxedCapture relaxed(api_);
    // Its words have come; what is left is the end of its kernel.
    TUTTI_RETURN_IF_ERROR(api_.wait_stream(stream_));
  }
  const bool is_behind_other = calls_->is_behind_other(kOurs);
  return calls_->add(kOurs, stream, [&](Lease* copy) -> Status {
    Call moved = call;
    TUTTI_RETURN_IF_ERROR(copy_input(&moved, stream, copy));
    if (is_behind_other) {
      // In the stream's order: the kernel behind it begins nothing in a closed communicator.
      TUTTI_RETURN_IF_ERROR(api_.copy_async(ended_, &control_->closed, sizeof(*ended_), stream));
    }
    Planned next = planned(moved);
    return queue(&next, stream);
  });
}

namespace {

/// Equal at both ends of a pair, 16 bits.
std::uint64_t signature_of(const Call& call, const DirectLaunch& launch, std::size_t peer) {
  Fnv1a hash;
  hash.add_number(
      CallRecords::Entry::form_of(call, launch.arguments.pair_warps[peer], launch.rounds[peer]));
  hash.add_number(launch.send_bytes[peer] + launch.recv_bytes[peer]);
  return (hash.value() ^ hash.value() >> 32) & 0xFFFF;
}

}  // namespace

Status DirectRunner::capture(const Call& call, device::Stream stream) {
  TUTTI_RETURN_IF_ERROR(calls_->check(kOurs));
  TUTTI_RETURN_IF_ERROR(check_on_device(call, device_));
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_, stream));
  DirectTuning tuning = options_.tuning;
  tuning.blocks_max = std::min(tuning.blocks_max, kDirectCapturedBlocksMax);
  tuning.blocks = std::min(tuning.blocks, kDirectCapturedBlocksMax);
  DirectLaunch next = plan_direct(call, me_, geometry_, tuning);
  kernels::DirectArguments& a = next.arguments;
  const Bytes begin = direct_arena_bytes(geometry_, me_.ranks);
  std::uint64_t rounds = 0;
  for (std::size_t peer = 0; peer < static_cast<std::size_t>(me_.ranks); ++peer) {
    a.arena[peer] = static_cast<std::byte*>(arenas_[peer]) + begin;
    // 0 is none. The upper bits tell calls apart: of graphs that differ no rank takes the other's
    // data.
    a.epoch[peer] = 1 | signature_of(call, next, peer) << 48;
    rounds = std::max(rounds, next.rounds[peer]);
  }
  a.slot_bytes = direct_slot_bytes(geometry_, me_.ranks, kDirectCapturedBlocksMax);
  a.counter = counter_;
  a.counted_rounds = static_cast<kernels::Word>(rounds);
  const double ticks = std::ceil(options_.timeout_s * kernels::kTicksPerSecondMost);
  a.limit_ticks =
      static_cast<kernels::Word>(std::min<double>(ticks, std::numeric_limits<std::int32_t>::max()));
  a.overdue = &control_->overdue;
  a.abort = &control_->abort;
  a.failed = &control_->failed;
  a.ended = ended_;
  a.is_queued = 1;
  return calls_->capture(kOurs, stream, [&](bool is_behind_other) -> Status {
    if (is_behind_other) {  // As enqueue() does.
      TUTTI_RETURN_IF_ERROR(api_.copy_async(ended_, &control_->closed, sizeof(*ended_), stream));
    }
    void* arguments[] = {&a};
    // A graph keeps a copy of its arguments; a prepared launch would be a graph inside it.
    return api_.launch(kernels_[static_cast<std::size_t>(next.kernel)].function, shape_of(next),
                       stream, arguments);
  });
}

std::string DirectRunner::capture_refusal() const {
  if (geometry_.wire != DirectWire::kLines) {
    return "launches of a graph are counted on the GPU, which packets have no room for";
  }
  return options_.orders_graphs && api_.orders_graphs()
             ? ""
             : "the driver gives launches of graphs no place among other work";
}

Status DirectRunner::outcome() const {
  if (broken_ || std::atomic_ref(control_->overdue).load(std::memory_order_relaxed) == 0) {
    return {};
  }
  return Status(ErrorCode::kTimeout, "direct: a call of a graph has waited " +
                                         time_limit(options_.timeout_s) +
                                         " for a rank that has not launched the same graph");
}

Status DirectRunner::look() {
  // Only the second time: between two looks StreamCalls has asked whether the call is over.
  std::string gone = gone_peer();
  const bool is_known = !gone.empty() && gone == gone_;
  gone_ = std::move(gone);
  return is_known ? Status(ErrorCode::kTimeout, "direct: a call on a stream: " + gone_) : Status();
}

DirectRunner::Planned DirectRunner::planned(const Call& call) {
  Planned launch{plan_direct(call, me_, geometry_, options_.tuning)};
  for (std::size_t peer = 0; peer < arenas_.size(); ++peer) {
    launch.arguments.arena[peer] = arenas_[peer];
    epochs_[peer] = direct_first_epoch(epochs_[peer], launch.rounds[peer]);
    launch.arguments.epoch[peer] = epochs_[peer];
  }
  describe(&launch, call, launch);
  return launch;
}

void DirectRunner::describe(Planned* launch, const Call& call, const DirectLaunch& pieces) const {
  for (std::size_t peer = 0; peer < launch->rounds.size(); ++peer) {
    if (launch->rounds[peer] > 0) {
      launch->entries[peer] = {.number = numbers_[peer] + 1,
                               .form = CallRecords::Entry::form_of(
                                   call, launch->arguments.pair_warps[peer], launch->rounds[peer]),
                               .send_bytes = pieces.send_bytes[peer],
                               .recv_bytes = pieces.recv_bytes[peer]};
    }
  }
}

void DirectRunner::set_completed() {
  for (int peer = 0; peer < me_.ranks; ++peer) {
    call_records_.set_completed(peer, epochs_[static_cast<std::size_t>(peer)]);
  }
}

Status DirectRunner::carry(const Call& call) {
  Planned next = planned(call);
  for (int peer = 0; peer < me_.ranks; ++peer) {
    if ((next.send_only_peers >> peer & 1) != 0 &&
        call_records_.has_completed(peer, epochs_[static_cast<std::size_t>(peer)])) {
      next.arguments.unawaited |= 1U << peer;
    }
  }
  Status status = queue(&next, stream_);
  if (!status.ok()) {
    broken_ = true;
    return status;
  }
  status = wait(next, options_.timeout_s);
  if (!broken_) {
    set_completed();
  }
  return status;
}

Status DirectRunner::carry_copied(const Call& call) {
  Status status = copy_chunks(call);
  if (!status.ok() && !broken_.exchange(true)) {
    break_off();
  }
  return status;
}

Status DirectRunner::copy_chunks(const Call& call) {
  const DirectLaunch whole = plan_direct(call, me_, geometry_, options_.tuning);
  const kernels::DirectArguments& pieces = whole.arguments;
  const Bytes bytes = call.count * call.element_bytes;
  const Bytes tuned = options_.tuning.copy_chunk_bytes;
  const Bytes chunk_bytes = std::min(tuned != 0 ? tuned : kBytesMax, copies_->slot_bytes());
  Call barrier;
  barrier.collective = Collective::kBarrier;
  std::array<Planned, kChunksAhead> signals;
  std::size_t chunk = 0;
  for (Bytes offset = 0; offset < bytes; offset += chunk_bytes, ++chunk) {
    Planned& signal = signals[chunk % kChunksAhead];
    if (chunk >= kChunksAhead) {
      TUTTI_RETURN_IF_ERROR(wait(signal, options_.timeout_s));
    }
    const Bytes some = std::min(chunk_bytes, bytes - offset);
    TUTTI_RETURN_IF_ERROR(copies_->send(pieces, offset, some, stream_));
    signal = planned(barrier);
    describe(&signal, call, whole);
    // Behind a signal that gave up, the copies of this chunk may have spoilt what peers read.
    signal.arguments.is_queued = 1;
    TUTTI_RETURN_IF_ERROR(queue(&signal, stream_));
    TUTTI_RETURN_IF_ERROR(copies_->take(pieces, offset, some, stream_));
  }
  // A launch that exchanges nothing: its word says that all is over.
  TUTTI_RETURN_IF_ERROR(copies_->finish(stream_));
  Planned end = planned(barrier);
  // Every signal describes the whole call: who has made the last one has the right number of them.
  end.entries = chunk > 0 ? signals[(chunk - 1) % kChunksAhead].entries : decltype(end.entries){};
  std::fill(std::begin(end.arguments.rounds), std::end(end.arguments.rounds), 0U);
  TUTTI_RETURN_IF_ERROR(launch(end, stream_));
  TUTTI_RETURN_IF_ERROR(wait(end, options_.timeout_s));
  set_completed();
  return {};
}

Status DirectRunner::queue(Planned* next, device::Stream stream) {
  for (int peer = 0; peer < me_.ranks; ++peer) {
    if (const auto& entry = next->entries[static_cast<std::size_t>(peer)]; entry.number > 0) {
      call_records_.write(peer, entry);
    }
  }
  TUTTI_RETURN_IF_ERROR(launch(*next, stream));
  for (std::size_t peer = 0; peer < next->rounds.size(); ++peer) {
    epochs_[peer] += next->rounds[peer];
    numbers_[peer] += next->rounds[peer] > 0 ? 1 : 0;
  }
  note_awaited(*next);
  return {};
}

Status DirectRunner::launch(Planned& launch, device::Stream stream) {
  kernels::DirectArguments& a = launch.arguments;
  a.done = stream == stream_ ? control_->done.data() : nullptr;  // Else nobody looks.
  a.sequence = ++sequence_;
  a.abort = &control_->abort;
  a.failed = &control_->failed;
  a.ended = ended_;
  if (stream != stream_) {
    a.is_queued = 1;
  }
  void* arguments[] = {&a};
  const Kernel& kernel = kernels_[static_cast<std::size_t>(launch.kernel)];
  return kernel.launcher != nullptr
             ? api_.launch_again(kernel.launcher, shape_of(launch), stream, arguments)
             : api_.launch(kernel.function, shape_of(launch), stream, arguments);
}

/// A plain store: the driver may let no thread in before something was ended.
void DirectRunner::close() {
  broken_ = true;
  call_records_.set_failed();
  std::atomic_ref(control_->closed).store(1, std::memory_order_release);
}

}  // namespace tutti::runners
