// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "device/cuda_virtual_memory.hpp"

#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

namespace tutti::device {
namespace {

int type_of(Sharing sharing) {
  return sharing == Sharing::kFabric ? cuda::kMemHandleFabric : cuda::kMemHandlePosixDescriptor;
}

}  // namespace

bool CudaVirtualMemory::is_complete() const {
  return cu_.mem_get_granularity && cu_.mem_create && cu_.mem_release && cu_.mem_address_reserve &&
         cu_.mem_address_free && cu_.mem_map && cu_.mem_unmap && cu_.mem_set_access &&
         cu_.mem_export_handle && cu_.mem_import_handle;
}

Result<void*> CudaVirtualMemory::allocate(int device, cuda::Device handle, Bytes bytes,
                                          Sharing sharing) {
  if (!is_complete()) {
    return Status(ErrorCode::kUnsupported,
                  "cuda: the driver of device " + std::to_string(device) +
                      " is too old for memory that is shown by descriptors or the fabric");
  }
  cuda::MemProperties properties{};
  properties.type = cuda::kMemAllocationPinned;
  properties.handle_types = type_of(sharing);
  properties.location = {cuda::kMemLocationDevice, handle};
  std::size_t grain = 0;
  TUTTI_RETURN_IF_ERROR(
      check_(cu_.mem_get_granularity(&grain, &properties, cuda::kMemGranularityMinimum)));
  Mapped made;
  made.bytes = (bytes + grain - 1) / grain * grain;
  made.sharing = sharing;
  made.is_own = true;
  TUTTI_RETURN_IF_ERROR(check_(cu_.mem_create(&made.memory, made.bytes, &properties, 0)));
  return map(handle, made);
}

Result<void*> CudaVirtualMemory::open(cuda::Device device, const IpcHandle& handle) {
  if (!is_complete()) {
    return Status(ErrorCode::kUnsupported,
                  "cuda: the driver is too old for memory that is shown by descriptors or the "
                  "fabric");
  }
  Mapped opened;
  opened.bytes = handle.size_bytes;
  opened.sharing = handle.sharing;
  cuda::FabricHandle fabric{};
  std::memcpy(fabric.data, handle.bytes, sizeof fabric.data);
  // A descriptor goes as the pointer's value, and stays the caller's.
  void* const shared = handle.sharing == Sharing::kFabric
                           ? static_cast<void*>(&fabric)
                           : reinterpret_cast<void*>(static_cast<std::intptr_t>(handle.descriptor));
  TUTTI_RETURN_IF_ERROR(
      check_(cu_.mem_import_handle(&opened.memory, shared, type_of(handle.sharing))));
  return map(device, opened);
}

/// Takes over mapped.memory, which is released if anything fails.
Result<void*> CudaVirtualMemory::map(cuda::Device device, Mapped mapped) {
  cuda::DevicePointer pointer = 0;
  Status status = check_(cu_.mem_address_reserve(&pointer, mapped.bytes, 0, 0, 0));
  if (!status.ok()) {
    (void)cu_.mem_release(mapped.memory);
    return status;
  }
  status = check_(cu_.mem_map(pointer, mapped.bytes, 0, mapped.memory, 0));
  if (!status.ok()) {
    (void)cu_.mem_address_free(pointer, mapped.bytes);
    (void)cu_.mem_release(mapped.memory);
    return status;
  }
  void* const result = reinterpret_cast<void*>(pointer);
  {
    const std::lock_guard lock(mutex_);
    mapped_[result] = mapped;
  }
  const cuda::MemAccess access{{cuda::kMemLocationDevice, device}, cuda::kMemAccessReadWrite};
  status = check_(cu_.mem_set_access(pointer, mapped.bytes, &access, 1));
  if (status.ok() && mapped.is_own && mapped.sharing == Sharing::kDescriptor) {
    int descriptor = -1;
    status = check_(cu_.mem_export_handle(&descriptor, mapped.memory, type_of(mapped.sharing), 0));
    const std::lock_guard lock(mutex_);
    mapped_[result].descriptor = descriptor;
  }
  if (!status.ok()) {
    (void)release(result);
    return status;
  }
  return result;
}

bool CudaVirtualMemory::has(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  return mapped_.contains(pointer);
}

Result<IpcHandle> CudaVirtualMemory::export_memory(void* pointer) const {
  Mapped mapped;
  {
    const std::lock_guard lock(mutex_);
    mapped = mapped_.at(pointer);
  }
  IpcHandle handle;
  handle.size_bytes = mapped.bytes;
  handle.sharing = mapped.sharing;
  handle.descriptor = mapped.descriptor;
  if (mapped.sharing == Sharing::kFabric) {
    cuda::FabricHandle fabric{};
    TUTTI_RETURN_IF_ERROR(
        check_(cu_.mem_export_handle(&fabric, mapped.memory, type_of(mapped.sharing), 0)));
    static_assert(sizeof handle.bytes == sizeof fabric.data);
    std::memcpy(handle.bytes, fabric.data, sizeof handle.bytes);
  }
  return handle;
}

Status CudaVirtualMemory::release(void* pointer) {
  Mapped mapped;
  {
    const std::lock_guard lock(mutex_);
    const auto found = mapped_.find(pointer);
    mapped = found->second;
    mapped_.erase(found);
  }
  if (mapped.descriptor >= 0) {
    close(mapped.descriptor);
  }
  const Status unmapped = check_(cu_.mem_unmap(cuda::address(pointer), mapped.bytes));
  const Status freed = check_(cu_.mem_address_free(cuda::address(pointer), mapped.bytes));
  const Status released = check_(cu_.mem_release(mapped.memory));
  return !unmapped.ok() ? unmapped : !freed.ok() ? freed : released;
}

}  // namespace tutti::device
