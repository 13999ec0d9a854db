// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a device does without, though its settings ask for it: each is counted, and a warning once,
// up to as many as one reads (what is for one peer may be for a thousand).
// Under TUTTI_STRICT one that is found before the device is in use is the error of the call that
// starts it; a later one ends nothing.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "net/observe/log.hpp"

namespace tutti::net {

/// Any thread.
class Fallbacks {
 public:
  Fallbacks(bool is_strict, Log log) : is_strict_(is_strict), log_(std::move(log)) {}

  /// `device`: of the network, or one of its rails. `what`: it has, "no UDP_GRO: ...".
  void add(const std::string& device, const std::string& what, const std::string& remedy) {
    std::string text = "net: " + device + " has " + what + "; remedy: " + remedy;
    {
      const std::lock_guard lock(mutex_);
      if (!known_.insert(text).second) {
        return;
      }
      if (is_strict_ && status_.ok()) {
        status_ = Status(ErrorCode::kFallback, "TUTTI_STRICT: " + text);
      }
      if (known_.size() > kToldMax) {
        return;
      }
      text += known_.size() == kToldMax ? " (further ones are counted and not told)" : "";
    }
    log_(LogKind::kWarning, text);
  }

  /// Errors: the first, under TUTTI_STRICT (kFallback).
  Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  std::uint64_t count() const {
    const std::lock_guard lock(mutex_);
    return known_.size();
  }

 private:
  static constexpr std::size_t kToldMax = 16;
  const bool is_strict_;
  const Log log_;
  mutable std::mutex mutex_;
  std::set<std::string> known_;
  Status status_;
};

}  // namespace tutti::net
