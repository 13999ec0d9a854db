// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a device does without, though its settings ask for it: each is a warning once, and counted.
// Under TUTTI_STRICT one that is found before the device is in use is the error of the call that
// starts it; a later one ends nothing.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "net/network.hpp"

namespace tutti::net {

/// Any thread.
class Fallbacks {
 public:
  Fallbacks(bool is_strict, Log log) : is_strict_(is_strict), log_(std::move(log)) {}

  /// `device`: of the network, or one of its rails. `what`: it has, "no UDP_GRO: ...".
  void add(const std::string& device, const std::string& what, const std::string& remedy) {
    const std::string text = "net: " + device + " has " + what + "; remedy: " + remedy;
    {
      const std::lock_guard lock(mutex_);
      if (!known_.insert(text).second) {
        return;
      }
      if (is_strict_ && status_.ok()) {
        status_ = Status(ErrorCode::kFallback, "TUTTI_STRICT: " + text);
      }
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
  const bool is_strict_;
  const Log log_;
  mutable std::mutex mutex_;
  std::set<std::string> known_;
  Status status_;
};

}  // namespace tutti::net
