// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/workload.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/check.hpp"

namespace tutti::simulate {

Progress::Successors::Successors(
    std::size_t ops, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs) {
  if (pairs.empty()) {
    return;
  }
  first.resize(ops + 1);
  later.resize(pairs.size());
  for (const auto& pair : pairs) {
    ++first[pair.first + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::uint32_t> at(first.begin(), first.end() - 1);
  for (const auto& pair : pairs) {
    later[at[pair.first]++] = pair.second;
  }
}

Progress::Progress(HostWork work)
    : work_(std::move(work)),
      missing_(work_.ops.size()),
      after_(work_.ops.size(), work_.after),
      begins_(work_.ops.size(), work_.begins),
      start_ps_(work_.ops.size(), kNever),
      end_ps_(work_.ops.size(), kNever),
      left_(size()) {
  for (const auto* pairs : {&work_.after, &work_.begins}) {
    for (const auto& pair : *pairs) {
      ++missing_[pair.second];
    }
  }
  work_.after = {};
  work_.begins = {};
  ready_.reserve(size());
  for (std::uint32_t index = 0; index < size(); ++index) {
    if (missing_[index] == 0 && start_ps_[index] == kNever) {
      make_ready(0, index);
    }
  }
}

// Those that wait for this begin come behind it, and theirs behind them: a list and not a
// recursion, since chains may be as long as the trace.
void Progress::make_ready(TimePs now_ps, std::uint32_t index) {
  beginning_.push_back(index);
  for (std::size_t at = 0; at < beginning_.size(); ++at) {
    begin(now_ps, beginning_[at]);
    for (const std::uint32_t later : begins_.of(beginning_[at])) {
      if (--missing_[later] == 0) {
        beginning_.push_back(later);
      }
    }
  }
  beginning_.clear();
}

void Progress::begin(TimePs now_ps, std::uint32_t index) {
  start_ps_[index] = now_ps;
  const Operation& op = work_.ops[index];
  if (op.kind == OperationKind::kWait) {
    waits_.emplace(now_ps + op.wait_ps, index);
  } else if (op.is_local && op.kind == OperationKind::kSend) {
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
  for (const std::uint32_t later : after_.of(index)) {
    if (--missing_[later] == 0) {
      make_ready(now_ps, later);
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
