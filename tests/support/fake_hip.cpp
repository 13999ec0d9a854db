// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Fake of libamdhip64.so.6, never installed. It exports the real symbols of the HIP
// runtime over host memory and threads, as ROCm 6 behaves: the runtime starts by itself, each
// thread has a current device (0 at first), and a failing call leaves its code for
// hipGetLastError.
//
// FAKE_HIP_VERSION=5|6|7 (default 6) chooses the values of hipMemoryType.
//
// Beyond the runtime's symbols:
//   tutti_fake_capture(stream, on)                  the stream records a graph from now on, or no
//   more tutti_fake_enqueue(stream, function, argument)  a host function in the stream's order
//   tutti_fake_fail(spec)                           FAKE_GPU_FAIL at run time
//   tutti_fake_calls(symbol)                        calls of a symbol since the last fail()
//   tutti_fake_malloc_flags(pointer)                of hipExtMallocWithFlags; 0: of hipMalloc
#include "support/fake_gpu.hpp"

#include "device/driver_hip.hpp"
#include "support/host_device/host_module.hpp"

using namespace tutti::fake;  // NOLINT(google-build-using-namespace): the whole file is the fake.
namespace hip = tutti::device::hip;

namespace {

constexpr int kVersionOfUncached = 6;  // 5.7, but the fake knows whole versions alone.

thread_local int current = 0;
thread_local int last_error = kSuccess;

bool is_device(int device) { return device >= 0 && device < device_count(); }

int fail(int code) {
  if (code != kSuccess) {
    last_error = code;
  }
  return code;
}

int version_major() {
  static const int version = [] {
    const char* text = std::getenv("FAKE_HIP_VERSION");
    return text == nullptr ? 6 : std::atoi(text);
  }();
  return version;
}

}  // namespace

