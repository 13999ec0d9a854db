// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The host device without its table: for the C API's allocation calls, for work that is a plain
// function, and for code that asks what a range of memory is. All act on the one host device of
// the process, the same that every open_host() returns.
#pragma once

#include <cstddef>

#include "device/device.hpp"

namespace tutti::device {

/// Devices of the host device; each has its own address range and its own streams.
inline constexpr int kHostDeviceCount = 8;

/// Memory of the calling thread's current host device (ordinal 0 when it has none); null when
/// there is none left or `bytes` is 0. Aligned to 512 bytes. The contents are undefined.
void* host_device_alloc(std::size_t bytes);
/// Waits for the device's queued work, as a GPU's free does. Null and unknown pointers: ignored.
void host_device_free(void* pointer);

/// Runs `function(argument)` on the stream's thread, in the stream's order. The function must
/// not wait for its own stream.
void host_device_enqueue(Stream stream, void (*function)(void*), void* argument);

enum class HostMemoryOrigin {
  kUnknown,    ///< Not ours: pageable memory of the program.
  kPinned,     ///< allocate_pinned.
  kAllocated,  ///< allocate_device, host_device_alloc.
  kImported,   ///< open_memory.
};

/// The allocation that contains an address.
struct HostMemoryRange {
  HostMemoryOrigin origin = HostMemoryOrigin::kUnknown;
  void* base = nullptr;
  std::size_t bytes = 0;
  int device = -1;
};
HostMemoryRange host_device_range(const void* pointer);

}  // namespace tutti::device
