// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The end of a wait in a collective of the MPI library's own for a rank that has died. Steps of
// ours end such waits themselves; the library's go on for ever where the launcher does not end the
// job (Hydra's -disable-auto-cleanup, Open MPI's --enable-recovery, srun's --kill-on-bad-exit=0).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runners/direct/host_process.hpp"

namespace tutti::engine {

/// The library's collectives on one communicator, one at a time.
class WatchedCalls {
 public:
  /// `processes`: of the communicator's ranks; those on other machines stay empty.
  explicit WatchedCalls(std::vector<runners::HostProcess> processes)
      : processes_(std::move(processes)) {}

 private:
  friend class DeathWatch;
  friend class WatchedCall;

  /// A call begins or ends; by one thread at a time.
  void pass() {
    const std::uint64_t passed = edges_.load(std::memory_order_relaxed);
    edges_.store(passed + 1, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> edges_{0};  ///< Odd: in a call.
  std::vector<runners::HostProcess> processes_;
  // The watch's own.
  std::uint64_t seen_edges_ = 0;
  double dead_s_ = -1;  ///< When a rank was first seen dead from within the same call; -1: none.
};

/// One call, from its construction on: two stores, beside calls of 200 ns.
class WatchedCall {
 public:
  /// `calls`: null where nobody looks.
  explicit WatchedCall(WatchedCalls* calls) : calls_(calls) {
    if (calls_ != nullptr) {
      calls_->pass();
    }
  }
  ~WatchedCall() {
    if (calls_ != nullptr) {
      calls_->pass();
    }
  }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  WatchedCalls* calls_;
};

/// One in a process. add() from any thread, look() from one.
class DeathWatch {
 public:
  /// `grace_s`: from the line that tells of the death to the process's end by `end`; 0: it never
  /// ends. Fault-tolerant MPI libraries (ULFM) have long given an error by then.
  DeathWatch(double grace_s, std::function<void()> end) : grace_s_(grace_s), end_(std::move(end)) {}

  /// Watches until the answer is gone.
  std::shared_ptr<WatchedCalls> add(std::vector<runners::HostProcess> processes);

  /// To be called every second or so: a call is looked at when the look before saw the same one.
  void look(double now_s);

 private:
  void look_at(WatchedCalls& calls, double now_s);

  double grace_s_;
  std::function<void()> end_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<WatchedCalls>> all_;
};

}  // namespace tutti::engine