#define HIP_CALL(symbol, parameters) TUTTI_FAKE_EXPORT int symbol parameters
/// Counts the call, fails it on demand, and needs a device.
#define ENTER(symbol)                                                      \
  if (const int injected = calls().enter(#symbol); injected != kSuccess) { \
    return fail(injected);                                                 \
  }                                                                        \
  if (device_count() == 0) {                                               \
    return fail(hip::kErrorNoDevice);                                      \
  }                                                                        \
  static_assert(true)
#define FIND_STREAM(name)                                             \
  const tutti::device::Stream name = streams().find(stream, current); \
  if (name == nullptr) {                                              \
    return fail(kInvalidHandle);                                      \
  }                                                                   \
  static_assert(true)

// ---- start, devices -----------------------------------------------------------------------------

HIP_CALL(hipInit, (unsigned flags)) {
  ENTER(hipInit);
  return fail(flags == 0 ? kSuccess : kInvalidValue);
}

HIP_CALL(hipRuntimeGetVersion, (int* version)) {
  ENTER(hipRuntimeGetVersion);
  *version = version_major() * 10000000 + 200000;
  return kSuccess;
}

HIP_CALL(hipDriverGetVersion, (int* version)) { return hipRuntimeGetVersion(version); }

TUTTI_FAKE_EXPORT const char* hipGetErrorName(int error) { return error_name(error, true); }

TUTTI_FAKE_EXPORT const char* hipGetErrorString(int error) {
  return error == kSuccess ? "no error" : "reported by the fake";
}

HIP_CALL(hipGetLastError, ()) {
  const int code = last_error;
  last_error = kSuccess;
  return code;
}

HIP_CALL(hipPeekAtLastError, ()) { return last_error; }

HIP_CALL(hipGetDeviceCount, (int* count)) {
  *count = 0;
  ENTER(hipGetDeviceCount);
  *count = device_count();
  return kSuccess;
}

HIP_CALL(hipGetDevice, (int* device)) {
  ENTER(hipGetDevice);
  *device = current;
  return kSuccess;
}

HIP_CALL(hipSetDevice, (int device)) {
  ENTER(hipSetDevice);
  if (!is_device(device)) {
    return fail(kInvalidDevice);
  }
  current = device;
  return kSuccess;
}

HIP_CALL(hipDeviceGet, (int* device, int ordinal)) {
  ENTER(hipDeviceGet);
  if (!is_device(ordinal)) {
    return fail(kInvalidDevice);
  }
  *device = ordinal;
  return kSuccess;
}

HIP_CALL(hipDeviceGetName, (char* name, int bytes, int device)) {
  ENTER(hipDeviceGetName);
  if (!is_device(device) || bytes <= 0) {
    return fail(kInvalidDevice);
  }
  std::snprintf(name, static_cast<std::size_t>(bytes), "Fake HIP device");
  return kSuccess;
}

HIP_CALL(hipDeviceGetUuid, (hip::Uuid * uuid, int device)) {
  ENTER(hipDeviceGetUuid);
  if (!is_device(device)) {
    return fail(kInvalidDevice);
  }
  char text[17];
  std::snprintf(text, sizeof text, "fake%012d", device);
  std::memcpy(uuid->bytes, text, sizeof uuid->bytes);
  return kSuccess;
}

HIP_CALL(hipDeviceGetPCIBusId, (char* text, int bytes, int device)) {
  ENTER(hipDeviceGetPCIBusId);
  if (!is_device(device) || bytes < 13) {
    return fail(kInvalidValue);
  }
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02x:00.0", 0x10 + device);
  return kSuccess;
}

HIP_CALL(hipDeviceSynchronize, ()) {
  ENTER(hipDeviceSynchronize);
  return fail(code_of(host().wait_device(current), kUnknown));
}

HIP_CALL(hipDeviceGetStreamPriorityRange, (int* least, int* greatest)) {
  ENTER(hipDeviceGetStreamPriorityRange);
  *least = 1;
  *greatest = -1;
  return kSuccess;
}

HIP_CALL(hipDeviceCanAccessPeer, (int* can, int device, int peer)) {
  ENTER(hipDeviceCanAccessPeer);
  if (!is_device(device) || !is_device(peer)) {
    return fail(kInvalidDevice);
  }
  *can = device != peer;
  return kSuccess;
}

HIP_CALL(hipDeviceEnablePeerAccess, (int peer, unsigned)) {
  ENTER(hipDeviceEnablePeerAccess);
  return fail(is_device(peer) && peer != current ? kSuccess : kInvalidDevice);
}

// ---- memory -------------------------------------------------------------------------------------

namespace {

/// Of hipExtMallocWithFlags, by pointer.
std::map<const void*, unsigned>& malloc_flags() {
  static std::map<const void*, unsigned> flags;
  return flags;
}
std::mutex malloc_flags_mutex;

int allocate(void** pointer, std::size_t bytes) {
  if (pointer == nullptr) {
    return fail(kInvalidValue);
  }
  *pointer = nullptr;
  if (bytes == 0) {
    return kSuccess;  // As the real one.
  }
  tutti::Result<void*> memory = host().allocate_device(current, bytes);
  if (!memory.ok()) {
    return fail(code_of(memory.status(), kInvalidValue));
  }
  *pointer = *memory;
  return kSuccess;
}

}  // namespace

HIP_CALL(hipMalloc, (void** pointer, std::size_t bytes)) {
  ENTER(hipMalloc);
  return allocate(pointer, bytes);
}

HIP_CALL(hipExtMallocWithFlags, (void** pointer, std::size_t bytes, unsigned flags)) {
  ENTER(hipExtMallocWithFlags);
  const bool is_known =
      flags <= hip::kDeviceMallocFinegrained ||
      (flags == hip::kDeviceMallocUncached && version_major() >= kVersionOfUncached);
  if (!is_known) {
    return fail(kInvalidValue);
  }
  const int code = allocate(pointer, bytes);
  if (code == kSuccess) {
    const std::lock_guard lock(malloc_flags_mutex);
    malloc_flags()[*pointer] = flags;
  }
  return code;
}

TUTTI_FAKE_EXPORT unsigned tutti_fake_malloc_flags(const void* pointer) {
  const std::lock_guard lock(malloc_flags_mutex);
  const auto found = malloc_flags().find(pointer);
  return found == malloc_flags().end() ? 0 : found->second;
}

HIP_CALL(hipFree, (void* pointer)) {
  ENTER(hipFree);
  {
    const std::lock_guard lock(malloc_flags_mutex);
    malloc_flags().erase(pointer);
  }
  return fail(free_memory(pointer));
}

HIP_CALL(hipMallocManaged, (void** pointer, std::size_t bytes, unsigned)) {
  ENTER(hipMallocManaged);
  return fail(managed().allocate(pointer, bytes));
}

HIP_CALL(hipHostMalloc, (void** pointer, std::size_t bytes, unsigned flags)) {
  ENTER(hipHostMalloc);
  constexpr unsigned kNonCoherent = 0x80000000;
  if (pointer == nullptr || (flags & (hip::kHostMallocCoherent | kNonCoherent)) ==
                                (hip::kHostMallocCoherent | kNonCoherent)) {
    return fail(kInvalidValue);
  }
  tutti::Result<void*> memory = host().allocate_pinned(bytes, tutti::device::Api::kAnyDevice);
  if (!memory.ok()) {
    return fail(code_of(memory.status(), kInvalidValue));
  }
  *pointer = *memory;
  return kSuccess;
}

HIP_CALL(hipHostFree, (void* pointer)) {
  ENTER(hipHostFree);
  return fail(pointer == nullptr ? kSuccess : code_of(host().free_pinned(pointer), kInvalidValue));
}

HIP_CALL(hipDrvPointerGetAttributes,
         (unsigned count, int* attributes, void** data, void* pointer)) {
  ENTER(hipDrvPointerGetAttributes);
  if (count == 0 || attributes == nullptr || data == nullptr || pointer == nullptr) {
    return fail(kInvalidValue);
  }
  // Always succeeds; what it does not know gets the defaults.
  const auto range = tutti_host_device_range(pointer);
  const bool is_managed = managed().contains(pointer);
  const unsigned device_type = version_major() < 6 ? 1 : 2;
  const unsigned host_type = version_major() < 6 ? 0 : 1;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case hip::kPointerAttributeMemoryType:
        *static_cast<unsigned*>(data[i]) =
            range.device >= 0 ? device_type : (range.bytes != 0 ? host_type : 0);
        break;
      case hip::kPointerAttributeIsManaged:
        *static_cast<bool*>(data[i]) = is_managed;  // One byte, as in ROCm 6.
        break;
      case hip::kPointerAttributeDeviceOrdinal:
        *static_cast<int*>(data[i]) = range.bytes == 0 ? -2 : std::max(range.device, 0);
        break;
      default:
        break;
    }
  }
  return kSuccess;
}

