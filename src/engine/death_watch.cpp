// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/death_watch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/log.hpp"

namespace tutti::engine {

WatchedCalls* DeathWatch::add(std::vector<runners::HostProcess> processes) {
  // A look is three system calls, which a program with many communicators makes once.
  std::vector<runners::HostProcess*> unseen;
  {
    const std::lock_guard lock(mutex_);
    const bool is_as_before = processes == last_;  // Most are duplicates.
    for (runners::HostProcess& process : processes) {
      if (is_as_before) {
        break;
      }
      if (process.start_ticks != 0 && seen_.count(process) == 0) {
        unseen.push_back(&process);
      }
    }
  }
  std::set<runners::HostProcess> running;
  for (runners::HostProcess* const process : unseen) {
    if (process->runs()) {
      running.insert(*process);
    } else {
      *process = {};
    }
  }
  const std::lock_guard lock(mutex_);
  seen_.merge(running);
  last_ = processes;
  auto calls = std::make_unique<WatchedCalls>(std::move(processes));
  WatchedCalls* const name = calls.get();
  all_.emplace(name, std::move(calls));
  return name;
}

void DeathWatch::set_find(WatchedCalls* calls, std::function<std::string()> find) {
  const std::lock_guard lock(mutex_);
  calls->find_obstacle_ = std::move(find);
}

void DeathWatch::remove(WatchedCalls* calls) {
  if (calls == &WatchedCalls::unwatched()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!calls->is_in_call()) {
    all_.erase(calls);
  } else {
    calls->is_removed_ = true;
  }
}

void DeathWatch::look(double now_s) {
  const std::lock_guard lock(mutex_);
  for (auto it = all_.begin(); it != all_.end();) {
    WatchedCalls& calls = *it->second;
    const bool is_in_call = calls.is_in_call();
    if (!is_in_call && calls.is_removed_) {
      it = all_.erase(it);
      continue;
    }
    if (is_in_call && !calls.is_removed_) {
      look_at(calls, now_s);
    }
    ++it;
  }
}

void DeathWatch::look_at(WatchedCalls& calls, double now_s) {
  const std::uint64_t call = calls.begun_.load(std::memory_order_relaxed);
  if (call != calls.seen_) {
    calls.seen_ = call;
    calls.obstacle_s_ = -1;
    return;
  }
  if (calls.obstacle_s_ >= 0) {
    if (grace_s_ > 0 && now_s - calls.obstacle_s_ >= grace_s_) {
      calls.obstacle_s_ = std::numeric_limits<double>::infinity();  // Once.
      end_();
    }
    return;
  }
  const auto dead = std::find_if(
      calls.processes_.begin(), calls.processes_.end(),
      [](const auto& process) { return process.is_another_known() && !process.runs(); });
  std::string obstacle;
  if (dead != calls.processes_.end()) {
    obstacle = "rank " + std::to_string(dead - calls.processes_.begin()) + " (process " +
               std::to_string(dead->number) + ") has died";
  } else if (calls.find_obstacle_) {
    obstacle = calls.find_obstacle_();
  }
  if (obstacle.empty()) {
    return;
  }
  calls.obstacle_s_ = now_s;
  const std::string what =
      grace_s_ > 0 ? "it gets SIGTERM in " + std::to_string(std::lround(std::ceil(grace_s_))) + " s"
                   : "TUTTI_TIMEOUT=0: it waits on";
  log(LogLevel::kError, obstacle +
                            ", and this process waits for it in a collective of the MPI library, "
                            "which does not end; " +
                            what);
}

}  // namespace tutti::engine
