// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/host_wait.hpp"

#include <sched.h>

#include <string>
#include <thread>

#include "base/log.hpp"
#include "runners/call.hpp"

namespace tutti::runners {
namespace {

/// Looks before the core is given away: some milliseconds where each rank can have a core, since on
/// a busy machine a core that was given away comes back after a whole time slice of somebody
/// else's.
constexpr int kSpinsOnOwnCore = 200000;
constexpr int kSpinsOnSharedCore = 20;
/// Looks with sched_yield() between them before the first sleep; some hundred microseconds where
/// nobody else wants the core.
constexpr int kYields = 1000;
constexpr std::chrono::microseconds kNap(50);
/// Dead ranks are looked for this often.
constexpr double kCheckEveryS = 0.25;

std::string name(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

int HostPeers::spins_of(bool is_crowded) {
  return is_crowded ? kSpinsOnSharedCore : kSpinsOnOwnCore;
}

void BoundedWait::give_core_away() {
  if (peers_.progress) {
    peers_.progress();
  }
  if (looks_ < peers_.spins + kYields) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(kNap);
  }
}

bool BoundedWait::is_time_to_check() {
  // The clock costs more than a look.
  constexpr int kLooksPerClock = 16;
  if (looks_ % kLooksPerClock != 0) {
    return false;
  }
  const auto now = Clock::now();
  if (start_ == Clock::time_point{}) {
    start_ = now;
    checked_s_ = 0;
  }
  waited_s_ = std::chrono::duration<double>(now - start_).count();
  const bool is_over = peers_.timeout_s > 0 && waited_s_ > peers_.timeout_s;
  if (!is_over && waited_s_ - checked_s_ < kCheckEveryS) {
    return false;
  }
  checked_s_ = waited_s_;
  return true;
}

Status HostPeers::look_at(int rank, bool has_to_be_well) const {
  TUTTI_RETURN_IF_ERROR(look_at_process(rank, has_to_be_well));
  if (has_ended(rank)) {
    return Status(ErrorCode::kLibraryFailed, name(rank) + " has freed the communicator");
  }
  return {};
}

Status HostPeers::look_for_messages(int own_rank, std::uint64_t call) const {
  Status unknown;
  for (int rank = 0; rank < static_cast<int>(areas.size()); ++rank) {
    const Status looked = rank == own_rank ? Status() : look_for_messages_of(rank, call);
    if (!looked.ok() && looked.code() != ErrorCode::kUnavailable) {
      return looked;
    }
    unknown = unknown.ok() ? looked : unknown;
  }
  return unknown;
}

Status HostPeers::look_for_messages_of(int rank, std::uint64_t call) const {
  const auto i = static_cast<std::size_t>(rank);
  TUTTI_RETURN_IF_ERROR(look_at_process(rank));
  if (segments[i] != nullptr) {
    // Before the life, which tells whose they are: the block may have gone to another communicator.
    const std::uint64_t passed_by = areas[i].passed_by().read();
    const std::uint64_t refused = areas[i].refused().read();
    const std::uint64_t ends = areas[i].life().read() - lives[i];
    if (ends > 1 || (ends == 1 && call == 0)) {
      return Status(ErrorCode::kUnavailable, name(rank) + " has freed the communicator");
    }
    if (call != 0 && refused == call) {
      return Status(ErrorCode::kLibraryFailed,
                    name(rank) + " is not in it: its arguments were refused");
    }
    if (ends == 1 && passed_by < call) {
      return Status(ErrorCode::kLibraryFailed,
                    name(rank) + " has freed the communicator without this call");
    }
  }
  return processes[i].is_another_known()
             ? Status()
             : Status(ErrorCode::kUnavailable, "nothing tells whether " + name(rank) + " lives");
}

Status HostPeers::look_at_process(int rank, bool has_to_be_well) const {
  const auto i = static_cast<std::size_t>(rank);
  if (has_to_be_well && segments[i] != nullptr && areas[i].failed().read() != 0) {
    return Status(ErrorCode::kLibraryFailed, name(rank) + " gave up");
  }
  if (!processes[i].runs()) {
    return Status(ErrorCode::kLibraryFailed, name(rank) + " has died");
  }
  return {};
}

void BoundedWait::check(int rank) {
  if (!failure_.ok()) {
    return;
  }
  const auto i = static_cast<std::size_t>(rank);
  const std::string who = name(rank);
  if (call_ < kFacts && peers_.areas[i].calls_done().read() >= call_) {
    failure_ = Status(ErrorCode::kMismatch,
                      "direct: " + who +
                          " has left this call without its part in it; all ranks of a communicator "
                          "must call the same collective with the same counts");
    return;
  }
  failure_ = peers_.look_at(rank, /*has_to_be_well=*/call_ != kFacts);
  if (!failure_.ok() || peers_.timeout_s <= 0 || waited_s_ <= peers_.timeout_s) {
    return;
  }
  const std::string waited = "waited " + time_limit(peers_.timeout_s) + " for " + who;
  if (!peers_.waits_for_the_living || !peers_.processes[i].is_another_known()) {
    failure_ = Status(ErrorCode::kTimeout,
                      waited + "; it may hang, wait for another or not be in the call");
  } else if (!has_said_) {
    has_said_ = true;
    log(LogLevel::kWarn, waited + ", whose process " + std::to_string(peers_.processes[i].number) +
                             " runs; waiting on");
  }
}

}  // namespace tutti::runners
