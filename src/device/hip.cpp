// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The table over the HIP runtime, found by dlopen. HIP has no context stack that is worth using:
// the current device is a number per thread, saved before and set again after every call.
//
// Two habits of HIP that shape this file:
//  - Any call initialises the runtime; there is no way to ask whether the application did it. So
//    open() calls nothing, and the first question about a pointer pays for the start.
//  - A failing call sets the thread's "last error", which the application may read next. Every
//    failure of ours, also "not ready", is taken back with hipGetLastError.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "device/driver_hip.hpp"
#include "device/gpu_api.hpp"

namespace tutti::device {
namespace {

/// Names the default stream, which is null in HIP, as null is no stream of ours. The value is
/// hipStreamLegacy of later versions.
const Stream kDefaultStream = reinterpret_cast<Stream>(1);

void* as_pointer(int device) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(device)); }

class HipApi final : public GpuApi {
 public:
  HipApi(DynamicLibrary library, const driver::Functions& common, const hip::Functions& functions)
      : GpuApi(library, common), hip_(functions) {}

  const char* name() const override { return "hip"; }
  int warp_threads() const override { return 64; }

  std::string library() const override {
    std::string text = library_.path();
    // Only when it is known already: asking starts the runtime.
    if (const int version = version_.load(std::memory_order_relaxed); version > 0) {
      text += " (HIP " + std::to_string(version / 10000000) + "." +
              std::to_string(version / 100000 % 100) + ")";
    }
    return text;
  }

  Status initialize() override {
    TUTTI_RETURN_IF_ERROR(GpuApi::initialize());
    (void)version();
    return {};
  }

  PointerInfo classify(const void* pointer) override {
    unsigned memory_type = 0;
    unsigned is_managed = 0;  // The library writes one byte or four, depending on its version.
    int ordinal = -1;
    int attributes[] = {hip::kPointerAttributeMemoryType, hip::kPointerAttributeIsManaged,
                        hip::kPointerAttributeDeviceOrdinal};
    void* values[] = {&memory_type, &is_managed, &ordinal};
    if (hip_.drv_pointer_get_attributes(3, attributes, values, const_cast<void*>(pointer)) !=
        hip::kSuccess) {
      forget_last_error();
      return {};
    }
    // 1 is "device" up to ROCm 5 and "host" since ROCm 6.
    const unsigned device_type =
        version() < 60000000 ? hip::kMemoryTypeDeviceRocm5 : hip::kMemoryTypeDeviceRocm6;
    if (memory_type != device_type || is_managed != 0 || ordinal < 0) {
      return {};
    }
    return {MemoryKind::kDevice, ordinal};
  }

  int current_device() override {
    int device = -1;
    if (hip_.get_device(&device) != hip::kSuccess) {
      forget_last_error();
      return -1;
    }
    return device;
  }

