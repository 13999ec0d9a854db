// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/deferred_free.hpp"

#include <chrono>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "runners/stream_calls.hpp"

namespace tutti::runners {
namespace {

/// Enough for ranks that end a communicator together.
constexpr auto kGrace = std::chrono::milliseconds(300);
constexpr auto kPause = std::chrono::microseconds(200);

struct Pending {
  device::Api* api;
  int device;
  DeferredFree deferred;
};

struct AllPending {
  std::mutex mutex;
  std::vector<Pending> kept;
};

AllPending& all_pending() {
  static auto* const all = new AllPending;  // Communicators may be freed after static destructors.
  return *all;
}

bool is_quiet(const Pending& pending) {
  const GraphOrder::Count& graphs = pending.deferred.graphs;
  return (graphs == nullptr || graphs->load() == 0) &&
         StreamCalls::is_quiet(*pending.api, pending.device);
}

/// False: not now.
bool free_all(Pending& pending) {
  // Asked last: calls may have been queued while the peers were waited for.
  if (!pending.deferred.liveness.is_alone() || !is_quiet(pending)) {
    return false;
  }
  const auto ignore = [](const Status& status) { static_cast<void>(status); };
  for (void* const memory : pending.deferred.memories) {
    ignore(pending.api->free_device(memory));
  }
  if (pending.deferred.pinned != nullptr) {
    ignore(pending.api->free_pinned(pending.deferred.pinned));
  }
  pending.deferred.module = {};
  return true;
}

/// False: the GPU is not quiet, and nobody knows for how long.
bool close_peer_memory(Pending& pending) {
  if (!is_quiet(pending)) {
    return false;
  }
  close_peer_memory(*pending.api, std::exchange(pending.deferred.opened, {}),
                    pending.deferred.liveness);
  return true;
}

}  // namespace

void close_peer_memory(device::Api& api, const std::vector<void*>& opened, PeerLiveness& liveness) {
  for (void* const memory : opened) {
    Status ignored = api.close_memory(memory);
    static_cast<void>(ignored);
  }
  liveness.leave();
}

void free_when_alone(device::Api& api, int device, DeferredFree deferred) {
  const device::RelaxedCapture relaxed(api);
  Pending pending{&api, device, std::move(deferred)};
  const auto until = std::chrono::steady_clock::now() + kGrace;
  bool is_free = false;
  if (close_peer_memory(pending)) {
    while (!pending.deferred.liveness.is_alone() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kPause);
    }
    is_free = free_all(pending);
  }
  if (!is_free) {
    AllPending& all = all_pending();
    const std::lock_guard lock(all.mutex);
    all.kept.push_back(std::move(pending));
  }
  free_deferred(api);
}

void free_deferred(device::Api& api) {
  const device::RelaxedCapture relaxed(api);
  std::vector<Pending> mine;
  {
    AllPending& all = all_pending();
    const std::lock_guard lock(all.mutex);
    for (Pending& pending : all.kept) {
      if (pending.api == &api) {
        mine.push_back(std::move(pending));
      }
    }
    std::erase_if(all.kept, [&](const Pending& pending) { return pending.api == &api; });
  }
  // Without the lock: the driver may take its time.
  std::erase_if(mine,
                [](Pending& pending) { return close_peer_memory(pending) && free_all(pending); });
  AllPending& all = all_pending();
  const std::lock_guard lock(all.mutex);
  std::move(mine.begin(), mine.end(), std::back_inserter(all.kept));
}

}  // namespace tutti::runners
