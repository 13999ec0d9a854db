// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Fake of librocm_smi64.so.1, never installed. Three GPUs; 0 and 1 are joined by XGMI.
// FAKE_ROCM_SMI=fail makes rsmi_init fail.
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "discover/driver_rocm_smi.hpp"

namespace smi = tutti::discover::rocm_smi;

namespace {
constexpr std::uint32_t kGpus = 3;
constexpr int kInvalid = 1;
bool initialized = false;
}  // namespace

/// Each function is declared with the type in the table, so that the fake cannot drift from it.
#define SMI_CALL(member, symbol)                           \
  extern "C" __attribute__((visibility("default")))        \
  std::remove_pointer_t<decltype(smi::Functions{}.member)> \
      symbol

SMI_CALL(init, rsmi_init);
SMI_CALL(shut_down, rsmi_shut_down);
SMI_CALL(device_count, rsmi_num_monitor_devices);
SMI_CALL(device_name, rsmi_dev_name_get);
SMI_CALL(device_pci, rsmi_dev_pci_id_get);
SMI_CALL(link_type, rsmi_topo_get_link_type);
SMI_CALL(link_bandwidth, rsmi_minmax_bandwidth_get);

int rsmi_init(std::uint64_t) {
  initialized = std::getenv("FAKE_ROCM_SMI") == nullptr;
  return initialized ? smi::kSuccess : 8;
}

int rsmi_shut_down() {
  initialized = false;
  return smi::kSuccess;
}

int rsmi_num_monitor_devices(std::uint32_t* count) {
  *count = kGpus;
  return initialized ? smi::kSuccess : kInvalid;
}

int rsmi_dev_name_get(std::uint32_t device, char* name, std::size_t length) {
  std::snprintf(name, length, "Fake %u", device);
  return initialized && device < kGpus ? smi::kSuccess : kInvalid;
}

int rsmi_dev_pci_id_get(std::uint32_t device, std::uint64_t* bdfid) {
  // Domain 1, device 2, function 3.
  *bdfid = std::uint64_t{1} << 32 | (std::uint64_t{0x20} + device) << 8 | 2 << 3 | 3;
  return initialized && device < kGpus ? smi::kSuccess : kInvalid;
}

int rsmi_topo_get_link_type(std::uint32_t from, std::uint32_t to, std::uint64_t* hops, int* type) {
  *hops = 1;
  *type = from < 2 && to < 2 ? smi::kLinkXgmi : smi::kLinkPcie;
  return initialized && from < kGpus && to < kGpus ? smi::kSuccess : kInvalid;
}

int rsmi_minmax_bandwidth_get(std::uint32_t, std::uint32_t, std::uint64_t* least,
                              std::uint64_t* most) {
  *least = 50'000;
  *most = 64'000;
  return initialized ? smi::kSuccess : kInvalid;
}
