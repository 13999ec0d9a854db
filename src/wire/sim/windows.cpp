// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/sim/windows.hpp"

#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

namespace tutti::wire::sim {
namespace {

using simulate::SimNetwork;
using simulate::TimePs;

/// A run of nodes of one kind.
struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

/// Hosts cost more than switches, so each thread gets its part of each kind.
std::vector<Range> share(const simulate::Fabric& fabric, std::uint32_t thread,
                         std::uint32_t threads) {
  std::vector<Range> ranges;
  for (std::uint32_t first = 0; first < fabric.nodes();) {
    std::uint32_t last = first;
    while (last < fabric.nodes() && fabric.kind(last) == fabric.kind(first)) {
      ++last;
    }
    const std::uint64_t count = last - first;
    ranges.push_back({static_cast<std::uint32_t>(first + count * thread / threads),
                      static_cast<std::uint32_t>(first + count * (thread + 1) / threads)});
    first = last;
  }
  return ranges;
}

class Run {
 public:
  Run(SimNetwork* network, const WindowOptions& options)
      : network_(network),
        options_(options),
        next_ps_(options.threads),
        step_begins_(options.threads),
        step_ends_(options.threads) {}

  TimePs go() {
    std::vector<std::thread> others;
    for (std::uint32_t thread = 1; thread < options_.threads; ++thread) {
      others.emplace_back([this, thread] { work(thread); });
    }
    work(0);
    for (std::thread& thread : others) {
      thread.join();
    }
    return earliest();
  }

 private:
  TimePs earliest() const { return *std::min_element(next_ps_.begin(), next_ps_.end()); }

  void work(std::uint32_t thread) {
    const std::vector<Range> ranges = share(network_->fabric(), thread, options_.threads);
    for (;;) {
      next_ps_[thread] = simulate::kNever;
      for (const Range& range : ranges) {
        next_ps_[thread] = std::min(next_ps_[thread], network_->publish(range.first, range.last));
      }
      step_ends_.arrive_and_wait();
      if (thread == 0) {
        over_ = over_ || earliest() >= options_.until_ps;
        if (!over_) {
          network_->begin_window(earliest());
        }
      }
      step_begins_.arrive_and_wait();
      if (over_) {
        return;
      }
      for (const Range& range : ranges) {
        network_->step(range.first, range.last);
      }
      step_ends_.arrive_and_wait();
      if (thread == 0) {
        network_->end_window();
        over_ = options_.goes_on && !options_.goes_on();
      }
      step_begins_.arrive_and_wait();
    }
  }

  SimNetwork* network_;
  const WindowOptions& options_;
  std::vector<TimePs> next_ps_;  ///< By thread.
  std::barrier<> step_begins_;
  std::barrier<> step_ends_;
  bool over_ = false;
};

}  // namespace

TimePs run_windows(SimNetwork* network, const WindowOptions& options) {
  return Run(network, options).go();
}

}  // namespace tutti::wire::sim
