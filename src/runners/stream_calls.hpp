// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How calls on a GPU run and end, for both of a communicator's GPU runners: the order of calls that
// no thread waits for, their scratch memory, the time-out, dead peers, abort and shutdown.
//
// Order. A call on one stream waits for the communicator's calls before it on others, by events:
// all ranks must run them in one order. It also waits for calls of other communicators of the
// process. A kernel that waits for its peers holds its part of the GPU. Of kernels on streams that
// do not wait for each other a GPU may begin any first, and where it has no room for all, two GPUs
// that begin with different ones wait for each other for ever. So a call of a communicator that
// takes turns waits for those that others have queued before it, if our kernels are among them or
// carry the call itself. NCCL's and RCCL's among themselves are theirs to order. This adds no
// deadlock. Ranks queue calls of different communicators in one order, as the C API demands, and
// each call waits for earlier ones of this order only: of all that are not over, the first waits
// for nothing but its peers, which have queued it or will, behind calls that are over.
//
// Graphs. Calls that the application captures have their place by GraphOrder, where our kernels can
// be in graphs. The watch asks for launches that are under way, and for dead peers while one is.
//
// Watch. A thread looks at what runs, 20 times a second: a call that has begun (all before it on
// its stream is done) and is not over after the time-out, or whose peers are gone, ends all calls.
// The thread begins with the first call; while nothing is queued it sleeps. The driver makes a
// thread that queues wait when its queue is full, and what fills it may be a call whose peer is
// dead. So no lock is held while anything is queued: a call is shown to the watch before, which
// ends it too when queueing takes as long as the time-out. NCCL may also wait for its peers in a
// call, which connects to them when it first needs them; so calls that are waited for are shown to
// the watch while they are queued.
//
// End. When a call is ended its stream goes on, and what is behind it would send what the ended one
// left in the buffers: a live peer would take that for data. So a runner that sees a failure ends
// nothing by itself. Here all are ended, once, in an order in which nothing becomes free before
// everything that may be behind it is kept back:
//  1. The runners close. Our kernels that have not begun will not send; what runs goes on.
//  2. The library's communicators are aborted (CclRunner::abort_all), which keeps back what has not
//     begun and ends what runs. What is behind it is ours, and closed.
//  3. Our kernels that wait are told to give up. What is behind them is ours, or aborted.
//
// Functions that queue are for one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "runners/call.hpp"
#include "runners/graph_order.hpp"
#include "runners/scratch.hpp"

namespace tutti::runners {

/// Whether what a call reads and writes is memory of `device`: a stream's work moves no buffers.
Status check_on_device(const Call& call, int device);

/// A stream of the application's (null: the default one) as a handle that others can be ordered
/// with. kInvalidArgument: it is none of `device`; kUnsupported: it is being captured.
Result<device::Stream> stream_to_order(device::Api& api, int device, device::Stream stream);

class StreamCalls {
 public:
  /// Whose a call is; ended in this order.
  enum class Carrier : std::uint8_t { kLibrary, kKernels };
  struct Member {
    const char* name = "";       ///< For messages: "direct", "nccl".
    double timeout_s = 0;        ///< 0: none.
    bool takes_turns = false;    ///< With calls of other communicators.
    bool orders_graphs = false;  ///< Calls in graphs, both members', have their place.
    /// What went wrong with calls that are over or under way, as the library says; may be empty.
    std::function<Status()> outcome{};
    /// While a thread waits for calls: lets go on what a peer may need first; may be empty.
    std::function<void()> progress{};
    /// Whether the peers that the call under way waits for are there; may be empty.
    std::function<Status()> look{};
    /// Who may hold it up, as far as this rank knows: "rank 2 is 3 calls behind". May be empty.
    std::function<std::string()> late{};
    /// Keeps back what has not begun; must not wait and must not free anything. May be empty.
    std::function<void()> close{};
    /// Ends what runs. Returns in bounded time, also when a kernel of the other member's holds the
    /// stream, and calls nothing of this class; also while another thread queues.
    std::function<void()> end{};
    bool has_queued = false;  ///< Set by add().
  };
  StreamCalls() = default;
  /// Members have left.
  ~StreamCalls();
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  /// Members are on one device. One that comes after the end is ended at once.
  void join(Carrier carrier, device::Api& api, int device, Member member);
  /// Waits for all calls, or for the end that their failure brings. The member's functions are not
  /// called any more.
  void leave(Carrier carrier);

