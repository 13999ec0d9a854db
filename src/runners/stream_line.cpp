// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/stream_line.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::runners {

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

std::vector<SharedEvent> StreamLine::ahead_of(Owner owner, bool is_kernel) {
  std::vector<SharedEvent> ahead;
  const std::lock_guard lock(mutex_);
  for (const Last& last : in_flight_) {
    if (last.owner != owner && (is_kernel || last.has_kernels)) {
      ahead.push_back(last.after);
    }
  }
  return ahead;
}

void StreamLine::join(Owner owner, bool is_kernel, const SharedEvent& after) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [&](const Last& last) { return last.owner == owner; });
  Last& last = found == in_flight_.end() ? in_flight_.emplace_back() : *found;
  last.owner = owner;
  last.after = after;
  last.has_kernels |= is_kernel;
}

void StreamLine::leave(Owner owner, const SharedEvent& after) {
  const std::lock_guard lock(mutex_);
  std::erase_if(in_flight_,
                [&](const Last& last) { return last.owner == owner && last.after == after; });
}

}  // namespace tutti::runners
