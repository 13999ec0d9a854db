// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our declarations of the GPU libraries against the vendors' headers, at compile time: that this
// file compiles is the test. TUTTI_HAVE_CUDA_H and TUTTI_HAVE_HIP_H say which header there is.
// The real declarations are named by the versioned symbol that we resolve.
#include <cstddef>
#include <cstdint>

#include "abi/fits.hpp"

#if TUTTI_HAVE_CUDA_H
// The macros of cuda.h turn cuMemAlloc into cuMemAlloc_v2; only so are the _v2 names declared.
#include <cuda.h>

#include "device/driver_cuda.hpp"
#endif
#if TUTTI_HAVE_HIP_H
#include <hip/hip_runtime_api.h>

#include "device/driver_hip.hpp"
#endif

namespace driver = tutti::device::driver;
using tutti::abi::fits;

#if TUTTI_HAVE_CUDA_H
namespace cuda = tutti::device::cuda;

#define TUTTI_CHECK(member, symbol, parameters) \
  static_assert(fits<decltype(cuda::Functions::member)::Pointer, decltype(::symbol)>(), #symbol);
#define TUTTI_CHECK_COMMON(member, symbol, hip, parameters) \
  static_assert(fits<decltype(driver::Functions::member)::Pointer, decltype(::symbol)>(), #symbol);
TUTTI_DRIVER_FUNCTIONS(TUTTI_CHECK_COMMON)
TUTTI_DRIVER_OPTIONAL_FUNCTIONS(TUTTI_CHECK_COMMON)
TUTTI_CUDA_FUNCTIONS(TUTTI_CHECK)
TUTTI_CHECK(graph_add_event_record_node, cuGraphAddEventRecordNode, )
TUTTI_CHECK(user_object_create, cuUserObjectCreate, )
TUTTI_CHECK(graph_retain_user_object, cuGraphRetainUserObject, )
TUTTI_CHECK(mem_get_granularity, cuMemGetAllocationGranularity, )
TUTTI_CHECK(mem_create, cuMemCreate, )
TUTTI_CHECK(mem_release, cuMemRelease, )
TUTTI_CHECK(mem_address_reserve, cuMemAddressReserve, )
TUTTI_CHECK(mem_address_free, cuMemAddressFree, )
TUTTI_CHECK(mem_map, cuMemMap, )
TUTTI_CHECK(mem_unmap, cuMemUnmap, )
TUTTI_CHECK(mem_set_access, cuMemSetAccess, )
TUTTI_CHECK(mem_export_handle, cuMemExportToShareableHandle, )
TUTTI_CHECK(mem_import_handle, cuMemImportFromShareableHandle, )
#undef TUTTI_CHECK
#undef TUTTI_CHECK_COMMON

static_assert(cuda::kEventWaitExternal == CU_EVENT_WAIT_EXTERNAL);
static_assert(cuda::kUserObjectNoDestructorSync == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
static_assert(cuda::kGraphUserObjectMove == CU_GRAPH_USER_OBJECT_MOVE);

static_assert(sizeof(cuda::MemHandle) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(cuda::FabricHandle) == sizeof(CUmemFabricHandle));
static_assert(sizeof(cuda::MemProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(cuda::MemProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(cuda::MemProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(sizeof(cuda::MemAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(cuda::MemAccess, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(cuda::kMemAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(cuda::kMemLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(cuda::kMemHandlePosixDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(cuda::kMemHandleFabric == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(cuda::kMemAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(cuda::kMemGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);

static_assert(sizeof(cuda::Uuid) == sizeof(CUuuid));
static_assert(sizeof(cuda::IpcMemHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(cuda::KernelNodeParameters) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
static_assert(offsetof(cuda::KernelNodeParameters, arguments) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams));
static_assert(offsetof(cuda::KernelNodeParameters, context) ==
              offsetof(CUDA_KERNEL_NODE_PARAMS_v2, ctx));
static_assert(sizeof(cuda::LaunchAttributeValue) == sizeof(CUlaunchAttributeValue));
static_assert(cuda::kLaunchAttributePriority == CU_LAUNCH_ATTRIBUTE_PRIORITY);
static_assert(alignof(cuda::IpcMemHandle) == alignof(CUipcMemHandle));
static_assert(sizeof(cuda::DevicePointer) == sizeof(CUdeviceptr));
static_assert(sizeof(cuda::Device) == sizeof(CUdevice));
static_assert(cuda::kSuccess == CUDA_SUCCESS);
static_assert(cuda::kErrorInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(cuda::kErrorOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(cuda::kErrorNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(cuda::kErrorDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(cuda::kErrorNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(cuda::kErrorInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(cuda::kErrorInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(cuda::kErrorInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(cuda::kErrorNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(cuda::kErrorNotReady == CUDA_ERROR_NOT_READY);
static_assert(cuda::kErrorContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(cuda::kErrorNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(cuda::kErrorSystemNotReady == CUDA_ERROR_SYSTEM_NOT_READY);
static_assert(cuda::kPointerAttributeContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(cuda::kPointerAttributeMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(cuda::kPointerAttributeIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(cuda::kPointerAttributeDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(cuda::kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(cuda::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(cuda::kCaptureStatusNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(cuda::kCaptureModeGlobal == CU_STREAM_CAPTURE_MODE_GLOBAL);
static_assert(cuda::kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(cuda::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(cuda::kHostPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(cuda::kHostMapped == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(cuda::kIpcMemLazyEnablePeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
#endif  // TUTTI_HAVE_CUDA_H

#if TUTTI_HAVE_HIP_H
namespace hip = tutti::device::hip;

// hip_runtime_api.h overloads some of these with templates for C++; the cast picks the plain
// function, and does not compile unless that has exactly this type.
constexpr auto tutti_hip_malloc = static_cast<hipError_t (*)(void**, std::size_t)>(&::hipMalloc);
constexpr auto tutti_hip_host_malloc =
    static_cast<hipError_t (*)(void**, std::size_t, unsigned)>(&::hipHostMalloc);
constexpr auto tutti_hip_ext_malloc =
    static_cast<hipError_t (*)(void**, std::size_t, unsigned)>(&::hipExtMallocWithFlags);
#define hipMalloc tutti_hip_malloc
#define hipExtMallocWithFlags tutti_hip_ext_malloc
#define hipHostMalloc tutti_hip_host_malloc

#define TUTTI_CHECK(member, symbol, parameters) \
  static_assert(fits<decltype(hip::Functions::member)::Pointer, decltype(::symbol)>(), #symbol);
#define TUTTI_CHECK_COMMON(member, cuda, symbol, parameters) \
  static_assert(fits<decltype(driver::Functions::member)::Pointer, decltype(::symbol)>(), #symbol);
TUTTI_DRIVER_FUNCTIONS(TUTTI_CHECK_COMMON)
TUTTI_DRIVER_OPTIONAL_FUNCTIONS(TUTTI_CHECK_COMMON)
TUTTI_HIP_FUNCTIONS(TUTTI_CHECK)
TUTTI_HIP_OPTIONAL_FUNCTIONS(TUTTI_CHECK)
#undef TUTTI_CHECK
#undef TUTTI_CHECK_COMMON
#undef hipMalloc
#undef hipExtMallocWithFlags
#undef hipHostMalloc

static_assert(fits<decltype(hip::Functions::get_error_name), decltype(::hipGetErrorName)>());
static_assert(fits<decltype(hip::Functions::get_error_string), decltype(::hipGetErrorString)>());
static_assert(sizeof(hip::Uuid) == sizeof(hipUUID));
static_assert(sizeof(hip::IpcMemHandle) == sizeof(hipIpcMemHandle_t));
static_assert(alignof(hip::IpcMemHandle) == alignof(hipIpcMemHandle_t));
static_assert(sizeof(hip::DevicePointer) == sizeof(hipDeviceptr_t));
static_assert(sizeof(hip::Device) == sizeof(hipDevice_t));
static_assert(hip::kSuccess == hipSuccess);
static_assert(hip::kErrorInvalidValue == hipErrorInvalidValue);
static_assert(hip::kErrorOutOfMemory == hipErrorOutOfMemory);
static_assert(hip::kErrorNotInitialized == hipErrorNotInitialized);
static_assert(hip::kErrorDeinitialized == hipErrorDeinitialized);
static_assert(hip::kErrorNoDevice == hipErrorNoDevice);
static_assert(hip::kErrorInvalidDevice == hipErrorInvalidDevice);
static_assert(hip::kErrorInvalidContext == hipErrorInvalidContext);
static_assert(hip::kErrorInvalidHandle == hipErrorInvalidHandle);
static_assert(hip::kErrorNotFound == hipErrorNotFound);
static_assert(hip::kErrorNotReady == hipErrorNotReady);
static_assert(hip::kErrorNotSupported == hipErrorNotSupported);
static_assert(hip::kPointerAttributeMemoryType == HIP_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(hip::kPointerAttributeIsManaged == HIP_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(hip::kPointerAttributeDeviceOrdinal == HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
#if HIP_VERSION_MAJOR >= 6
static_assert(hip::kMemoryTypeDeviceRocm6 == hipMemoryTypeDevice);
#else
static_assert(hip::kMemoryTypeDeviceRocm5 == hipMemoryTypeDevice);
#endif
static_assert(hip::kMemcpyDefault == hipMemcpyDefault);
static_assert(hip::kStreamNonBlocking == hipStreamNonBlocking);
static_assert(hip::kCaptureStatusNone == hipStreamCaptureStatusNone);
static_assert(hip::kCaptureModeGlobal == hipStreamCaptureModeGlobal);
static_assert(hip::kCaptureModeRelaxed == hipStreamCaptureModeRelaxed);
static_assert(hip::kEventDisableTiming == hipEventDisableTiming);
static_assert(hip::kHostPortable == hipHostMallocPortable);
static_assert(hip::kHostMapped == hipHostMallocMapped);
static_assert(hip::kHostMallocCoherent == hipHostMallocCoherent);
static_assert(hip::kDeviceMallocFinegrained == hipDeviceMallocFinegrained);
#ifdef hipDeviceMallocUncached
static_assert(hip::kDeviceMallocUncached == hipDeviceMallocUncached);
#endif
static_assert(hip::kIpcMemLazyEnablePeerAccess == hipIpcMemLazyEnablePeerAccess ||
              hip::kIpcMemLazyEnablePeerAccessOld == hipIpcMemLazyEnablePeerAccess);
#endif  // TUTTI_HAVE_HIP_H