  /// Queues one call. `queue(Lease*)` puts the work on `stream`; what it leases lives until the
  /// work is done. Errors of `queue` are failures.
  template <class Queue>
  Status add(Carrier carrier, device::Stream stream, const Queue& queue) {
    const device::RelaxedCapture relaxed(*api_);
    Queued call{.carrier = carrier};
    TUTTI_RETURN_IF_ERROR(begin(&call));
    Status status = open(stream, &call);
    if (status.ok()) {
      status = queue(&call.lease);
    }
    if (status.ok()) {
      status = api_->record_event(call.after.get(), stream);
    }
    if (status.ok() && call.order != nullptr) {
      status = api_->record_event(call.order.get(), stream);
    }
    return commit(std::move(call), status);
  }
  /// What `stream` has now counts as a call of its own, behind the last one.
  Status mark(device::Stream stream) {
    return last_ ? add(*last_, stream, [](Lease*) { return Status(); }) : Status();
  }
  /// Puts a call into the graph that `stream` captures: `queue(is_behind_other)`; true: what stands
  /// before it in a launch may be the other member's.
  template <class Queue>
  Status capture(Carrier carrier, device::Stream stream, const Queue& queue) {
    const device::RelaxedCapture relaxed(*api_);
    bool is_behind_other = false;
    TUTTI_RETURN_IF_ERROR(open_captured(carrier, stream, &is_behind_other));
    TUTTI_RETURN_IF_ERROR(queue(is_behind_other));
    return members_[index(Carrier::kKernels)].orders_graphs
               ? graphs_.close(stream, static_cast<int>(carrier))
               : Status();
  }
  /// Graphs of the application's that hold calls.
  const GraphOrder::Count& graphs() const { return graphs_.graphs(); }
  /// Whether the last call that was added is of the other member, or a launch of a graph may be.
  bool is_behind_other(Carrier carrier) {
    forget_graphs();
    return last_.value_or(carrier) != carrier || has_captured_[1 - index(carrier)];
  }

  /// `queue()` puts a call that is waited for on streams of the runner's own: the watch sees to it
  /// that this ends, and to nothing after it. Errors of `queue` are failures.
  template <class Queue>
  Status watch_over(Carrier carrier, const Queue& queue) {
    TUTTI_RETURN_IF_ERROR(show(carrier));
    const Status status = queue();
    const std::lock_guard lock(mutex_);
    return settle(status);
  }

  /// Before a call: why there can be no more.
  Status check(Carrier carrier) const;
  /// The same for one that is waited for: those on streams are over.
  Status ready(Carrier carrier) {
    TUTTI_RETURN_IF_ERROR(status(/*wait=*/true));
    return check(carrier);
  }
  Status failed_before(Carrier carrier) const;
  /// What became of the calls on streams; `wait`: when all of them are over. Does not wait for an
  /// end that it finds to be due.
  Status status(bool wait);
  /// What is known of them: as status(false), but the driver and the library are asked once in a
  /// while, or where nothing is queued that the watch looks at.
  Status glance();
  bool has_queued() const { return has_queued_; }
  /// Calls that were added, ever.
  std::uint64_t added() const;
  /// Whether the first `number` of them are over. An error: one has failed, or there are not so
  /// many. Does not wait. From any thread.
  Result<bool> are_over(std::uint64_t number);
  /// Until they are.
  Status wait(std::uint64_t number);
  /// What `stream` (null: the default stream) gets from now on begins when they are over. Errors as
  /// above, of a stream that is no such one or is being captured. From any thread.
  Status wait_on_stream(std::uint64_t number, device::Stream stream);
  /// For calls that are on no stream of the application's. Null where no runner has joined.
  Result<device::Stream> own_stream();

  /// Ends all members, at the first call; returns when that is done, whoever did it.
  void end(const Status& reason);
  bool has_ended() const { return has_ended_; }
  /// A call of the communicator failed, whatever carried it: a peer may never come to the end of
  /// this one. What runs goes on.
  void set_failed() { has_failed_ = true; }
  bool has_failed() const { return has_failed_; }
  /// What ended the calls, or is about to; ok while nothing has. Asks nobody.
  Status reason() const;

  /// Whether all that communicators have on the GPU's streams is over. A driver that frees memory
  /// waits for all that runs on the GPU, and a kernel may wait there for a peer that never comes.
  static bool is_quiet(device::Api& api, int device);
  /// What is on a stream of the device now may never end, and nobody waits for it.
  static void abandon(device::Api& api, int device, device::Stream stream);

