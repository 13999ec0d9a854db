// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which peers have fallen silent, for all engines of a device: what one of them finds after a
// timeout, the others need not find for themselves. A peer here is a device of a process, which all
// of its engines name in their greetings (Hello::device): they fall silent together.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::net {

class Silence {
 public:
  /// `wake`: version() is another one. Who calls it has an engine's lock, so it takes none. Before
  /// the first find(); what it needs is there until the last.
  void add(std::function<void()> wake) { wakes_.push_back(std::move(wake)); }

  void find(std::uint64_t peer) {
    {
      const std::lock_guard lock(mutex_);
      if (std::find(silent_.begin(), silent_.end(), peer) == silent_.end()) {
        silent_.push_back(peer);
      }
      ++version_;
    }
    for (const auto& wake : wakes_) {
      wake();
    }
  }

  /// It has greeted since. (One that never does again stays: eight bytes.)
  void forget(std::uint64_t peer) {
    const std::lock_guard lock(mutex_);
    if (std::erase(silent_, peer) != 0) {
      ++version_;
    }
  }

  bool has(std::uint64_t peer) const {
    const std::lock_guard lock(mutex_);
    return std::find(silent_.begin(), silent_.end(), peer) != silent_.end();
  }

  /// Another one after each change.
  std::uint32_t version() const { return version_.load(); }

 private:
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> silent_;
  std::atomic<std::uint32_t> version_ = 0;
  std::vector<std::function<void()>> wakes_;
};

}  // namespace tutti::net
