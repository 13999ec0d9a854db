// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/lent_memory.hpp"

#include <chrono>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "runners/stream_line.hpp"

namespace tutti::runners {
namespace {

/// Enough for ranks that end a communicator together.
constexpr auto kGrace = std::chrono::milliseconds(300);
constexpr auto kPause = std::chrono::microseconds(200);

struct Lent {
  device::Api* api;
  int device;
  Remains remains;
};

struct AllLent {
  std::mutex mutex;
  std::vector<Lent> kept;
};

AllLent& all_lent() {
  static auto* const all = new AllLent;  // Communicators may be freed after static destructors.
  return *all;
}

bool is_quiet(const Lent& lent) {
  return StreamLine::of(*lent.api, lent.device).is_quiet(*lent.api);
}

/// False: not now.
bool free_all(Lent& lent) {
  // Asked last: calls may have been queued while the peers were waited for.
  if (!lent.remains.attendance.is_alone() || !is_quiet(lent)) {
    return false;
  }
  const auto ignore = [](const Status& status) { static_cast<void>(status); };
  for (void* const memory : lent.remains.memories) {
    ignore(lent.api->free_device(memory));
  }
  if (lent.remains.pinned != nullptr) {
    ignore(lent.api->free_pinned(lent.remains.pinned));
  }
  lent.remains.module = {};
  return true;
}

/// False: the GPU is not quiet, and nobody knows for how long.
bool let_go(Lent& lent) {
  if (!is_quiet(lent)) {
    return false;
  }
  let_go(*lent.api, std::exchange(lent.remains.opened, {}), lent.remains.attendance);
  return true;
}

}  // namespace

void let_go(device::Api& api, const std::vector<void*>& opened, Attendance& attendance) {
  for (void* const memory : opened) {
    Status ignored = api.close_memory(memory);
    static_cast<void>(ignored);
  }
  attendance.leave();
}

void free_when_alone(device::Api& api, int device, Remains remains) {
  const device::RelaxedCapture relaxed(api);
  Lent lent{&api, device, std::move(remains)};
  const auto until = std::chrono::steady_clock::now() + kGrace;
  bool is_free = false;
  if (let_go(lent)) {
    while (!lent.remains.attendance.is_alone() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kPause);
    }
    is_free = free_all(lent);
  }
  if (!is_free) {
    AllLent& all = all_lent();
    const std::lock_guard lock(all.mutex);
    all.kept.push_back(std::move(lent));
  }
  free_lent_memory(api);
}

void free_lent_memory(device::Api& api) {
  const device::RelaxedCapture relaxed(api);
  std::vector<Lent> mine;
  {
    AllLent& all = all_lent();
    const std::lock_guard lock(all.mutex);
    for (Lent& lent : all.kept) {
      if (lent.api == &api) {
        mine.push_back(std::move(lent));
      }
    }
    std::erase_if(all.kept, [&](const Lent& lent) { return lent.api == &api; });
  }
  // Without the lock: the driver may take its time.
  std::erase_if(mine, [](Lent& lent) { return let_go(lent) && free_all(lent); });
  AllLent& all = all_lent();
  const std::lock_guard lock(all.mutex);
  std::move(mine.begin(), mine.end(), std::back_inserter(all.kept));
}

}  // namespace tutti::runners
