// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// An event by which any thread wakes one worker thread, without waiting for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tutti::net {

class WakeEvent {
 public:
  /// Cheap if it is signaled already.
  void signal() {
    if (!is_signaled_.exchange(true)) {
      { const std::lock_guard lock(mutex_); }  // A thread about to sleep sees the flag first.
      woken_.notify_one();
    }
  }

  /// Waits until it is signaled, and resets it.
  void wait() {
    std::unique_lock lock(mutex_);
    woken_.wait(lock, [this] { return is_signaled_.exchange(false); });
  }

  /// Same, with a deadline. False: the deadline passed first.
  bool wait_until(std::chrono::steady_clock::time_point moment) {
    std::unique_lock lock(mutex_);
    return woken_.wait_until(lock, moment, [this] { return is_signaled_.exchange(false); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  std::atomic<bool> is_signaled_ = false;
};

}  // namespace tutti::net
