// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Copies of one direction between host and device memory, queued on a stream with one wait for all.
#pragma once

#include "base/result.hpp"
#include "device/device.hpp"

namespace tutti::runners {

class Copies {
 public:
  Copies() = default;
  /// `api` null: all memory is the host's. `stream` null: one by one, blocking.
  Copies(device::Api* api, device::Stream stream) : api_(api), stream_(stream) {}
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  /// No buffer may be given away while a copy engine still uses it.
  ~Copies();

  /// What is queued already must be on this stream.
  void use(device::Api* api, device::Stream stream) {
    api_ = api;
    stream_ = stream;
  }
  Status add(void* destination, const device::PointerInfo& destination_memory, const void* source,
             const device::PointerInfo& source_memory, Bytes bytes);
  /// finish(), which is the next call, then waits for what was added, not for what others queue on
  /// the stream of `device` meanwhile.
  Status mark(int device);
  Status finish();

 private:
  device::Api* api_ = nullptr;
  device::Stream stream_ = nullptr;
  device::Event event_ = nullptr;
  bool copying_ = false;
  bool is_marked_ = false;
};

/// One blocking copy between any kinds of memory.
Status copy_any(device::Api* api, void* destination, const device::PointerInfo& destination_memory,
                const void* source, const device::PointerInfo& source_memory, Bytes bytes);

}  // namespace tutti::runners
