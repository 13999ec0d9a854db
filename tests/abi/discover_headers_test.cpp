// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our declarations of the management libraries against the vendors' headers, at compile time: that
// this file compiles is the test. TUTTI_HAVE_NVML_H and TUTTI_HAVE_ROCM_SMI_H say which there is.
#include "abi/fits.hpp"

#if TUTTI_HAVE_NVML_H
#include <nvml.h>

#include "discover/driver_nvml.hpp"
#endif
#if TUTTI_HAVE_ROCM_SMI_H
#include <rocm_smi/rocm_smi.h>

#include "discover/driver_rocm_smi.hpp"
#endif

using tutti::abi::fits;

#if TUTTI_HAVE_NVML_H
namespace nvml = tutti::discover::nvml;

#define TUTTI_CHECK(member, symbol, parameters) \
  static_assert(fits<decltype(nvml::Functions::member), decltype(::symbol)>(), #symbol);
TUTTI_NVML_FUNCTIONS(TUTTI_CHECK)
TUTTI_NVML_OPTIONAL_FUNCTIONS(TUTTI_CHECK)
TUTTI_CHECK(error_string, nvmlErrorString, )
#undef TUTTI_CHECK

static_assert(sizeof(nvml::PciInfo) == sizeof(nvmlPciInfo_t));
static_assert(offsetof(nvml::PciInfo, bus_id) == offsetof(nvmlPciInfo_t, busId));
static_assert(sizeof(nvml::PciInfo::bus_id) == NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE);
static_assert(sizeof(nvml::FieldValue) == sizeof(nvmlFieldValue_t));
static_assert(offsetof(nvml::FieldValue, value_type) == offsetof(nvmlFieldValue_t, valueType));
static_assert(offsetof(nvml::FieldValue, result) == offsetof(nvmlFieldValue_t, nvmlReturn));
static_assert(offsetof(nvml::FieldValue, value) == offsetof(nvmlFieldValue_t, value));
static_assert(nvml::kFieldLinkSpeed == NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON);
static_assert(nvml::kValueUnsigned == NVML_VALUE_TYPE_UNSIGNED_INT);
static_assert(nvml::kLinksMax >= NVML_NVLINK_MAX_LINKS);
static_assert(nvml::kSuccess == NVML_SUCCESS);
static_assert(nvml::kErrorInvalidArgument == NVML_ERROR_INVALID_ARGUMENT);
static_assert(nvml::kErrorNotSupported == NVML_ERROR_NOT_SUPPORTED);
static_assert(nvml::kFeatureEnabled == NVML_FEATURE_ENABLED);
static_assert(nvml::kRemoteGpu == NVML_NVLINK_DEVICE_TYPE_GPU);
static_assert(nvml::kRemoteSwitch == NVML_NVLINK_DEVICE_TYPE_SWITCH);
static_assert(nvml::kTopologyInternal == NVML_TOPOLOGY_INTERNAL);
static_assert(nvml::kTopologySingle == NVML_TOPOLOGY_SINGLE);
static_assert(nvml::kTopologyMultiple == NVML_TOPOLOGY_MULTIPLE);
static_assert(nvml::kTopologyHostBridge == NVML_TOPOLOGY_HOSTBRIDGE);
static_assert(nvml::kTopologyNode == NVML_TOPOLOGY_NODE);
static_assert(nvml::kTopologySystem == NVML_TOPOLOGY_SYSTEM);
static_assert(nvml::kP2pCapsNvlink == NVML_P2P_CAPS_INDEX_NVLINK);
static_assert(nvml::kP2pOk == NVML_P2P_STATUS_OK);
#endif  // TUTTI_HAVE_NVML_H

#if TUTTI_HAVE_ROCM_SMI_H
namespace smi = tutti::discover::rocm_smi;

#define TUTTI_CHECK(member, symbol, parameters) \
  static_assert(fits<decltype(smi::Functions::member), decltype(::symbol)>(), #symbol);
TUTTI_ROCM_SMI_FUNCTIONS(TUTTI_CHECK)
TUTTI_ROCM_SMI_OPTIONAL_FUNCTIONS(TUTTI_CHECK)
#undef TUTTI_CHECK

static_assert(smi::kSuccess == RSMI_STATUS_SUCCESS);
static_assert(smi::kLinkPcie == RSMI_IOLINK_TYPE_PCIEXPRESS);
static_assert(smi::kLinkXgmi == RSMI_IOLINK_TYPE_XGMI);
#endif  // TUTTI_HAVE_ROCM_SMI_H
