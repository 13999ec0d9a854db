// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The peers that have been found dead, shared by all engines of a device: what one engine finds
// after a timeout, the others need not find for themselves. A peer here is a device of a process,
// which all of its engines name in their handshakes (Handshake::device): they die together.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::net {

class DeadPeers {
 public:
  /// `wake` is called after each add(). Its caller holds an engine's lock, so it may take none. To
  /// be called before the first add(); what `wake` uses outlives the last.
  void subscribe(std::function<void()> wake) { wakes_.push_back(std::move(wake)); }

  void add(std::uint64_t peer) {
    {
      const std::lock_guard lock(mutex_);
      if (std::find(peers_.begin(), peers_.end(), peer) == peers_.end()) {
        peers_.push_back(peer);
      }
      ++version_;
    }
    for (const auto& wake : wakes_) {
      wake();
    }
  }

  /// A new handshake shows that it is alive. (A peer that never returns stays: eight bytes.)
  void remove(std::uint64_t peer) {
    const std::lock_guard lock(mutex_);
    if (std::erase(peers_, peer) != 0) {
      ++version_;
    }
  }

  bool contains(std::uint64_t peer) const {
    const std::lock_guard lock(mutex_);
    return std::find(peers_.begin(), peers_.end(), peer) != peers_.end();
  }

  /// Changes with each change of the set.
  std::uint32_t version() const { return version_.load(); }

 private:
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> peers_;
  std::atomic<std::uint32_t> version_ = 0;
  std::vector<std::function<void()>> wakes_;
};

}  // namespace tutti::net
