// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which device a handle of ours belongs to (streams, events, modules, functions, memory), so that
// a call that takes the handle can make that device current. Private to the GPU tables.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace tutti::device {

class Owners {
 public:
  static constexpr int kUnknown = -1;

  void add(const void* handle, int device) {
    const std::unique_lock lock(mutex_);
    devices_[handle] = device;
  }
  void remove(const void* handle) {
    const std::unique_lock lock(mutex_);
    devices_.erase(handle);
  }
  /// kUnknown for a handle that did not come from us.
  int find(const void* handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = devices_.find(handle);
    return found == devices_.end() ? kUnknown : found->second;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const void*, int> devices_;
};

}  // namespace tutti::device
