// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The image of our kernels that a device takes: of those in this build, the first that its driver
// accepts, or what the device brings along (device::Api::kernel_image()).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "device/device.hpp"

namespace tutti::device {

/// Of a block of our kernels, at most, on every GPU.
inline constexpr std::uint32_t kBlockThreads = 512;

class KernelModule {
 public:
  KernelModule() = default;
  KernelModule(KernelModule&& other) noexcept { *this = std::move(other); }
  KernelModule& operator=(KernelModule&& other) noexcept;
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;
  ~KernelModule() { unload(); }

  /// Errors say why each image was refused, or that this build has none.
  static Result<KernelModule> load(Api& api, int device);
  Result<Function> find(const char* kernel) const { return api_->find_function(module_, kernel); }
  /// "sm_90", "ptx", "gfx942"; "" where the device brings them along.
  const std::string& target() const { return target_; }
  /// A kernel that never ended may still use it.
  void abandon() { module_ = nullptr; }

 private:
  void unload();
  Api* api_ = nullptr;
  Module module_ = nullptr;
  std::string target_;
};

}  // namespace tutti::device
