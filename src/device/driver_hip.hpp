// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The part of the HIP runtime that hip.cpp calls beside what CUDA has too (driver.hpp), in our own
// declarations: building needs no ROCm. Only what kept its ABI from ROCm 5 to 7. The two traps are
// left out on purpose:
//  - hipPointerAttribute_t was laid out anew in ROCm 6 (its first field and the values of
//    hipMemoryType changed), and so was hipDeviceProp_t;
//  - the same call asked for single attributes, hipDrvPointerGetAttributes, fills plain integers
//    and, unlike hipPointerGetAttributes, does not set the thread's last error for a host pointer.
#pragma once

#include <cstddef>

#include "device/driver.hpp"

namespace tutti::device::hip {

using namespace driver;  // Completed here.

using DevicePointer = void*;  // hipDeviceptr_t

// hipMemoryType: 0 is "host" up to ROCm 5 and "unregistered" later, host memory for us both times.
inline constexpr unsigned kMemoryTypeDeviceRocm5 = 1;
inline constexpr unsigned kMemoryTypeDeviceRocm6 = 2;

inline constexpr int kMemcpyDefault = 4;  // hipMemcpyKind
inline constexpr unsigned kHostMallocCoherent = 0x40000000;
inline constexpr unsigned kDeviceMallocFinegrained = 1;
inline constexpr unsigned kDeviceMallocUncached = 3;  // Since ROCm 5.7.
// Of kIpcMemLazyEnablePeerAccess in ROCm 5.2 and before, at least.
inline constexpr unsigned kIpcMemLazyEnablePeerAccessOld = 0;

/// X(member, symbol, parameters): every other function that we call.
#define TUTTI_HIP_FUNCTIONS(X)                                                               \
  X(runtime_get_version, hipRuntimeGetVersion, (int* version))                               \
  X(get_last_error, hipGetLastError, ())                                                     \
  X(get_device, hipGetDevice, (int* device))                                                 \
  X(set_device, hipSetDevice, (int device))                                                  \
  X(drv_pointer_get_attributes, hipDrvPointerGetAttributes,                                  \
    (unsigned count, int* attributes, void** data, DevicePointer pointer))                   \
  X(memcpy, hipMemcpy, (void* destination, const void* source, std::size_t bytes, int kind)) \
  X(memcpy_async, hipMemcpyAsync,                                                            \
    (void* destination, const void* source, std::size_t bytes, int kind, Stream stream))     \
  X(memset_async, hipMemsetAsync,                                                            \
    (void* destination, int value, std::size_t bytes, Stream stream))                        \
  X(malloc, hipMalloc, (void** pointer, std::size_t bytes))                                  \
  X(free, hipFree, (void* pointer))                                                          \
  X(ipc_get_mem_handle, hipIpcGetMemHandle, (IpcMemHandle * handle, void* pointer))          \
  X(ipc_open_mem_handle, hipIpcOpenMemHandle,                                                \
    (void** pointer, IpcMemHandle handle, unsigned flags))                                   \
  X(ipc_close_mem_handle, hipIpcCloseMemHandle, (void* pointer))

/// Functions that a library may lack (before ROCm 5.2).
#define TUTTI_HIP_OPTIONAL_FUNCTIONS(X)           \
  X(ext_malloc_with_flags, hipExtMallocWithFlags, \
    (void** pointer, std::size_t bytes, unsigned flags))

struct Functions {
  const char* (*get_error_name)(Result error) = nullptr;    // hipGetErrorName
  const char* (*get_error_string)(Result error) = nullptr;  // hipGetErrorString
#define TUTTI_HIP_MEMBER(member, symbol, parameters) LibraryFunction<Result parameters> member;
  TUTTI_HIP_FUNCTIONS(TUTTI_HIP_MEMBER)
  TUTTI_HIP_OPTIONAL_FUNCTIONS(TUTTI_HIP_MEMBER)
#undef TUTTI_HIP_MEMBER
};

}  // namespace tutti::device::hip
