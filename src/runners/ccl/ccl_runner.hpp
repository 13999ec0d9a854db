// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries a call on NCCL or RCCL: one library call where the library has the collective, grouped
// send/recv or grouped broadcasts where it has not. Buffers in host memory (or on another device,
// or of a foreign context) pass through device scratch, so a rank that differs from the agreed
// memory mode is still right.
//
// A pipeline cuts the call (chunk.hpp) and gives every chunk a target: a stream, and the
// communicator or one of its own. Every rank queues the chunks in the same order. On one
// communicator the library itself lets a chunk wait for the one before. On several their kernels
// run side by side where the GPU has room for all; where it has not, it starts them in the order in
// which they were queued, which is the same on all ranks. The library promises nothing for
// communicators side by side; should a GPU start them otherwise, the time-out ends the call.
// The library's allgather and reduce_scatter want blocks without gaps: their chunks go through
// scratch, a copy for each block, which costs memory bandwidth and is right; whether it pays is for
// tuning to say.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "ccl/ccl.hpp"
#include "runners/runner.hpp"
#include "runners/scratch.hpp"
#include "runners/stream_calls.hpp"
#include "select/plan.hpp"

namespace tutti::runners {

class CclRunner : public Runner {
 public:
  /// `device`: this rank's GPU on this communicator. `timeout_s`: 0 waits for ever. `calls`:
  /// shared with the communicator's other runner. `takes_turns`: with other communicators.
  CclRunner(ccl::CclLibrary& library, device::Api& api, int device, Bootstrap& bootstrap,
            Scratch& scratch, double timeout_s,
            std::shared_ptr<StreamCalls> calls = std::make_shared<StreamCalls>(),
            bool takes_turns = false);
  ~CclRunner() override;
  CclRunner(const CclRunner&) = delete;
  CclRunner& operator=(const CclRunner&) = delete;

  /// Begins what the end of this object waits for, so that the ends of several can be under way; no
  /// call may follow. The library may wait for all ranks in it: what has not ended two seconds
  /// later goes on without this object, in threads that use the library and the device.
  void begin_end();

  /// Collective over the scope: makes the scope's communicator. The result is this rank's own; the
  /// caller agrees on it.
  Status init_scope(Scope scope, const ccl::UniqueId& id);
  bool has_scope(Scope scope) const { return communicators_[index(scope)] != nullptr; }
  Status run(Scope scope, const Call& call) override;

  /// A call of the whole scope queued on a stream of the application, which takes memory of this
  /// device alone; returns at once. A failure of the work shows in calls() and in later
  /// calls. `is_captured`: the stream records a graph; then nothing of ours may be leased for it.
  Status enqueue_on(const Call& call, device::Stream stream, bool is_captured);
  StreamCalls& calls() { return *calls_; }

  /// What pipelines need besides the whole scope's communicator; kept until the runner ends. The
  /// results are this rank's own; the caller agrees on them. add_communicator() is collective.
  Status make_streams(int streams);
  Status add_communicator(const ccl::UniqueId& id);
  /// Collective over the whole scope. There are as many streams, and for kComms communicators, as
  /// `chunks`; both are equal on all ranks.
  Status run_pipeline(select::Pipeline pipeline, int chunks, const Call& call);

  /// What a chunk, or a call that is not cut, is queued on.
  struct Target {
    ccl::CclComm communicator = nullptr;
    device::Stream stream = nullptr;
    Lease scratch;  ///< Of the call in flight (forms the library does not have).
    bool may_lease = true;
    bool is_waited_for = true;  ///< Else on a stream of the application's.
  };

  /// For what carries calls by other means than the library's collectives: as run() on the whole
  /// scope, with `queue` in place of the library's call. Blocks of v-forms with gaps between them
  /// pass through scratch too.
  using Queue = std::function<Status(const Call& call, Target& target)>;
  Status run_queued(const Call& call, const Queue& queue);

  /// Element type and count as the library counts them. Data movement goes as bytes.
  struct Element {
    ccl::NcclType type = ccl::NcclType::kUint8;
    std::uint64_t factor = 1;
  };

 private:
  static constexpr auto kOurs = StreamCalls::Carrier::kLibrary;
  static std::size_t index(Scope scope) { return static_cast<std::size_t>(scope); }
  enum class Gaps : std::uint8_t { kStay, kClose };
  /// Moves buffers where they must be, queues the call on the targets, waits for all of them.
  template <class EnqueueCall>
  Status carry(std::span<Target> targets, const ScopeRank& me, const Call& call, Gaps gaps,
               const EnqueueCall& enqueue_call);
  template <class Body>
  Status in_library(const Body& body);
  Status enqueue(const Call& call, const ScopeRank& me, Target& target);
  Status enqueue_reduce_scatter_block(const Call& call, const Element& element, ccl::NcclOp op,
                                      Target& target);
  Status enqueue_reduce_scatter(const Call& call, const ScopeRank& me, const Element& element,
                                ccl::NcclOp op, Target& target);
  Status enqueue_packed_reduce_scatter(const Call& call, const Element& element, ccl::NcclOp op,
                                       Target& target);
  Status enqueue_equal_allgatherv(const Call& call, const Element& element, Target& target);
  Status enqueue_peers(const Call& call, const ScopeRank& me, Target& target);
  Status lease(Target& target, Bytes bytes);
  Status copy_on_stream(void* destination, const void* source, Bytes bytes, device::Stream stream);
  Status async_error(std::span<const Target> targets);
  Status wait(std::span<const Target> targets, const char* what);
  Status enqueue_on_stream(const Call& call, device::Stream stream, bool may_lease, Lease* scratch);
  /// The target's stream as the library knows it.
  device::Stream native(const Target& target) const { return api_.native_stream(target.stream); }
  using Ending = Status (ccl::CclLibrary::*)(ccl::CclComm);
  /// All there are; none is left.
  std::vector<ccl::CclComm> take_communicators();
  /// Ends communicators one after the other on a thread, which may take as long as what holds their
  /// calls does.
  void end_on_thread(std::vector<ccl::CclComm> communicators, Ending ending);
  using Clock = std::chrono::steady_clock;
  /// False: the library is not through with all that end_on_thread() began.
  bool wait_for_ends(Clock::time_point until);
  /// Aborts every communicator, in bounded time: for StreamCalls alone.
  void abort_all();

  ccl::CclLibrary& library_;
  device::Api& api_;
  int device_;
  Bootstrap& bootstrap_;
  Scratch& scratch_;
  double timeout_s_;
  std::vector<device::Stream> streams_;  ///< The first carries all that is not a pipeline's.
  /// The thread that watches calls on streams takes them away when it ends these.
  std::array<std::atomic<ccl::CclComm>, kScopeCount> communicators_{};
  /// Of the whole scope too: for the second chunk of a pipeline, the third, ...
  std::vector<ccl::CclComm> more_communicators_;
  /// Held by a thread that is in the library with a call. Who ends the calls waits for
  /// it, but not for ever: that thread may be waiting for them.
  std::mutex in_library_;
  std::atomic<bool> has_captured_{false};  ///< A graph may hold calls of the whole scope.
  /// A thread that ends communicators; left to itself when this goes before it is done.
  struct End {
    std::future<void> done;
    std::thread thread;
  };
  std::vector<End> ends_;           ///< Under way, on threads of their own.
  Clock::time_point ends_until_{};  ///< When they are left behind.
  std::shared_ptr<StreamCalls> calls_;
};

}  // namespace tutti::runners
