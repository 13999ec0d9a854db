// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/stream_calls.hpp"

#include <utility>

namespace tutti::runners {

namespace {

constexpr auto kGlance = std::chrono::milliseconds(50);
/// Between looks at the peers, which cost system calls or the library's lock.
constexpr auto kLook = std::chrono::milliseconds(500);
/// How long the thread glances at nothing before it sleeps: waking it costs the next call.
constexpr int kIdleGlances = 20;
constexpr auto kDrainPause = std::chrono::microseconds(20);

/// At the end of the process, with calls that nobody waited for: the driver has ended them, and
/// what is told to end them would call into it, or into a library that goes away.
bool is_driver_gone(const Status& status) { return status.code() == ErrorCode::kUnavailable; }

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Status check_on_device(const Call& call, int device) {
  const auto fits = [&](const void* buffer, const device::PointerInfo& memory) {
    return buffer == nullptr || memory.is_usable_on(device);
  };
  if (fits(call.send, call.send_memory) && fits(call.recv, call.recv_memory)) {
    return {};
  }
  return Status(
      ErrorCode::kInvalidArgument,
      std::string(select::to_string(call.collective)) +
          ": a call on a stream takes memory of its communicator's GPU, which is number " +
          std::to_string(device) +
          ", and of its primary context; wait for the call to use other memory");
}

StreamCalls::~StreamCalls() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  for (Queued& call : calls_) {
    call.lease.abandon();  // Its kernel may still use it.
    line_.leave(owner(), call.after);
  }
  if (!calls_.empty()) {
    line_.abandon(calls_.back().after);
  }
}

void StreamCalls::recycle(Queued& call) {
  if (call.after != nullptr) {
    line_.leave(owner(), call.after);
  }
  call.previous.reset();
  for (SharedEvent* const event : {&call.before, &call.after}) {
    // Another communicator's thread may be about to wait for it: it must not be recorded anew.
    if (event->use_count() == 1) {
      free_.push_back(std::move(*event));
    }
  }
}

Status StreamCalls::show() {
  const std::lock_guard lock(mutex_);
  TUTTI_RETURN_IF_ERROR(failure_);
  if (options_.timeout_s > 0 || options_.look != nullptr) {  // Else nothing would be looked for.
    wake_watch();                                            // First: there may be no thread.
  }
  queueing_since_ = Clock::now();
  return {};
}

Status StreamCalls::begin(Queued* call) {
  std::unique_lock lock(mutex_);
  TUTTI_RETURN_IF_ERROR(failure_);
  if (Status status = reap(); !status.ok()) {
    fail(lock, status);
    return status;
  }
  call->previous = calls_.empty() ? nullptr : calls_.back().after;
  for (SharedEvent* const wanted : {&call->before, &call->after}) {
    if (!free_.empty()) {
      *wanted = std::move(free_.back());
      free_.pop_back();
    }
  }
  wake_watch();  // First: there may be no thread for it.
  queueing_since_ = Clock::now();
  return {};
}

void StreamCalls::wake_watch() {
  if (!thread_.joinable()) {
    last_look_ = Clock::now();
    thread_ = std::thread([this] { watch(); });
  } else if (is_asleep_ || is_end_due_) {
    changed_.notify_all();
  }
}

Status StreamCalls::open(device::Stream stream, Queued* call) {
  if (call->previous != nullptr) {
    TUTTI_RETURN_IF_ERROR(api_.stream_wait_event(stream, call->previous.get()));
    call->previous.reset();
  }
  for (const SharedEvent& other : line_.ahead_of(owner(), options_.kind)) {
    TUTTI_RETURN_IF_ERROR(api_.stream_wait_event(stream, other.get()));
  }
  for (SharedEvent* const wanted : {&call->before, &call->after}) {
    if (*wanted == nullptr) {
      TUTTI_ASSIGN_OR_RETURN(*wanted, make_shared_event(api_, device_));
    }
  }
  return api_.record_event(call->before.get(), stream);
}

Status StreamCalls::commit(Queued&& call, const Status& status) {
  std::unique_lock lock(mutex_);
  if (status.ok() && failure_.ok()) {
    line_.join(owner(), options_.kind, call.after);
    calls_.push_back(std::move(call));
  } else {
    call.lease.abandon();
    recycle(call);
  }
  return settle(lock, status);
}

Status StreamCalls::settle(std::unique_lock<std::mutex>& lock, const Status& status) {
  queueing_since_.reset();
  if (!status.ok()) {
    fail(lock, status);
  }
  return failure_;  // The watch may have had its own reason meanwhile.
}

Status StreamCalls::reap() {
  if (calls_.empty()) {
    return {};  // A call that is waited for comes by here: nothing is asked of the driver.
  }
  const device::RelaxedCapture relaxed(api_);
  while (!calls_.empty()) {
    Queued& first = calls_.front();
    TUTTI_ASSIGN_OR_RETURN(const bool is_done, api_.event_done(first.after.get()));
    if (!is_done) {
      return {};
    }
    recycle(first);
    calls_.pop_front();
  }
  return {};
}

void StreamCalls::fail(std::unique_lock<std::mutex>& lock, const Status& status) {
  if (!failure_.ok()) {
    return;
  }
  failure_ = status;
  if (is_driver_gone(status)) {
    return;
  }
  lock.unlock();  // A library may take its time to end; who asks for the failure need not wait.
  options_.end(status);
  lock.lock();
}

Status StreamCalls::precede(device::Stream stream) {
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_));
  const device::RelaxedCapture relaxed(api_);
  Queued nothing;
  TUTTI_RETURN_IF_ERROR(begin(&nothing));
  const Status status = nothing.previous == nullptr
                            ? Status()
                            : api_.stream_wait_event(stream, nothing.previous.get());
  std::unique_lock lock(mutex_);
  recycle(nothing);
  return settle(lock, status);
}

