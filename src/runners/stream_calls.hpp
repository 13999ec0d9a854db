// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls that a runner queued on streams of the application and that no thread waits for: their
// order among each other (among communicators: stream_line.hpp), their scratch memory, and their
// end when a peer dies.
//
// A call on one stream waits for the calls before it on others, by events: the runner's kernels of
// all ranks must run in one order. A thread of ours looks at what runs, 20 times a second: a call
// that has begun (all before it on its stream is done) and is not over after the time-out, or whose
// peers are gone, is ended. The thread begins with the first call and ends with this object; while
// nothing is queued it sleeps.
//
// The driver makes a thread that queues wait when its queue is full, and what fills it may be a
// call whose peer is dead. So no lock is held while anything is queued: a call is shown to the
// thread before, which ends it too when queueing takes as long as the time-out. NCCL may also wait
// for its peers in a call, which connects to them when it first needs them; so calls that are
// waited for are shown to the thread while they are queued.
//
// Functions that queue are for one thread at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "runners/call.hpp"
#include "runners/scratch.hpp"
#include "runners/stream_line.hpp"

namespace tutti::runners {

/// Whether what a call reads and writes is memory of `device`: a stream's work moves no buffers.
Status check_on_device(const Call& call, int device);

class StreamCalls {
 public:
  struct Options {
    const char* name = "";                     ///< For messages: "direct", "nccl".
    double timeout_s = 0;                      ///< 0: none.
    StreamLine::Owner communicator = nullptr;  ///< Null: this object is all there is of it.
    StreamLine::Kind kind = StreamLine::Kind::kBeside;
    /// What went wrong with calls that are over or under way, as the library says; may be empty.
    std::function<Status()> outcome;
    /// Whether the peers that the call under way waits for are there; may be empty.
    std::function<Status()> look;
    /// Makes all that is queued end, without result. Called once, with the failure, by the thread
    /// that saw it (for one that only asked, by the watch): also while another one is in `queue`.
    std::function<void(const Status& failure)> end;
  };
  StreamCalls(device::Api& api, int device, Options options)
      : api_(api),
        device_(device),
        options_(std::move(options)),
        line_(StreamLine::of(api, device)) {}
  /// Work may still be queued after a failure; otherwise drain() first.
  ~StreamCalls();
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  /// Queues one call. `queue(Lease*)` puts the work on `stream`; what it leases lives until the
  /// work is done. Errors of `queue` are failures.
  template <class Queue>
  Status add(device::Stream stream, const Queue& queue) {
    const device::RelaxedCapture relaxed(api_);
    Queued call;
    TUTTI_RETURN_IF_ERROR(begin(&call));
    Status status = open(stream, &call);
    if (status.ok()) {
      status = queue(&call.lease);
    }
    if (status.ok()) {
      status = api_.record_event(call.after.get(), stream);
    }
    return commit(std::move(call), status);
  }

  /// `queue()` puts a call that is waited for on streams of the runner's own: the watch sees to it
  /// that this ends, and to nothing after it. Errors of `queue` are failures.
  template <class Queue>
  Status watch_over(const Queue& queue) {
    TUTTI_RETURN_IF_ERROR(show());
    const Status status = queue();
    std::unique_lock lock(mutex_);
    return settle(lock, status);
  }

  /// What is queued on `stream` from now on waits for the calls queued so far.
  Status precede(device::Stream stream);
  /// Waits until everything queued is done.
  Status drain();
  /// What ended the calls; ok while nothing has. Does not wait, not for an end that it finds to be
  /// due either.
  Status failure();

 private:
  using Clock = std::chrono::steady_clock;
  struct Queued {
    SharedEvent before;  ///< What the stream had to do earlier is done.
    SharedEvent after;
    SharedEvent previous;  ///< The end of the call before; null: it is over.
    Lease lease;
    bool is_running = false;
    Clock::time_point since;  ///< Seen to run.
  };

  /// Shows the watch that this thread is about to queue something, until settle().
  Status show();
  /// The same for a call that is not waited for.
  Status begin(Queued* call);
  Status open(device::Stream stream, Queued* call);
  Status commit(Queued&& call, const Status& status);
  /// The end of what begin() began.
  Status settle(std::unique_lock<std::mutex>& lock, const Status& status);
  /// Forgets what is done.
  Status reap();
  Status outcome() const { return options_.outcome == nullptr ? Status() : options_.outcome(); }
  /// Lets go of the lock while `end` runs.
  void fail(std::unique_lock<std::mutex>& lock, const Status& status);
  void recycle(Queued& call);
  StreamLine::Owner owner() const {
    return options_.communicator == nullptr ? this : options_.communicator;
  }
  void wake_watch();
  void watch();
  Status look_at_first(Clock::time_point now);
  Status look_at_queueing(Clock::time_point now);
  Status timed_out(const char* what) const;

  device::Api& api_;
  const int device_;
  const Options options_;
  StreamLine& line_;
  std::mutex mutex_;  ///< Of what follows.
  std::condition_variable changed_;
  std::deque<Queued> calls_;
  /// Since when the caller's thread has been queueing.
  std::optional<Clock::time_point> queueing_since_;
  std::vector<SharedEvent> free_;
  Status failure_;
  bool is_end_due_ = false;  ///< The watch is to call `end`.
  bool is_asleep_ = false;
  bool is_closing_ = false;
  Clock::time_point last_look_;
  std::thread thread_;
};

}  // namespace tutti::runners