HIP_CALL(hipPointerGetAttribute, (void* data, int attribute, void* pointer)) {
  ENTER(hipPointerGetAttribute);
  if (data == nullptr || tutti_host_device_range(pointer).bytes == 0) {
    return fail(kInvalidValue);
  }
  return hipDrvPointerGetAttributes(1, &attribute, &data, pointer);
}

HIP_CALL(hipMemGetInfo, (std::size_t * free_bytes, std::size_t* total_bytes)) {
  ENTER(hipMemGetInfo);
  *free_bytes = std::size_t{15} << 30;
  *total_bytes = std::size_t{16} << 30;
  return kSuccess;
}

namespace {

/// hipMemcpyKind: 0 host to host, 1 host to device, 2 device to host, 3 device to device,
/// 4 whatever the pointers are.
bool kind_fits(const void* destination, const void* source, int kind) {
  if (kind == hip::kMemcpyDefault) {
    return true;
  }
  return kind >= 0 && kind < 4 && is_device_memory(destination) == ((kind & 1) != 0) &&
         is_device_memory(source) == ((kind & 2) != 0);
}

}  // namespace

HIP_CALL(hipMemcpy, (void* destination, const void* source, std::size_t bytes, int kind)) {
  ENTER(hipMemcpy);
  if (bytes != 0 && !kind_fits(destination, source, kind)) {
    return fail(kInvalidValue);
  }
  return fail(copy(destination, source, bytes, current));
}

