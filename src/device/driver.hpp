// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What CUDA's driver API and the HIP runtime have alike, since HIP took it from CUDA: result codes,
// and functions with the same parameters. Handles are those of device.hpp. What each has of its own
// is in driver_cuda.hpp and driver_hip.hpp; tests/abi/device_headers_test.cpp compares all of it
// with the real headers.
#pragma once

#include <cstddef>

#include "base/dynamic_library.hpp"
#include "device/device.hpp"

namespace tutti::device::driver {

using Result = int;  // CUresult, hipError_t
using Device = int;  // CUdevice, hipDevice_t

struct Uuid {
  unsigned char bytes[16];
};
struct IpcMemHandle {
  unsigned char reserved[64];
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
inline constexpr Result kErrorSystemNotReady = 802;  // CUDA's alone.

// CUpointer_attribute, hipPointer_attribute
inline constexpr int kPointerAttributeMemoryType = 2;
inline constexpr int kPointerAttributeIsManaged = 8;
inline constexpr int kPointerAttributeDeviceOrdinal = 9;

inline constexpr unsigned kHostPortable = 1;
inline constexpr unsigned kHostMapped = 2;
inline constexpr unsigned kIpcMemLazyEnablePeerAccess = 1;
inline constexpr unsigned kStreamNonBlocking = 1;
// CUstreamCaptureStatus and CUstreamCaptureMode, hipStreamCaptureStatus and hipStreamCaptureMode
inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kCaptureModeGlobal = 0;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr unsigned kEventDisableTiming = 2;

/// What a function has returned, and which one it was.
struct [[nodiscard]] Outcome {
  Result code;
  const char* symbol;
  bool operator==(Result other) const { return code == other; }
};

/// A function of the library: its pointer and the symbol it was found by.
template <class Signature>
class LibraryFunction;
template <class... Parameters>
class LibraryFunction<Result(Parameters...)> {
 public:
  using Pointer = Result (*)(Parameters...);

  bool resolve(const DynamicLibrary& library, const char* symbol) {
    symbol_ = symbol;
    return library.resolve(symbol, &function_);
  }
  explicit operator bool() const { return function_ != nullptr; }
  const char* symbol() const { return symbol_; }
  Outcome operator()(Parameters... parameters) const { return {function_(parameters...), symbol_}; }

 private:
  Pointer function_ = nullptr;
  const char* symbol_ = "";
};

/// X(member, CUDA's symbol, HIP's symbol, parameters). Where CUDA's has a version (_v2), the plain
/// one is an older ABI.
#define TUTTI_DRIVER_FUNCTIONS(X)                                                                \
  X(init, cuInit, hipInit, (unsigned flags))                                                     \
  X(device_get, cuDeviceGet, hipDeviceGet, (Device * device, int ordinal))                       \
  X(device_get_count, cuDeviceGetCount, hipGetDeviceCount, (int* count))                         \
  X(device_get_name, cuDeviceGetName, hipDeviceGetName, (char* name, int bytes, Device device))  \
  X(synchronize, cuCtxSynchronize, hipDeviceSynchronize, ())                                     \
  X(get_stream_priority_range, cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange,     \
    (int* least, int* greatest))                                                                 \
  X(host_alloc, cuMemHostAlloc, hipHostMalloc,                                                   \
    (void** pointer, std::size_t bytes, unsigned flags))                                         \
  X(host_free, cuMemFreeHost, hipHostFree, (void* pointer))                                      \
  X(stream_create_with_priority, cuStreamCreateWithPriority, hipStreamCreateWithPriority,        \
    (Stream * stream, unsigned flags, int priority))                                             \
  X(stream_destroy, cuStreamDestroy_v2, hipStreamDestroy, (Stream stream))                       \
  X(stream_query, cuStreamQuery, hipStreamQuery, (Stream stream))                                \
  X(stream_synchronize, cuStreamSynchronize, hipStreamSynchronize, (Stream stream))              \
  X(stream_wait_event, cuStreamWaitEvent, hipStreamWaitEvent,                                    \
    (Stream stream, Event event, unsigned flags))                                                \
  X(event_create, cuEventCreate, hipEventCreateWithFlags, (Event * event, unsigned flags))       \
  X(event_destroy, cuEventDestroy_v2, hipEventDestroy, (Event event))                            \
  X(event_record, cuEventRecord, hipEventRecord, (Event event, Stream stream))                   \
  X(event_query, cuEventQuery, hipEventQuery, (Event event))                                     \
  X(module_load_data, cuModuleLoadData, hipModuleLoadData, (Module * module, const void* image)) \
  X(module_unload, cuModuleUnload, hipModuleUnload, (Module module))                             \
  X(module_get_function, cuModuleGetFunction, hipModuleGetFunction,                              \
    (Function * function, Module module, const char* name))                                      \
  X(launch_kernel, cuLaunchKernel, hipModuleLaunchKernel,                                        \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments, \
     void** extra))

/// Functions that a library may lack.
#define TUTTI_DRIVER_OPTIONAL_FUNCTIONS(X)                                                        \
  X(device_get_uuid, cuDeviceGetUuid, hipDeviceGetUuid, (Uuid * uuid, Device device))             \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId, hipDeviceGetPCIBusId,                             \
    (char* text, int bytes, Device device))                                                       \
  X(stream_is_capturing, cuStreamIsCapturing, hipStreamIsCapturing, (Stream stream, int* status)) \
  X(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode,                              \
    hipThreadExchangeStreamCaptureMode, (int* mode))

struct Functions {
#define TUTTI_DRIVER_MEMBER(member, cuda, hip, parameters) \
  LibraryFunction<Result parameters> member;
  TUTTI_DRIVER_FUNCTIONS(TUTTI_DRIVER_MEMBER)
  TUTTI_DRIVER_OPTIONAL_FUNCTIONS(TUTTI_DRIVER_MEMBER)
#undef TUTTI_DRIVER_MEMBER
};

}  // namespace tutti::device::driver
