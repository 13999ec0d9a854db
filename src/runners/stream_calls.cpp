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

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Status check_on_device(const Call& call, int device) {
  const auto fits = [&](const void* buffer, const device::PointerInfo& memory) {
    return buffer == nullptr ||
           (memory.kind == device::MemoryKind::kDevice && memory.device == device);
  };
  if (fits(call.send, call.send_memory) && fits(call.recv, call.recv_memory)) {
    return {};
  }
  return Status(
      ErrorCode::kInvalidArgument,
      std::string(select::to_string(call.collective)) +
          ": a call on a stream takes memory of its communicator's GPU, which is number " +
          std::to_string(device) + "; wait for the call to use other memory");
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
    free_.push_back(call.before);
    free_.push_back(call.after);
  }
  for (const device::Event event : free_) {
    Status ignored = event == nullptr ? Status() : api_.destroy_event(event);
    static_cast<void>(ignored);
  }
}

Result<device::Event> StreamCalls::event() {
  if (free_.empty()) {
    return api_.create_event(device_);
  }
  const device::Event event = free_.back();
  free_.pop_back();
  return event;
}

Status StreamCalls::begin(device::Stream stream, Queued* call) {
  TUTTI_RETURN_IF_ERROR(failure_);
  Status status = reap();
  if (status.ok() && !calls_.empty()) {
    status = api_.stream_wait_event(stream, calls_.back().after);
  }
  for (device::Event* wanted : {&call->before, &call->after}) {
    if (status.ok()) {
      auto made = event();
      status = made.status();
      *wanted = made.ok() ? *made : nullptr;
    }
  }
  if (status.ok()) {
    status = api_.record_event(call->before, stream);
  }
  if (!status.ok()) {
    fail(status);
  }
  return status;
}

Status StreamCalls::commit(device::Stream stream, Queued&& call, Status status) {
  if (status.ok()) {
    status = api_.record_event(call.after, stream);
  }
  if (!status.ok()) {
    call.lease.abandon();
    fail(status);
    return status;
  }
  calls_.push_back(std::move(call));
  if (!thread_.joinable()) {
    last_look_ = Clock::now();
    thread_ = std::thread([this] { watch(); });
  } else if (is_asleep_) {
    changed_.notify_all();
  }
  return {};
}

Status StreamCalls::reap() {
  while (!calls_.empty()) {
    Queued& first = calls_.front();
    TUTTI_ASSIGN_OR_RETURN(const bool is_done, api_.event_done(first.after));
    if (!is_done) {
      return {};
    }
    free_.push_back(first.before);
    free_.push_back(first.after);
    calls_.pop_front();
  }
  return {};
}

void StreamCalls::fail(const Status& status) {
  if (failure_.ok()) {
    failure_ = status;
    options_.end();
  }
}

Status StreamCalls::precede(device::Stream stream) {
  const device::RelaxedCapture relaxed(api_);
  const std::lock_guard lock(mutex_);
  TUTTI_RETURN_IF_ERROR(failure_);
  Status status = reap();
  if (status.ok() && !calls_.empty()) {
    status = api_.stream_wait_event(stream, calls_.back().after);
  }
  if (!status.ok()) {
    fail(status);
  }
  return status;
}

Status StreamCalls::failure() {
  const device::RelaxedCapture relaxed(api_);
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) {
    Status status = reap();
    status = status.ok() ? outcome() : status;
    if (!status.ok()) {
      fail(status);
    }
  }
  return failure_;
}

Status StreamCalls::drain() {
  const device::RelaxedCapture relaxed(api_);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.ok()) {
        Status status = reap();
        if (status.ok() && calls_.empty()) {
          status = outcome();
        }
        if (!status.ok()) {
          fail(status);
        }
      }
      if (!failure_.ok() || calls_.empty()) {
        return failure_;
      }
    }
    std::this_thread::sleep_for(kDrainPause);
  }
}

Status StreamCalls::look_at_first(Clock::time_point now) {
  TUTTI_RETURN_IF_ERROR(reap());
  if (calls_.empty()) {
    return {};
  }
  Queued& first = calls_.front();
  if (!first.is_running) {
    TUTTI_ASSIGN_OR_RETURN(first.is_running, api_.event_done(first.before));
    first.since = now;
    return {};
  }
  if (options_.timeout_s > 0 && seconds(now - first.since) > options_.timeout_s) {
    return Status(ErrorCode::kTimeout, std::string(options_.name) +
                                           ": a call on a stream is not finished after " +
                                           "TUTTI_TIMEOUT=" + std::to_string(options_.timeout_s) +
                                           " s; a peer may be dead or not in the call");
  }
  if (now - last_look_ < kLook) {
    return {};
  }
  last_look_ = now;
  TUTTI_RETURN_IF_ERROR(outcome());
  return options_.look == nullptr ? Status() : options_.look();
}

void StreamCalls::watch() {
  const device::RelaxedCapture relaxed(api_);
  std::unique_lock lock(mutex_);
  int idle = 0;
  while (!is_closing_) {
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
    idle = calls_.empty() ? idle + 1 : 0;
    if (const Status status = look_at_first(Clock::now()); !status.ok()) {
      fail(status);
    }
  }
}

}  // namespace tutti::runners
