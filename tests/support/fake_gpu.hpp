// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Fake, never installed: what the fakes of libcuda and libamdhip64 share. Memory and
// streams are those of the host device (host_device/); this adds the rules of a GPU driver
// that the host device does not have: default streams, copies of pageable memory, handles that
// the creating process may not open, and failures on demand.
//
// FAKE_GPUS=n            visible devices, 0 to 8 (default 4)
// FAKE_GPU_FAIL=symbol[:n][=code][,...]   the symbol fails from its call n + 1 on, with the code
//                                         (default: 2, out of memory, for allocations, else 999)
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "support/host_device/host_device.hpp"

#define TUTTI_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace tutti::fake {

// The codes that CUresult and hipError_t share.
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kNotInitialized = 3;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kInvalidContext = 201;
inline constexpr int kPeerAccessAlreadyEnabled = 704;
inline constexpr int kInvalidHandle = 400;
inline constexpr int kNotFound = 500;
inline constexpr int kNotReady = 600;
inline constexpr int kNotSupported = 801;
inline constexpr int kUnknown = 999;

inline const char* error_name(int code, bool hip) {
  switch (code) {
    case kSuccess:
      return hip ? "hipSuccess" : "CUDA_SUCCESS";
    case kInvalidValue:
      return hip ? "hipErrorInvalidValue" : "CUDA_ERROR_INVALID_VALUE";
    case kOutOfMemory:
      return hip ? "hipErrorOutOfMemory" : "CUDA_ERROR_OUT_OF_MEMORY";
    case kNotInitialized:
      return hip ? "hipErrorNotInitialized" : "CUDA_ERROR_NOT_INITIALIZED";
    case kInvalidDevice:
      return hip ? "hipErrorInvalidDevice" : "CUDA_ERROR_INVALID_DEVICE";
    case kInvalidContext:
      return hip ? "hipErrorInvalidContext" : "CUDA_ERROR_INVALID_CONTEXT";
    case kInvalidHandle:
      return hip ? "hipErrorInvalidHandle" : "CUDA_ERROR_INVALID_HANDLE";
    case kNotFound:
      return hip ? "hipErrorNotFound" : "CUDA_ERROR_NOT_FOUND";
    case kNotReady:
      return hip ? "hipErrorNotReady" : "CUDA_ERROR_NOT_READY";
    case kNotSupported:
      return hip ? "hipErrorNotSupported" : "CUDA_ERROR_NOT_SUPPORTED";
    default:
      return hip ? "hipErrorUnknown" : "CUDA_ERROR_UNKNOWN";
  }
}

/// Calls counted by symbol, and the ones that must fail.
class Calls {
 public:
  Calls() {
    if (const char* spec = std::getenv("FAKE_GPU_FAIL")) {
      set_failures(spec);
    }
  }

  /// Replaces the failures; "" or null: none. Counting starts anew.
  void set_failures(const char* spec) {
    const std::lock_guard lock(mutex_);
    failing_.clear();
    counts_.clear();
    std::string text = spec == nullptr ? "" : spec;
    while (!text.empty()) {
      const std::size_t comma = text.find(',');
      const std::string item = text.substr(0, comma);
      text = comma == std::string::npos ? "" : text.substr(comma + 1);
      const std::string symbol = item.substr(0, item.find_first_of(":="));
      const bool allocates =
          symbol.find("Alloc") != std::string::npos || symbol.find("Malloc") != std::string::npos;
      Failure failure{.after = 0, .code = allocates ? kOutOfMemory : kUnknown};
      if (const std::size_t colon = item.find(':'); colon != std::string::npos) {
        failure.after = std::atol(item.c_str() + colon + 1);
      }
      if (const std::size_t equals = item.find('='); equals != std::string::npos) {
        failure.code = std::atoi(item.c_str() + equals + 1);
      }
      failing_[symbol] = failure;
    }
  }

  /// Counts a call; the code with which it must fail, kSuccess when it goes on.
  int enter(const char* symbol) {
    const std::lock_guard lock(mutex_);
    const long calls_before = counts_[symbol]++;
    const auto found = failing_.find(symbol);
    return found != failing_.end() && calls_before >= found->second.after ? found->second.code
                                                                          : kSuccess;
  }