  Result<std::string> identity(int device) override {
    // Both: partitions of one GPU may share either the UUID or the bus id.
    TUTTI_ASSIGN_OR_RETURN(const std::string bus, pci_address(device));
    if (!gpu_.device_get_uuid) {
      return "GPU-" + bus;
    }
    TUTTI_ASSIGN_OR_RETURN(const hip::Device handle, device_handle(device));
    hip::Uuid uuid{};
    TUTTI_RETURN_IF_ERROR(check(gpu_.device_get_uuid(&uuid, handle)));
    std::string text = "GPU-";
    for (const unsigned char byte : uuid.bytes) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", byte);
      text += digits;
    }
    return text + "-" + bus;
  }

  Status copy_async(void* destination, const void* source, Bytes bytes, Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    if (bytes == 0) {
      return {};
    }
    return check(
        hip_.memcpy_async(destination, source, bytes, hip::kMemcpyDefault, native_stream(stream)));
  }

  Status fill_async(void* destination, int value, Bytes bytes, Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    if (bytes == 0) {
      return {};
    }
    return check(hip_.memset_async(destination, value, bytes, native_stream(stream)));
  }

  Result<Stream> default_stream(int /*device*/) override { return kDefaultStream; }
  Stream native_stream(Stream stream) const override {
    return stream == kDefaultStream ? nullptr : stream;
  }

  Result<void*> allocate_pinned(Bytes bytes, int device) override {
    if (bytes == 0) {
      return no_bytes();
    }
    Scope scope(*this);
    if (device != kAnyDevice) {
      TUTTI_RETURN_IF_ERROR(scope.enter(device));
    }
    // Coherent: without it a running kernel may never see what the CPU writes (MI100, MI200).
    constexpr unsigned kFlags = hip::kHostPortable | hip::kHostMapped | hip::kHostMallocCoherent;
    void* pointer = nullptr;
    TUTTI_RETURN_IF_ERROR(check(gpu_.host_alloc(&pointer, bytes, kFlags)));
    return pointer;
  }

  Status free_pinned(void* pointer) override { return check_free(gpu_.host_free(pointer)); }

  Result<void*> allocate_device(int device, Bytes bytes) override {
    if (bytes == 0) {
      return no_bytes();
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    void* pointer = nullptr;
    TUTTI_RETURN_IF_ERROR(check(hip_.malloc(&pointer, bytes)));
    return own(pointer, device);
  }

  /// Kernels of one GPU wait for what those of another write into it, which plain device memory
  /// promises only to kernels that begin later.
  Result<void*> allocate_shared(int device, Bytes bytes, Sharing sharing) override {
    if (sharing != Sharing::kIpc) {
      return Api::allocate_shared(device, bytes, sharing);
    }
    if (bytes == 0) {
      return no_bytes();
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    std::string why = "the library has no hipExtMallocWithFlags";
    if (hip_.ext_malloc_with_flags) {
      for (const unsigned flags : {hip::kDeviceMallocUncached, hip::kDeviceMallocFinegrained}) {
        void* pointer = nullptr;
        const hip::Outcome result = hip_.ext_malloc_with_flags(&pointer, bytes, flags);
        const Status status = check(result);
        if (status.ok()) {
          return own(pointer, device);
        }
        if (result != hip::kErrorInvalidValue && result != hip::kErrorNotSupported) {
          return status;
        }
        why = status.message();
      }
    }
    if (!has_warned_.exchange(true)) {
      log(LogLevel::kWarn,
          "hip: memory that GPUs share is cached: " + why +
              "; should calls of the plan direct end with a timeout, set TUTTI_DIRECT=off");
    }
    return allocate_device(device, bytes);
  }

  Status free_device(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
    owners_.remove(pointer);
    return check_free(hip_.free(pointer));
  }

  Result<IpcHandle> export_memory(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_owner(pointer));
    hip::IpcMemHandle inner{};
    TUTTI_RETURN_IF_ERROR(check(hip_.ipc_get_mem_handle(&inner, pointer)));
    IpcHandle handle{};
    static_assert(sizeof handle.bytes == sizeof inner.reserved);
    std::memcpy(handle.bytes, inner.reserved, sizeof handle.bytes);
    return handle;
  }

  Result<void*> open_memory(int device, const IpcHandle& handle) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    hip::IpcMemHandle inner{};
    std::memcpy(inner.reserved, handle.bytes, sizeof handle.bytes);
    void* pointer = nullptr;
    // The only flag that the call takes changed its value from 0 to 1 within ROCm 5 and 6; the
    // wrong one is refused as an invalid value before anything happens.
    hip::Outcome result =
        hip_.ipc_open_mem_handle(&pointer, inner, hip::kIpcMemLazyEnablePeerAccess);
    if (result == hip::kErrorInvalidValue) {
      forget_last_error();
      result = hip_.ipc_open_mem_handle(&pointer, inner, hip::kIpcMemLazyEnablePeerAccessOld);
    }
    TUTTI_RETURN_IF_ERROR(check(result));
    return own(pointer, device);
  }

  Status close_memory(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
    return check_free(hip_.ipc_close_mem_handle(pointer));
  }

  Result<void*> make_current(int device) override {
    int previous = -1;
    TUTTI_RETURN_IF_ERROR(check(hip_.get_device(&previous)));
    if (previous != device) {
      TUTTI_RETURN_IF_ERROR(check(hip_.set_device(device)));
    }
    return as_pointer(previous);
  }

  void restore_current(void* previous) override {
    const int device = static_cast<int>(reinterpret_cast<std::intptr_t>(previous));
    // Set again without asking: the callee may have changed it.
    if (hip_.set_device(device) != hip::kSuccess) {
      forget_last_error();
    }
  }

 private:
  Status enter(Scope& scope, int device) override {
    int current = -1;
    TUTTI_RETURN_IF_ERROR(check(hip_.get_device(&current)));
    if (current == device) {
      return {};
    }
    TUTTI_RETURN_IF_ERROR(check(hip_.set_device(device)));
    scope.entered(as_pointer(current));
    return {};
  }
  Status enter_any(Scope& scope, int device) override {
    return device == Owners::kUnknown ? Status() : enter(scope, device);
  }
  /// The current one, as in HIP's own rules.
  Status enter_foreign(Scope& /*scope*/, Stream /*stream*/, bool /*is_judged*/) override {
    return {};
  }

  driver::Outcome copy_now(void* destination, const void* source, Bytes bytes) override {
    return hip_.memcpy(destination, source, bytes, hip::kMemcpyDefault);
  }
  std::pair<const char*, const char*> describe(driver::Result error) const override {
    return {hip_.get_error_name(error), hip_.get_error_string(error)};
  }
  void forget_last_error() const override { (void)hip_.get_last_error(); }

  /// The runtime's version, major * 10^7 + minor * 10^5 + patch; asked once.
  int version() {
    int known = version_.load(std::memory_order_relaxed);
    if (known == 0) {
      if (hip_.runtime_get_version(&known) != hip::kSuccess) {
        forget_last_error();
        return 0;
      }
      version_.store(known, std::memory_order_relaxed);
    }
    return known;
  }

  const hip::Functions hip_;
  std::atomic<int> version_ = 0;
  std::atomic<bool> has_warned_ = false;
};