HIP_CALL(hipMemcpyAsync,
         (void* destination, const void* source, std::size_t bytes, int kind, void* stream)) {
  ENTER(hipMemcpyAsync);
  FIND_STREAM(queue);
  if (bytes != 0 && !kind_fits(destination, source, kind)) {
    return fail(kInvalidValue);
  }
  return fail(copy_async(destination, source, bytes, queue));
}

HIP_CALL(hipMemsetAsync, (void* destination, int value, std::size_t bytes, void* stream)) {
  ENTER(hipMemsetAsync);
  FIND_STREAM(queue);
  return fail(fill(destination, value, bytes, queue));
}

HIP_CALL(hipMemset, (void* destination, int value, std::size_t bytes)) {
  ENTER(hipMemset);
  return fail(fill(destination, value, bytes, streams().find(nullptr, current)));
}

// ---- streams and events -------------------------------------------------------------------------

HIP_CALL(hipStreamCreateWithPriority, (void** stream, unsigned flags, int)) {
  ENTER(hipStreamCreateWithPriority);
  if (flags > hip::kStreamNonBlocking) {
    return fail(kInvalidValue);
  }
  return fail(streams().create(stream, current, flags == 0));
}

HIP_CALL(hipStreamCreateWithFlags, (void** stream, unsigned flags)) {
  return hipStreamCreateWithPriority(stream, flags, 0);
}

HIP_CALL(hipStreamCreate, (void** stream)) { return hipStreamCreateWithPriority(stream, 0, 0); }

HIP_CALL(hipStreamDestroy, (void* stream)) {
  ENTER(hipStreamDestroy);
  return fail(streams().destroy(stream));
}

HIP_CALL(hipStreamQuery, (void* stream)) {
  ENTER(hipStreamQuery);
  FIND_STREAM(queue);
  return fail(event_result(host().stream_done(queue)));
}

HIP_CALL(hipStreamSynchronize, (void* stream)) {
  ENTER(hipStreamSynchronize);
  FIND_STREAM(queue);
  streams().order(queue);
  return fail(code_of(host().wait_stream(queue), kUnknown));
}

HIP_CALL(hipStreamIsCapturing, (void* stream, int* status)) {
  ENTER(hipStreamIsCapturing);
  FIND_STREAM(queue);
  *status = streams().is_capturing(queue) ? 1 : 0;
  return kSuccess;
}

HIP_CALL(hipStreamWaitEvent, (void* stream, void* event, unsigned)) {
  ENTER(hipStreamWaitEvent);
  FIND_STREAM(queue);
  streams().order(queue);
  return fail(code_of(host().stream_wait_event(queue, event), kInvalidHandle));
}

HIP_CALL(hipLaunchHostFunc, (void* stream, void (*function)(void*), void* argument)) {
  ENTER(hipLaunchHostFunc);
  FIND_STREAM(queue);
  streams().order(queue);
  tutti_host_device_enqueue(queue, function, argument);
  return kSuccess;
}

HIP_CALL(hipEventCreateWithFlags, (void** event, unsigned)) {
  ENTER(hipEventCreateWithFlags);
  *event = *host().create_event(current);
  return kSuccess;
}

HIP_CALL(hipEventCreate, (void** event)) { return hipEventCreateWithFlags(event, 0); }

HIP_CALL(hipEventDestroy, (void* event)) {
  ENTER(hipEventDestroy);
  return fail(code_of(host().destroy_event(event), kInvalidHandle));
}

HIP_CALL(hipEventRecord, (void* event, void* stream)) {
  ENTER(hipEventRecord);
  FIND_STREAM(queue);
  streams().order(queue);
  return fail(code_of(host().record_event(event, queue), kInvalidHandle));
}

