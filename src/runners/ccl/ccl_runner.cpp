// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/ccl/ccl_runner.hpp"

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "base/pause.hpp"
#include "runners/ccl/chunk.hpp"
#include "runners/scheduled_call.hpp"
#include "runners/staged_call.hpp"

namespace tutti::runners {

namespace {

/// How long a call on a stream may be in the library before it is ended there.
constexpr auto kCallGrace = std::chrono::seconds(1);
/// How long an abort may take before what may hold it up is ended too: a kernel of ours on the same
/// stream. The library tells its own kernels first of all, then it waits for them.
constexpr auto kHeldGrace = std::chrono::milliseconds(300);
/// How long the library may take to end communicators before it is left behind. It may wait for all
/// ranks of the node to end theirs, in their order, and for graphs with their calls.
constexpr auto kEndGrace = std::chrono::seconds(2);
constexpr auto kEndGraceMin = std::chrono::milliseconds(250);

/// Outlives the runner on a thread of its own.
void end_with(ccl::CclLibrary& library, device::Api& api, int device,
              const std::vector<ccl::CclComm>& communicators,
              Status (ccl::CclLibrary::*ending)(ccl::CclComm)) {
  // An abort first tells what runs to stop. It chooses the device by itself, afterwards; a driver
  // whose queue is full would not let this thread choose it before.
  std::optional<Result<device::CurrentDevice>> current;
  std::optional<device::RelaxedCapture> relaxed;
  if (ending != &ccl::CclLibrary::abort) {
    current.emplace(device::CurrentDevice::set(api, device));
    relaxed.emplace(api);
  }
  for (const ccl::CclComm communicator : communicators) {
    Status ignored = (library.*ending)(communicator);
    static_cast<void>(ignored);
  }
}

}  // namespace

CclRunner::CclRunner(ccl::CclLibrary& library, device::Api& api, int device, Bootstrap& bootstrap,
                     Scratch& scratch, double timeout_s, std::shared_ptr<StreamCalls> calls,
                     bool takes_turns)
    : library_(library),
      api_(api),
      device_(device),
      bootstrap_(bootstrap),
      scratch_(scratch),
      timeout_s_(timeout_s),
      calls_(std::move(calls)) {
  calls_->join(kOurs, api, device,
               {.name = library.name(),
                .timeout_s = timeout_s,
                .takes_turns = takes_turns,
                .outcome =
                    [this] {
                      // Who launches has the lock, and is not waited for.
                      const std::unique_lock lock(in_library_, std::try_to_lock);
                      return lock.owns_lock()
                                 ? library_.async_error(communicators_[index(Scope::kWhole)])
                                 : Status();
                    },
                .progress = [this] { bootstrap_.progress(); },
                .end = [this] { abort_all(); }});
}

CclRunner::~CclRunner() {
  begin_end();
  // Of many communicators that end together, those before this one have taken their time.
  if (!wait_for_ends(std::max(ends_until_, Clock::now() + kEndGraceMin))) {
    log(LogLevel::kWarn,
        std::string(library_.name()) +
            (has_captured_ ? ": a graph with calls of this communicator is still there; the "
                             "library keeps the communicator's memory until then; destroy graphs "
                             "before their communicator"
                           : ": the library has not ended this communicator yet, as when a peer "
                             "has not come to its own end of it; its memory is kept until then"));
  }
  for (End& end : ends_) {
    end.thread.detach();
  }
  auto current = device::CurrentDevice::set(api_, device_);
  for (const device::Stream stream : streams_) {
    if (calls_->has_ended()) {
      StreamCalls::abandon(api_, device_, stream);
    } else {
      Status ignored = api_.destroy_stream(stream);
      static_cast<void>(ignored);
    }
  }
}

void CclRunner::begin_end() {
  calls_->leave(kOurs);
  end_on_thread(take_communicators(),
                calls_->has_failed() ? &ccl::CclLibrary::abort : &ccl::CclLibrary::destroy);
}

void CclRunner::abort_all() {
  std::unique_lock lock(in_library_, std::defer_lock);
  // Tried again and again: TSan does not know a mutex that waits for a time (GCC 12).
  const auto until = Clock::now() + kCallGrace;
  while (!lock.try_lock() && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Now, not at the end: kernels that wait for a dead peer would hold the device, and the
  // application's next cudaDeviceSynchronize with it.
  // Each on its own: what one waits for may be behind what another one holds.
  for (const ccl::CclComm communicator : take_communicators()) {
    end_on_thread({communicator}, &ccl::CclLibrary::abort);
  }
  static_cast<void>(wait_for_ends(Clock::now() + kHeldGrace));
}

std::vector<ccl::CclComm> CclRunner::take_communicators() {
  // The whole scope's last: graphs may hold it. All ranks destroy them in this order.
  std::vector<ccl::CclComm> taken = std::exchange(more_communicators_, {});
  for (auto scope = communicators_.rbegin(); scope != communicators_.rend(); ++scope) {
    if (const ccl::CclComm communicator = scope->exchange(nullptr); communicator != nullptr) {
      taken.push_back(communicator);
    }
  }
  return taken;
}

void CclRunner::end_on_thread(std::vector<ccl::CclComm> communicators, Ending ending) {
  if (communicators.empty()) {
    return;
  }
  // NCCL's destroy stays until all ranks of the node have come to theirs, and a live one may never
  // come; its commDestroySync stays until no graph holds a call of the communicator, and the
  // application may never destroy its graphs; an abort stays until calls on streams are over, and
  // they may be behind a kernel of ours.
  std::packaged_task<void()> task([&library = library_, &api = api_, device = device_,
                                   ended = std::move(communicators),
                                   ending] { end_with(library, api, device, ended, ending); });
  std::future<void> ended = task.get_future();
  ends_until_ = Clock::now() + kEndGrace;
  try {
    ends_.reserve(ends_.size() + 1);
    ends_.push_back({std::move(ended), std::thread(std::move(task))});
  } catch (const std::system_error&) {
    // Nor by this thread: it may have to end first what the library would wait for.
    log(LogLevel::kWarn, std::string(library_.name()) +
                             ": no thread to end communicators; their memory is kept; raise the "
                             "limit of processes");
  }
}

bool CclRunner::wait_for_ends(Clock::time_point until) {
  std::erase_if(ends_, [&](End& end) {
    const bool is_done = end.done.wait_until(until) == std::future_status::ready;
    if (is_done) {
      end.thread.join();
    }
    return is_done;
  });
  return ends_.empty();
}

Status CclRunner::init_scope(Scope scope, const ccl::UniqueId& id) {
  const ScopeRank me = bootstrap_.scope_rank(scope);
  TUTTI_RETURN_IF_ERROR(calls_->check(kOurs));
  if (me.rank < 0 || has_scope(scope)) {
    return {};
  }
  TUTTI_RETURN_IF_ERROR(
      calls_->ready(kOurs));  // What ends calls on streams ends the communicators too.
  TUTTI_RETURN_IF_ERROR(make_streams(1));
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_));
  TUTTI_ASSIGN_OR_RETURN(communicators_[index(scope)],
                         library_.init_rank(me.ranks, id, me.rank, timeout_s_, &api_, device_));
  const std::lock_guard lock(in_library_);
  if (calls_->has_ended()) {  // Meanwhile, by the other runner, which did not see this one.
    if (const ccl::CclComm late = communicators_[index(scope)].exchange(nullptr); late != nullptr) {
      end_on_thread({late}, &ccl::CclLibrary::abort);
    }
    return calls_->failed_before(kOurs);
  }
  return {};
}

