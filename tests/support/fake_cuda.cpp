// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Fake of libcuda.so.1, never installed. It exports the real symbols of the driver API
// over host memory and threads, and is strict where the driver is: nothing works before cuInit,
// most things need a current context, an unknown pointer or handle is an error, an event goes on
// streams of its own context. There is no cuCtxCreate: code that makes a context of its own does
// not run here.
//
// Beyond the driver's symbols:
//   tutti_fake_enqueue(stream, function, argument)  a host function in the stream's order
//   tutti_fake_capture(stream, on)                  the stream records a graph from now on, or not
//   tutti_fake_fail(spec)                           FAKE_GPU_FAIL at run time
//   tutti_fake_calls(symbol)                        calls of a symbol since the last fail()
//   tutti_fake_active_contexts()                    primary contexts that are retained now
//   tutti_fake_reset_device(device)                 what cudaDeviceReset does to a context
//   tutti_fake_new_context(device)                  the context of a program that makes its own
//   tutti_fake_context(handle)                      of a stream, an event or memory
//   tutti_fake_memory(device)                       bytes that cuMemAlloc has given out
//   tutti_fake_memory_max(bytes)                    how many there are on each device
//   tutti_fake_mps(processors)                      as under MPS, with so many; 0: as without
#include "support/fake_gpu.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

#include "device/driver_cuda.hpp"
#include "support/host_device/host_module.hpp"

using namespace tutti::fake;  // NOLINT(google-build-using-namespace): the whole file is the fake.
namespace cuda = tutti::device::cuda;
using cuda::DevicePointer;

struct CUctx_st {
  int device = -1;
  int references = 0;
  std::atomic<bool> is_destroyed = false;
};

namespace {

struct State {
  std::atomic<bool> initialized = false;
  std::mutex mutex;
  CUctx_st* primary[tutti::device::kHostDeviceCount] = {};
  std::vector<CUctx_st*> contexts;        // Every one ever made: handles stay readable for ever.
  std::map<void*, CUctx_st*> context_of;  // Of streams, events and memory.
  std::size_t memory[tutti::device::kHostDeviceCount] = {};
  std::size_t memory_max = std::size_t{16} << 30;
  std::atomic<int> mps_processors{0};
};

State& state() {
  static auto* const kept = new State;
  return *kept;
}

thread_local std::vector<CUctx_st*> context_stack;
thread_local int capture_mode = 0;  // Global, as the driver begins.

CUctx_st* current() { return context_stack.empty() ? nullptr : context_stack.back(); }

/// What was made now is of the current context.
void keep_context(void* handle) {
  const std::lock_guard lock(state().mutex);
  state().context_of[handle] = current();
}

/// Null: the handle is unknown.
CUctx_st* context_of(void* handle) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().context_of.find(handle);
  return found == state().context_of.end() ? nullptr : found->second;
}

/// The null stream and its like are of the current context.
bool is_default_stream(const void* stream) { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }

bool is_device(int device) { return device >= 0 && device < device_count(); }

void* as_pointer(DevicePointer pointer) { return reinterpret_cast<void*>(pointer); }

/// The kernels that the fake knows from PTX, for which it takes all PTX: the measured programs'
/// floor, and the scattered copy.
bool is_ptx(const void* image) {
  constexpr std::string_view kBegin = ".version";
  const char* text = static_cast<const char*>(image);
  if (text != nullptr && *text == '\n') {
    ++text;
  }
  return text != nullptr && std::strncmp(text, kBegin.data(), kBegin.size()) == 0;
}
void store_word(const tutti::device::HostBlock& /*block*/, void** arguments) {
  auto* const word = *static_cast<std::uint64_t**>(arguments[0]);
  std::atomic_ref(*word).store(*static_cast<const std::uint64_t*>(arguments[1]));
}
constexpr std::size_t kWords[] = {8, 8};
const tutti::device::HostModule& ptx_module() {
  static const tutti::device::HostFunction kFunctions[] = {
      {"store_word", &store_word, kWords, 2}, tutti::device::host_kernel("scatter_copy")};
  static const tutti::device::HostModule kModule{.functions = kFunctions, .function_count = 2};
  return kModule;
}

}  // namespace

