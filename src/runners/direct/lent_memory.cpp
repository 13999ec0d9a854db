// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/lent_memory.hpp"

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti::runners {
namespace {

/// Enough for ranks that end a communicator together.
constexpr auto kGrace = std::chrono::milliseconds(300);
constexpr auto kPause = std::chrono::microseconds(200);

struct Lent {
  device::Api* api;
  std::vector<void*> memories;
  Attendance attendance;
};

struct AllLent {
  std::mutex mutex;
  std::vector<Lent> kept;
};

AllLent& all_lent() {
  static auto* const all = new AllLent;  // Communicators may be freed after static destructors.
  return *all;
}

void free_all(const Lent& lent) {
  for (void* memory : lent.memories) {
    Status ignored = lent.api->free_device(memory);
    static_cast<void>(ignored);
  }
}

}  // namespace

void free_when_alone(device::Api& api, std::vector<void*> memories, Attendance attendance) {
  Lent lent{&api, std::move(memories), std::move(attendance)};
  const auto until = std::chrono::steady_clock::now() + kGrace;
  bool is_alone = lent.attendance.is_alone();
  while (!is_alone && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kPause);
    is_alone = lent.attendance.is_alone();
  }
  if (is_alone) {
    free_all(lent);
  } else {
    AllLent& all = all_lent();
    const std::lock_guard lock(all.mutex);
    all.kept.push_back(std::move(lent));
  }
  free_lent_memory(api);
}

void free_lent_memory(device::Api& api) {
  std::vector<Lent> ready;
  {
    AllLent& all = all_lent();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.kept, [&](Lent& lent) {
      const bool is_ready = lent.api == &api && lent.attendance.is_alone();
      if (is_ready) {
        ready.push_back(std::move(lent));
      }
      return is_ready;
    });
  }
  for (const Lent& lent : ready) {
    free_all(lent);
  }
}

}  // namespace tutti::runners
