// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "device/kernel_module.hpp"

#include <utility>

#include "device/kernels/images.hpp"

namespace tutti::device {

KernelModule& KernelModule::operator=(KernelModule&& other) noexcept {
  unload();
  api_ = other.api_;
  module_ = std::exchange(other.module_, nullptr);
  target_ = std::move(other.target_);
  return *this;
}

void KernelModule::unload() {
  if (module_ != nullptr) {
    Status ignored = api_->unload_module(std::exchange(module_, nullptr));
    static_cast<void>(ignored);
  }
}

Result<KernelModule> KernelModule::load(Api& api, int device) {
  KernelModule result;
  result.api_ = &api;
  if (const void* own = api.kernel_image(); own != nullptr) {
    TUTTI_ASSIGN_OR_RETURN(result.module_, api.load_module(device, own));
    return result;
  }
  const std::string runtime = api.name();
  std::string reasons;
  for (const kernels::Image& image : kernels::images()) {
    if (runtime != image.runtime) {
      continue;
    }
    TUTTI_ASSIGN_OR_RETURN(const auto bytes, kernels::unpack(image));
    auto module = api.load_module(device, bytes.data());
    if (module.ok()) {
      result.module_ = *module;
      result.target_ = image.target;
      return result;
    }
    reasons +=
        std::string(reasons.empty() ? "" : "; ") + image.target + ": " + module.status().message();
  }
  return Status(ErrorCode::kUnsupported, reasons.empty()
                                             ? "this build has no kernels for " + runtime +
                                                   " (it was built without a compiler for GPUs)"
                                             : "no kernels for this GPU: " + reasons);
}

}  // namespace tutti::device
