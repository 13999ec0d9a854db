// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Fake of libnvidia-ml.so.1, never installed. Four GPUs 0000:10:00.0 to 0000:13:00.0.
// Strict: nothing works before nvmlInit_v2, a link number out of range is an error.
//
// FAKE_NVML=pairs     GPUs 0 and 1, 2 and 3 are joined by two links each (default)
//           switch    every GPU has four links to switches
//           hidden    as switch, but the library does not say what is at their other end
//           apart     as switch, but peers cannot reach each other through them
//           none      no links
//           nodriver  nvmlInit fails
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

#include "discover/driver_nvml.hpp"

namespace nvml = tutti::discover::nvml;

struct tutti::discover::nvml::nvmlDevice_st {};

namespace {

constexpr int kUninitialized = 1;
constexpr int kDriverNotLoaded = 9;
constexpr unsigned kGpus = 4;
constexpr unsigned kLinks = 6;  // Two of them inactive.

int references = 0;
nvml::nvmlDevice_st devices[kGpus];

std::string mode() {
  const char* text = std::getenv("FAKE_NVML");
  return text == nullptr ? "pairs" : text;
}

bool has_switches() { return mode() == "switch" || mode() == "hidden" || mode() == "apart"; }

long index_of(nvml::Device device) { return device - devices; }

bool is_known(nvml::Device device) {
  return references > 0 && index_of(device) >= 0 && index_of(device) < long{kGpus};
}

void put_address(long bus, nvml::PciInfo* pci) {
  std::memset(pci, 0, sizeof *pci);
  pci->bus = static_cast<unsigned>(bus);
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:00.0", 0U, pci->bus);
}

bool is_active(long link) {
  return mode() == "none" ? false : has_switches() ? link < 4 : link < 2;
}

}  // namespace

/// Each function is declared with the type in the table, so that the fake cannot drift from it.
#define NVML_CALL(member, symbol)                           \
  extern "C" __attribute__((visibility("default")))         \
  std::remove_pointer_t<decltype(nvml::Functions{}.member)> \
      symbol

NVML_CALL(init, nvmlInit_v2);
NVML_CALL(shutdown, nvmlShutdown);
NVML_CALL(device_count, nvmlDeviceGetCount_v2);
NVML_CALL(device_by_index, nvmlDeviceGetHandleByIndex_v2);
NVML_CALL(device_name, nvmlDeviceGetName);
NVML_CALL(device_uuid, nvmlDeviceGetUUID);
NVML_CALL(device_pci, nvmlDeviceGetPciInfo_v3);
NVML_CALL(link_state, nvmlDeviceGetNvLinkState);
NVML_CALL(link_remote_pci, nvmlDeviceGetNvLinkRemotePciInfo_v2);
NVML_CALL(common_ancestor, nvmlDeviceGetTopologyCommonAncestor);
NVML_CALL(field_values, nvmlDeviceGetFieldValues);
NVML_CALL(link_remote_type, nvmlDeviceGetNvLinkRemoteDeviceType);
NVML_CALL(p2p_status, nvmlDeviceGetP2PStatus);
NVML_CALL(error_string, nvmlErrorString);
/// Sessions that are open; for the test.
extern "C" __attribute__((visibility("default"))) int tutti_fake_nvml_references() {
  return references;
}

int nvmlInit_v2() {
  if (mode() == "nodriver") {
    return kDriverNotLoaded;
  }
  ++references;
  return nvml::kSuccess;
}

int nvmlShutdown() {
  if (references == 0) {
    return kUninitialized;
  }
  --references;
  return nvml::kSuccess;
}

const char* nvmlErrorString(int result) {
  return result == kDriverNotLoaded ? "Driver Not Loaded" : "an error of the fake";
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kGpus;
  return references > 0 ? nvml::kSuccess : kUninitialized;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Device* device) {
  if (references == 0 || index >= kGpus) {
    return references == 0 ? kUninitialized : nvml::kErrorInvalidArgument;
  }
  *device = &devices[index];
  return nvml::kSuccess;
}

int nvmlDeviceGetName(nvml::Device device, char* name, unsigned length) {
  std::snprintf(name, length, "Fake %ld", index_of(device));
  return is_known(device) ? nvml::kSuccess : nvml::kErrorInvalidArgument;
}

int nvmlDeviceGetUUID(nvml::Device device, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-%ld", index_of(device));
  return is_known(device) ? nvml::kSuccess : nvml::kErrorInvalidArgument;
}

int nvmlDeviceGetPciInfo_v3(nvml::Device device, nvml::PciInfo* pci) {
  put_address(0x10 + index_of(device), pci);
  return is_known(device) ? nvml::kSuccess : nvml::kErrorInvalidArgument;
}

int nvmlDeviceGetNvLinkState(nvml::Device device, unsigned link, int* active) {
  if (!is_known(device) || link >= kLinks) {
    return nvml::kErrorInvalidArgument;
  }
  *active = is_active(link) ? nvml::kFeatureEnabled : 0;
  return nvml::kSuccess;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml::Device device, unsigned link, nvml::PciInfo* pci) {
  if (!is_known(device) || !is_active(link)) {
    return nvml::kErrorInvalidArgument;
  }
  if (mode() == "hidden") {
    return nvml::kErrorNotSupported;
  }
  put_address(has_switches() ? 0xa0 + link : 0x10 + (index_of(device) ^ 1), pci);
  return nvml::kSuccess;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(nvml::Device device, unsigned link, int* type) {
  if (!is_known(device) || !is_active(link)) {
    return nvml::kErrorInvalidArgument;
  }
  if (mode() == "hidden") {
    return nvml::kErrorNotSupported;
  }
  *type = has_switches() ? nvml::kRemoteSwitch : nvml::kRemoteGpu;
  return nvml::kSuccess;
}

int nvmlDeviceGetFieldValues(nvml::Device device, int count, nvml::FieldValue* values) {
  if (!is_known(device) || count != 1) {
    return nvml::kErrorInvalidArgument;
  }
  values->value_type = nvml::kValueUnsigned;
  values->value.as_unsigned = 26562;
  values->result =
      values->field_id == nvml::kFieldLinkSpeed ? nvml::kSuccess : nvml::kErrorNotSupported;
  return nvml::kSuccess;
}

int nvmlDeviceGetP2PStatus(nvml::Device a, nvml::Device b, int capability, int* status) {
  if (!is_known(a) || !is_known(b) || capability != nvml::kP2pCapsNvlink) {
    return nvml::kErrorInvalidArgument;
  }
  constexpr int kNotSupported = 5;
  *status = mode() == "apart" ? kNotSupported : nvml::kP2pOk;
  return nvml::kSuccess;
}

int nvmlDeviceGetTopologyCommonAncestor(nvml::Device a, nvml::Device b, int* level) {
  if (!is_known(a) || !is_known(b)) {
    return nvml::kErrorInvalidArgument;
  }
  *level = index_of(a) / 2 == index_of(b) / 2 ? nvml::kTopologyMultiple : nvml::kTopologySystem;
  return nvml::kSuccess;
}
