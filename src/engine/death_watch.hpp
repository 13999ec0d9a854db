// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The end of a wait in a collective of the MPI library's own for a rank that has died, or that has
// made this call another way, for what it passed there. Steps of ours end such waits themselves;
// the library's go on for ever where the launcher does not end the job (Hydra's
// -disable-auto-cleanup, Open MPI's --enable-recovery, srun's --kill-on-bad-exit=0), or nobody has
// died.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runners/direct/host_process.hpp"

namespace tutti::engine {

/// The library's collectives on one communicator, one at a time.
class alignas(64) WatchedCalls {
 public:
  /// `processes`: of the communicator's ranks; those on other machines stay empty.
  explicit WatchedCalls(std::vector<runners::HostProcess> processes)
      : processes_(std::move(processes)) {}

  /// For calls that nobody looks at: a call does not ask whether anyone does.
  static WatchedCalls& unwatched() {
    static WatchedCalls& none = *new WatchedCalls;  // Calls may last beyond the process's exit().
    return none;
  }

 private:
  WatchedCalls() = default;

  friend class DeathWatch;
  friend class WatchedCall;

  bool is_in_call() const {
    // This order: with the other one a call that ends in between would be one.
    const std::uint64_t ended = ended_.load(std::memory_order_acquire);
    return begun_.load(std::memory_order_relaxed) != ended;
  }

  // In a call where they differ. Numbers of calls that are watched.
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> ended_{0};
  std::vector<runners::HostProcess> processes_;
  std::function<std::string()> find_obstacle_;
  bool is_removed_ = false;
  // Of look() alone.
  std::uint64_t seen_ = 0;  ///< The call that the last look has seen.
  double obstacle_s_ = -1;  ///< When it was first seen that the same call does not end; -1: not.
};

/// One call, from its construction on: two stores, beside calls of 130 ns. By one thread at a time.
/// The call may free the communicator (in an error handler) or never come back (longjmp).
class WatchedCall {
 public:
  explicit WatchedCall(WatchedCalls& calls) : calls_(&calls) {
    // Another number than any call before, also than one that was left by a jump.
    calls_->begun_.store(calls_->begun_.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  }
  ~WatchedCall() {
    // What it began with would be kept on the stack meanwhile, which takes longer.
    calls_->ended_.store(calls_->begun_.load(std::memory_order_relaxed), std::memory_order_release);
  }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  WatchedCalls* const calls_;
};

/// One in a process. add() and remove() from any thread, look() from one.
class DeathWatch {
 public:
  /// `grace_s`: from the line that tells of the death to the process's end by `end`; 0: it never
  /// ends. Fault-tolerant MPI libraries (ULFM) have long given an error by then.
  DeathWatch(double grace_s, std::function<void()> end) : grace_s_(grace_s), end_(std::move(end)) {}

  /// Watches until remove(). Processes are those of ranks that have just met: one that does not
  /// seem to run cannot be looked at, and is not.
  WatchedCalls* add(std::vector<runners::HostProcess> processes);
  /// `find`: asked while a call lasts, too: why it cannot end, empty: nothing is known. Until
  /// remove().
  void set_find(WatchedCalls* calls, std::function<std::string()> find);
  /// Gone at once, or when the call that it is in has ended. WatchedCalls::unwatched(): nothing.
  void remove(WatchedCalls* calls);

  /// To be called every second or so: a call is looked at when the look before saw the same one.
  void look(double now_s);

 private:
  void look_at(WatchedCalls& calls, double now_s);

  double grace_s_;
  std::function<void()> end_;
  std::mutex mutex_;
  std::unordered_map<WatchedCalls*, std::unique_ptr<WatchedCalls>> all_;
  std::set<runners::HostProcess> seen_;     ///< Seen to run, of any communicator.
  std::vector<runners::HostProcess> last_;  ///< Of the last add(), without those not seen to run.
};

}  // namespace tutti::engine
