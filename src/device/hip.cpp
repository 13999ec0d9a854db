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

#include "base/dynamic_library.hpp"
#include "base/log.hpp"
#include "device/device.hpp"
#include "device/driver_hip.hpp"
#include "device/owners.hpp"

namespace tutti::device {
namespace {

ErrorCode code_of(hip::Result result) {
  switch (result) {
    case hip::kErrorOutOfMemory:
      return ErrorCode::kOutOfMemory;
    case hip::kErrorNotInitialized:
    case hip::kErrorDeinitialized:
    case hip::kErrorNoDevice:
      return ErrorCode::kUnavailable;
    case hip::kErrorNotSupported:
      return ErrorCode::kUnsupported;
    default:
      return ErrorCode::kLibraryFailed;
  }
}

Status no_bytes() { return Status(ErrorCode::kInvalidArgument, "hip: an allocation of 0 bytes"); }

/// Names the default stream, which is null in HIP, as null is no stream of ours. The value is
/// hipStreamLegacy of later versions.
const Stream kDefaultStream = reinterpret_cast<Stream>(1);

hip::Stream hip_stream(Stream stream) {
  return stream == kDefaultStream ? nullptr : static_cast<hip::Stream>(stream);
}

class HipApi final : public Api {
 public:
  HipApi(DynamicLibrary library, const hip::Functions& functions)
      : library_(library), hip_(functions) {}

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

  Result<int> device_count() override {
    int count = 0;
    const hip::Result result = hip_.get_device_count(&count);
    if (result == hip::kErrorNotInitialized || result == hip::kErrorNoDevice) {
      forget_last_error();
      return 0;
    }
    TUTTI_RETURN_IF_ERROR(check("hipGetDeviceCount", result));
    return count;
  }

  Status initialize() override {
    TUTTI_RETURN_IF_ERROR(check("hipInit", hip_.init(0)));
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
    char bus[64] = {};
    TUTTI_RETURN_IF_ERROR(
        check("hipDeviceGetPCIBusId", hip_.device_get_pci_bus_id(bus, sizeof bus - 1, device)));
    hip::Uuid uuid{};
    if (hip_.device_get_uuid == nullptr) {
      return "GPU-" + std::string(bus);
    }
    hip::Device handle = -1;
    TUTTI_RETURN_IF_ERROR(check("hipDeviceGet", hip_.device_get(&handle, device)));
    TUTTI_RETURN_IF_ERROR(check("hipDeviceGetUuid", hip_.device_get_uuid(&uuid, handle)));
    std::string text = "GPU-";
    for (const char byte : uuid.bytes) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
      text += digits;
    }
    return text + "-" + bus;
  }

  Result<std::string> pci_address(int device) override {
    char text[64] = {};
    TUTTI_RETURN_IF_ERROR(
        check("hipDeviceGetPCIBusId", hip_.device_get_pci_bus_id(text, sizeof text - 1, device)));
    return std::string(text);
  }

  Result<std::string> device_name(int device) override {
    hip::Device handle = -1;
    TUTTI_RETURN_IF_ERROR(check("hipDeviceGet", hip_.device_get(&handle, device)));
    char text[256] = {};
    TUTTI_RETURN_IF_ERROR(
        check("hipDeviceGetName", hip_.device_get_name(text, sizeof text - 1, handle)));
    return std::string(text);
  }

  Status copy(void* destination, const void* source, Bytes bytes) override {
    if (bytes == 0) {
      return {};
    }
    const int to = classify(destination).device;
    const int from = classify(source).device;
    if (to < 0 && from < 0) {
      std::memmove(destination, source, bytes);  // Managed memory too: the CPU reads and writes it.
      return {};
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(to >= 0 ? to : from));
    TUTTI_RETURN_IF_ERROR(
        check("hipMemcpy", hip_.memcpy(destination, source, bytes, hip::kMemcpyDefault)));
    if (to < 0) {
      return {};
    }
    // Into device memory the call may return before the data is there.
    return check("hipStreamSynchronize", hip_.stream_synchronize(nullptr));
  }

