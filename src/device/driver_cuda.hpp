// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The part of CUDA's driver API that cuda.cpp calls, in our own declarations: building needs no
// CUDA. Names, values and layouts are NVIDIA's ABI, stable since CUDA 11; where the library's
// symbol has a version (_v2), so has the name here, because the plain symbol is an older ABI.
// tests/abi/device_headers_test.cpp compares this file with the real cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::device::cuda {

using Result = int;                   // CUresult
using Device = int;                   // CUdevice
using DevicePointer = std::uint64_t;  // CUdeviceptr_v2
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;

using Graph = struct CUgraph_st*;
using GraphNode = struct CUgraphNode_st*;
using GraphExec = struct CUgraphExec_st*;

/// CUDA_KERNEL_NODE_PARAMS_v2 (CUDA 12).
struct KernelNodeParameters {
  Function function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  Context context;
};
/// CUlaunchAttributeValue: a union of 64 bytes.
union LaunchAttributeValue {
  char bytes[64];
  int priority;
};

struct Uuid {
  unsigned char bytes[16];
};
struct IpcMemHandle {
  unsigned char reserved[64];
};
/// CUmemGenericAllocationHandle
using MemHandle = unsigned long long;
struct FabricHandle {
  unsigned char data[64];
};
struct MemLocation {
  int type;
  int id;
};
/// CUmemAllocationProp
struct MemProperties {
  int type;
  int handle_types;
  MemLocation location;
  void* win32_meta_data;
  unsigned char compression_type;
  unsigned char gpu_direct_rdma_capable;
  unsigned short usage;
  unsigned char reserved[4];
};
/// CUmemAccessDesc
struct MemAccess {
  MemLocation location;
  int flags;
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
inline constexpr Result kErrorSystemNotReady = 802;

// CUdevice_attribute
inline constexpr int kDeviceAttributeMultiprocessorCount = 16;
inline constexpr int kDeviceAttributeMpsEnabled = 133;  // CUDA 12.2 and later.

// CUpointer_attribute
inline constexpr int kPointerAttributeContext = 1;
inline constexpr int kPointerAttributeMemoryType = 2;
inline constexpr int kPointerAttributeIsManaged = 8;
inline constexpr int kPointerAttributeDeviceOrdinal = 9;
// CUmemorytype
inline constexpr unsigned kMemoryTypeDevice = 2;

inline constexpr unsigned kStreamNonBlocking = 1;
inline const Stream kStreamLegacy = reinterpret_cast<Stream>(1);  // CU_STREAM_LEGACY
// CUstreamCaptureStatus, CUstreamCaptureMode
inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kCaptureModeGlobal = 0;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kMemHostAllocPortable = 1;
inline constexpr unsigned kMemHostAllocDeviceMap = 2;
inline constexpr unsigned kIpcMemLazyEnablePeerAccess = 1;

// CUmemAllocationType, CUmemLocationType, CUmemAllocationHandleType, CUmemAccess_flags,
// CUmemAllocationGranularity_flags
inline constexpr int kMemAllocationPinned = 1;
inline constexpr int kMemLocationDevice = 1;
inline constexpr int kMemHandlePosixDescriptor = 1;
inline constexpr int kMemHandleFabric = 8;
inline constexpr int kMemAccessReadWrite = 3;
inline constexpr int kMemGranularityMinimum = 0;

// CUlaunchAttributeID
inline constexpr int kLaunchAttributePriority = 8;

/// X(member, symbol, parameters): every function that we call, with the library's symbol.
#define TUTTI_CUDA_FUNCTIONS(X)                                                                  \
  X(init, cuInit, (unsigned flags))                                                              \
  X(driver_get_version, cuDriverGetVersion, (int* version))                                      \
  X(get_error_name, cuGetErrorName, (Result error, const char** text))                           \
  X(get_error_string, cuGetErrorString, (Result error, const char** text))                       \
  X(device_get, cuDeviceGet, (Device * device, int ordinal))                                     \
  X(device_get_count, cuDeviceGetCount, (int* count))                                            \
  X(device_get_name, cuDeviceGetName, (char* name, int bytes, Device device))                    \
  X(device_get_attribute, cuDeviceGetAttribute, (int* value, int attribute, Device device))      \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (Context * context, Device device))            \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (Device device))                          \
  X(primary_ctx_get_state, cuDevicePrimaryCtxGetState,                                           \
    (Device device, unsigned* flags, int* active))                                               \
  X(ctx_push_current, cuCtxPushCurrent_v2, (Context context))                                    \
  X(ctx_pop_current, cuCtxPopCurrent_v2, (Context * context))                                    \
  X(ctx_get_current, cuCtxGetCurrent, (Context * context))                                       \
  X(ctx_get_device, cuCtxGetDevice, (Device * device))                                           \
  X(ctx_synchronize, cuCtxSynchronize, ())                                                       \
  X(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, (int* least, int* greatest))     \
  X(pointer_get_attributes, cuPointerGetAttributes,                                              \
    (unsigned count, int* attributes, void** data, DevicePointer pointer))                       \
  X(memcpy, cuMemcpy, (DevicePointer destination, DevicePointer source, std::size_t bytes))      \
  X(memcpy_async, cuMemcpyAsync,                                                                 \
    (DevicePointer destination, DevicePointer source, std::size_t bytes, Stream stream))         \
  X(memset_d8_async, cuMemsetD8Async,                                                            \
    (DevicePointer destination, unsigned char value, std::size_t count, Stream stream))          \
  X(mem_alloc, cuMemAlloc_v2, (DevicePointer * pointer, std::size_t bytes))                      \
  X(mem_free, cuMemFree_v2, (DevicePointer pointer))                                             \
  X(mem_host_alloc, cuMemHostAlloc, (void** pointer, std::size_t bytes, unsigned flags))         \
  X(mem_free_host, cuMemFreeHost, (void* pointer))                                               \
  X(stream_create_with_priority, cuStreamCreateWithPriority,                                     \
    (Stream * stream, unsigned flags, int priority))                                             \
  X(stream_destroy, cuStreamDestroy_v2, (Stream stream))                                         \
  X(stream_query, cuStreamQuery, (Stream stream))                                                \
  X(stream_synchronize, cuStreamSynchronize, (Stream stream))                                    \
  X(stream_get_ctx, cuStreamGetCtx, (Stream stream, Context * context))                          \
  X(stream_wait_event, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))          \
  X(event_create, cuEventCreate, (Event * event, unsigned flags))                                \
  X(event_destroy, cuEventDestroy_v2, (Event event))                                             \
  X(event_record, cuEventRecord, (Event event, Stream stream))                                   \
  X(event_query, cuEventQuery, (Event event))                                                    \
  X(ipc_get_mem_handle, cuIpcGetMemHandle, (IpcMemHandle * handle, DevicePointer pointer))       \
  X(ipc_open_mem_handle, cuIpcOpenMemHandle_v2,                                                  \
    (DevicePointer * pointer, IpcMemHandle handle, unsigned flags))                              \
  X(ipc_close_mem_handle, cuIpcCloseMemHandle, (DevicePointer pointer))                          \
  X(module_load_data, cuModuleLoadData, (Module * module, const void* image))                    \
  X(module_unload, cuModuleUnload, (Module module))                                              \
  X(module_get_function, cuModuleGetFunction,                                                    \
    (Function * function, Module module, const char* name))                                      \
  X(launch_kernel, cuLaunchKernel,                                                               \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments, \
     void** extra))

