// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// CUDA's memory: whose it is, copies, allocations, and what other processes map.
#include <cstring>
#include <iterator>

#include "device/cuda.hpp"

namespace tutti::device {

PointerInfo CudaApi::classify(const void* pointer) {
  unsigned memory_type = 0;
  unsigned is_managed = 0;  // The library may write one byte or four.
  int ordinal = -1;
  cuda::Context context = nullptr;
  int attributes[] = {cuda::kPointerAttributeMemoryType, cuda::kPointerAttributeIsManaged,
                      cuda::kPointerAttributeDeviceOrdinal, cuda::kPointerAttributeContext};
  void* values[] = {&memory_type, &is_managed, &ordinal, &context};
  // Any error means that the library does not know the pointer: not initialised yet, shut down,
  // forked, or not an address.
  if (cu_.pointer_get_attributes(std::size(attributes), attributes, values,
                                 cuda::address(pointer)) != cuda::kSuccess ||
      memory_type != cuda::kMemoryTypeDevice || is_managed != 0 || ordinal < 0) {
    return {};
  }
  return {MemoryKind::kDevice, ordinal, is_foreign(context, ordinal)};
}

bool CudaApi::is_foreign(cuda::Context context, int device) {
  if (context == nullptr || device >= kDevicesMax ||
      context == primary_[device].load(std::memory_order_acquire)) [[likely]] {
    return false;
  }
  // The primary context may not be known yet, or have been made anew. One that is not active has
  // no memory, and is not to be made for the asking.
  cuda::Device handle = -1;
  unsigned flags = 0;
  int active = 0;
  if (gpu_.device_get(&handle, device) != cuda::kSuccess ||
      cu_.primary_ctx_get_state(handle, &flags, &active) != cuda::kSuccess || active == 0) {
    return true;
  }
  Scope scope(*this);
  return !scope.enter(device).ok() || context != primary_[device].load(std::memory_order_acquire);
}

/// Into device memory it may return while the last part is still on its way (from pageable memory)
/// or before it started (from device memory).
driver::Outcome CudaApi::copy_now(void* destination, const void* source, Bytes bytes) {
  return cu_.memcpy(cuda::address(destination), cuda::address(source), bytes);
}

Status CudaApi::copy_async(void* destination, const void* source, Bytes bytes, Stream stream) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  if (bytes == 0) {
    return {};
  }
  return check(cu_.memcpy_async(cuda::address(destination), cuda::address(source), bytes, stream));
}

Status CudaApi::fill_async(void* destination, int value, Bytes bytes, Stream stream) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  if (bytes == 0) {
    return {};
  }
  return check(cu_.memset_d8_async(cuda::address(destination), static_cast<unsigned char>(value),
                                   bytes, stream));
}

Result<void*> CudaApi::allocate_pinned(Bytes bytes, int device) {
  if (bytes == 0) {
    return no_bytes();
  }
  if (device == kAnyDevice && (device = active_device()) == Owners::kUnknown) {
    return no_active_device();
  }
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  void* pointer = nullptr;
  TUTTI_RETURN_IF_ERROR(
      check(gpu_.host_alloc(&pointer, bytes, cuda::kHostPortable | cuda::kHostMapped)));
  return own(pointer, device);
}

Status CudaApi::free_pinned(void* pointer) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
  owners_.remove(pointer);
  return check_free(gpu_.host_free(pointer));
}

Status CudaApi::register_host(void* memory, Bytes bytes, int device) {
  if (!cu_.host_register || !cu_.host_unregister) {
    return Api::register_host(memory, bytes, device);
  }
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  // The flags have the values of cuMemHostAlloc's. With unified addresses its device address is its
  // own.
  TUTTI_RETURN_IF_ERROR(
      check(cu_.host_register(memory, bytes, cuda::kHostPortable | cuda::kHostMapped)));
  (void)own(memory, device);
  return {};
}

Status CudaApi::unregister_host(void* memory) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(memory)));
  owners_.remove(memory);
  return check_free(cu_.host_unregister(memory));
}

Result<void*> CudaApi::allocate_device(int device, Bytes bytes) {
  if (bytes == 0) {
    return no_bytes();
  }
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  cuda::DevicePointer pointer = 0;
  TUTTI_RETURN_IF_ERROR(check(cu_.mem_alloc(&pointer, bytes)));
  return own(reinterpret_cast<void*>(pointer), device);
}

Result<void*> CudaApi::allocate_shared(int device, Bytes bytes, Sharing sharing) {
  if (sharing == Sharing::kIpc || bytes == 0) {
    return allocate_device(device, bytes);
  }
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  TUTTI_ASSIGN_OR_RETURN(const cuda::Device handle, device_handle(device));
  TUTTI_ASSIGN_OR_RETURN(void* const pointer,
                         virtual_memory_.allocate(device, handle, bytes, sharing));
  return own(pointer, device);
}

Status CudaApi::free_device(void* pointer) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
  owners_.remove(pointer);
  if (virtual_memory_.has(pointer)) {
    return gone_is_fine(virtual_memory_.release(pointer));
  }
  return check_free(cu_.mem_free(cuda::address(pointer)));
}

Result<IpcHandle> CudaApi::export_memory(void* pointer) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_owner(pointer));
  if (virtual_memory_.has(pointer)) {
    return virtual_memory_.export_memory(pointer);
  }
  cuda::IpcMemHandle inner{};
  TUTTI_RETURN_IF_ERROR(check(cu_.ipc_get_mem_handle(&inner, cuda::address(pointer))));
  IpcHandle handle;
  static_assert(sizeof handle.bytes == sizeof inner.reserved);
  std::memcpy(handle.bytes, inner.reserved, sizeof handle.bytes);
  return handle;
}

Result<void*> CudaApi::open_memory(int device, const IpcHandle& handle) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  if (handle.sharing != Sharing::kIpc) {
    TUTTI_ASSIGN_OR_RETURN(const cuda::Device own_handle, device_handle(device));
    TUTTI_ASSIGN_OR_RETURN(void* const opened, virtual_memory_.open(own_handle, handle));
    return own(opened, device);
  }
  cuda::IpcMemHandle inner{};
  std::memcpy(inner.reserved, handle.bytes, sizeof handle.bytes);
  cuda::DevicePointer pointer = 0;
  TUTTI_RETURN_IF_ERROR(
      check(cu_.ipc_open_mem_handle(&pointer, inner, cuda::kIpcMemLazyEnablePeerAccess)));
  return own(reinterpret_cast<void*>(pointer), device);
}

Status CudaApi::close_memory(void* pointer) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
  if (virtual_memory_.has(pointer)) {
    owners_.remove(pointer);
    return gone_is_fine(virtual_memory_.release(pointer));
  }
  // The driver counts repeated opens of one handle and returns one address: the owner stays
  // known, it is the same for all of them.
  return check_free(cu_.ipc_close_mem_handle(cuda::address(pointer)));
}

}  // namespace tutti::device