HIP_CALL(hipEventQuery, (void* event)) {
  ENTER(hipEventQuery);
  return fail(event_result(host().event_done(event)));
}

HIP_CALL(hipEventSynchronize, (void* event)) {
  ENTER(hipEventSynchronize);
  return fail(wait_event(event));
}

// ---- handles for other processes, modules -------------------------------------------------------

HIP_CALL(hipIpcGetMemHandle, (hip::IpcMemHandle * handle, void* pointer)) {
  ENTER(hipIpcGetMemHandle);
  return fail(ipc_export(handle->reserved, pointer));
}

HIP_CALL(hipIpcOpenMemHandle, (void** pointer, hip::IpcMemHandle handle, unsigned flags)) {
  ENTER(hipIpcOpenMemHandle);
  // The flag's value in ROCm 5 and in later ones; the wrong one is refused, as in the real one.
  const unsigned expected =
      version_major() < 6 ? hip::kIpcMemLazyEnablePeerAccessOld : hip::kIpcMemLazyEnablePeerAccess;
  if (flags != expected) {
    return fail(kInvalidValue);
  }
  return fail(imports().open(pointer, current, handle.reserved));
}

HIP_CALL(hipIpcCloseMemHandle, (void* pointer)) {
  ENTER(hipIpcCloseMemHandle);
  return fail(imports().close(pointer));
}

HIP_CALL(hipModuleLoadData, (void** module, const void* image)) {
  ENTER(hipModuleLoadData);
  // Of all code objects (an ELF file for AMDGPU) the fake knows one kernel.
  static const tutti::device::HostModule kCodeObject{
      .functions = &tutti::device::host_kernel("scatter_copy"), .function_count = 1};
  const auto* const bytes = static_cast<const unsigned char*>(image);
  const bool is_code_object =
      image != nullptr && std::memcmp(image, "\177ELF", 4) == 0 && bytes[18] == 224;
  tutti::Result<void*> loaded = host().load_module(current, is_code_object ? &kCodeObject : image);
  if (!loaded.ok()) {
    return fail(200);  // hipErrorInvalidImage
  }
  *module = *loaded;
  return kSuccess;
}

HIP_CALL(hipModuleUnload, (void* module)) {
  ENTER(hipModuleUnload);
  return fail(code_of(host().unload_module(module), kInvalidHandle));
}

HIP_CALL(hipModuleGetFunction, (void** function, void* module, const char* name)) {
  ENTER(hipModuleGetFunction);
  tutti::Result<void*> found = host().find_function(module, name);
  if (!found.ok()) {
    return fail(kNotFound);
  }
  *function = *found;
  return kSuccess;
}

HIP_CALL(hipModuleLaunchKernel,
         (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
          unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** arguments,
          void** extra)) {
  ENTER(hipModuleLaunchKernel);
  if (extra != nullptr) {
    return fail(kNotSupported);
  }
  const unsigned shape[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes};
  return fail(launch(function, shape, stream, current, arguments));
}

// ---- for tests and for the fakes of the libraries above ---------------------------------------

TUTTI_FAKE_EXPORT void tutti_fake_capture(void* stream, int on) {
  streams().set_capturing(streams().find(stream, current), on != 0);
}

TUTTI_FAKE_EXPORT void tutti_fake_enqueue(void* stream, void (*function)(void*), void* argument) {
  const tutti::device::Stream queue = streams().find(stream, current);
  if (queue == nullptr) {
    std::fprintf(stderr, "fake libamdhip64: tutti_fake_enqueue on an unknown stream\n");
    std::abort();
  }
  streams().order(queue);
  tutti_host_device_enqueue(queue, function, argument);
}

TUTTI_FAKE_EXPORT void tutti_fake_fail(const char* spec) { calls().set_failures(spec); }

TUTTI_FAKE_EXPORT long tutti_fake_calls(const char* symbol) { return calls().count(symbol); }
