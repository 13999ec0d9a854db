// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/device_combine.hpp"

#include <algorithm>
#include <utility>

#include "device/kernels/direct_arguments.hpp"
#include "runners/direct/deferred_free.hpp"

namespace tutti::runners {

namespace kernels = device::kernels;

namespace {

constexpr std::uint32_t kBlocksMax = 64;

}  // namespace

DeviceCombine::DeviceCombine(DeviceCombine&& other) noexcept
    : api_(other.api_),
      device_(other.device_),
      module_(std::move(other.module_)),
      function_(std::exchange(other.function_, nullptr)) {}

DeviceCombine::~DeviceCombine() {
  if (function_ != nullptr) {
    free_when_alone(*api_, device_, {.module = std::move(module_)});
  }
}

void DeviceCombine::abandon() {
  module_.abandon();
  function_ = nullptr;
}

Result<DeviceCombine> DeviceCombine::create(device::Api& api, int device) {
  DeviceCombine result;
  result.api_ = &api;
  result.device_ = device;
  TUTTI_ASSIGN_OR_RETURN(result.module_, device::KernelModule::load(api, device));
  TUTTI_ASSIGN_OR_RETURN(result.function_, result.module_.find("combine_any_8"));
  return result;
}

Status DeviceCombine::operator()(void* inout, const void* in, std::uint64_t count,
                                 select::DataType type, select::ReduceOp op,
                                 device::Stream stream) const {
  if (count == 0) {
    return {};
  }
  const auto lanes = static_cast<std::uint32_t>(api_->warp_threads());
  const std::uint32_t warps = lanes == 1 ? 1 : device::kBlockThreads / lanes;
  kernels::DirectArguments a{};
  a.send[0] = in;
  a.send[1] = inout;
  a.recv[0] = inout;
  a.send_bytes[0] = count * select::size_of(type);
  const auto bits = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(inout);
  a.alignment = bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
  a.type = static_cast<kernels::Type>(type);
  a.op = static_cast<kernels::Op>(op);
  a.warps = warps;
  const std::uint64_t units = (a.send_bytes[0] + kernels::kUnitBytes - 1) / kernels::kUnitBytes;
  const std::uint64_t block_units = static_cast<std::uint64_t>(warps) * lanes;
  a.blocks = static_cast<kernels::Word>(
      std::clamp<std::uint64_t>((units + block_units - 1) / block_units, 1, kBlocksMax));
  void* arguments[] = {&a};
  return api_->launch(function_, {.grid = {a.blocks, 1, 1}, .block = {warps * lanes, 1, 1}}, stream,
                      arguments);
}

}  // namespace tutti::runners