  long count(const char* symbol) {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(symbol);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  struct Failure {
    long after;
    int code;
  };
  std::mutex mutex_;
  std::map<std::string, Failure> failing_;
  std::map<std::string, long> counts_;
};

inline Calls& calls() {
  static auto* const kept = new Calls;
  return *kept;
}

inline int device_count() {
  static const int count = [] {
    const char* text = std::getenv("FAKE_GPUS");
    return text == nullptr ? 4 : std::clamp(std::atoi(text), 0, device::kHostDeviceCount);
  }();
  return count;
}

inline device::Api& host() {
  static device::Api* const api = device::host_device::make_api().release();
  return *api;
}

inline int code_of(const Status& status, int otherwise) {
  if (status.ok()) {
    return kSuccess;
  }
  return status.code() == ErrorCode::kOutOfMemory ? kOutOfMemory : otherwise;
}

inline bool is_device_memory(const void* pointer) {
  return host().classify(pointer).kind == device::MemoryKind::kDevice;
}

inline bool is_pageable(const void* pointer) {
  return tutti_host_device_range(pointer).origin == device::HostMemoryOrigin::kUnknown;
}

/// The streams of the fake: the host device's, plus a default stream for each device with the
/// order that the legacy default stream has to the device's blocking streams.
class Streams {
 public:
  /// The host device's stream behind a handle (null, 1 legacy, 2 per thread: the default stream);
  /// null for a handle that is not a stream.
  device::Stream find(void* handle, int current_device) {
    const std::lock_guard lock(mutex_);
    if (reinterpret_cast<std::uintptr_t>(handle) <= 2) {
      return default_stream(current_device);
    }
    return streams_.count(handle) != 0 ? handle : nullptr;
  }

  int create(void** handle, int device, bool is_blocking) {
    Result<device::Stream> stream = host().create_stream(device);
    if (!stream.ok()) {
      return kUnknown;
    }
    const std::lock_guard lock(mutex_);
    streams_[*stream] = {.device = device, .is_blocking = is_blocking, .is_default = false};
    *handle = *stream;
    return kSuccess;
  }

  int destroy(void* handle) {
    {
      const std::lock_guard lock(mutex_);
      if (streams_.erase(handle) == 0) {
        return kInvalidHandle;
      }
    }
    return code_of(host().destroy_stream(handle), kInvalidHandle);
  }

  int device_of(device::Stream stream) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    return found == streams_.end() ? -1 : found->second.device;
  }

  /// What a program that records a graph does to the stream, as seen by others.
  void set_capturing(device::Stream stream, bool is_capturing) {
    const std::lock_guard lock(mutex_);
    streams_.at(stream).is_capturing = is_capturing;
  }
  bool is_capturing(device::Stream stream) {
    const std::lock_guard lock(mutex_);
    return streams_.at(stream).is_capturing;
  }
  /// While one is, a thread that has not said otherwise may not allocate or ask for events.
  bool any_capturing() {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, kind] : streams_) {
      if (kind.is_capturing) {
        return true;
      }
    }
    return false;
  }

  /// Queues the waits that the legacy default stream's order asks for; call before any enqueue.
  void order(device::Stream stream) {
    const std::lock_guard lock(mutex_);
    const Kind kind = streams_.at(stream);
    if (kind.is_default) {
      for (const auto& [other, other_kind] : streams_) {
        if (other_kind.device == kind.device && other_kind.is_blocking && other != stream) {
          wait_for(stream, other);
        }
      }
    } else if (kind.is_blocking) {
      wait_for(stream, default_stream(kind.device));
    }
  }

 private:
  struct Kind {
    int device;
    bool is_blocking;
    bool is_default;
    bool is_capturing = false;
  };

  device::Stream default_stream(int device) {
    for (const auto& [stream, kind] : streams_) {
      if (kind.is_default && kind.device == device) {
        return stream;
      }
    }
    device::Stream created = *host().create_stream(device);
    streams_[created] = {.device = device, .is_blocking = false, .is_default = true};
    return created;
  }

  static void wait_for(device::Stream waiter, device::Stream awaited) {
    const device::Event event = *host().create_event(0);
    (void)host().record_event(event, awaited).ok();
    (void)host().stream_wait_event(waiter, event).ok();
    (void)host().destroy_event(event).ok();
  }

  std::mutex mutex_;
  std::map<void*, Kind> streams_;
};

inline Streams& streams() {
  static auto* const kept = new Streams;
  return *kept;
}

/// A copy queued on a stream. Pageable host memory makes it wait, as the driver's staging does.
inline int copy_async(void* destination, const void* source, std::size_t bytes,
                      device::Stream stream) {
  if (bytes == 0) {
    return kSuccess;
  }
  streams().order(stream);
  const Status queued = host().copy_async(destination, source, bytes, stream);
  if (!queued.ok()) {
    return code_of(queued, kInvalidValue);
  }
  if (is_pageable(destination) || is_pageable(source)) {
    return code_of(host().wait_stream(stream), kUnknown);
  }
  return kSuccess;
}

/// The blocking copy, on the default stream. From device to device it does not wait: the real
/// one does not either, and callers must know.
inline int copy(void* destination, const void* source, std::size_t bytes, int current_device) {
  const device::Stream stream = streams().find(nullptr, current_device);
  const int code = copy_async(destination, source, bytes, stream);
  if (code != kSuccess || (is_device_memory(destination) && is_device_memory(source))) {
    return code;
  }
  return code_of(host().wait_stream(stream), kUnknown);
}