Status CclRunner::make_streams(int streams) {
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_));
  while (streams_.size() < static_cast<std::size_t>(streams)) {
    TUTTI_ASSIGN_OR_RETURN(device::Stream stream, api_.create_stream(device_));
    streams_.push_back(stream);
  }
  return {};
}

Status CclRunner::add_communicator(const ccl::UniqueId& id) {
  TUTTI_RETURN_IF_ERROR(calls_->ready(kOurs));
  const ScopeRank me = bootstrap_.scope_rank(Scope::kWhole);
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_));
  TUTTI_ASSIGN_OR_RETURN(ccl::CclComm communicator,
                         library_.init_rank(me.ranks, id, me.rank, timeout_s_, &api_, device_));
  const std::lock_guard lock(in_library_);
  if (calls_->has_ended()) {  // As above.
    end_on_thread({communicator}, &ccl::CclLibrary::abort);
    return calls_->failed_before(kOurs);
  }
  more_communicators_.push_back(communicator);
  return {};
}

/// Runs what calls the library: who ends its communicators waits a while for that.
template <class Body>
Status CclRunner::in_library(const Body& body) {
  const std::lock_guard lock(in_library_);
  return calls_->has_ended() ? calls_->failed_before(kOurs) : body();
}

Status CclRunner::run(Scope scope, const Call& call) {
  const ScopeRank me = bootstrap_.scope_rank(scope);
  if (me.rank < 0) {
    return {};
  }
  TUTTI_RETURN_IF_ERROR(calls_->ready(kOurs));
  Target target{communicators_[index(scope)], streams_.front(), {}, true};
  return carry({&target, 1}, me, call, Gaps::kStay, [&](const Call& moved) {
    return calls_->watch_over(
        kOurs, [&] { return in_library([&] { return enqueue(moved, me, target); }); });
  });
}

