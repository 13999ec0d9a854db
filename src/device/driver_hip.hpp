// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The part of the HIP runtime that hip.cpp calls, in our own declarations: building needs no
// ROCm. Only what kept its ABI from ROCm 5 to 7. The two traps are left out on purpose:
//  - hipPointerAttribute_t was laid out anew in ROCm 6 (its first field and the values of
//    hipMemoryType changed), and so was hipDeviceProp_t;
//  - the same call asked for single attributes, hipDrvPointerGetAttributes, fills plain integers
//    and, unlike hipPointerGetAttributes, does not set the thread's last error for a host pointer.
// tests/abi/device_headers_test.cpp compares this file with the real hip_runtime_api.h.
#pragma once

#include <cstddef>

namespace tutti::device::hip {

using Result = int;           // hipError_t
using Device = int;           // hipDevice_t
using DevicePointer = void*;  // hipDeviceptr_t
using Stream = struct ihipStream_t*;
using Event = struct ihipEvent_t*;
using Module = struct ihipModule_t*;
using Function = struct ihipModuleSymbol_t*;

struct Uuid {
  char bytes[16];
};
struct IpcMemHandle {
  char reserved[64];
};

inline constexpr Result kSuccess = 0;
inline constexpr Result kErrorInvalidValue = 1;
inline constexpr Result kErrorOutOfMemory = 2;
inline constexpr Result kErrorNotInitialized = 3;
inline constexpr Result kErrorDeinitialized = 4;
inline constexpr Result kErrorNoDevice = 100;
inline constexpr Result kErrorInvalidDevice = 101;
inline constexpr Result kErrorInvalidContext = 201;
inline constexpr Result kErrorInvalidHandle = 400;
inline constexpr Result kErrorNotFound = 500;
inline constexpr Result kErrorNotReady = 600;
inline constexpr Result kErrorContextIsDestroyed = 709;
inline constexpr Result kErrorNotSupported = 801;

// hipPointer_attribute
inline constexpr int kPointerAttributeMemoryType = 2;
inline constexpr int kPointerAttributeIsManaged = 8;
inline constexpr int kPointerAttributeDeviceOrdinal = 9;
// hipMemoryType: 0 is "host" up to ROCm 5 and "unregistered" later, host memory for us both times.
inline constexpr unsigned kMemoryTypeDeviceRocm5 = 1;
inline constexpr unsigned kMemoryTypeDeviceRocm6 = 2;

inline constexpr int kMemcpyDefault = 4;  // hipMemcpyKind
inline constexpr unsigned kStreamNonBlocking = 1;
// hipStreamCaptureStatus, hipStreamCaptureMode
inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kCaptureModeGlobal = 0;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostMallocPortable = 1;
inline constexpr unsigned kHostMallocMapped = 2;
inline constexpr unsigned kHostMallocCoherent = 0x40000000;
inline constexpr unsigned kDeviceMallocFinegrained = 1;
inline constexpr unsigned kDeviceMallocUncached = 3;  // Since ROCm 5.7.
inline constexpr unsigned kIpcMemLazyEnablePeerAccess = 1;
inline constexpr unsigned kIpcMemLazyEnablePeerAccessOld = 0;  // ROCm 5.2 and before, at least.

/// X(member, symbol, parameters): every function that we call.
#define TUTTI_HIP_FUNCTIONS(X)                                                                   \
  X(init, hipInit, (unsigned flags))                                                             \
  X(runtime_get_version, hipRuntimeGetVersion, (int* version))                                   \
  X(get_last_error, hipGetLastError, ())                                                         \
  X(get_device_count, hipGetDeviceCount, (int* count))                                           \
  X(get_device, hipGetDevice, (int* device))                                                     \
  X(set_device, hipSetDevice, (int device))                                                      \
  X(device_get, hipDeviceGet, (Device * device, int ordinal))                                    \
  X(device_get_name, hipDeviceGetName, (char* name, int bytes, Device device))                   \
  X(device_get_pci_bus_id, hipDeviceGetPCIBusId, (char* text, int bytes, int device))            \
  X(device_synchronize, hipDeviceSynchronize, ())                                                \
  X(device_get_stream_priority_range, hipDeviceGetStreamPriorityRange,                           \
    (int* least, int* greatest))                                                                 \
  X(drv_pointer_get_attributes, hipDrvPointerGetAttributes,                                      \
    (unsigned count, int* attributes, void** data, DevicePointer pointer))                       \
  X(memcpy, hipMemcpy, (void* destination, const void* source, std::size_t bytes, int kind))     \
  X(memcpy_async, hipMemcpyAsync,                                                                \
    (void* destination, const void* source, std::size_t bytes, int kind, Stream stream))         \
  X(memset_async, hipMemsetAsync,                                                                \
    (void* destination, int value, std::size_t bytes, Stream stream))                            \
  X(malloc, hipMalloc, (void** pointer, std::size_t bytes))                                      \
  X(free, hipFree, (void* pointer))                                                              \
  X(host_malloc, hipHostMalloc, (void** pointer, std::size_t bytes, unsigned flags))             \
  X(host_free, hipHostFree, (void* pointer))                                                     \
  X(stream_create_with_priority, hipStreamCreateWithPriority,                                    \
    (Stream * stream, unsigned flags, int priority))                                             \
  X(stream_destroy, hipStreamDestroy, (Stream stream))                                           \
  X(stream_query, hipStreamQuery, (Stream stream))                                               \
  X(stream_synchronize, hipStreamSynchronize, (Stream stream))                                   \
  X(stream_wait_event, hipStreamWaitEvent, (Stream stream, Event event, unsigned flags))         \
  X(event_create_with_flags, hipEventCreateWithFlags, (Event * event, unsigned flags))           \
  X(event_destroy, hipEventDestroy, (Event event))                                               \
  X(event_record, hipEventRecord, (Event event, Stream stream))                                  \
  X(event_query, hipEventQuery, (Event event))                                                   \
  X(ipc_get_mem_handle, hipIpcGetMemHandle, (IpcMemHandle * handle, void* pointer))              \
  X(ipc_open_mem_handle, hipIpcOpenMemHandle,                                                    \
    (void** pointer, IpcMemHandle handle, unsigned flags))                                       \
  X(ipc_close_mem_handle, hipIpcCloseMemHandle, (void* pointer))                                 \
  X(module_load_data, hipModuleLoadData, (Module * module, const void* image))                   \
  X(module_unload, hipModuleUnload, (Module module))                                             \
  X(module_get_function, hipModuleGetFunction,                                                   \
    (Function * function, Module module, const char* name))                                      \
  X(launch_kernel, hipModuleLaunchKernel,                                                        \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments, \
     void** extra))

/// Functions that a library may lack (before ROCm 5.2); null then.
#define TUTTI_HIP_OPTIONAL_FUNCTIONS(X)                                            \
  X(ext_malloc_with_flags, hipExtMallocWithFlags,                                  \
    (void** pointer, std::size_t bytes, unsigned flags))                           \
  X(stream_is_capturing, hipStreamIsCapturing, (Stream stream, int* status))       \
  X(thread_exchange_capture_mode, hipThreadExchangeStreamCaptureMode, (int* mode)) \
  X(device_get_uuid, hipDeviceGetUuid, (Uuid * uuid, Device device))

struct Functions {
  const char* (*get_error_name)(Result error) = nullptr;    // hipGetErrorName
  const char* (*get_error_string)(Result error) = nullptr;  // hipGetErrorString
#define TUTTI_HIP_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  TUTTI_HIP_FUNCTIONS(TUTTI_HIP_MEMBER)
  TUTTI_HIP_OPTIONAL_FUNCTIONS(TUTTI_HIP_MEMBER)
#undef TUTTI_HIP_MEMBER
};

}  // namespace tutti::device::hip
