// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// GPUs and their links by AMD's ROCm SMI library, found by dlopen.
#include <cstdio>

#include "base/dynamic_library.hpp"
#include "discover/discover.hpp"
#include "discover/driver_rocm_smi.hpp"

namespace tutti::discover {
namespace {

using topology::Link;
using topology::LinkKind;

Status unavailable(const std::string& why) { return {ErrorCode::kUnavailable, "XGMI: " + why}; }

/// Domain in bits 32 and up, bus in 8 to 15, device in 3 to 7, function in 0 to 2.
std::string address_of(std::uint64_t bdfid) {
  char text[32];
  std::snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", static_cast<unsigned>(bdfid >> 32),
                static_cast<unsigned>(bdfid >> 8 & 0xff), static_cast<unsigned>(bdfid >> 3 & 0x1f),
                static_cast<unsigned>(bdfid & 7));
  return text;
}

Result<topology::VendorFacts> facts_of(const rocm_smi::Functions& smi) {
  topology::VendorFacts facts{.is_known = true, .gpus = {}, .links = {}};
  std::uint32_t count = 0;
  if (const auto result = smi.device_count(&count); result != rocm_smi::kSuccess) {
    return unavailable("rsmi_num_monitor_devices: status " + std::to_string(result));
  }
  for (std::uint32_t device = 0; device < count; ++device) {
    topology::Gpu gpu;
    char name[128] = {};
    if (smi.device_name(device, name, sizeof(name) - 1) == rocm_smi::kSuccess) {
      gpu.name = name;
    }
    std::uint64_t bdfid = 0;
    if (smi.device_pci(device, &bdfid) == rocm_smi::kSuccess) {
      gpu.pci = address_of(bdfid);
    }
    facts.gpus.push_back(gpu);
  }
  for (std::uint32_t a = 0; a < count; ++a) {
    for (std::uint32_t b = a + 1; b < count; ++b) {
      std::uint64_t hops = 0;
      int type = 0;
      if (smi.link_type(a, b, &hops, &type) != rocm_smi::kSuccess || type != rocm_smi::kLinkXgmi) {
        continue;  // PCI is sysfs's to tell.
      }
      Link link{.a = static_cast<int>(a), .b = static_cast<int>(b), .kind = LinkKind::kXgmi};
      std::uint64_t least_mb_s = 0;
      std::uint64_t most_mb_s = 0;
      if (smi.link_bandwidth != nullptr &&
          smi.link_bandwidth(a, b, &least_mb_s, &most_mb_s) == rocm_smi::kSuccess) {
        link.rate_mbit_s = most_mb_s * 8;
      }
      facts.links.push_back(link);
    }
  }
  return facts;
}

}  // namespace

Result<topology::VendorFacts> ask_rocm_smi() {
  Result<DynamicLibrary> library = Status(ErrorCode::kUnavailable, "");
  for (const char* name : {"librocm_smi64.so.1", "librocm_smi64.so.7", "librocm_smi64.so"}) {
    library = DynamicLibrary::open(name);
    if (library.ok()) {
      break;
    }
  }
  if (!library.ok()) {
    return unavailable(library.status().message());
  }
  rocm_smi::Functions functions;
#define TUTTI_ROCM_SMI_RESOLVE(member, symbol, parameters)    \
  if (!library->resolve(#symbol, &functions.member)) {        \
    return unavailable(library->path() + " has no " #symbol); \
  }
  TUTTI_ROCM_SMI_FUNCTIONS(TUTTI_ROCM_SMI_RESOLVE)
#undef TUTTI_ROCM_SMI_RESOLVE
#define TUTTI_ROCM_SMI_RESOLVE(member, symbol, parameters) \
  library->resolve(#symbol, &functions.member);
  TUTTI_ROCM_SMI_OPTIONAL_FUNCTIONS(TUTTI_ROCM_SMI_RESOLVE)
#undef TUTTI_ROCM_SMI_RESOLVE
  if (const auto result = functions.init(0); result != rocm_smi::kSuccess) {
    return unavailable("rsmi_init: status " + std::to_string(result));
  }
  auto facts = facts_of(functions);
  (void)functions.shut_down();
  return facts;
}

}  // namespace tutti::discover