Status CclRunner::enqueue_on(const Call& call, device::Stream stream, bool is_captured) {
  TUTTI_RETURN_IF_ERROR(calls_->check(kOurs));
  TUTTI_RETURN_IF_ERROR(check_on_device(call, device_));
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_, stream));
  if (is_captured) {
    has_captured_ = true;
    return calls_->capture(kOurs, stream, [&](bool /*is_behind_other*/) {
      return enqueue_on_stream(call, stream, /*may_lease=*/false, nullptr);
    });
  }
  return calls_->add(kOurs, stream, [&](Lease* scratch) {
    return enqueue_on_stream(call, stream, /*may_lease=*/true, scratch);
  });
}

Status CclRunner::enqueue_on_stream(const Call& call, device::Stream stream, bool may_lease,
                                    Lease* scratch) {
  return in_library([&] {
    Target target{communicators_[index(Scope::kWhole)], stream, {}, may_lease, false};
    Status status = enqueue(call, bootstrap_.scope_rank(Scope::kWhole), target);
    if (scratch != nullptr) {
      *scratch = std::move(target.scratch);
    }
    return status;
  });
}

Status CclRunner::lease(Target& target, Bytes bytes) {
  if (!target.may_lease) {
    return Status(ErrorCode::kUnsupported,
                  std::string(library_.name()) +
                      " has no such collective, and the memory that it takes to do without cannot "
                      "be kept for a graph; use buffers that are not in place, without gaps");
  }
  TUTTI_ASSIGN_OR_RETURN(target.scratch, scratch_.device(device_, bytes, target.is_waited_for));
  return {};
}

Status CclRunner::run_queued(const Call& call, const Queue& queue) {
  TUTTI_RETURN_IF_ERROR(calls_->ready(kOurs));
  Target target{communicators_[index(Scope::kWhole)], streams_.front(), {}, true};
  return carry({&target, 1}, bootstrap_.scope_rank(Scope::kWhole), call, Gaps::kClose,
               [&](const Call& moved) {
                 return calls_->watch_over(
                     kOurs, [&] { return in_library([&] { return queue(moved, target); }); });
               });
}

Status CclRunner::run_pipeline(select::Pipeline pipeline, int chunks, const Call& call) {
  const int used = chunks_of(call.count, call.element_bytes, chunks);
  if (used < 2) {
    return run(Scope::kWhole, call);
  }
  TUTTI_RETURN_IF_ERROR(calls_->ready(kOurs));
  std::array<Target, select::kPipelineChunksMax> targets;
  for (std::size_t i = 0; i < static_cast<std::size_t>(used); ++i) {
    const bool is_shared = i == 0 || pipeline == select::Pipeline::kStreams;
    targets[i].communicator =
        is_shared ? communicators_[index(Scope::kWhole)].load() : more_communicators_[i - 1];
    targets[i].stream = streams_[i];
  }
  const ScopeRank me = bootstrap_.scope_rank(Scope::kWhole);
  return carry(
      std::span(targets).first(static_cast<std::size_t>(used)), me, call, Gaps::kStay,
      [&](const Call& moved) {
        const auto queue = [&]() -> Status {
          for (int i = 0; i < used; ++i) {
            const PipelineChunk chunk(moved, me,
                                      chunk_run(moved.count, moved.element_bytes, i, used));
            TUTTI_RETURN_IF_ERROR(enqueue(chunk.call(), me, targets[static_cast<std::size_t>(i)]));
          }
          return {};
        };
        return calls_->watch_over(kOurs, [&] { return in_library(queue); });
      });
}

