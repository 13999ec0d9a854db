// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Waiting for other ranks through shared memory, bounded: first in a loop, then giving the core
// away, then asleep for short times, until the time is over or a rank that is waited for has died
// or given up.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/pause.hpp"
#include "base/result.hpp"
#include "runners/direct/host_layout.hpp"
#include "runners/direct/host_process.hpp"

namespace tutti::runners {

/// What is known of the ranks besides their memory.
struct HostPeers {
  std::vector<HostProcess> processes;  ///< By rank.
  std::vector<HostArea> areas;         ///< By rank.
  double timeout_s = 0;                ///< 0: for ever.
  int spins = 0;                       ///< Looks before the core is given away.
};

/// One wait.
class Patience {
 public:
  explicit Patience(const HostPeers& peers) : peers_(peers) {}

  /// After a look that found nothing. False: give up, failure() says why. `awaited(rank)`: whether
  /// what this rank does is waited for.
  template <class Awaited>
  bool wait(Awaited awaited) {
    if (++looks_ < peers_.spins) {
      pause_briefly();
      return true;
    }
    if (!failure_.ok()) {
      return false;  // What ended the wait was found before the caller's last look.
    }
    give_core_away();
    if (!is_time_to_check()) {
      return true;
    }
    for (int rank = 0; rank < static_cast<int>(peers_.areas.size()); ++rank) {
      if (awaited(rank)) {
        check(rank);
      }
    }
    return true;
  }
  /// After a look that found something.
  void renew() {
    looks_ = 0;
    start_ = {};
    failure_ = {};  // Of a check just before: what was waited for has come.
  }
  const Status& failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;

  void give_core_away();
  bool is_time_to_check();
  void check(int rank);

  const HostPeers& peers_;
  std::int64_t looks_ = 0;
  Clock::time_point start_{};
  double waited_s_ = 0;
  double checked_s_ = 0;  ///< When the ranks were looked at last, on the same scale.
  Status failure_;
};

}  // namespace tutti::runners
