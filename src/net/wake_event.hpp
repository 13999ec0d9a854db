// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How many threads wake one that has something to do for them, without waiting for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tutti::net {

class WakeEvent {
 public:
  /// Cheap when it has been rung already.
  void signal() {
    if (!is_signaled_.exchange(true)) {
      { const std::lock_guard lock(mutex_); }  // Who is about to fall asleep sees it first.
      woken_.notify_one();
    }
  }

  /// Until it is rung; then it has not been rung.
  void wait() {
    std::unique_lock lock(mutex_);
    woken_.wait(lock, [this] { return is_signaled_.exchange(false); });
  }

  /// The same until a moment comes. False: that was first.
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
