// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/stream_line.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::runners {

Result<SharedEvent> make_shared_event(device::Api& api, int device) {
  TUTTI_ASSIGN_OR_RETURN(const device::Event event, api.create_event(device));
  return SharedEvent(event, [&api](device::Event made) {
    Status ignored = api.destroy_event(made);
    static_cast<void>(ignored);
  });
}

StreamLine& StreamLine::of(const device::Api& api, int device) {
  static std::mutex mutex;
  // Never destroyed: communicators may be freed after static destructors.
  static auto* const lines =
      new std::map<std::pair<const device::Api*, int>, std::unique_ptr<StreamLine>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<StreamLine>& line = (*lines)[{&api, device}];
  if (line == nullptr) {
    line = std::make_unique<StreamLine>();
  }
  return *line;
}

std::vector<SharedEvent> StreamLine::ahead_of(Owner owner, Kind kind) {
  std::vector<SharedEvent> ahead;
  if (kind == Kind::kBeside) {
    return ahead;
  }
  const std::lock_guard lock(mutex_);
  for (const Last& last : in_flight_) {
    if (last.owner != nullptr && last.owner != owner && last.kind != Kind::kBeside &&
        (kind == Kind::kKernel || last.has_kernels)) {
      ahead.push_back(last.after);
    }
  }
  return ahead;
}

void StreamLine::join(Owner owner, Kind kind, const SharedEvent& after) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [&](const Last& last) { return last.owner == owner; });
  Last& last = found == in_flight_.end() ? in_flight_.emplace_back() : *found;
  last.owner = owner;
  last.kind = kind;
  last.has_kernels |= kind == Kind::kKernel;
  last.after = after;
}

void StreamLine::leave(Owner owner, const SharedEvent& after) {
  const std::lock_guard lock(mutex_);
  std::erase_if(in_flight_,
                [&](const Last& last) { return last.owner == owner && last.after == after; });
}

void StreamLine::abandon(const SharedEvent& after) {
  const std::lock_guard lock(mutex_);
  std::erase_if(in_flight_, [&](const Last& last) { return last.after == after; });
  in_flight_.emplace_back().after = after;
}

void StreamLine::abandon(device::Api& api, int device, device::Stream stream) {
  auto after = make_shared_event(api, device);
  if (after.ok() && api.record_event(after->get(), stream).ok()) {
    abandon(*after);
  }
}

bool StreamLine::is_quiet(device::Api& api) {
  std::vector<SharedEvent> ends;
  {
    const std::lock_guard lock(mutex_);
    for (const Last& last : in_flight_) {
      ends.push_back(last.after);
    }
  }
  if (ends.empty()) {
    return true;
  }
  // Without the lock, which who queues takes: the driver may make this thread wait.
  const device::RelaxedCapture relaxed(api);
  for (const SharedEvent& end : ends) {
    const auto is_over = api.event_done(end.get());
    if (is_over.ok() && !*is_over) {  // A driver that has failed runs nothing.
      return false;
    }
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(in_flight_, [&](const Last& last) {
    return last.owner == nullptr && std::find(ends.begin(), ends.end(), last.after) != ends.end();
  });
  return true;
}

}  // namespace tutti::runners