Status StreamCalls::failure() {
  std::unique_lock lock(mutex_);
  // Of a thread that queues the watch takes care: questions to the driver would wait for it.
  if (failure_.ok() && !queueing_since_) {
    Status status = reap();
    status = status.ok() ? outcome() : status;
    if (!status.ok()) {
      failure_ = status;
      is_end_due_ = !is_driver_gone(status);
      wake_watch();
    }
  }
  return failure_;
}

Status StreamCalls::drain() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (failure_.ok()) {
        Status status = reap();
        if (status.ok() && calls_.empty()) {
          status = outcome();
        }
        if (!status.ok()) {
          fail(lock, status);
        }
      }
      if (!failure_.ok() || calls_.empty()) {
        return failure_;
      }
    }
    std::this_thread::sleep_for(kDrainPause);
  }
}

Status StreamCalls::timed_out(const char* what) const {
  return Status(ErrorCode::kTimeout,
                std::string(options_.name) + ": " + what +
                    " after TUTTI_TIMEOUT=" + std::to_string(options_.timeout_s) +
                    " s; a peer may be dead or not in the call");
}

/// Asks the driver nothing: it may let no other thread in until its queue has room.
Status StreamCalls::look_at_queueing(Clock::time_point now) {
  const auto waited = now - *queueing_since_;
  if (options_.timeout_s > 0 && seconds(waited) > options_.timeout_s) {
    return timed_out("a call could not be queued");
  }
  if (waited < kLook || now - last_look_ < kLook || calls_.empty() || !calls_.front().is_running) {
    return {};
  }
  last_look_ = now;
  return options_.look == nullptr ? Status() : options_.look();
}

Status StreamCalls::look_at_first(Clock::time_point now) {
  TUTTI_RETURN_IF_ERROR(reap());
  if (calls_.empty()) {
    return {};
  }
  Queued& first = calls_.front();
  if (!first.is_running) {
    TUTTI_ASSIGN_OR_RETURN(first.is_running, api_.event_done(first.before.get()));
    first.since = now;
  }
  if (options_.timeout_s > 0 && seconds(now - first.since) > options_.timeout_s) {
    return timed_out("a call on a stream is not finished");
  }
  if (now - last_look_ < kLook) {
    return {};
  }
  last_look_ = now;
  TUTTI_RETURN_IF_ERROR(outcome());  // What the call stands behind may have been ended for good.
  return !first.is_running || options_.look == nullptr ? Status() : options_.look();
}

void StreamCalls::watch() {
  const device::RelaxedCapture relaxed(api_);
  std::unique_lock lock(mutex_);
  int idle = 0;
  for (;;) {
    if (std::exchange(is_end_due_, false)) {
      const Status reason = failure_;
      lock.unlock();
      options_.end(reason);
      lock.lock();
    }
    if (is_closing_) {
      return;
    }
    if (!failure_.ok() || idle > kIdleGlances) {
      is_asleep_ = true;
      changed_.wait(lock);
      is_asleep_ = false;
      idle = 0;
      continue;
    }
    changed_.wait_for(lock, kGlance);
    if (is_closing_ || !failure_.ok()) {
      continue;
    }
    idle = calls_.empty() && !queueing_since_ ? idle + 1 : 0;
    const auto now = Clock::now();
    if (const Status status = queueing_since_ ? look_at_queueing(now) : look_at_first(now);
        !status.ok()) {
      fail(lock, status);
    }
  }
}

}  // namespace tutti::runners