#define CUDA_CALL(symbol, parameters) TUTTI_FAKE_EXPORT int symbol parameters
/// First line of every function: counts the call, and fails it when the test asked for that.
#define ENTER(symbol)                                                      \
  if (const int injected = calls().enter(#symbol); injected != kSuccess) { \
    return injected;                                                       \
  }                                                                        \
  static_assert(true)
#define NEEDS_INIT(symbol)           \
  ENTER(symbol);                     \
  if (!state().initialized.load()) { \
    return kNotInitialized;          \
  }                                  \
  static_assert(true)
#define NEEDS_CONTEXT(symbol)                            \
  NEEDS_INIT(symbol);                                    \
  if (current() == nullptr || current()->is_destroyed) { \
    return current() == nullptr ? kInvalidContext : 709; \
  }                                                      \
  static_assert(true)

/// What no thread may ask while a stream is captured, unless the thread has relaxed its mode:
/// memory, code, and how far work has come. For some of it the driver is milder.
#define NO_CAPTURE()                                                            \
  if (capture_mode != cuda::kCaptureModeRelaxed && streams().any_capturing()) { \
    return kCaptureUnsupported;                                                 \
  }                                                                             \
  static_assert(true)
constexpr int kCaptureUnsupported = 900;

// ---- start, devices -----------------------------------------------------------------------------

CUDA_CALL(cuInit, (unsigned flags)) {
  ENTER(cuInit);
  if (flags != 0) {
    return kInvalidValue;
  }
  if (device_count() == 0) {
    return cuda::kErrorNoDevice;
  }
  state().initialized.store(true);
  return kSuccess;
}

CUDA_CALL(cuDriverGetVersion, (int* version)) {
  ENTER(cuDriverGetVersion);
  *version = 12040;
  return kSuccess;
}

CUDA_CALL(cuGetErrorName, (int error, const char** text)) {
  *text = error_name(error, false);
  return kSuccess;
}

CUDA_CALL(cuGetErrorString, (int error, const char** text)) {
  *text = error == kSuccess ? "no error" : "reported by the fake";
  return kSuccess;
}

CUDA_CALL(cuDeviceGetCount, (int* count)) {
  NEEDS_INIT(cuDeviceGetCount);
  *count = device_count();
  return kSuccess;
}

CUDA_CALL(cuDeviceGet, (int* device, int ordinal)) {
  NEEDS_INIT(cuDeviceGet);
  if (!is_device(ordinal)) {
    return kInvalidDevice;
  }
  *device = ordinal;
  return kSuccess;
}

CUDA_CALL(cuDeviceGetName, (char* name, int bytes, int device)) {
  NEEDS_INIT(cuDeviceGetName);
  if (!is_device(device) || bytes <= 0) {
    return kInvalidDevice;
  }
  std::snprintf(name, static_cast<std::size_t>(bytes), "Fake CUDA device");
  return kSuccess;
}

CUDA_CALL(cuDeviceGetUuid_v2, (cuda::Uuid * uuid, int device)) {
  NEEDS_INIT(cuDeviceGetUuid_v2);
  if (!is_device(device)) {
    return kInvalidDevice;
  }
  for (int i = 0; i < 16; ++i) {
    uuid->bytes[i] = static_cast<unsigned char>(i == 15 ? device : 0xf0 + i % 10);
  }
  return kSuccess;
}

CUDA_CALL(cuDeviceGetUuid, (cuda::Uuid * uuid, int device)) {
  return cuDeviceGetUuid_v2(uuid, device);
}

CUDA_CALL(cuDeviceGetPCIBusId, (char* text, int bytes, int device)) {
  NEEDS_INIT(cuDeviceGetPCIBusId);
  if (!is_device(device) || bytes < 13) {
    return kInvalidValue;
  }
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", 0x10 + device);
  return kSuccess;
}

CUDA_CALL(cuDeviceGetAttribute, (int* value, int attribute, int device)) {
  NEEDS_INIT(cuDeviceGetAttribute);
  if (!is_device(device)) {
    return kInvalidDevice;
  }
  constexpr int kMultiprocessorCount = 16;
  constexpr int kMpsEnabled = 133;
  constexpr int kComputeCapabilityMajor = 75;
  constexpr int kPciBusId = 33;
  constexpr int kUnifiedAddressing = 41;
  const int processors = state().mps_processors.load();
  switch (attribute) {
    case kMultiprocessorCount:
      *value = processors > 0 ? processors : 132;
      break;
    case kMpsEnabled:
      *value = processors > 0 ? 1 : 0;
      break;
    case kComputeCapabilityMajor:
      *value = 9;
      break;
    case kPciBusId:
      *value = 0x10 + device;
      break;
    case kUnifiedAddressing:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return kSuccess;
}

CUDA_CALL(cuDeviceTotalMem_v2, (std::size_t * bytes, int device)) {
  NEEDS_INIT(cuDeviceTotalMem_v2);
  if (!is_device(device)) {
    return kInvalidDevice;
  }
  const std::lock_guard lock(state().mutex);
  *bytes = state().memory_max;
  return kSuccess;
}

CUDA_CALL(cuDeviceCanAccessPeer, (int* can, int device, int peer)) {
  NEEDS_INIT(cuDeviceCanAccessPeer);
  if (!is_device(device) || !is_device(peer)) {
    return kInvalidDevice;
  }
  *can = device != peer;
  return kSuccess;
}

// ---- contexts -----------------------------------------------------------------------------------

CUDA_CALL(cuDevicePrimaryCtxRetain, (CUctx_st * *context, int device)) {
  NEEDS_INIT(cuDevicePrimaryCtxRetain);
  if (!is_device(device)) {
    return kInvalidDevice;
  }
  const std::lock_guard lock(state().mutex);
  CUctx_st*& primary = state().primary[device];
  if (primary == nullptr || primary->is_destroyed) {
    primary = state().contexts.emplace_back(new CUctx_st);
    primary->device = device;
  }
  ++primary->references;
  *context = primary;
  return kSuccess;
}

CUDA_CALL(cuDevicePrimaryCtxRelease_v2, (int device)) {
  NEEDS_INIT(cuDevicePrimaryCtxRelease_v2);
  if (!is_device(device)) {
    return kInvalidDevice;
  }
  const std::lock_guard lock(state().mutex);
  CUctx_st* primary = state().primary[device];
  if (primary == nullptr || primary->references == 0) {
    return kInvalidContext;
  }
  --primary->references;
  return kSuccess;
}

CUDA_CALL(cuDevicePrimaryCtxGetState, (int device, unsigned* flags, int* active)) {
  NEEDS_INIT(cuDevicePrimaryCtxGetState);
  if (!is_device(device)) {
    return kInvalidDevice;
  }
  const std::lock_guard lock(state().mutex);
  const CUctx_st* primary = state().primary[device];
  *flags = 0;
  *active = primary != nullptr && primary->references > 0;
  return kSuccess;
}

CUDA_CALL(cuCtxSetCurrent, (CUctx_st * context)) {
  NEEDS_INIT(cuCtxSetCurrent);
  if (!context_stack.empty()) {
    context_stack.pop_back();
  }
  if (context != nullptr) {
    context_stack.push_back(context);
  }
  return kSuccess;
}

CUDA_CALL(cuCtxPushCurrent_v2, (CUctx_st * context)) {
  NEEDS_INIT(cuCtxPushCurrent_v2);
  if (context == nullptr) {
    return kInvalidContext;
  }
  const std::lock_guard lock(state().mutex);
  if (context->is_destroyed) {
    return cuda::kErrorContextIsDestroyed;
  }
  context_stack.push_back(context);
  return kSuccess;
}

CUDA_CALL(cuCtxPopCurrent_v2, (CUctx_st * *context)) {
  NEEDS_INIT(cuCtxPopCurrent_v2);
  if (context_stack.empty()) {
    return kInvalidContext;
  }
  if (context != nullptr) {
    *context = context_stack.back();
  }
  context_stack.pop_back();
  return kSuccess;
}

CUDA_CALL(cuCtxGetCurrent, (CUctx_st * *context)) {
  NEEDS_INIT(cuCtxGetCurrent);
  *context = current();
  return kSuccess;
}

CUDA_CALL(cuCtxGetDevice, (int* device)) {
  NEEDS_CONTEXT(cuCtxGetDevice);
  *device = current()->device;
  return kSuccess;
}

CUDA_CALL(cuCtxSynchronize, ()) {
  NEEDS_CONTEXT(cuCtxSynchronize);
  return code_of(host().wait_device(current()->device), kUnknown);
}

CUDA_CALL(cuCtxGetStreamPriorityRange, (int* least, int* greatest)) {
  NEEDS_CONTEXT(cuCtxGetStreamPriorityRange);
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

CUDA_CALL(cuCtxEnablePeerAccess, (CUctx_st * peer, unsigned)) {
  NEEDS_CONTEXT(cuCtxEnablePeerAccess);
  return peer == nullptr || peer == current() ? kInvalidContext : kSuccess;
}

// ---- memory -------------------------------------------------------------------------------------

CUDA_CALL(cuMemAlloc_v2, (DevicePointer * pointer, std::size_t bytes)) {
  NEEDS_CONTEXT(cuMemAlloc_v2);
  NO_CAPTURE();
  if (pointer == nullptr || bytes == 0) {
    return kInvalidValue;
  }
  const std::lock_guard lock(state().mutex);
  std::size_t& used = state().memory[current()->device];
  if (bytes > state().memory_max - std::min(used, state().memory_max)) {
    return cuda::kErrorOutOfMemory;
  }
  tutti::Result<void*> memory = host().allocate_device(current()->device, bytes);
  if (!memory.ok()) {
    return code_of(memory.status(), kInvalidValue);
  }
  used += tutti_host_device_range(*memory).bytes;
  state().context_of[*memory] = current();
  *pointer = reinterpret_cast<DevicePointer>(*memory);
  return kSuccess;
}

CUDA_CALL(cuMemFree_v2, (DevicePointer pointer)) {
  NEEDS_CONTEXT(cuMemFree_v2);
  NO_CAPTURE();
  const auto range = tutti_host_device_range(as_pointer(pointer));
  const int code = free_memory(as_pointer(pointer));
  if (code == kSuccess && range.device >= 0) {
    const std::lock_guard lock(state().mutex);
    state().context_of.erase(range.base);
    state().memory[range.device] -= range.bytes;
  }
  return code;
}

CUDA_CALL(cuMemAllocManaged, (DevicePointer * pointer, std::size_t bytes, unsigned)) {
  NEEDS_CONTEXT(cuMemAllocManaged);
  void* memory = nullptr;
  const int code = managed().allocate(&memory, bytes);
  *pointer = reinterpret_cast<DevicePointer>(memory);
  return code;
}

CUDA_CALL(cuMemHostAlloc, (void** pointer, std::size_t bytes, unsigned flags)) {
  NEEDS_CONTEXT(cuMemHostAlloc);
  NO_CAPTURE();
  if (flags > 7) {
    return kInvalidValue;
  }
  tutti::Result<void*> memory = host().allocate_pinned(bytes, tutti::device::Api::kAnyDevice);
  if (!memory.ok()) {
    return code_of(memory.status(), kInvalidValue);
  }
  *pointer = *memory;
  keep_context(*pointer);
  return kSuccess;
}

CUDA_CALL(cuMemAllocHost_v2, (void** pointer, std::size_t bytes)) {
  return cuMemHostAlloc(pointer, bytes, 0);
}

CUDA_CALL(cuMemFreeHost, (void* pointer)) {
  NEEDS_CONTEXT(cuMemFreeHost);
  NO_CAPTURE();
  return code_of(host().free_pinned(pointer), kInvalidValue);
}

CUDA_CALL(cuMemHostGetDevicePointer_v2, (DevicePointer * device_pointer, void* pointer, unsigned)) {
  NEEDS_CONTEXT(cuMemHostGetDevicePointer_v2);
  if (is_pageable(pointer) || is_device_memory(pointer)) {
    return kInvalidValue;
  }
  *device_pointer = reinterpret_cast<DevicePointer>(pointer);
  return kSuccess;
}

CUDA_CALL(cuMemGetAddressRange_v2,
          (DevicePointer * base, std::size_t* bytes, DevicePointer pointer)) {
  NEEDS_CONTEXT(cuMemGetAddressRange_v2);
  const auto range = tutti_host_device_range(as_pointer(pointer));
  if (range.device < 0) {
    return kNotFound;
  }
  if (base != nullptr) {
    *base = reinterpret_cast<DevicePointer>(range.base);
  }
  if (bytes != nullptr) {
    *bytes = range.bytes;
  }
  return kSuccess;
}

CUDA_CALL(cuMemGetInfo_v2, (std::size_t * free_bytes, std::size_t* total_bytes)) {
  NEEDS_CONTEXT(cuMemGetInfo_v2);
  *free_bytes = std::size_t{15} << 30;
  *total_bytes = std::size_t{16} << 30;
  return kSuccess;
}

CUDA_CALL(cuPointerGetAttributes,
          (unsigned count, int* attributes, void** data, DevicePointer pointer)) {
  NEEDS_INIT(cuPointerGetAttributes);
  const void* address = as_pointer(pointer);
  const auto range = tutti_host_device_range(address);
  const bool is_managed = managed().contains(address);
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case cuda::kPointerAttributeMemoryType:
        // 0 for what the driver does not know; managed memory says "device".
        *static_cast<unsigned*>(data[i]) =
            range.device >= 0 || is_managed ? cuda::kMemoryTypeDevice : (range.bytes != 0 ? 1 : 0);
        break;
      case cuda::kPointerAttributeIsManaged:
        *static_cast<unsigned char*>(data[i]) = is_managed;
        break;
      case cuda::kPointerAttributeContext:
        // None for memory that was mapped (cuMemMap): that is every context's.
        *static_cast<CUctx_st**>(data[i]) = context_of(range.base);
        break;
      case cuda::kPointerAttributeDeviceOrdinal:
        *static_cast<int*>(data[i]) = range.bytes == 0 ? -2 : std::max(range.device, 0);
        break;
      default:
        return kInvalidValue;
    }
  }
  return kSuccess;
}

CUDA_CALL(cuPointerGetAttribute, (void* data, int attribute, DevicePointer pointer)) {
  NEEDS_INIT(cuPointerGetAttribute);
  if (tutti_host_device_range(as_pointer(pointer)).bytes == 0) {
    return kInvalidValue;
  }
  return cuPointerGetAttributes(1, &attribute, &data, pointer);
}

CUDA_CALL(cuMemcpy, (DevicePointer destination, DevicePointer source, std::size_t bytes)) {
  NEEDS_CONTEXT(cuMemcpy);
  NO_CAPTURE();
  return copy(as_pointer(destination), as_pointer(source), bytes, current()->device);
}

CUDA_CALL(cuMemcpyHtoD_v2, (DevicePointer destination, const void* source, std::size_t bytes)) {
  NEEDS_CONTEXT(cuMemcpyHtoD_v2);
  if (bytes != 0 && !is_device_memory(as_pointer(destination))) {
    return kInvalidValue;
  }
  return copy(as_pointer(destination), source, bytes, current()->device);
}

CUDA_CALL(cuMemcpyDtoH_v2, (void* destination, DevicePointer source, std::size_t bytes)) {
  NEEDS_CONTEXT(cuMemcpyDtoH_v2);
  if (bytes != 0 && !is_device_memory(as_pointer(source))) {
    return kInvalidValue;
  }
  return copy(destination, as_pointer(source), bytes, current()->device);
}

CUDA_CALL(cuMemcpyDtoD_v2, (DevicePointer destination, DevicePointer source, std::size_t bytes)) {
  NEEDS_CONTEXT(cuMemcpyDtoD_v2);
  return copy(as_pointer(destination), as_pointer(source), bytes, current()->device);
}

/// The host device's stream of a handle, in a function whose `stream` is a parameter.
#define FIND_STREAM(name)                                                       \
  const tutti::device::Stream name = streams().find(stream, current()->device); \
  if (name == nullptr) {                                                        \
    return kInvalidHandle;                                                      \
  }                                                                             \
  static_assert(true)

CUDA_CALL(cuMemcpyAsync,
          (DevicePointer destination, DevicePointer source, std::size_t bytes, void* stream)) {
  NEEDS_CONTEXT(cuMemcpyAsync);
  FIND_STREAM(queue);
  return copy_async(as_pointer(destination), as_pointer(source), bytes, queue);
}

CUDA_CALL(cuMemcpyHtoDAsync_v2,
          (DevicePointer destination, const void* source, std::size_t bytes, void* stream)) {
  NEEDS_CONTEXT(cuMemcpyHtoDAsync_v2);
  FIND_STREAM(queue);
  return copy_async(as_pointer(destination), source, bytes, queue);
}

CUDA_CALL(cuMemcpyDtoHAsync_v2,
          (void* destination, DevicePointer source, std::size_t bytes, void* stream)) {
  NEEDS_CONTEXT(cuMemcpyDtoHAsync_v2);
  FIND_STREAM(queue);
  return copy_async(destination, as_pointer(source), bytes, queue);
}

CUDA_CALL(cuMemcpyDtoDAsync_v2,
          (DevicePointer destination, DevicePointer source, std::size_t bytes, void* stream)) {
  NEEDS_CONTEXT(cuMemcpyDtoDAsync_v2);
  FIND_STREAM(queue);
  return copy_async(as_pointer(destination), as_pointer(source), bytes, queue);
}

CUDA_CALL(cuMemsetD8_v2, (DevicePointer destination, unsigned char value, std::size_t count)) {
  NEEDS_CONTEXT(cuMemsetD8_v2);
  return fill(as_pointer(destination), value, count, streams().find(nullptr, current()->device));
}

CUDA_CALL(cuMemsetD8Async,
          (DevicePointer destination, unsigned char value, std::size_t count, void* stream)) {
  NEEDS_CONTEXT(cuMemsetD8Async);
  FIND_STREAM(queue);
  return fill(as_pointer(destination), value, count, queue);
}

// ---- streams and events -------------------------------------------------------------------------

CUDA_CALL(cuStreamCreateWithPriority, (void** stream, unsigned flags, int)) {
  NEEDS_CONTEXT(cuStreamCreateWithPriority);
  if (flags > cuda::kStreamNonBlocking) {
    return kInvalidValue;
  }
  const int code = streams().create(stream, current()->device, flags == 0);
  if (code == kSuccess) {
    keep_context(*stream);
  }
  return code;
}

CUDA_CALL(cuStreamCreate, (void** stream, unsigned flags)) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

CUDA_CALL(cuStreamDestroy_v2, (void* stream)) {
  NEEDS_CONTEXT(cuStreamDestroy_v2);
  return streams().destroy(stream);
}

CUDA_CALL(cuStreamQuery, (void* stream)) {
  NEEDS_CONTEXT(cuStreamQuery);
  NO_CAPTURE();
  FIND_STREAM(queue);
  return event_result(host().stream_done(queue));
}

CUDA_CALL(cuStreamSynchronize, (void* stream)) {
  NEEDS_CONTEXT(cuStreamSynchronize);
  NO_CAPTURE();
  FIND_STREAM(queue);
  streams().order(queue);
  return code_of(host().wait_stream(queue), kUnknown);
}

CUDA_CALL(cuStreamGetCtx, (void* stream, CUctx_st** context)) {
  NEEDS_INIT(cuStreamGetCtx);
  if (is_default_stream(stream)) {
    *context = current();
    return current() == nullptr ? kInvalidContext : kSuccess;
  }
  if (streams().device_of(stream) < 0) {
    return kInvalidHandle;
  }
  *context = context_of(stream);
  return kSuccess;
}

CUDA_CALL(cuStreamIsCapturing, (void* stream, int* status)) {
  NEEDS_CONTEXT(cuStreamIsCapturing);
  FIND_STREAM(queue);
  *status = streams().is_capturing(queue) ? 1 : 0;
  return kSuccess;
}

CUDA_CALL(cuThreadExchangeStreamCaptureMode, (int* mode)) {
  NEEDS_INIT(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, capture_mode);
  return kSuccess;
}

CUDA_CALL(cuStreamWaitEvent, (void* stream, void* event, unsigned)) {
  NEEDS_CONTEXT(cuStreamWaitEvent);
  FIND_STREAM(queue);
  streams().order(queue);
  return code_of(host().stream_wait_event(queue, event), kInvalidHandle);
}

CUDA_CALL(cuLaunchHostFunc, (void* stream, void (*function)(void*), void* argument)) {
  NEEDS_CONTEXT(cuLaunchHostFunc);
  FIND_STREAM(queue);
  streams().order(queue);
  tutti_host_device_enqueue(queue, function, argument);
  return kSuccess;
}

CUDA_CALL(cuEventCreate, (void** event, unsigned)) {
  NEEDS_CONTEXT(cuEventCreate);
  *event = *host().create_event(current()->device);
  keep_context(*event);
  return kSuccess;
}

CUDA_CALL(cuEventDestroy_v2, (void* event)) {
  NEEDS_CONTEXT(cuEventDestroy_v2);
  return code_of(host().destroy_event(event), kInvalidHandle);
}

CUDA_CALL(cuEventRecord, (void* event, void* stream)) {
  NEEDS_CONTEXT(cuEventRecord);
  FIND_STREAM(queue);
  if (streams().is_capturing(queue)) {
    return kCaptureUnsupported;  // Stricter than the driver: the event would be the graph's.
  }
  if (context_of(event) != (is_default_stream(stream) ? current() : context_of(stream))) {
    return kInvalidHandle;
  }
  streams().order(queue);
  return code_of(host().record_event(event, queue), kInvalidHandle);
}

CUDA_CALL(cuEventQuery, (void* event)) {
  NEEDS_CONTEXT(cuEventQuery);
  NO_CAPTURE();
  return event_result(host().event_done(event));
}

CUDA_CALL(cuEventSynchronize, (void* event)) {
  NEEDS_CONTEXT(cuEventSynchronize);
  return wait_event(event);
}

// ---- handles for other processes, modules -------------------------------------------------------

CUDA_CALL(cuIpcGetMemHandle, (cuda::IpcMemHandle * handle, DevicePointer pointer)) {
  NEEDS_CONTEXT(cuIpcGetMemHandle);
  return ipc_export(handle->reserved, as_pointer(pointer));
}

CUDA_CALL(cuIpcOpenMemHandle_v2,
          (DevicePointer * pointer, cuda::IpcMemHandle handle, unsigned flags)) {
  NEEDS_CONTEXT(cuIpcOpenMemHandle_v2);
  if (flags != cuda::kIpcMemLazyEnablePeerAccess) {
    return kInvalidValue;
  }
  void* mapped = nullptr;
  const int code = imports().open(&mapped, current()->device, handle.reserved);
  *pointer = reinterpret_cast<DevicePointer>(mapped);
  return code;
}

CUDA_CALL(cuIpcCloseMemHandle, (DevicePointer pointer)) {
  NEEDS_CONTEXT(cuIpcCloseMemHandle);
  return imports().close(as_pointer(pointer));
}

// Virtual memory, in the one order in which it can be put to use: memory is made or imported, then
// addresses are reserved for it by the same thread, then it is mapped. The addresses are those that
// the host device's memory has anyway. A fabric there is none.

struct VirtualMemory {
  void* pointer = nullptr;
  bool is_import = false;
  int device = -1;
};
thread_local cuda::MemHandle unreserved = 0;

int shown_by(int type) {
  return type == cuda::kMemHandlePosixDescriptor ? kSuccess : 800;  // CUDA_ERROR_NOT_PERMITTED
}

/// Behind the descriptor is a file with the host device's handle in it.
int export_descriptor(int* descriptor, void* pointer) {
  tutti::Result<tutti::device::IpcHandle> exported = host().export_memory(pointer);
  *descriptor = memfd_create("fake-cuda-memory", MFD_CLOEXEC);
  return exported.ok() && *descriptor >= 0 &&
                 write(*descriptor, exported->bytes, sizeof exported->bytes) ==
                     static_cast<ssize_t>(sizeof exported->bytes)
             ? kSuccess
             : kUnknown;
}

int import_descriptor(void** pointer, int device, int descriptor) {
  tutti::device::IpcHandle inner;
  if (pread(descriptor, inner.bytes, sizeof inner.bytes, 0) !=
      static_cast<ssize_t>(sizeof inner.bytes)) {
    return kInvalidValue;
  }
  tutti::Result<void*> mapped = host().open_memory(device, inner);
  *pointer = mapped.ok() ? *mapped : nullptr;
  return mapped.ok() ? kSuccess : kInvalidValue;
}

CUDA_CALL(cuMemGetAllocationGranularity,
          (std::size_t * bytes, const cuda::MemProperties* properties, int option)) {
  NEEDS_CONTEXT(cuMemGetAllocationGranularity);
  if (properties->type != cuda::kMemAllocationPinned || option != cuda::kMemGranularityMinimum) {
    return kInvalidValue;
  }
  *bytes = 64 << 10;
  return kSuccess;
}

CUDA_CALL(cuMemCreate, (cuda::MemHandle * handle, std::size_t bytes,
                        const cuda::MemProperties* properties, unsigned long long flags)) {
  NEEDS_CONTEXT(cuMemCreate);
  if (bytes == 0 || bytes % (64 << 10) != 0 || flags != 0 ||
      properties->location.type != cuda::kMemLocationDevice) {
    return kInvalidValue;
  }
  if (const int refused = shown_by(properties->handle_types); refused != kSuccess) {
    return refused;
  }
  tutti::Result<void*> made = host().allocate_device(properties->location.id, bytes);
  if (!made.ok()) {
    return cuda::kErrorOutOfMemory;
  }
  auto* const memory = new VirtualMemory{*made, false, properties->location.id};
  *handle = unreserved = reinterpret_cast<cuda::MemHandle>(memory);
  return kSuccess;
}

CUDA_CALL(cuMemImportFromShareableHandle, (cuda::MemHandle * handle, void* shared, int type)) {
  NEEDS_CONTEXT(cuMemImportFromShareableHandle);
  if (const int refused = shown_by(type); refused != kSuccess) {
    return refused;
  }
  void* pointer = nullptr;
  const int code = import_descriptor(&pointer, current()->device,
                                     static_cast<int>(reinterpret_cast<std::intptr_t>(shared)));
  if (code != kSuccess) {
    return code;
  }
  *handle = unreserved =
      reinterpret_cast<cuda::MemHandle>(new VirtualMemory{pointer, true, current()->device});
  return kSuccess;
}

CUDA_CALL(cuMemExportToShareableHandle,
          (void* shared, cuda::MemHandle handle, int type, unsigned long long flags)) {
  NEEDS_CONTEXT(cuMemExportToShareableHandle);
  if (const int refused = shown_by(type); refused != kSuccess || flags != 0) {
    return refused != kSuccess ? refused : kInvalidValue;
  }
  return export_descriptor(static_cast<int*>(shared),
                           reinterpret_cast<VirtualMemory*>(handle)->pointer);
}

CUDA_CALL(cuMemAddressReserve, (DevicePointer * pointer, std::size_t, std::size_t alignment,
                                DevicePointer wanted, unsigned long long flags)) {
  NEEDS_CONTEXT(cuMemAddressReserve);
  if (unreserved == 0 || alignment != 0 || wanted != 0 || flags != 0) {
    return kInvalidValue;
  }
  *pointer = reinterpret_cast<DevicePointer>(
      reinterpret_cast<VirtualMemory*>(std::exchange(unreserved, 0))->pointer);
  return kSuccess;
}

CUDA_CALL(cuMemAddressFree, (DevicePointer, std::size_t)) {
  NEEDS_CONTEXT(cuMemAddressFree);
  return kSuccess;
}

CUDA_CALL(cuMemMap, (DevicePointer pointer, std::size_t, std::size_t offset, cuda::MemHandle handle,
                     unsigned long long flags)) {
  NEEDS_CONTEXT(cuMemMap);
  return offset == 0 && flags == 0 &&
                 as_pointer(pointer) == reinterpret_cast<VirtualMemory*>(handle)->pointer
             ? kSuccess
             : kInvalidValue;
}

CUDA_CALL(cuMemSetAccess,
          (DevicePointer, std::size_t, const cuda::MemAccess* access, std::size_t count)) {
  NEEDS_CONTEXT(cuMemSetAccess);
  return count == 1 && access->flags == cuda::kMemAccessReadWrite &&
                 access->location.type == cuda::kMemLocationDevice
             ? kSuccess
             : kInvalidValue;
}

CUDA_CALL(cuMemUnmap, (DevicePointer, std::size_t)) {
  NEEDS_CONTEXT(cuMemUnmap);
  return kSuccess;
}

CUDA_CALL(cuMemRelease, (cuda::MemHandle handle)) {
  NEEDS_CONTEXT(cuMemRelease);
  auto* const memory = reinterpret_cast<VirtualMemory*>(handle);
  const tutti::Status freed = memory->is_import ? host().close_memory(memory->pointer)
                                                : host().free_device(memory->pointer);
  delete memory;
  return code_of(freed, kInvalidValue);
}

CUDA_CALL(cuModuleLoadData, (void** module, const void* image)) {
  NEEDS_CONTEXT(cuModuleLoadData);
  NO_CAPTURE();
  tutti::Result<void*> loaded =
      host().load_module(current()->device, is_ptx(image) ? &ptx_module() : image);
  if (!loaded.ok()) {
    return 200;  // CUDA_ERROR_INVALID_IMAGE
  }
  *module = *loaded;
  return kSuccess;
}

CUDA_CALL(cuModuleUnload, (void* module)) {
  NEEDS_CONTEXT(cuModuleUnload);
  NO_CAPTURE();
  return code_of(host().unload_module(module), kInvalidHandle);
}

CUDA_CALL(cuModuleGetFunction, (void** function, void* module, const char* name)) {
  NEEDS_CONTEXT(cuModuleGetFunction);
  tutti::Result<void*> found = host().find_function(module, name);
  if (!found.ok()) {
    return kNotFound;
  }
  *function = *found;
  return kSuccess;
}

CUDA_CALL(cuLaunchKernel, (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, void* stream, void** arguments, void** extra)) {
  NEEDS_CONTEXT(cuLaunchKernel);
  if (extra != nullptr) {
    return kNotSupported;
  }
  const unsigned shape[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes};
  return launch(function, shape, stream, current()->device, arguments);
}

// ---- for tests and for the fakes of the libraries above ---------------------------------------

TUTTI_FAKE_EXPORT void tutti_fake_capture(void* stream, int on) {
  streams().set_capturing(streams().find(stream, current() == nullptr ? 0 : current()->device),
                          on != 0);
}

TUTTI_FAKE_EXPORT void tutti_fake_enqueue(void* stream, void (*function)(void*), void* argument) {
  const tutti::device::Stream queue =
      streams().find(stream, current() == nullptr ? 0 : current()->device);
  if (queue == nullptr) {
    std::fprintf(stderr, "fake libcuda: tutti_fake_enqueue on an unknown stream\n");
    std::abort();
  }
  streams().order(queue);
  tutti_host_device_enqueue(queue, function, argument);
}

TUTTI_FAKE_EXPORT void tutti_fake_fail(const char* spec) { calls().set_failures(spec); }

TUTTI_FAKE_EXPORT long tutti_fake_calls(const char* symbol) { return calls().count(symbol); }

TUTTI_FAKE_EXPORT int tutti_fake_active_contexts() {
  const std::lock_guard lock(state().mutex);
  int active = 0;
  for (const CUctx_st* primary : state().primary) {
    active += primary != nullptr && !primary->is_destroyed && primary->references > 0;
  }
  return active;
}

TUTTI_FAKE_EXPORT void tutti_fake_reset_device(int device) {
  const std::lock_guard lock(state().mutex);
  if (is_device(device) && state().primary[device] != nullptr) {
    state().primary[device]->is_destroyed = true;
  }
}

TUTTI_FAKE_EXPORT CUctx_st* tutti_fake_new_context(int device) {
  const std::lock_guard lock(state().mutex);
  CUctx_st* const made = state().contexts.emplace_back(new CUctx_st);
  made->device = device;
  return made;
}

TUTTI_FAKE_EXPORT CUctx_st* tutti_fake_context(void* handle) { return context_of(handle); }

TUTTI_FAKE_EXPORT std::size_t tutti_fake_memory(int device) {
  const std::lock_guard lock(state().mutex);
  return is_device(device) ? state().memory[device] : 0;
}

TUTTI_FAKE_EXPORT void tutti_fake_mps(int processors) { state().mps_processors = processors; }

TUTTI_FAKE_EXPORT void tutti_fake_memory_max(std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  state().memory_max = bytes;
}
