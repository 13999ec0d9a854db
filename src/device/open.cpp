// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which of the three tables this process uses.
#include <dlfcn.h>

#include "base/dynamic_library.hpp"
#include "device/device.hpp"

namespace tutti::device {
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

/// Its object lies beside the one that holds this code, libtutti.so. Programs that hold this code
/// themselves are linked to it, or have it in the linker's path.
std::unique_ptr<Api> open_host(OpenReport* report) {
  const std::string file = "libtutti-host-device.so";
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&open_host), &own);
  const std::string own_file = own.dli_fname == nullptr ? "" : own.dli_fname;
  const std::string beside = own_file.substr(0, own_file.rfind('/') + 1) + file;
  Result<DynamicLibrary> library = DynamicLibrary::open(beside);
  const std::string reason = library.ok() ? "" : library.status().message();
  if (!library.ok()) {
    library = DynamicLibrary::open(file);
  }
  if (!library.ok()) {
    return refuse(report,
                  "host: " + reason + "; remedy: " + file +
                      " of the same build (`make product`; a wheel has none) beside libtutti.so");
  }
  Api* (*make)(const char*) = nullptr;
  Api* const api =
      library->resolve("tutti_host_device_open", &make) ? make(TUTTI_DEVICE_TABLE) : nullptr;
  if (api == nullptr) {
    return refuse(report, "host: " + library->path() + " is of another build of Tutti; remedy: " +
                              "libtutti.so and " + file + " from one build");
  }
  return std::unique_ptr<Api>(api);
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
    api = open_host(&inner);
  } else {
    return refuse(report, "TUTTI_DEVICE=" + wanted + ": use auto, cuda, hip, host or none");
  }
  if (api == nullptr) {
    return refuse(report, inner.reason);
  }
  take(report, *api, "TUTTI_DEVICE=" + wanted);
  return api;
}

}  // namespace tutti::device