template <class EnqueueCall>
Status CclRunner::carry(std::span<Target> targets, const ScopeRank& me, const Call& call, Gaps gaps,
                        const EnqueueCall& enqueue_call) {
  auto moves = [&](const device::PointerInfo& memory, std::span<const std::uint64_t> counts,
                   std::span<const std::uint64_t> offsets) {
    return !memory.is_usable_on(device_) || (gaps == Gaps::kClose && !is_dense(counts, offsets));
  };
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_));
  StagedCall staged;
  // Returns when the copies are done: no other stream has to wait for this one.
  Status status = staged.move_in(call, me,
                                 {StagingMemory::kDevice, device_,
                                  moves(call.send_memory, call.send_counts, call.send_offsets),
                                  moves(call.recv_memory, call.recv_counts, call.recv_offsets)},
                                 &api_, scratch_, targets.front().stream);
  if (status.ok()) {
    status = enqueue_call(staged.call());
  }
  if (status.ok()) {
    status = wait(targets, select::to_string(call.collective));
  }
  if (!status.ok()) {
    // The device may still run what was queued: nothing it can write to is ever reused.
    calls_->end(status);
    if (!has_captured_) {
      static_cast<void>(wait_for_ends(ends_until_));  // No call is on a stream.
    }
    staged.abandon();
    for (Target& target : targets) {
      target.scratch.abandon();
    }
    return status;
  }
  return staged.move_out();
}

Status CclRunner::copy_on_stream(void* destination, const void* source, Bytes bytes,
                                 device::Stream stream) {
  if (bytes == 0 || destination == source) {
    return {};
  }
  return api_.copy_async(destination, source, bytes, stream);
}

Status CclRunner::async_error(std::span<const Target> targets) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (i == 0 || targets[i].communicator != targets[i - 1].communicator) {
      TUTTI_RETURN_IF_ERROR(library_.async_error(targets[i].communicator));
    }
  }
  return {};
}

Status CclRunner::wait(std::span<const Target> targets, const char* what) {
  // The error query and the clock cost more than a stream query: look at them now and then.
  constexpr int kQueriesPerLook = 1024;
  constexpr int kQueriesPerProgress = 64;
  // Queries take the driver's lock, which the library's own threads want too: the longer the wait,
  // the larger the gap between queries, up to about a hundredth of the time waited.
  constexpr int kQueriesPerPause = 16;
  constexpr std::int64_t kPausesMax = 64;
  const auto start = Clock::now();
  std::size_t done = 0;  // Targets whose streams are done.
  for (std::int64_t queries = 1;; ++queries) {
    TUTTI_ASSIGN_OR_RETURN(const bool is_done, api_.stream_done(targets[done].stream));
    if (is_done && ++done == targets.size()) {
      // Kernels also end when the library gave up on a peer; then the buffer is unwritten.
      return async_error(targets);
    }
    if (is_done) {
      continue;
    }
    for (auto i = std::min(queries / kQueriesPerPause, kPausesMax); i > 0; --i) {
      pause_briefly();
    }
    if (queries % kQueriesPerProgress == 0) {
      bootstrap_.progress();
    }
    if (queries % kQueriesPerLook != 0) {
      continue;
    }
    TUTTI_RETURN_IF_ERROR(async_error(targets));
    const double waited_s = std::chrono::duration<double>(Clock::now() - start).count();
    if (timeout_s_ > 0 && waited_s > timeout_s_) {
      return Status(ErrorCode::kTimeout, std::string(library_.name()) + " " + what +
                                             ": not finished after " + time_limit(timeout_s_) +
                                             held_up_by());
    }
  }
}

}  // namespace tutti::runners
