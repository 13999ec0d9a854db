// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls on their routes, on streams, and the numbers of those that were refused.
#include "engine/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/compositions.hpp"
#include "engine/placement.hpp"
#include "runners/staged_call.hpp"

namespace tutti::engine {

using select::Backend;
using select::Composition;
using select::Memory;

namespace {

bool is_on_device(const runners::Call& call) {
  return call.send_memory.kind == device::MemoryKind::kDevice ||
         call.recv_memory.kind == device::MemoryKind::kDevice;
}

schedule::Parameters schedule_parameters(const select::Plan& plan) {
  return {.radix = plan.parameters.radix.value_or(0),
          .segments = plan.parameters.segments.value_or(0)};
}

}  // namespace

Status Communicator::run(const Route& route, const runners::Call& call) {
  Status status = run_once(route, call);
  // Calls that differ are an error of that call alone, unless they have ended the runners.
  if (status.code() == ErrorCode::kMismatch && failure_.ok() && !end_->reason().ok()) {
    fail(Status(ErrorCode::kLibraryFailed, "this communicator failed before: " + status.message()));
  }
  return status;
}

Status Communicator::run_once(const Route& route, const runners::Call& call) {
  if (last_on_stream_ != Backend::kMpi) {
    TUTTI_RETURN_IF_ERROR(stream_status(/*wait=*/true));  // Calls run in the order of their making.
  }
  const bool is_in_shared_memory = route.is_in_shared_memory();
  if (is_in_shared_memory) {
    if (doubted_ > 0) [[unlikely]] {
      find_number(call);
    }
    ++calls_;
  } else {
    count_doubted();  // Steps of ours go by numbers, and do not show them.
    pass_by();
    if (mpi_ != nullptr && !route.native_flat) {
      TUTTI_RETURN_IF_ERROR(mpi_->settle());
    }
  }
  const bool is_launch = route.plan.backend == Backend::kDirect && !route.plan.copied;
  std::optional<device::RelaxedCapture> relaxed;
  if (route.memory == Memory::kDevice ? !is_launch : is_on_device(call)) {
    relax(&relaxed);
  }
  if (mpi_runner_ != nullptr) {
    mpi_runner_->set_options({.stage_device = !mpi_reads_device(route),
                              .chunk_bytes = *route.plan.parameters.chunk_bytes});
  }
  if (route.plan.backend == Backend::kSchedule && route.plan.carrier == Backend::kCcl) {
    return run_ccl_schedule(route.plan, call);
  }
  if (route.plan.backend == Backend::kSchedule) {
    return run_schedule(route.plan, call);
  }
  if (is_in_shared_memory) {
    return run_direct_host(call);
  }
  if (route.plan.copied) {
    return direct_runner_->run_copied(call);
  }
  if (route.plan.pipeline != select::Pipeline::kNone) {
    return ccl_runner_->run_pipeline(route.plan.pipeline, route.plan.chunks, call);
  }
  if (is_launch) {
    return carry_direct(call, [&](Backend backend, const runners::Call& part) {
      std::optional<device::RelaxedCapture> of_part;
      if (backend != Backend::kDirect) {
        relax(&of_part);
      }
      return runner(backend).run(runners::Scope::kWhole, part);
    });
  }
  if (route.plan.composition != Composition::kAlpha) {
    return runner(route.plan.backend).run(runners::Scope::kWhole, call);
  }
  const Backend node = route.plan.parameters.node_backend.value_or(route.plan.backend);
  const Backend leaders = route.plan.parameters.leaders_backend.value_or(route.plan.backend);
  const AlphaContext context{.placement = placement_,
                             .rank = place_.rank,
                             .node = runner(node),
                             .leaders = runner(leaders),
                             .scratch_on_device = node == Backend::kCcl || leaders == Backend::kCcl,
                             .device = device_,
                             .api = process_.device(),
                             .scratch = process_.scratch()};
  return run_alpha(context, call);
}

/// Every rank has a launch for its other pairs or none, and a group for its large ones or none: the
/// launches come first on all, so that nobody waits in a group for a rank that waits in a launch.
template <class Carry>

Status Communicator::carry_direct(const runners::Call& call, Carry carry) {
  const runners::ScopeRank me{.rank = place_.rank, .ranks = place_.ranks};
  const runners::LargePairs large = runners::large_pairs(call, me, direct_pair_bytes_max_);
  Status status = large.has_others ? carry(Backend::kDirect, call) : Status();
  // What differs from one rank alone leaves the large pieces of others as they are: they wait.
  if (!large.has_large || (!status.ok() && status.code() != ErrorCode::kMismatch)) {
    return status;
  }
  runners::CountsOfPairs counts;
  Status rest = carry(Backend::kCcl, runners::only_pairs(call, me, large.peers, &counts));
  return status.ok() ? rest : status;
}

Status Communicator::enqueue(const Route& route, const runners::Call& call, device::Stream stream) {
  if (route.order == select::Order::kCaptured) {
    return ccl_runner_->enqueue_on(call, stream, /*is_captured=*/true);
  }
  if (route.plan.backend != Backend::kDirect) {
    return enqueue_on(route.plan.backend, call, stream);
  }
  return carry_direct(call, [&](Backend backend, const runners::Call& part) {
    return enqueue_on(backend, part, stream);
  });
}

Status Communicator::enqueue_on(Backend backend, const runners::Call& call, device::Stream stream) {
  const Backend last = std::exchange(last_on_stream_, backend);
  if (last == Backend::kDirect && backend != last) {
    TUTTI_RETURN_IF_ERROR(direct_runner_->precede(stream));
  } else if (last == Backend::kCcl && backend != last) {
    TUTTI_RETURN_IF_ERROR(ccl_runner_->precede(stream));
  }
  return backend == Backend::kDirect ? direct_runner_->enqueue(call, stream)
                                     : ccl_runner_->enqueue_on(call, stream, /*is_captured=*/false);
}

Status Communicator::stream_status(bool wait) {
  Status status;
  if (direct_runner_ != nullptr) {
    status = direct_runner_->stream_status(wait);
  }
  if (ccl_runner_ != nullptr) {
    Status other = ccl_runner_->stream_status(wait);
    status = status.ok() ? std::move(other) : std::move(status);
  }
  if (!status.ok() && failure_.ok()) {
    fail(status);
  }
  return status;
}

void Communicator::doubt_call() {
  if (doubted_ == kDoubtedMax) {
    count_doubted();
  }
  ++doubted_;
  tell_doubts();
  forget_routes();  // The entry point must see whether the next one is it again.
}

void Communicator::tell_doubts() {
  if (std::byte* const line = find_calls_line(); line != nullptr) {
    const runners::HostCounter turned_away = runners::HostArea::turned_away(line);
    turned_away.publish(std::max({turned_away.read(), calls_, std::uint64_t{1}}));
    runners::HostArea::in_doubt(line).publish(has_doubts() ? 1 : 0);
  }
}

void Communicator::make_again(bool has_number, bool is_agreed) {
  is_next_agreed_ = is_agreed;
  if (has_number) {
    --calls_;  // It is native again, and told by the same number.
  } else if (has_doubts()) {
    --doubted_;
    tell_doubts();
  }
}

void Communicator::count_doubted() {
  if (has_doubts()) {
    for (; doubted_ > 0; --doubted_) {
      turn_away();
    }
    tell_doubts();
  }
}

/// Of a call in shared memory, among the numbers that it may have with the others.
void Communicator::find_number(const runners::Call& call) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (has_doubts()) {
    const std::optional<bool> is_it = direct_host_runner_->has_number(call, calls_ + 1, end);
    if (!is_it) {
      return;  // This call does not tell.
    }
    if (*is_it) {
      break;
    }
    --doubted_;
    turn_away();  // Others may wait for this rank there.
  }
  doubted_ = 0;
  tell_doubts();
}

