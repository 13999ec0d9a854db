// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Scratch memory for staging: pinned host memory and device memory, kept in power-of-two size
// classes and reused, so that the call path allocates only the first time. What is kept of a
// device's memory has no bound but the device's: it is freed when it is in the way of another size,
// and at release(). Process-wide and thread-safe. Without a device library pinned memory is plain
// aligned memory.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "device/device.hpp"

namespace tutti::runners {

class Scratch;

/// A leased buffer; goes back to its pool at the end of the scope, unless abandoned.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { give_back(); }

  void* data() const { return data_; }
  /// After a timeout a device may still write here: never reuse or free it.
  void abandon() { data_ = nullptr; }

 private:
  friend class Scratch;
  void give_back();
  Scratch* pool_ = nullptr;
  void* data_ = nullptr;
  int device_ = -1;
  int size_class_ = 0;
};

class Scratch {
 public:
  /// `cached_pinned_bytes_max`: what is kept of pinned memory between calls (TUTTI_PINNED_POOL).
  Scratch(device::Api* api, Bytes cached_pinned_bytes_max)
      : api_(api), cached_pinned_bytes_max_(cached_pinned_bytes_max) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Result<Lease> pinned(Bytes bytes) { return lease(-1, bytes, true); }
  /// `may_wait`: out of memory, it frees what is cached of other sizes, which waits for all that
  /// runs on the device. Not for calls on streams: what stands there may wait for their caller.
  Result<Lease> device(int device, Bytes bytes, bool may_wait = true) {
    return lease(device, bytes, may_wait);
  }
  /// Frees what is cached. Errors are ignored: the driver may be gone. Of a device's memory that
  /// waits for what runs there.
  void release() { free_cached(std::nullopt); }

 private:
  friend class Lease;
  Result<Lease> lease(int device, Bytes bytes, bool may_wait);
  Result<void*> allocate(int device, Bytes bytes, bool may_wait);
  void free(int device, void* data);
  /// Frees what is cached of `device`, -1 pinned, or all; false: that was nothing.
  bool free_cached(std::optional<int> device);
  void put(int device, int size_class, void* data);

  device::Api* api_;
  Bytes cached_pinned_bytes_max_;
  std::atomic<bool> is_told_{false};  ///< That memory is not pinned.
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::vector<void*>> free_;  ///< (device, size class) -> buffers
  Bytes cached_pinned_bytes_ = 0;
  std::set<void*> plain_;  ///< Host buffers that are not pinned.
};

}  // namespace tutti::runners
