// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Streams and events of the host device: a stream is a thread that runs its queue in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::device::host_device {

/// One recording of an event: set once, waited for by any number of threads.
class Completion {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

/// Sets a completion when the last task that holds it is gone, so that a task which is dropped at
/// unload instead of run does not leave a waiter behind.
class Signal {
 public:
  explicit Signal(std::shared_ptr<Completion> completion) : completion_(std::move(completion)) {}
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() { completion_->set(); }

 private:
  std::shared_ptr<Completion> completion_;
};

using Task = std::function<void()>;

class HostStream;

/// What streams have captured: steps that a launch makes on its stream, in order.
struct HostGraph {
  explicit HostGraph(std::uint64_t number) : id(number) {}
  HostGraph(const HostGraph&) = delete;
  HostGraph& operator=(const HostGraph&) = delete;
  ~HostGraph() {
    for (const auto& release : at_end) {
      release();
    }
  }

  const std::uint64_t id;
  std::vector<std::function<void(HostStream&)>> steps;
  std::vector<std::function<void()>> at_end;
};

/// A queue and the thread that runs it.
class HostStream {
 public:
  explicit HostStream(int device) : device_(device), thread_([this] { work(); }) {}
  std::uint64_t id() const { return id_; }
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  ~HostStream() { finish(); }

  int device() const { return device_; }

  /// Null: what is queued from now on runs.
  void set_capture(std::shared_ptr<HostGraph> graph) {
    const std::lock_guard lock(mutex_);
    capture_ = std::move(graph);
  }
  std::shared_ptr<HostGraph> capture() {
    const std::lock_guard lock(mutex_);
    return capture_;
  }

  void enqueue(Task task) {
    const std::lock_guard lock(mutex_);
    if (capture_ != nullptr) {
      capture_->steps.emplace_back([task](HostStream& stream) { stream.enqueue(task); });
      return;
    }
    if (closing_) {
      return;  // Only at unload, where the task's waiters are released by dropping it.
    }
    tasks_.push_back(std::move(task));
    ++submitted_;
    work_.notify_one();
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    return finished_ == submitted_;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    const std::uint64_t target = submitted_;
    progress_.wait(lock, [&] { return finished_ >= target; });
  }

  /// True on the stream's own thread, where waiting for the stream would never end.
  bool is_this_thread() const { return running_ == this; }
  static bool on_any_stream() { return running_ != nullptr; }

  /// Runs what is queued and ends the thread.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      work_.notify_one();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  /// Drops what is queued; finish() then waits only for the task that runs now.
  void abandon() {
    std::deque<Task> dropped;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      dropped.swap(tasks_);
      finished_ += dropped.size();
      work_.notify_one();
      progress_.notify_all();
    }
  }

 private:
  void work() {
    running_ = this;
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) {
        return;
      }
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // Its signals fire before the stream counts as done.
      lock.lock();
      ++finished_;
      progress_.notify_all();
    }
  }

  static inline thread_local const HostStream* running_ = nullptr;
  static inline std::atomic<std::uint64_t> ids_ = 0;
  const std::uint64_t id_ = ++ids_;

  const int device_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable progress_;
  std::deque<Task> tasks_;
  std::uint64_t submitted_ = 0;
  std::uint64_t finished_ = 0;
  bool closing_ = false;
  std::shared_ptr<HostGraph> capture_;
  std::thread thread_;  // Last: it uses all of the above.
};

struct HostEvent {
  std::mutex mutex;
  std::shared_ptr<Completion> latest;  // Null until the event is recorded.
  std::weak_ptr<HostGraph> capture;    // What it was recorded in; else empty.
};

}  // namespace tutti::device::host_device