 private:
  using Clock = std::chrono::steady_clock;
  using SharedEvent = GraphOrder::SharedEvent;
  struct Line;
  struct Queued {
    Carrier carrier{};
    SharedEvent before{};  ///< What the stream had to do earlier is done.
    SharedEvent after{};
    SharedEvent previous{};  ///< The end of the call before; null: it is over.
    std::uint64_t previous_stream_id = 0;
    std::uint64_t stream_id = 0;  ///< device::Api::stream_id().
    SharedEvent order{};          ///< GraphOrder's; null: no graph has calls.
    Lease lease{};
    bool is_running = false;
    Clock::time_point since{};  ///< Seen to run.
  };
  static constexpr std::size_t index(Carrier carrier) { return static_cast<std::size_t>(carrier); }

  /// Shows the watch that this thread is about to queue something, until settle().
  Status show(Carrier carrier);
  /// The same for a call that is not waited for.
  Status begin(Queued* call);
  Status open(device::Stream stream, Queued* call);
  bool takes_turns() const { return members_[0].takes_turns || members_[1].takes_turns; }
  /// What this communicator's calls wait for and record where graphs have calls; null: none has.
  SharedEvent order_of_graphs();
  Status make_order();
  Status open_captured(Carrier carrier, device::Stream stream, bool* is_behind_other);
  /// Once there is no graph, and no launch of one that was.
  void forget_graphs() {
    if ((has_captured_[0] || has_captured_[1]) && graphs_.graphs()->load() == 0 &&
        graphs_.is_over()) {
      has_captured_ = {};
    }
  }
  /// Until no launch of a graph is under way.
  Status wait_for_graphs();
  Status commit(Queued&& call, const Status& status);
  /// The end of what begin() began.
  Status settle(const Status& status);
  /// Forgets what is done.
  Status reap();
  Status check_number(std::uint64_t number) const;
  Status outcome() const;
  /// The watch is to end the calls.
  void fail(const Status& status);
  void recycle(Queued& call);
  void wake_watch();
  void watch();
  Status look_at_peers(Carrier carrier, Clock::time_point now);
  Status look_at_first(Clock::time_point now);
  Status look_at_graphs(Clock::time_point now);
  Status look_at_queueing(Clock::time_point now);
  Status timed_out(Carrier carrier, Clock::duration waited, const char* what) const;

  device::Api* api_ = nullptr;  ///< Of the members.
  int device_ = -1;
  Line* line_ = nullptr;
  std::mutex members_mutex_;  ///< Held while members are ended; taken before the other.
  mutable std::mutex mutex_;  ///< Of what follows.
  std::array<Member, 2> members_;
  std::condition_variable changed_;
  std::deque<Queued> calls_;
  static constexpr int kUnaskedMax = 16;
  int unasked_ = 0;            ///< Calls queued since the driver was last asked.
  bool holds_memory_ = false;  ///< Some call may, until it is seen to be over.
  std::uint64_t reaped_ = 0;   ///< Calls that are over and forgotten.
  device::Stream own_stream_ = nullptr;
  struct Queueing {
    Carrier carrier{};
    Clock::time_point since{};
  };
  std::optional<Queueing> queueing_;  ///< By the caller's thread.
  std::optional<Carrier> last_;       ///< Whose call was queued last.
  GraphOrder graphs_;
  SharedEvent order_;                   ///< Of graphs_.
  std::array<bool, 2> has_captured_{};  ///< By member, since there was no graph.
  std::vector<SharedEvent> free_;
  Status failure_;
  bool is_end_due_ = false;  ///< The watch is to call end().
  bool is_asleep_ = false;
  bool is_closing_ = false;
  std::atomic<bool> has_queued_{false};  ///< A call on a stream, ever.
  std::atomic<bool> has_ended_{false};
  std::atomic<bool> has_failed_{false};
  Clock::time_point last_look_;
  std::thread thread_;
};

/// A call that was started and goes on by itself, whatever becomes of this object: blocking is
/// start and wait. Used by one thread at a time, as the communicator is.
class StartedCall {
 public:
  /// The last one that was added.
  explicit StartedCall(std::shared_ptr<StreamCalls> calls)
      : calls_(std::move(calls)), number_(calls_->added()) {}
  /// Whether the result is in the recv buffer and the send buffer may be reused. Does not wait. An
  /// error, also of a call before or after it: the recv buffer is undefined.
  Result<bool> test() { return calls_->are_over(number_); }
  /// Until it is; a dead peer or the time-out ends that.
  Status wait() { return calls_->wait(number_); }

 private:
  std::shared_ptr<StreamCalls> calls_;
  std::uint64_t number_;
};

}  // namespace tutti::runners
