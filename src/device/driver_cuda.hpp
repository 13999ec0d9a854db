// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The part of CUDA's driver API that the table over it calls beside what HIP has too (driver.hpp),
// in our own declarations: building needs no CUDA. Names, values and layouts are NVIDIA's ABI,
// stable since CUDA 11; where the library's symbol has a version (_v2), so has the name here,
// because the plain symbol is an older ABI.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/driver.hpp"

namespace tutti::device::cuda {

using namespace driver;  // Completed here.

using DevicePointer = std::uint64_t;  // CUdeviceptr_v2
inline DevicePointer address(const void* pointer) {
  return reinterpret_cast<DevicePointer>(pointer);
}
using Context = struct CUctx_st*;
using Graph = struct CUgraph_st*;
using GraphNode = struct CUgraphNode_st*;
using GraphExec = struct CUgraphExec_st*;
using UserObject = struct CUuserObject_st*;

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

// CUdevice_attribute
inline constexpr int kDeviceAttributeMultiprocessorCount = 16;
inline constexpr int kDeviceAttributeMpsEnabled = 133;  // CUDA 12.2 and later.

inline constexpr int kPointerAttributeContext = 1;  // CUpointer_attribute
// CUmemorytype
inline constexpr unsigned kMemoryTypeDevice = 2;

inline const Stream kStreamLegacy = reinterpret_cast<Stream>(1);     // CU_STREAM_LEGACY
inline const Stream kStreamPerThread = reinterpret_cast<Stream>(2);  // CU_STREAM_PER_THREAD

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
inline constexpr unsigned kEventWaitExternal = 1;
inline constexpr unsigned kUserObjectNoDestructorSync = 1;
inline constexpr unsigned kGraphUserObjectMove = 1;

/// X(member, symbol, parameters): every other function that we call, with its symbol.
#define TUTTI_CUDA_FUNCTIONS(X)                                                             \
  X(driver_get_version, cuDriverGetVersion, (int* version))                                 \
  X(get_error_name, cuGetErrorName, (Result error, const char** text))                      \
  X(get_error_string, cuGetErrorString, (Result error, const char** text))                  \
  X(device_get_attribute, cuDeviceGetAttribute, (int* value, int attribute, Device device)) \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (Context * context, Device device))       \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (Device device))                     \
  X(primary_ctx_get_state, cuDevicePrimaryCtxGetState,                                      \
    (Device device, unsigned* flags, int* active))                                          \
  X(ctx_push_current, cuCtxPushCurrent_v2, (Context context))                               \
  X(ctx_pop_current, cuCtxPopCurrent_v2, (Context * context))                               \
  X(ctx_get_current, cuCtxGetCurrent, (Context * context))                                  \
  X(ctx_get_device, cuCtxGetDevice, (Device * device))                                      \
  X(pointer_get_attributes, cuPointerGetAttributes,                                         \
    (unsigned count, int* attributes, void** data, DevicePointer pointer))                  \
  X(memcpy, cuMemcpy, (DevicePointer destination, DevicePointer source, std::size_t bytes)) \
  X(memcpy_async, cuMemcpyAsync,                                                            \
    (DevicePointer destination, DevicePointer source, std::size_t bytes, Stream stream))    \
  X(memset_d8_async, cuMemsetD8Async,                                                       \
    (DevicePointer destination, unsigned char value, std::size_t count, Stream stream))     \
  X(mem_alloc, cuMemAlloc_v2, (DevicePointer * pointer, std::size_t bytes))                 \
  X(mem_free, cuMemFree_v2, (DevicePointer pointer))                                        \
  X(stream_get_ctx, cuStreamGetCtx, (Stream stream, Context * context))                     \
  X(ipc_get_mem_handle, cuIpcGetMemHandle, (IpcMemHandle * handle, DevicePointer pointer))  \
  X(ipc_open_mem_handle, cuIpcOpenMemHandle_v2,                                             \
    (DevicePointer * pointer, IpcMemHandle handle, unsigned flags))                         \
  X(ipc_close_mem_handle, cuIpcCloseMemHandle, (DevicePointer pointer))

