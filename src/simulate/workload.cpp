// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/workload.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/check.hpp"

namespace tutti::simulate {

Progress::Progress(HostWork work)
    : work_(std::move(work)),
      missing_(work_.ops.size()),
      first_successor_(work_.ops.size() + 1),
      successors_(work_.after.size()),
      start_ps_(work_.ops.size(), kNever),
      end_ps_(work_.ops.size(), kNever),
      left_(size()) {
  for (const auto& [earlier, later] : work_.after) {
    ++first_successor_[earlier + 1];
    ++missing_[later];
  }
  std::partial_sum(first_successor_.begin(), first_successor_.end(), first_successor_.begin());
  std::vector<std::uint32_t> at(first_successor_.begin(), first_successor_.end() - 1);
  for (const auto& [earlier, later] : work_.after) {
    successors_[at[earlier]++] = later;
  }
  work_.after = {};
  ready_.reserve(size());
  for (std::uint32_t index = 0; index < size(); ++index) {
    if (missing_[index] == 0) {
      make_ready(0, index);
    }
  }
}

void Progress::make_ready(TimePs now_ps, std::uint32_t index) {
  start_ps_[index] = now_ps;
  const Op& op = work_.ops[index];
  if (op.kind == OpKind::kWait) {
    waits_.emplace(now_ps + op.wait_ps, index);
  } else if (op.is_local && op.kind == OpKind::kSend) {
    local_sends_.push_back({now_ps, index});
  } else if (op.is_local) {
    if (!arrived_ps_.empty() && arrived_ps_[index] != kNever) {
      waits_.emplace(std::max(now_ps, arrived_ps_[index]), index);
    }
  } else {
    ready_.push_back(index);
  }
}

bool Progress::next(TimePs now_ps, std::uint32_t* index) {
  on_time(now_ps);
  if (next_ready_ == ready_.size()) {
    return false;
  }
  *index = ready_[next_ready_++];
  return true;
}

void Progress::complete(TimePs now_ps, std::uint32_t index) {
  CHECK(start_ps_[index] != kNever && end_ps_[index] == kNever,
        "operation " + std::to_string(index) + " of " + std::to_string(size()));
  end_ps_[index] = now_ps;
  --left_;
  for (std::uint32_t at = first_successor_[index]; at < first_successor_[index + 1]; ++at) {
    if (--missing_[successors_[at]] == 0) {
      make_ready(now_ps, successors_[at]);
    }
  }
}

void Progress::complete_at(TimePs at_ps, std::uint32_t index) {
  if (start_ps_[index] != kNever) {
    waits_.emplace(at_ps, index);
    return;
  }
  arrived_ps_.resize(work_.ops.size(), kNever);
  arrived_ps_[index] = at_ps;
}

void Progress::on_time(TimePs now_ps) {
  while (!waits_.empty() && waits_.top().first <= now_ps) {
    const auto [at_ps, index] = waits_.top();
    waits_.pop();
    complete(at_ps, index);
  }
}

}  // namespace tutti::simulate