/// The library that the process has already, else the newest that the linker finds.
Result<DynamicLibrary> find_library() {
  constexpr const char* kFiles[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                    "libamdhip64.so"};
  for (const char* file : kFiles) {
    if (Result<DynamicLibrary> library = DynamicLibrary::open_loaded(file); library.ok()) {
      return library;
    }
  }
  std::string why;
  for (const char* file : kFiles) {
    Result<DynamicLibrary> library = DynamicLibrary::open(file);
    if (library.ok()) {
      return library;
    }
    // The first one that is there but does not load says more than "no such file".
    if (why.empty() || library.status().message().find("No such file") == std::string::npos) {
      why = library.status().message();
    }
  }
  return Status(ErrorCode::kUnavailable, why);
}

}  // namespace

std::unique_ptr<Api> open_hip(OpenReport* report) {
  OpenReport unused;
  if (report == nullptr) {
    report = &unused;
  }
  report->taken = "none";
  Result<DynamicLibrary> library = find_library();
  if (!library.ok()) {
    report->reason = "hip: " + library.status().message();
    return nullptr;
  }
  driver::Functions common;
  hip::Functions functions;
  const char* missing = nullptr;
  const auto need = [&](bool is_there, const char* symbol) {
    if (!is_there && missing == nullptr) {
      missing = symbol;
    }
  };
#define TUTTI_RESOLVE_COMMON(member, cuda, hip, parameters) \
  need(common.member.resolve(*library, #hip), #hip);
#define TUTTI_RESOLVE(member, symbol, parameters) \
  need(functions.member.resolve(*library, #symbol), #symbol);
  TUTTI_DRIVER_FUNCTIONS(TUTTI_RESOLVE_COMMON)
  TUTTI_HIP_FUNCTIONS(TUTTI_RESOLVE)
  need(library->resolve("hipGetErrorName", &functions.get_error_name), "hipGetErrorName");
  need(library->resolve("hipGetErrorString", &functions.get_error_string), "hipGetErrorString");
  if (missing != nullptr) {
    report->reason =
        "hip: " + library->path() + " has no " + missing + " (ROCm 5 or newer is needed)";
    return nullptr;
  }
  TUTTI_DRIVER_OPTIONAL_FUNCTIONS(TUTTI_RESOLVE_COMMON)
  TUTTI_HIP_OPTIONAL_FUNCTIONS(TUTTI_RESOLVE)
#undef TUTTI_RESOLVE_COMMON
#undef TUTTI_RESOLVE
  auto api = std::make_unique<HipApi>(*library, common, functions);
  report->taken = "hip: " + api->library();
  report->reason.clear();
  return api;
}

}  // namespace tutti::device