/// Functions that a library may lack.
#define TUTTI_CUDA_OPTIONAL_FUNCTIONS(X)                                                          \
  X(stream_get_id, cuStreamGetId, (Stream stream, unsigned long long* id))                        \
  X(device_get_uuid_v2, cuDeviceGetUuid_v2, (Uuid * uuid, Device device))                         \
  X(host_register, cuMemHostRegister_v2, (void* memory, std::size_t bytes, unsigned flags))       \
  X(host_unregister, cuMemHostUnregister, (void* memory))                                         \
  X(graph_create, cuGraphCreate, (Graph * graph, unsigned flags))                                 \
  X(graph_destroy, cuGraphDestroy, (Graph graph))                                                 \
  X(graph_add_kernel_node, cuGraphAddKernelNode_v2,                                               \
    (GraphNode * node, Graph graph, const GraphNode* dependencies, std::size_t count,             \
     const KernelNodeParameters* parameters))                                                     \
  X(graph_kernel_node_set_attribute, cuGraphKernelNodeSetAttribute,                               \
    (GraphNode node, int attribute, const LaunchAttributeValue* value))                           \
  X(graph_instantiate, cuGraphInstantiateWithFlags,                                               \
    (GraphExec * executable, Graph graph, unsigned long long flags))                              \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExec executable))                               \
  X(graph_exec_kernel_node_set_params, cuGraphExecKernelNodeSetParams_v2,                         \
    (GraphExec executable, GraphNode node, const KernelNodeParameters* parameters))               \
  X(graph_launch, cuGraphLaunch, (GraphExec executable, Stream stream))                           \
  X(stream_get_capture_info, cuStreamGetCaptureInfo_v3,                                           \
    (Stream stream, int* status, std::uint64_t* id, Graph* graph, const GraphNode** dependencies, \
     const void** edges, std::size_t* count))                                                     \
  X(graph_add_event_record_node, cuGraphAddEventRecordNode,                                       \
    (GraphNode * node, Graph graph, const GraphNode* dependencies, std::size_t count,             \
     Event event))                                                                                \
  X(user_object_create, cuUserObjectCreate,                                                       \
    (UserObject * object, void* argument, void (*release)(void*), unsigned references,            \
     unsigned flags))                                                                             \
  X(graph_retain_user_object, cuGraphRetainUserObject,                                            \
    (Graph graph, UserObject object, unsigned references, unsigned flags))                        \
  X(mem_get_granularity, cuMemGetAllocationGranularity,                                           \
    (std::size_t * bytes, const MemProperties* properties, int option))                           \
  X(mem_create, cuMemCreate,                                                                      \
    (MemHandle * handle, std::size_t bytes, const MemProperties* properties,                      \
     unsigned long long flags))                                                                   \
  X(mem_release, cuMemRelease, (MemHandle handle))                                                \
  X(mem_address_reserve, cuMemAddressReserve,                                                     \
    (DevicePointer * pointer, std::size_t bytes, std::size_t alignment, DevicePointer wanted,     \
     unsigned long long flags))                                                                   \
  X(mem_address_free, cuMemAddressFree, (DevicePointer pointer, std::size_t bytes))               \
  X(mem_map, cuMemMap,                                                                            \
    (DevicePointer pointer, std::size_t bytes, std::size_t offset, MemHandle handle,              \
     unsigned long long flags))                                                                   \
  X(mem_unmap, cuMemUnmap, (DevicePointer pointer, std::size_t bytes))                            \
  X(mem_set_access, cuMemSetAccess,                                                               \
    (DevicePointer pointer, std::size_t bytes, const MemAccess* access, std::size_t count))       \
  X(mem_export_handle, cuMemExportToShareableHandle,                                              \
    (void* shared, MemHandle handle, int type, unsigned long long flags))                         \
  X(mem_import_handle, cuMemImportFromShareableHandle, (MemHandle * handle, void* shared, int type))

struct Functions {
#define TUTTI_CUDA_MEMBER(member, symbol, parameters) LibraryFunction<Result parameters> member;
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_MEMBER)
  TUTTI_CUDA_OPTIONAL_FUNCTIONS(TUTTI_CUDA_MEMBER)
#undef TUTTI_CUDA_MEMBER
};

}  // namespace tutti::device::cuda
