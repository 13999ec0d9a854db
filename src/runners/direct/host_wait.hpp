// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Waiting for other ranks through shared memory: first in a loop, then giving the core away, then
// asleep for short times, until a rank that is waited for has died, given up or freed the
// communicator. Late is not dead: a rank whose process runs is waited for as MPI does, however
// long. Only where nothing tells whether it lives (a thread of this process, a process that cannot
// be looked at) the time limit ends the wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/pause.hpp"
#include "base/result.hpp"
#include "runners/direct/host_layout.hpp"
#include "runners/direct/host_process.hpp"
#include "runners/direct/shared_segment.hpp"

namespace tutti::runners {

/// The ranks of a communicator, and how to wait for them. Vectors are by rank.
struct HostPeers {
  std::vector<HostProcess> processes;
  std::vector<HostArea> areas;
  std::vector<std::uint64_t> lives;  ///< Of their blocks while the communicator lives.
  std::vector<std::shared_ptr<SharedSegment>> segments;  ///< Where the areas are.
  double timeout_s = 0;                                  ///< 0: for ever.
  bool waits_for_the_living = false;  ///< No limit while it is known that the awaited rank lives.
  int spins = 0;                      ///< Looks before the core is given away.
  /// True: waits end, as another thread wants; null: never.
  std::shared_ptr<const std::atomic<bool>> is_aborted;
  /// Lets the MPI library move its own messages, which a peer may need before it comes here.
  std::function<void()> progress;

  /// `spins` where each rank can have a core of its own; `is_crowded`: where ranks share cores.
  static int spins_of(bool is_crowded);
  /// What keeps `rank` from coming; ok: nothing known. `has_to_be_well`: its calls may not have
  /// failed.
  Status look_at(int rank, bool has_to_be_well) const;
  /// What keeps messages of ranks other than `own_rank` from coming in call number `call`; 0: in no
  /// call. A rank that has made the call may have freed the communicator since: its messages still
  /// arrive. kUnavailable: nothing tells.
  Status look_for_messages(int own_rank, std::uint64_t call) const;
  /// The rank has freed the communicator.
  bool has_ended(int rank) const {
    const auto i = static_cast<std::size_t>(rank);
    return segments[i] != nullptr && areas[i].life().read() != lives[i];
  }

 private:
  Status look_at_process(int rank, bool has_to_be_well = true) const;
  Status look_for_messages_of(int rank, std::uint64_t call) const;
};

/// One wait.
class BoundedWait {
 public:
  static constexpr std::uint64_t kNoCall = ~std::uint64_t{0};
  /// No call either, but allgather_facts(): ranks whose calls have failed come to it, too.
  static constexpr std::uint64_t kFacts = kNoCall - 1;

  /// `call`: that of the communicator in which the ranks are waited for. Who has left it without
  /// what is waited for has made another call.
  explicit BoundedWait(const HostPeers& peers, std::uint64_t call = kNoCall)
      : peers_(peers), call_(call) {}

  /// After a look that found nothing. False: give up, failure() says why. `awaited(rank)`: whether
  /// what this rank does is waited for.
  template <class Awaited>
  bool wait(Awaited awaited) {
    if (++looks_ < peers_.spins) {
      pause_briefly();
      if (looks_ % kLooksPerProgress == 0 && peers_.progress) {
        peers_.progress();
      }
      return true;
    }
    if (!failure_.ok()) {
      return false;  // What ended the wait was found before the caller's last look.
    }
    give_core_away();
    if (!is_time_to_check()) {
      return true;
    }
    ++checks_;
    if (peers_.is_aborted != nullptr && peers_.is_aborted->load(std::memory_order_acquire)) {
      failure_ = Status(ErrorCode::kLibraryFailed, "the communicator was aborted");
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
  /// How many times the ranks that are waited for were looked at.
  int checks() const { return checks_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// Some microseconds, so that short waits do without.
  static constexpr std::int64_t kLooksPerProgress = 256;

  void give_core_away();
  bool is_time_to_check();
  void check(int rank);

  const HostPeers& peers_;
  std::uint64_t call_;
  std::int64_t looks_ = 0;
  Clock::time_point start_{};
  int checks_ = 0;
  double waited_s_ = 0;
  bool has_said_ = false;
  double checked_s_ = 0;  ///< When the ranks were looked at last, on the same scale.
  Status failure_;
};

}  // namespace tutti::runners