  Status copy_async(void* destination, const void* source, Bytes bytes, Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    if (bytes == 0) {
      return {};
    }
    return check("hipMemcpyAsync", hip_.memcpy_async(destination, source, bytes,
                                                     hip::kMemcpyDefault, hip_stream(stream)));
  }

  Status fill_async(void* destination, int value, Bytes bytes, Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    if (bytes == 0) {
      return {};
    }
    return check("hipMemsetAsync",
                 hip_.memset_async(destination, value, bytes, hip_stream(stream)));
  }

  Result<Stream> create_stream(int device) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    int least = 0;
    int greatest = 0;
    TUTTI_RETURN_IF_ERROR(check("hipDeviceGetStreamPriorityRange",
                                hip_.device_get_stream_priority_range(&least, &greatest)));
    hip::Stream stream = nullptr;
    TUTTI_RETURN_IF_ERROR(
        check("hipStreamCreateWithPriority",
              hip_.stream_create_with_priority(&stream, hip::kStreamNonBlocking, greatest)));
    return own(stream, device);
  }

  Status destroy_stream(Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_stream(stream)));
    owners_.remove(stream);
    return check_free("hipStreamDestroy", hip_.stream_destroy(hip_stream(stream)));
  }

  Result<bool> stream_done(Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return done("hipStreamQuery", hip_.stream_query(hip_stream(stream)));
  }

  Status wait_stream(Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return check("hipStreamSynchronize", hip_.stream_synchronize(hip_stream(stream)));
  }

  Status wait_device(int device) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    return check("hipDeviceSynchronize", hip_.device_synchronize());
  }

  Result<Stream> default_stream(int /*device*/) override { return kDefaultStream; }
  Stream native_stream(Stream stream) const override { return hip_stream(stream); }

  Result<bool> is_capturing(Stream stream) override {
    if (hip_.stream_is_capturing == nullptr) {
      return false;
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    int status = hip::kCaptureStatusNone;
    TUTTI_RETURN_IF_ERROR(
        check_given("hipStreamIsCapturing", hip_.stream_is_capturing(hip_stream(stream), &status)));
    return status != hip::kCaptureStatusNone;
  }

  int exchange_capture_mode(int mode) override {
    if (hip_.thread_exchange_capture_mode == nullptr ||
        hip_.thread_exchange_capture_mode(&mode) != hip::kSuccess) {
      return hip::kCaptureModeGlobal;  // What a thread has before the driver is initialised.
    }
    return mode;
  }

  Result<Event> create_event(int device) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    hip::Event event = nullptr;
    TUTTI_RETURN_IF_ERROR(check("hipEventCreateWithFlags",
                                hip_.event_create_with_flags(&event, hip::kEventDisableTiming)));
    return own(event, device);
  }

  Status destroy_event(Event event) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(event)));
    owners_.remove(event);
    return check_free("hipEventDestroy", hip_.event_destroy(static_cast<hip::Event>(event)));
  }

  Status record_event(Event event, Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return check("hipEventRecord",
                 hip_.event_record(static_cast<hip::Event>(event), hip_stream(stream)));
  }

  Result<bool> event_done(Event event) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_owner(event));
    return done("hipEventQuery", hip_.event_query(static_cast<hip::Event>(event)));
  }

  Status stream_wait_event(Stream stream, Event event) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return check("hipStreamWaitEvent",
                 hip_.stream_wait_event(hip_stream(stream), static_cast<hip::Event>(event), 0));
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
    constexpr unsigned kFlags =
        hip::kHostMallocPortable | hip::kHostMallocMapped | hip::kHostMallocCoherent;
    void* pointer = nullptr;
    TUTTI_RETURN_IF_ERROR(check("hipHostMalloc", hip_.host_malloc(&pointer, bytes, kFlags)));
    return pointer;
  }

  Status free_pinned(void* pointer) override {
    return check_free("hipHostFree", hip_.host_free(pointer));
  }

  Result<void*> allocate_device(int device, Bytes bytes) override {
    if (bytes == 0) {
      return no_bytes();
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    void* pointer = nullptr;
    TUTTI_RETURN_IF_ERROR(check("hipMalloc", hip_.malloc(&pointer, bytes)));
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
    if (hip_.ext_malloc_with_flags != nullptr) {
      for (const unsigned flags : {hip::kDeviceMallocUncached, hip::kDeviceMallocFinegrained}) {
        void* pointer = nullptr;
        const hip::Result result = hip_.ext_malloc_with_flags(&pointer, bytes, flags);
        const Status status = check("hipExtMallocWithFlags", result);
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
    return check_free("hipFree", hip_.free(pointer));
  }

  Result<IpcHandle> export_memory(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_owner(pointer));
    hip::IpcMemHandle inner{};
    TUTTI_RETURN_IF_ERROR(check("hipIpcGetMemHandle", hip_.ipc_get_mem_handle(&inner, pointer)));
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
    hip::Result result =
        hip_.ipc_open_mem_handle(&pointer, inner, hip::kIpcMemLazyEnablePeerAccess);
    if (result == hip::kErrorInvalidValue) {
      forget_last_error();
      result = hip_.ipc_open_mem_handle(&pointer, inner, hip::kIpcMemLazyEnablePeerAccessOld);
    }
    TUTTI_RETURN_IF_ERROR(check("hipIpcOpenMemHandle", result));
    return own(pointer, device);
  }

  Status close_memory(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
    return check_free("hipIpcCloseMemHandle", hip_.ipc_close_mem_handle(pointer));
  }

  Result<Module> load_module(int device, const void* image) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    hip::Module module = nullptr;
    TUTTI_RETURN_IF_ERROR(check("hipModuleLoadData", hip_.module_load_data(&module, image)));
    return own(module, device);
  }

  Status unload_module(Module module) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(module)));
    owners_.remove(module);
    return check_free("hipModuleUnload", hip_.module_unload(static_cast<hip::Module>(module)));
  }

  Result<Function> find_function(Module module, const char* function_name) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_owner(module));
    hip::Function function = nullptr;
    TUTTI_RETURN_IF_ERROR(check(
        "hipModuleGetFunction",
        hip_.module_get_function(&function, static_cast<hip::Module>(module), function_name)));
    return static_cast<void*>(function);
  }

  Status launch(Function function, const LaunchShape& shape, Stream stream,
                void** arguments) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return check(
        "hipModuleLaunchKernel",
        hip_.launch_kernel(static_cast<hip::Function>(function), shape.grid[0], shape.grid[1],
                           shape.grid[2], shape.block[0], shape.block[1], shape.block[2],
                           shape.shared_bytes, hip_stream(stream), arguments, nullptr));
  }

  Result<void*> make_current(int device) override {
    int previous = -1;
    TUTTI_RETURN_IF_ERROR(check("hipGetDevice", hip_.get_device(&previous)));
    if (previous != device) {
      TUTTI_RETURN_IF_ERROR(check("hipSetDevice", hip_.set_device(device)));
    }
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(previous));
  }

  void restore_current(void* previous) override {
    const int device = static_cast<int>(reinterpret_cast<std::intptr_t>(previous));
    // Set again without asking: the callee may have changed it.
    if (hip_.set_device(device) != hip::kSuccess) {
      forget_last_error();
    }
  }

 private:
  /// Sets the current device for one call; at its end the application's is set again.
  class Scope {
   public:
    explicit Scope(HipApi& api) : api_(api) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      if (previous_ >= 0 && api_.hip_.set_device(previous_) != hip::kSuccess) {
        api_.forget_last_error();
      }
    }

    Status enter(int device) {
      int current = -1;
      TUTTI_RETURN_IF_ERROR(api_.check("hipGetDevice", api_.hip_.get_device(&current)));
      if (current == device) {
        return {};
      }
      TUTTI_RETURN_IF_ERROR(api_.check("hipSetDevice", api_.hip_.set_device(device)));
      previous_ = current;
      return {};
    }

    /// Ours; for a stream of the application its device is the current one, as in HIP's own rules.
    Status enter_stream(device::Stream stream) {
      if (stream == nullptr) {
        return Status(ErrorCode::kInvalidArgument, "hip: the null stream is never one of ours");
      }
      return enter_owner(stream);
    }

    Status enter_owner(const void* handle) {
      const int device = api_.owners_.find(handle);
      return device == Owners::kUnknown ? Status() : enter(device);
    }

   private:
    HipApi& api_;
    int previous_ = -1;
  };

  /// Takes back the error that a failing call of ours left for the application to find.
  void forget_last_error() const { (void)hip_.get_last_error(); }

  Status check(const char* call, hip::Result result) const {
    if (result == hip::kSuccess) [[likely]] {
      return {};
    }
    forget_last_error();
    const char* error = hip_.get_error_name(result);
    const char* words = hip_.get_error_string(result);
    return Status(code_of(result), std::string(call) + ": " +
                                       (error != nullptr ? error : std::to_string(result)) + " (" +
                                       (words != nullptr ? words : "no description") + ")");
  }

  /// Of a stream that the application gave: what is none is its mistake. All else is not.
  Status check_given(const char* call, hip::Result result) const {
    Status status = check(call, result);
    return result == hip::kErrorInvalidHandle || result == hip::kErrorInvalidContext ||
                   result == hip::kErrorContextIsDestroyed
               ? Status(ErrorCode::kInvalidArgument, status.message())
               : status;
  }

  /// At exit the runtime may be gone before us, and with it everything that we would free.
  Status check_free(const char* call, hip::Result result) const {
    if (result == hip::kErrorDeinitialized) {
      forget_last_error();
      return {};
    }
    return check(call, result);
  }
  static Status gone_is_fine(const Status& status) {
    return status.code() == ErrorCode::kUnavailable ? Status() : status;
  }

  Result<bool> done(const char* call, hip::Result result) const {
    if (result == hip::kErrorNotReady) {
      forget_last_error();
      return false;
    }
    TUTTI_RETURN_IF_ERROR(check(call, result));
    return true;
  }

  void* own(void* handle, int device) {
    owners_.add(handle, device);
    return handle;
  }

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

  DynamicLibrary library_;
  hip::Functions hip_;
  Owners owners_;
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
  hip::Functions functions;
#define TUTTI_HIP_RESOLVE(member, symbol, parameters)                                  \
  if (!library->resolve(#symbol, &functions.member)) {                                 \
    report->reason =                                                                   \
        "hip: " + library->path() + " has no " #symbol " (ROCm 5 or newer is needed)"; \
    return nullptr;                                                                    \
  }
  TUTTI_HIP_RESOLVE(get_error_name, hipGetErrorName, )
  TUTTI_HIP_RESOLVE(get_error_string, hipGetErrorString, )
  TUTTI_HIP_FUNCTIONS(TUTTI_HIP_RESOLVE)
#undef TUTTI_HIP_RESOLVE
#define TUTTI_HIP_RESOLVE(member, symbol, parameters) library->resolve(#symbol, &functions.member);
  TUTTI_HIP_OPTIONAL_FUNCTIONS(TUTTI_HIP_RESOLVE)
#undef TUTTI_HIP_RESOLVE
  auto api = std::make_unique<HipApi>(*library, functions);
  report->taken = "hip: " + api->library();
  report->reason.clear();
  return api;
}

}  // namespace tutti::device
