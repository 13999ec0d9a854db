// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/death_watch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.hpp"

namespace tutti::engine {

std::shared_ptr<WatchedCalls> DeathWatch::add(std::vector<runners::HostProcess> processes) {
  auto calls = std::make_shared<WatchedCalls>(std::move(processes));
  const std::lock_guard lock(mutex_);
  all_.push_back(calls);
  return calls;
}

void DeathWatch::look(double now_s) {
  std::vector<std::shared_ptr<WatchedCalls>> living;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const std::weak_ptr<WatchedCalls>& one) {
      auto calls = one.lock();
      const bool is_gone = calls == nullptr;
      if (!is_gone && calls->edges_.load(std::memory_order_relaxed) % 2 != 0) {
        living.push_back(std::move(calls));
      }
      return is_gone;
    });
  }
  for (const auto& calls : living) {
    look_at(*calls, now_s);
  }
}

void DeathWatch::look_at(WatchedCalls& calls, double now_s) {
  const std::uint64_t edges = calls.edges_.load(std::memory_order_relaxed);
  if (edges != calls.seen_edges_) {
    calls.seen_edges_ = edges;
    calls.dead_s_ = -1;
    return;
  }
  if (calls.dead_s_ >= 0) {
    if (grace_s_ > 0 && now_s - calls.dead_s_ >= grace_s_) {
      calls.dead_s_ = std::numeric_limits<double>::infinity();  // Once.
      end_();
    }
    return;
  }
  const auto dead = std::find_if(
      calls.processes_.begin(), calls.processes_.end(),
      [](const auto& process) { return process.is_another_known() && !process.runs(); });
  if (dead == calls.processes_.end()) {
    return;
  }
  calls.dead_s_ = now_s;
  const std::string what =
      grace_s_ > 0 ? "it gets SIGTERM in " + std::to_string(std::lround(grace_s_)) + " s"
                   : "TUTTI_TIMEOUT=0: it waits on";
  log(LogLevel::kError, "rank " + std::to_string(dead - calls.processes_.begin()) + " (process " +
                            std::to_string(dead->number) +
                            ") has died, and this process waits for it in a collective of the "
                            "MPI library, which does not end; " +
                            what);
}

}  // namespace tutti::engine
