// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// inout = in op inout on device memory, by a kernel of ours on the caller's stream: what schedules
// that other libraries carry reduce with. No memory is taken and nothing is copied to the host.
#pragma once

#include <cstdint>

#include "device/kernel_module.hpp"
#include "select/shape.hpp"

namespace tutti::runners {

class DeviceCombine {
 public:
  static Result<DeviceCombine> create(device::Api& api, int device);
  /// Every type and operation that MPI defines together; pointers aligned to the element. Returns
  /// when the kernel is queued.
  Status operator()(void* inout, const void* in, std::uint64_t count, select::DataType type,
                    select::ReduceOp op, device::Stream stream) const;
  /// A kernel that never ended may still use what this has.
  void abandon();

 private:
  device::Api* api_ = nullptr;
  int device_ = -1;
  device::KernelModule module_;
  device::Function function_ = nullptr;

 public:
  DeviceCombine() = default;
  DeviceCombine(DeviceCombine&& other) noexcept;
  DeviceCombine& operator=(DeviceCombine&&) = delete;
  DeviceCombine(const DeviceCombine&) = delete;
  DeviceCombine& operator=(const DeviceCombine&) = delete;
  ~DeviceCombine();
};

}  // namespace tutti::runners
