// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The part of AMD's ROCm SMI library that rocm_smi.cpp calls, in our own declarations: building
// needs no ROCm.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::discover::rocm_smi {

using Result = int;  // rsmi_status_t

inline constexpr Result kSuccess = 0;
// RSMI_IO_LINK_TYPE
inline constexpr int kLinkPcie = 1;
inline constexpr int kLinkXgmi = 2;

/// X(member, symbol, parameters): every function that we call, with the library's symbol.
#define TUTTI_ROCM_SMI_FUNCTIONS(X)                                                         \
  X(init, rsmi_init, (std::uint64_t flags))                                                 \
  X(shut_down, rsmi_shut_down, ())                                                          \
  X(device_count, rsmi_num_monitor_devices, (std::uint32_t * count))                        \
  X(device_name, rsmi_dev_name_get, (std::uint32_t device, char* name, std::size_t length)) \
  X(device_pci, rsmi_dev_pci_id_get, (std::uint32_t device, std::uint64_t * bdfid))         \
  X(link_type, rsmi_topo_get_link_type,                                                     \
    (std::uint32_t from, std::uint32_t to, std::uint64_t * hops, int* type))

/// Functions that a library may lack; null then.
#define TUTTI_ROCM_SMI_OPTIONAL_FUNCTIONS(X)   \
  X(link_bandwidth, rsmi_minmax_bandwidth_get, \
    (std::uint32_t from, std::uint32_t to, std::uint64_t * least_mb_s, std::uint64_t * most_mb_s))

struct Functions {
#define TUTTI_ROCM_SMI_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  TUTTI_ROCM_SMI_FUNCTIONS(TUTTI_ROCM_SMI_MEMBER)
  TUTTI_ROCM_SMI_OPTIONAL_FUNCTIONS(TUTTI_ROCM_SMI_MEMBER)
#undef TUTTI_ROCM_SMI_MEMBER
};

}  // namespace tutti::discover::rocm_smi