inline int fill(void* destination, int value, std::size_t bytes, device::Stream stream) {
  if (bytes == 0) {
    return kSuccess;
  }
  if (!is_device_memory(destination) && is_pageable(destination)) {
    return kInvalidValue;
  }
  streams().order(stream);
  return code_of(host().fill_async(destination, value, bytes, stream), kInvalidValue);
}

/// Managed memory: readable and writable by the CPU, known to the library, never "device".
class Managed {
 public:
  int allocate(void** pointer, std::size_t bytes) {
    Result<void*> memory = host().allocate_pinned(bytes, device::Api::kAnyDevice);
    if (!memory.ok()) {
      return code_of(memory.status(), kInvalidValue);
    }
    const std::lock_guard lock(mutex_);
    ranges_[*memory] = bytes;
    *pointer = *memory;
    return kSuccess;
  }
  bool contains(const void* pointer) {
    const std::lock_guard lock(mutex_);
    return ranges_.count(tutti_host_device_range(pointer).base) != 0;
  }
  bool free(void* pointer) {
    const std::lock_guard lock(mutex_);
    return ranges_.erase(pointer) != 0 && host().free_pinned(pointer).ok();
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::size_t> ranges_;
};

inline Managed& managed() {
  static auto* const kept = new Managed;
  return *kept;
}

inline int free_memory(void* pointer) {
  if (pointer == nullptr || managed().free(pointer)) {
    return kSuccess;
  }
  return code_of(host().free_device(pointer), kInvalidValue);
}

/// The last bytes of a handle, unused by the host device, hold the creator: neither driver lets
/// the process that exported a handle open it.
inline constexpr int kIpcCreatorAt = 60;

inline int ipc_export(void* handle, void* pointer) {
  const device::HostMemoryRange range = tutti_host_device_range(pointer);
  if (range.origin != device::HostMemoryOrigin::kAllocated || range.base != pointer) {
    return kInvalidValue;
  }
  Result<device::IpcHandle> exported = host().export_memory(pointer);
  if (!exported.ok()) {
    return kUnknown;
  }
  const int creator = getpid();
  std::memcpy(exported->bytes + kIpcCreatorAt, &creator, sizeof creator);
  std::memcpy(handle, exported->bytes, sizeof exported->bytes);
  return kSuccess;
}

/// Repeated opens of one handle give one address and are counted, as both drivers do now.
class Imports {
 public:
  int open(void** pointer, int device, const void* handle) {
    device::IpcHandle inner{};
    std::memcpy(inner.bytes, handle, sizeof inner.bytes);
    int creator = 0;
    std::memcpy(&creator, inner.bytes + kIpcCreatorAt, sizeof creator);
    if (creator == getpid()) {
      return kInvalidContext;
    }
    const std::string key(reinterpret_cast<const char*>(inner.bytes), sizeof inner.bytes);
    const std::lock_guard lock(mutex_);
    if (const auto found = opened_.find(key); found != opened_.end()) {
      ++found->second.count;
      *pointer = found->second.pointer;
      return kSuccess;
    }
    Result<void*> mapped = host().open_memory(device, inner);
    if (!mapped.ok()) {
      return kInvalidValue;
    }
    opened_[key] = {*mapped, 1};
    *pointer = *mapped;
    return kSuccess;
  }
  int close(void* pointer) {
    const std::lock_guard lock(mutex_);
    for (auto item = opened_.begin(); item != opened_.end(); ++item) {
      if (item->second.pointer == pointer) {
        if (--item->second.count > 0) {
          return kSuccess;
        }
        opened_.erase(item);
        return code_of(host().close_memory(pointer), kInvalidValue);
      }
    }
    return kInvalidValue;
  }

 private:
  struct Opened {
    void* pointer;
    int count;
  };
  std::mutex mutex_;
  std::map<std::string, Opened> opened_;
};

inline Imports& imports() {
  static auto* const kept = new Imports;
  return *kept;
}

inline int event_result(const Result<bool>& done) {
  if (!done.ok()) {
    return kInvalidHandle;
  }
  if (*done) {
    return kSuccess;
  }
  // Who asks again and again spins, on a core that the threads of this device need.
  std::this_thread::yield();
  return kNotReady;
}

/// The host device's event has no wait of its own.
inline int wait_event(void* event) {
  for (;;) {
    const int code = event_result(host().event_done(event));
    if (code != kNotReady) {
      return code;
    }
  }
}

inline int launch(void* function, const unsigned* shape, void* handle, int current_device,
                  void** arguments) {
  const device::Stream stream = streams().find(handle, current_device);
  if (stream == nullptr) {
    return kInvalidHandle;
  }
  streams().order(stream);
  const device::LaunchShape launch_shape{.grid = {shape[0], shape[1], shape[2]},
                                         .block = {shape[3], shape[4], shape[5]},
                                         .shared_bytes = shape[6]};
  return code_of(host().launch(function, launch_shape, stream, arguments), kInvalidValue);
}

}  // namespace tutti::fake
