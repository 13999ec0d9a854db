// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The host device: a GPU made of threads, for tests and demonstrations without a GPU. The product
// loads it at run time, as it does a vendor's library (src/device/open.cpp): TUTTI_DEVICE=host
// takes libtutti-host-device.so beside libtutti.so. Programs that link or preload it get memory of
// it and queue plain functions; all act on the one host device of the process.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.hpp"

namespace tutti::device {

/// Devices of the host device; each has its own address range and its own streams.
inline constexpr int kHostDeviceCount = 8;

enum class HostMemoryOrigin {
  kUnknown,    ///< Not ours: pageable memory of the program.
  kPinned,     ///< allocate_pinned.
  kAllocated,  ///< allocate_device, tutti_host_device_alloc.
  kImported,   ///< open_memory.
};

/// The allocation that contains an address.
struct HostMemoryRange {
  HostMemoryOrigin origin = HostMemoryOrigin::kUnknown;
  void* base = nullptr;
  std::size_t bytes = 0;
  int device = -1;
};

namespace host_device {
/// For what is linked to the host device's archive, as the fakes of GPU libraries are.
std::unique_ptr<Api> make_api();
}  // namespace host_device

}  // namespace tutti::device

#define TUTTI_HOST_DEVICE_API extern "C" __attribute__((visibility("default")))

/// The table, the caller's to delete. Null: `version` is not the TUTTI_DEVICE_TABLE of this build.
TUTTI_HOST_DEVICE_API tutti::device::Api* tutti_host_device_open(const char* version);

/// Memory of the calling thread's current ordinal (0 when it has none), which the CPU may use, too;
/// null when there is none left or `bytes` is 0. Aligned to 512 bytes. The contents are undefined.
TUTTI_HOST_DEVICE_API void* tutti_host_device_alloc(std::size_t bytes);
/// Waits for the device's queued work, as a GPU's free does. Null and unknown pointers: ignored.
TUTTI_HOST_DEVICE_API void tutti_host_device_free(void* pointer);

/// Runs `function(argument)` on the stream's thread, in the stream's order. The function must
/// not wait for its own stream.
TUTTI_HOST_DEVICE_API void tutti_host_device_enqueue(tutti::device::Stream stream,
                                                     void (*function)(void*), void* argument);

/// A stream of the calling thread's current ordinal, until the process ends; null: there is no
/// thread.
TUTTI_HOST_DEVICE_API tutti::device::Stream tutti_host_device_create_stream();

/// As a program captures a graph: what is queued on `stream`, and on streams that wait for events
/// of it, goes into the graph, whose launches run it in the order in which it was captured. The
/// graph is gone when it was destroyed and its launches are over.
TUTTI_HOST_DEVICE_API void tutti_host_device_begin_capture(tutti::device::Stream stream);
TUTTI_HOST_DEVICE_API void* tutti_host_device_end_capture(tutti::device::Stream stream);
TUTTI_HOST_DEVICE_API void tutti_host_device_launch_graph(void* graph,
                                                          tutti::device::Stream stream);
TUTTI_HOST_DEVICE_API void tutti_host_device_destroy_graph(void* graph);

TUTTI_HOST_DEVICE_API tutti::device::HostMemoryRange tutti_host_device_range(const void* pointer);