Status Communicator::run_direct_host(const runners::Call& call) {
  const bool move_send = call.send_memory.kind == device::MemoryKind::kDevice;
  const bool move_recv = call.recv_memory.kind == device::MemoryKind::kDevice;
  if (!move_send && !move_recv) {
    return direct_host_runner_->run(runners::Scope::kWhole, call);
  }
  runners::StagedCall staged;
  Status moved = staged.move_in(call, {.rank = place_.rank, .ranks = place_.ranks},
                                runners::StagingMemory::kPinnedHost, -1, move_send, move_recv,
                                process_.device(), process_.scratch());
  if (!moved.ok()) {
    direct_host_runner_->give_up(moved);  // The other ranks are in the call.
    return moved;
  }
  TUTTI_RETURN_IF_ERROR(direct_host_runner_->run(runners::Scope::kWhole, staged.call()));
  return staged.move_out();
}

Status Communicator::run_schedule(const select::Plan& plan, const runners::Call& call) {
  if (schedule_runner_ == nullptr) {
    schedule_runner_ = std::make_unique<runners::ScheduleRunner>(
        *mpi_, place_.rank, process_.device(), process_.scratch(), placement_,
        process_.config().timeout_s, [this] { return look_at_peers(/*in_call=*/true); });
  }
  device::Stream stream = nullptr;
  if (const int device = std::max(call.send_memory.device, call.recv_memory.device); device >= 0) {
    TUTTI_ASSIGN_OR_RETURN(stream, staging_stream(device, call.count * call.element_bytes));
  }
  Status status = schedule_runner_->run(plan.algorithm, schedule_parameters(plan), call, stream);
  if (!status.ok()) {
    fail(status);  // Messages of this call may still be under way: no later one may meet them.
  }
  return status;
}

Status Communicator::run_ccl_schedule(const select::Plan& plan, const runners::Call& call) {
  if (ccl_schedule_runner_ == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(ccl::Library * library, process_.ccl());
    ccl_schedule_runner_ = std::make_unique<runners::CclScheduleRunner>(
        *ccl_runner_, *library, *process_.device(), device_, bootstrap_, process_.scratch(),
        placement_,
        device_combine_ == nullptr ? runners::DeviceReduce()
                                   : runners::DeviceReduce(std::cref(*device_combine_)));
  }
  return ccl_schedule_runner_->run(plan.algorithm, schedule_parameters(plan), call);
}

std::string Communicator::last_plan() const {
  return last_route_ == nullptr ? std::string() : to_string(last_route_->plan);
}

}  // namespace tutti::engine
