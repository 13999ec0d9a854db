// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Memory of CUDA's virtual memory management (cuMemCreate): what file descriptors and handles of
// the fabric can show to other processes, where cuIpc cannot. Thread-safe. The caller has made a
// context of the device current.
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "device/device.hpp"
#include "device/driver_cuda.hpp"

namespace tutti::device {

class CudaVirtualMemory {
 public:
  using Check = std::function<Status(cuda::Outcome outcome)>;

  CudaVirtualMemory(const cuda::Functions& functions, Check check)
      : cu_(functions), check_(std::move(check)) {}

  /// `sharing`: kDescriptor or kFabric. Errors: an old driver (kUnsupported), what it says.
  Result<void*> allocate(int device, cuda::Device handle, Bytes bytes, Sharing sharing);
  /// Maps what another process has exported; an address of its own each time.
  Result<void*> open(cuda::Device device, const IpcHandle& handle);
  /// Whether the address is of allocate() or open().
  bool has(const void* pointer) const;
  /// Of allocate().
  Result<IpcHandle> export_memory(void* pointer) const;
  /// Of both. Every step is tried; the first error.
  Status release(void* pointer);

 private:
  struct Mapped {
    Bytes bytes = 0;
    cuda::MemHandle memory = 0;
    Sharing sharing = Sharing::kDescriptor;
    int descriptor = -1;  ///< Of allocate(), kDescriptor.
    bool is_own = false;
  };

  Result<void*> map(cuda::Device device, Mapped mapped);
  bool is_complete() const;

  const cuda::Functions& cu_;
  Check check_;
  mutable std::mutex mutex_;
  std::map<const void*, Mapped> mapped_;
};

}  // namespace tutti::device