/// Functions that a library may lack; null then.
#define TUTTI_CUDA_OPTIONAL_FUNCTIONS(X)                                                      \
  X(device_get_uuid_v2, cuDeviceGetUuid_v2, (Uuid * uuid, Device device))                     \
  X(device_get_uuid, cuDeviceGetUuid, (Uuid * uuid, Device device))                           \
  X(graph_create, cuGraphCreate, (Graph * graph, unsigned flags))                             \
  X(graph_destroy, cuGraphDestroy, (Graph graph))                                             \
  X(graph_add_kernel_node, cuGraphAddKernelNode_v2,                                           \
    (GraphNode * node, Graph graph, const GraphNode* dependencies, std::size_t count,         \
     const KernelNodeParameters* parameters))                                                 \
  X(graph_kernel_node_set_attribute, cuGraphKernelNodeSetAttribute,                           \
    (GraphNode node, int attribute, const LaunchAttributeValue* value))                       \
  X(graph_instantiate, cuGraphInstantiateWithFlags,                                           \
    (GraphExec * executable, Graph graph, unsigned long long flags))                          \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExec executable))                           \
  X(graph_exec_kernel_node_set_params, cuGraphExecKernelNodeSetParams_v2,                     \
    (GraphExec executable, GraphNode node, const KernelNodeParameters* parameters))           \
  X(graph_launch, cuGraphLaunch, (GraphExec executable, Stream stream))                       \
  X(stream_is_capturing, cuStreamIsCapturing, (Stream stream, int* status))                   \
  X(mem_get_granularity, cuMemGetAllocationGranularity,                                       \
    (std::size_t * bytes, const MemProperties* properties, int option))                       \
  X(mem_create, cuMemCreate,                                                                  \
    (MemHandle * handle, std::size_t bytes, const MemProperties* properties,                  \
     unsigned long long flags))                                                               \
  X(mem_release, cuMemRelease, (MemHandle handle))                                            \
  X(mem_address_reserve, cuMemAddressReserve,                                                 \
    (DevicePointer * pointer, std::size_t bytes, std::size_t alignment, DevicePointer wanted, \
     unsigned long long flags))                                                               \
  X(mem_address_free, cuMemAddressFree, (DevicePointer pointer, std::size_t bytes))           \
  X(mem_map, cuMemMap,                                                                        \
    (DevicePointer pointer, std::size_t bytes, std::size_t offset, MemHandle handle,          \
     unsigned long long flags))                                                               \
  X(mem_unmap, cuMemUnmap, (DevicePointer pointer, std::size_t bytes))                        \
  X(mem_set_access, cuMemSetAccess,                                                           \
    (DevicePointer pointer, std::size_t bytes, const MemAccess* access, std::size_t count))   \
  X(mem_export_handle, cuMemExportToShareableHandle,                                          \
    (void* shared, MemHandle handle, int type, unsigned long long flags))                     \
  X(mem_import_handle, cuMemImportFromShareableHandle,                                        \
    (MemHandle * handle, void* shared, int type))                                             \
  X(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int* mode))             \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId, (char* text, int bytes, Device device))

struct Functions {
#define TUTTI_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_MEMBER)
  TUTTI_CUDA_OPTIONAL_FUNCTIONS(TUTTI_CUDA_MEMBER)
#undef TUTTI_CUDA_MEMBER
};

}  // namespace tutti::device::cuda
