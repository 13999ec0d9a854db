// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// DirectRunner's waits for launches, and what ends them: a dead peer, another call, the time-out.
#include "runners/direct/direct_runner.hpp"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "base/pause.hpp"
#include "runners/direct/direct_control.hpp"

namespace tutti::runners {

namespace {

using Clock = std::chrono::steady_clock;
/// How long a kernel that was told to give up may take to do so.
constexpr double kGiveUpS = 10;
/// How long a kernel may take to end where a peer's call differs and has the same shape: that peer
/// or another may still have to launch its own. Then it is told to give up.
constexpr double kMismatchS = 2;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

/// Whoever was not waited for has still to push into this rank's memory, also a while from now:
/// this process must not end before. A late peer is waited for; one that will not come is not.
void DirectRunner::await_receivers() {
  constexpr int kLooksPerProcess = 1000;  // Whether a process runs is asked of /proc.
  const auto start = Clock::now();
  for (int peer = 0; peer < me_.ranks; ++peer) {
    const std::uint64_t epoch = epochs_[static_cast<std::size_t>(peer)];
    for (int looks = 0;
         (unawaited_ >> peer & 1) != 0 && !call_records_.has_completed(peer, epoch) &&
         call_records_.failed_peer() < 0 &&
         (looks % kLooksPerProcess != 0 || !liveness_.has_ended(peer)) &&
         (options_.timeout_s <= 0 || seconds_since(start) < options_.timeout_s);
         ++looks) {
      usleep(50);
      if (options_.progress) {
        options_.progress();
      }
    }
  }
}

/// Pairs without rounds have exchanged nothing in this launch.
void DirectRunner::note_awaited(const DirectLaunch& launch) {
  for (std::size_t peer = 0; peer < launch.rounds.size(); ++peer) {
    unawaited_ &= launch.rounds[peer] > 0 ? ~(1U << peer) : ~0U;
  }
  unawaited_ |= launch.arguments.unawaited;
}

bool DirectRunner::is_done(const DirectLaunch& launch) const {
  for (std::uint32_t block = 0; block < launch.blocks; ++block) {
    // Launches behind it store greater numbers.
    if (std::atomic_ref(control_->done[block]).load(std::memory_order_acquire) <
        launch.arguments.sequence) {
      return false;
    }
  }
  return true;
}

std::string DirectRunner::gone_peer() const {
  if (const int peer = liveness_.dead_peer(); peer >= 0) {
    return "the process of rank " + std::to_string(peer) + " is gone";
  }
  if (const int peer = call_records_.failed_peer(); peer >= 0) {
    return "rank " + std::to_string(peer) + " makes no more calls here, after an error of its own";
  }
  return "";
}

DirectRunner::Mismatch DirectRunner::compare(std::uint32_t* unchecked, const Planned& launch,
                                             bool is_complete) const {
  for (int peer = 0; peer < me_.ranks; ++peer) {
    if ((*unchecked >> peer & 1) == 0) {
      continue;
    }
    const CallRecords::Entry& own = launch.entries[static_cast<std::size_t>(peer)];
    CallRecords::Entry theirs;
    const auto found = call_records_.find(peer, own.number, &theirs);
    if (found == CallRecords::Found::kEntry ? !own.fits(theirs)
                                            : found == CallRecords::Found::kBehind && is_complete) {
      return {peer, found == CallRecords::Found::kEntry ? theirs : CallRecords::Entry()};
    }
    if (found != CallRecords::Found::kBehind &&
        (found != CallRecords::Found::kBusy || is_complete)) {
      *unchecked &= ~(1U << peer);
    }
  }
  return {};
}

Status DirectRunner::end_mismatch(const Planned& launch, std::uint32_t unchecked,
                                  const Mismatch& mismatch) {
  const CallRecords::Entry& own = launch.entries[static_cast<std::size_t>(mismatch.peer)];
  Status status(ErrorCode::kMismatch,
                "direct: rank " + std::to_string(mismatch.peer) +
                    (mismatch.theirs.number == 0 ? " makes another call"
                                                 : " calls " + mismatch.theirs.text()) +
                    " where this rank calls " + own.text() +
                    "; give all ranks the same collective, root and sizes");
  const auto is_in_step = [&] {
    for (int peer = 0; peer < me_.ranks; ++peer) {
      const CallRecords::Entry& mine = launch.entries[static_cast<std::size_t>(peer)];
      CallRecords::Entry theirs;
      if ((unchecked >> peer & 1) != 0 &&
          (call_records_.find(peer, mine.number, &theirs) != CallRecords::Found::kEntry ||
           mine.shape() != theirs.shape())) {
        return false;
      }
    }
    return true;
  };
  const auto start = Clock::now();
  while (own.shape() == mismatch.theirs.shape() && !is_done(launch) && gone_peer().empty() &&
         seconds_since(start) < kMismatchS) {
    usleep(100);
    if (options_.progress) {
      options_.progress();
    }
  }
  if (!is_done(launch) || !is_in_step()) {
    broken_ = true;
    break_off();
  }
  return status;
}

Status DirectRunner::wait(const Planned& launch, double timeout_s) {
  constexpr int kLooksPerClock = 4096;
  constexpr int kLooksPerProgress = 1024;  // Longer than a short call takes.
  constexpr int kLooksPerCompare = 64;
  constexpr double kPeerCheckS = 0.5;
  const int looks_before_yield = api_.computes_on_cpu() ? 16 : 1 << 16;
  const auto start = Clock::now();
  double next_check_s = kPeerCheckS;
  std::string reason;
  std::uint32_t unchecked = 0;
  for (std::size_t peer = 0; peer < launch.entries.size(); ++peer) {
    unchecked |= launch.entries[peer].number > 0 ? 1U << peer : 0;
  }
  unchecked &= ~launch.arguments.unawaited;
  for (std::int64_t looks = 1; !is_done(launch); ++looks) {
    pause_briefly();
    if (unchecked != 0 && looks % kLooksPerCompare == 0) {
      if (const Mismatch found = compare(&unchecked, launch, /*is_complete=*/false);
          found.peer >= 0) {
        return end_mismatch(launch, unchecked, found);
      }
    }
    if (looks > looks_before_yield) {
      sched_yield();
    }
    if (looks % kLooksPerProgress == 0 && options_.progress) {
      options_.progress();
    }
    if (looks % kLooksPerClock != 0) {
      continue;
    }
    const double waited_s = seconds_since(start);
    if (timeout_s > 0 && waited_s > timeout_s) {
      reason =
          "not finished after " + time_limit(timeout_s) + held_up_by(call_records_.who_is_behind());
      break;
    }
    if (waited_s > next_check_s) {
      next_check_s += kPeerCheckS;
      reason = gone_peer();
      // A kernel that faulted never stores its word.
      const device::RelaxedCapture relaxed(api_);
      const auto done = api_.stream_done(stream_);
      if (!done.ok()) {
        broken_ = true;
        return done.status();
      }
      if (!reason.empty()) {
        break;
      }
    }
  }
  if (!reason.empty() && is_done(launch)) {
    reason.clear();  // All had come, while this thread did something else or was not running.
  }
  const bool has_given_up = std::atomic_ref(control_->failed).load(std::memory_order_relaxed) != 0;
  if (reason.empty() && unchecked != 0 && !has_given_up) {
    if (const Mismatch found = compare(&unchecked, launch, /*is_complete=*/true); found.peer >= 0) {
      return end_mismatch(launch, unchecked, found);
    }
  }
  if (reason.empty() && !has_given_up) {
    return {};
  }
  broken_ = true;
  break_off();
  if (reason.empty() && calls_->has_ended()) {
    return calls_->reason();
  }
  reason = reason.empty() ? "its kernel gave up waiting" : reason;
  return Status(ErrorCode::kTimeout,
                std::string("direct ") +
                    direct_kernel_names()[static_cast<std::size_t>(launch.kernel)] + ": " + reason);
}

/// Ends what waits, and keeps from pushing what has not begun.
void DirectRunner::give_up() {
  std::atomic_ref(control_->abort).store(1, std::memory_order_release);
  const auto current = device::CurrentDevice::set(api_, device_);
  const device::RelaxedCapture relaxed(api_);
  if (current.ok()) {  // Nothing of a failed driver's is run either.
    static_cast<void>(api_.copy_async(ended_, &control_->abort, sizeof(*ended_), stream_));
  }
}

void DirectRunner::break_off() {
  give_up();
  const device::RelaxedCapture relaxed(api_);
  const auto start = Clock::now();
  for (;;) {
    const auto done = api_.stream_done(stream_);
    const bool is_over = !done.ok() || (*done && (copies_ == nullptr || copies_->is_idle()));
    if (is_over || seconds_since(start) > kGiveUpS) {
      return;
    }
    usleep(1000);
  }
}

}  // namespace tutti::runners
