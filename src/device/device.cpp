// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which of the three tables this process uses, and the scope that makes a device current.
#include "device/device.hpp"

namespace tutti::device {

Result<bool> Api::is_capturing(Stream /*stream*/) { return false; }

Status Api::check_stream(Stream /*stream*/, int /*device*/) { return {}; }

int Api::stream_device(Stream /*stream*/) { return current_device(); }

Result<void*> Api::allocate_shared(int device, Bytes bytes, Sharing sharing) {
  if (sharing == Sharing::kIpc) {
    return allocate_device(device, bytes);
  }
  return Status(ErrorCode::kUnsupported,
                std::string(name()) + ": memory is shown to other processes by its handles alone");
}

Result<Launcher> Api::create_launcher(Function /*function*/, int /*device*/,
                                      const LaunchShape& /*shape*/, void** /*arguments*/) {
  return Launcher{};
}
Status Api::destroy_launcher(Launcher /*launcher*/) { return {}; }
Status Api::launch_again(Launcher /*launcher*/, const LaunchShape& /*shape*/, Stream /*stream*/,
                         void** /*arguments*/) {
  return Status(ErrorCode::kUnsupported, "this device prepares no launches");
}

Result<std::string> Api::pci_address(int) {
  return Status(ErrorCode::kUnsupported, std::string(name()) + ": no device is on a PCI bus");
}

Result<int> Api::concurrent_processors(int) { return 0; }

namespace {

void take(OpenReport* report, const Api& api, const std::string& reason) {
  report->taken = std::string(api.name()) + ": " + api.library();
  report->reason = reason;
}

std::unique_ptr<Api> refuse(OpenReport* report, const std::string& reason) {
  report->taken = "none";
  report->reason = reason;
  return nullptr;
}

/// CUDA first: a machine with both libraries has NVIDIA GPUs (HIP's library also comes with
/// frameworks), one with AMD GPUs alone has no libcuda.
std::unique_ptr<Api> open_any(OpenReport* report) {
  OpenReport cuda;
  if (std::unique_ptr<Api> api = open_cuda(&cuda)) {
    take(report, *api, "TUTTI_DEVICE=auto takes CUDA when its driver library loads");
    return api;
  }
  OpenReport hip;
  if (std::unique_ptr<Api> api = open_hip(&hip)) {
    take(report, *api, cuda.reason);
    return api;
  }
  return refuse(report, cuda.reason + "; " + hip.reason);
}

}  // namespace

std::unique_ptr<Api> open(const std::string& wanted, OpenReport* report) {
  OpenReport unused;
  if (report == nullptr) {
    report = &unused;
  }
  *report = {};
  if (wanted == "none") {
    return refuse(report, "TUTTI_DEVICE=none");
  }
  if (wanted.empty() || wanted == "auto") {
    return open_any(report);
  }
  std::unique_ptr<Api> api;
  OpenReport inner;
  if (wanted == "cuda") {
    api = open_cuda(&inner);
  } else if (wanted == "hip") {
    api = open_hip(&inner);
  } else if (wanted == "host") {
    api = open_host();
  } else {
    return refuse(report, "TUTTI_DEVICE=" + wanted + ": use auto, cuda, hip, host or none");
  }
  if (api == nullptr) {
    return refuse(report, inner.reason);
  }
  take(report, *api, "TUTTI_DEVICE=" + wanted);
  return api;
}

Result<CurrentDevice> CurrentDevice::set(Api& api, int device) {
  TUTTI_ASSIGN_OR_RETURN(void* previous, api.make_current(device));
  return CurrentDevice(&api, previous);
}

CurrentDevice::CurrentDevice(CurrentDevice&& other) noexcept
    : api_(other.api_), previous_(other.previous_) {
  other.api_ = nullptr;
}

CurrentDevice::~CurrentDevice() {
  if (api_ != nullptr) {
    api_->restore_current(previous_);
  }
}

}  // namespace tutti::device
