// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The part of NVIDIA's management library that nvml.cpp calls, in our own declarations: building
// needs no CUDA. Names, values and layouts are NVML's ABI; where the library's symbol has a version
// (_v2), so has the name here. tests/abi compares them with nvml.h where that header is at hand.
#pragma once

#include <cstddef>

namespace tutti::discover::nvml {

using Result = int;  // nvmlReturn_t
using Device = struct nvmlDevice_st*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kErrorInvalidArgument = 2;
inline constexpr Result kErrorNotSupported = 3;

/// nvmlPciInfo_t, as the functions of version 3 (of the remote end: 2) fill it in.
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];  ///< "00000000:1B:00.0"
};

inline constexpr unsigned kLinksMax = 64;  ///< Links are asked for until the library says no.
/// nvmlFieldValue_t
struct FieldValue {
  unsigned field_id;
  unsigned scope_id;
  long long timestamp_us;
  long long latency_us;
  int value_type;
  Result result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_unsigned_long_long;
  } value;
};
/// NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: megabytes a second of each active link, one way.
inline constexpr unsigned kFieldLinkSpeed = 90;
inline constexpr int kValueUnsigned = 1;  // nvmlValueType_t

// nvmlEnableState_t
inline constexpr int kFeatureEnabled = 1;
// nvmlIntNvLinkDeviceType_t
inline constexpr int kRemoteGpu = 0;
inline constexpr int kRemoteSwitch = 2;
// nvmlGpuTopologyLevel_t
inline constexpr int kTopologyInternal = 0;
inline constexpr int kTopologySingle = 10;
inline constexpr int kTopologyMultiple = 20;
inline constexpr int kTopologyHostBridge = 30;
inline constexpr int kTopologyNode = 40;
inline constexpr int kTopologySystem = 50;
// nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t
inline constexpr int kP2pCapsNvlink = 2;
inline constexpr int kP2pOk = 0;

/// X(member, symbol, parameters): every function that we call, with the library's symbol.
#define TUTTI_NVML_FUNCTIONS(X)                                                           \
  X(init, nvmlInit_v2, ())                                                                \
  X(shutdown, nvmlShutdown, ())                                                           \
  X(device_count, nvmlDeviceGetCount_v2, (unsigned* count))                               \
  X(device_by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned index, Device* device))     \
  X(device_name, nvmlDeviceGetName, (Device device, char* name, unsigned length))         \
  X(device_uuid, nvmlDeviceGetUUID, (Device device, char* uuid, unsigned length))         \
  X(device_pci, nvmlDeviceGetPciInfo_v3, (Device device, PciInfo * pci))                  \
  X(link_state, nvmlDeviceGetNvLinkState, (Device device, unsigned link, int* is_active)) \
  X(link_remote_pci, nvmlDeviceGetNvLinkRemotePciInfo_v2,                                 \
    (Device device, unsigned link, PciInfo* pci))                                         \
  X(common_ancestor, nvmlDeviceGetTopologyCommonAncestor, (Device a, Device b, int* level))

/// Functions that a library may lack; null then.
#define TUTTI_NVML_OPTIONAL_FUNCTIONS(X)                                                    \
  X(field_values, nvmlDeviceGetFieldValues, (Device device, int count, FieldValue* values)) \
  X(link_remote_type, nvmlDeviceGetNvLinkRemoteDeviceType,                                  \
    (Device device, unsigned link, int* type))                                              \
  X(p2p_status, nvmlDeviceGetP2PStatus, (Device a, Device b, int capability, int* status))

struct Functions {
#define TUTTI_NVML_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  TUTTI_NVML_FUNCTIONS(TUTTI_NVML_MEMBER)
  TUTTI_NVML_OPTIONAL_FUNCTIONS(TUTTI_NVML_MEMBER)
#undef TUTTI_NVML_MEMBER
  const char* (*error_string)(Result result) = nullptr;  ///< nvmlErrorString
};

}  // namespace tutti::discover::nvml
