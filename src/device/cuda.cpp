// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The table over CUDA's driver API, found by dlopen. Not the runtime library: its version belongs
// to the application, and the driver's handles are the same objects.
//
// Contexts. Never created; a primary context is retained once per device that a caller names, and
// pushed around a call when it is not current. An unnamed copy takes the current context, or a
// primary context that is active already: retaining an idle one costs hundreds of megabytes of a
// GPU that nobody asked for. Unnamed pinned memory takes the latter alone: a context of the
// application's own goes when that says so, and its memory with it.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/dynamic_library.hpp"
#include "device/cuda_virtual_memory.hpp"
#include "device/device.hpp"
#include "device/driver_cuda.hpp"
#include "device/owners.hpp"

namespace tutti::device {
namespace {

constexpr int kDevicesMax = 128;  // Ordinals of one process: 16 GPUs of 7 MIG slices each.

cuda::DevicePointer as_device_pointer(const void* pointer) {
  return reinterpret_cast<cuda::DevicePointer>(pointer);
}

ErrorCode code_of(cuda::Result result) {
  switch (result) {
    case cuda::kErrorOutOfMemory:
      return ErrorCode::kOutOfMemory;
    case cuda::kErrorNotInitialized:
    case cuda::kErrorDeinitialized:
    case cuda::kErrorNoDevice:
    case cuda::kErrorSystemNotReady:
      return ErrorCode::kUnavailable;
    case cuda::kErrorNotSupported:
      return ErrorCode::kUnsupported;
    default:
      return ErrorCode::kLibraryFailed;
  }
}

Status bad_device(int device) {
  return Status(ErrorCode::kInvalidArgument, "cuda: no device " + std::to_string(device));
}

Status null_stream() {
  return Status(ErrorCode::kInvalidArgument, "cuda: the null stream is never one of ours");
}

Status no_active_device() {
  return Status(ErrorCode::kUnavailable,
                "cuda: no device of this process is in use yet (no active context)");
}

Status no_bytes() { return Status(ErrorCode::kInvalidArgument, "cuda: an allocation of 0 bytes"); }

class CudaApi final : public Api {
 public:
  CudaApi(DynamicLibrary library, const cuda::Functions& functions)
      : library_(library), cu_(functions) {}

  ~CudaApi() override {
    // At exit the driver may be gone before us; its answers do not matter any more.
    for (int device = 0; device < kDevicesMax; ++device) {
      cuda::Device handle = -1;
      if (primary_[device].load() != nullptr && cu_.device_get(&handle, device) == cuda::kSuccess) {
        (void)cu_.primary_ctx_release(handle);
      }
    }
  }

  const char* name() const override { return "cuda"; }

  std::string library() const override {
    std::string text = library_.path();
    int version = 0;
    if (cu_.driver_get_version(&version) == cuda::kSuccess) {
      text += " (CUDA " + std::to_string(version / 1000) + "." +
              std::to_string(version % 1000 / 10) + ")";
    }
    return text;
  }

  Result<int> device_count() override {
    int count = 0;
    const cuda::Result result = cu_.device_get_count(&count);
    if (result == cuda::kErrorNotInitialized || result == cuda::kErrorNoDevice) {
      return 0;
    }
    TUTTI_RETURN_IF_ERROR(check("cuDeviceGetCount", result));
    return count;
  }

  Status initialize() override { return check("cuInit", cu_.init(0)); }

  bool is_in_use() override {
    if (!is_in_use_.load(std::memory_order_relaxed)) {
      cuda::Context context = nullptr;
      if (cu_.ctx_get_current(&context) == cuda::kErrorNotInitialized) {
        return false;
      }
      is_in_use_.store(true, std::memory_order_relaxed);
    }
    return true;
  }

  PointerInfo classify(const void* pointer) override {
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
                                   as_device_pointer(pointer)) != cuda::kSuccess ||
        memory_type != cuda::kMemoryTypeDevice || is_managed != 0 || ordinal < 0) {
      return {};
    }
    return {MemoryKind::kDevice, ordinal, is_foreign(context, ordinal)};
  }

  int current_device() override {
    cuda::Device device = -1;
    return cu_.ctx_get_device(&device) == cuda::kSuccess ? device : -1;
  }

  Result<std::string> identity(int device) override {
    TUTTI_ASSIGN_OR_RETURN(const cuda::Device handle, device_handle(device));
    // _v2 tells the instances of a partitioned (MIG) GPU apart; the first version names the GPU.
    const auto get =
        cu_.device_get_uuid_v2 != nullptr ? cu_.device_get_uuid_v2 : cu_.device_get_uuid;
    if (get == nullptr) {
      return Status(ErrorCode::kUnsupported, "cuda: the driver has no cuDeviceGetUuid");
    }
    cuda::Uuid uuid{};
    TUTTI_RETURN_IF_ERROR(check("cuDeviceGetUuid", get(&uuid, handle)));
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", uuid.bytes[i]);
      text += digits;
      if (i == 3 || i == 5 || i == 7 || i == 9) {
        text += '-';
      }
    }
    return text;
  }

  Result<std::string> pci_address(int device) override {
    TUTTI_ASSIGN_OR_RETURN(const cuda::Device handle, device_handle(device));
    if (cu_.device_get_pci_bus_id == nullptr) {
      return Status(ErrorCode::kUnsupported, "cuda: the driver has no cuDeviceGetPCIBusId");
    }
    char text[64] = {};
    TUTTI_RETURN_IF_ERROR(
        check("cuDeviceGetPCIBusId", cu_.device_get_pci_bus_id(text, sizeof text - 1, handle)));
    return std::string(text);
  }

  Result<int> concurrent_processors(int device) override {
    TUTTI_ASSIGN_OR_RETURN(const cuda::Device handle, device_handle(device));
    int is_shared = 0;
    // A driver that does not know the attribute: nothing says that the service runs.
    if (cu_.device_get_attribute(&is_shared, cuda::kDeviceAttributeMpsEnabled, handle) !=
            cuda::kSuccess ||
        is_shared == 0) {
      return 0;
    }
    int processors = 0;  // Those that CUDA_MPS_ACTIVE_THREAD_PERCENTAGE leaves to this process.
    TUTTI_RETURN_IF_ERROR(check(
        "cuDeviceGetAttribute",
        cu_.device_get_attribute(&processors, cuda::kDeviceAttributeMultiprocessorCount, handle)));
    return processors;
  }

  Result<std::string> device_name(int device) override {
    TUTTI_ASSIGN_OR_RETURN(const cuda::Device handle, device_handle(device));
    char text[256] = {};
    TUTTI_RETURN_IF_ERROR(
        check("cuDeviceGetName", cu_.device_get_name(text, sizeof text - 1, handle)));
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
    TUTTI_RETURN_IF_ERROR(scope.enter_any(to >= 0 ? to : from));
    TUTTI_RETURN_IF_ERROR(check(
        "cuMemcpy", cu_.memcpy(as_device_pointer(destination), as_device_pointer(source), bytes)));
    if (to < 0) {
      return {};
    }
    // Into device memory cuMemcpy may return while the last part is still on its way (from
    // pageable memory) or before it started (from device memory).
    return check("cuStreamSynchronize", cu_.stream_synchronize(nullptr));
  }

  Status copy_async(void* destination, const void* source, Bytes bytes, Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    if (bytes == 0) {
      return {};
    }
    return check("cuMemcpyAsync",
                 cu_.memcpy_async(as_device_pointer(destination), as_device_pointer(source), bytes,
                                  static_cast<cuda::Stream>(stream)));
  }

  Status fill_async(void* destination, int value, Bytes bytes, Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    if (bytes == 0) {
      return {};
    }
    return check("cuMemsetD8Async", cu_.memset_d8_async(as_device_pointer(destination),
                                                        static_cast<unsigned char>(value), bytes,
                                                        static_cast<cuda::Stream>(stream)));
  }

  Result<Stream> create_stream(int device) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    int least = 0;
    int greatest = 0;
    TUTTI_RETURN_IF_ERROR(
        check("cuCtxGetStreamPriorityRange", cu_.ctx_get_stream_priority_range(&least, &greatest)));
    cuda::Stream stream = nullptr;
    TUTTI_RETURN_IF_ERROR(
        check("cuStreamCreateWithPriority",
              cu_.stream_create_with_priority(&stream, cuda::kStreamNonBlocking, greatest)));
    return own(stream, device);
  }

  Status destroy_stream(Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_stream(stream)));
    owners_.remove(stream);
    return check_free("cuStreamDestroy", cu_.stream_destroy(static_cast<cuda::Stream>(stream)));
  }

  Result<bool> stream_done(Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return done("cuStreamQuery", cu_.stream_query(static_cast<cuda::Stream>(stream)));
  }

  Status wait_stream(Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return check("cuStreamSynchronize", cu_.stream_synchronize(static_cast<cuda::Stream>(stream)));
  }

  Status wait_device(int device) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    return check("cuCtxSynchronize", cu_.ctx_synchronize());
  }

  Result<Stream> default_stream(int /*device*/) override {
    return static_cast<Stream>(cuda::kStreamLegacy);
  }

  Status check_stream(Stream stream, int device) override {
    cuda::Context theirs = nullptr;
    const bool is_default = is_default_stream(stream);
    if (is_default) {
      TUTTI_RETURN_IF_ERROR(check("cuCtxGetCurrent", cu_.ctx_get_current(&theirs)));
    } else {
      TUTTI_RETURN_IF_ERROR(check_given(
          "cuStreamGetCtx", cu_.stream_get_ctx(static_cast<cuda::Stream>(stream), &theirs)));
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    cuda::Context own = nullptr;
    TUTTI_RETURN_IF_ERROR(check("cuCtxGetCurrent", cu_.ctx_get_current(&own)));
    if (theirs == own) [[likely]] {
      return {};
    }
    const int other = device_of(theirs);
    if (is_default && other != device) {
      return {};  // The default stream of `device` is meant, which nothing here says otherwise.
    }
    return Status(ErrorCode::kInvalidArgument,
                  other == device
                      ? "the stream is of a context of GPU " + std::to_string(device) +
                            " other than its primary one, which libraries and the CUDA runtime use"
                      : "the stream is of GPU " + std::to_string(other) +
                            ", the communicator's GPU is number " + std::to_string(device));
  }

  int stream_device(Stream stream) override {
    cuda::Context context = nullptr;
    return is_default_stream(stream) ||
                   cu_.stream_get_ctx(static_cast<cuda::Stream>(stream), &context) != cuda::kSuccess
               ? current_device()
               : device_of(context);
  }

  Result<bool> is_capturing(Stream stream) override {
    if (cu_.stream_is_capturing == nullptr) {
      return false;
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_given(stream));
    int status = cuda::kCaptureStatusNone;
    TUTTI_RETURN_IF_ERROR(
        check_given("cuStreamIsCapturing",
                    cu_.stream_is_capturing(static_cast<cuda::Stream>(stream), &status)));
    return status != cuda::kCaptureStatusNone;
  }

  int exchange_capture_mode(int mode) override {
    if (cu_.thread_exchange_capture_mode == nullptr ||
        cu_.thread_exchange_capture_mode(&mode) != cuda::kSuccess) {
      return cuda::kCaptureModeGlobal;  // What a thread has before the driver is initialised.
    }
    return mode;
  }

  Result<Event> create_event(int device) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    cuda::Event event = nullptr;
    TUTTI_RETURN_IF_ERROR(
        check("cuEventCreate", cu_.event_create(&event, cuda::kEventDisableTiming)));
    return own(event, device);
  }

  Status destroy_event(Event event) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(event)));
    owners_.remove(event);
    return check_free("cuEventDestroy", cu_.event_destroy(static_cast<cuda::Event>(event)));
  }

  Status record_event(Event event, Stream stream) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return check("cuEventRecord", cu_.event_record(static_cast<cuda::Event>(event),
                                                   static_cast<cuda::Stream>(stream)));
  }

  Result<bool> event_done(Event event) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_owner(event));
    return done("cuEventQuery", cu_.event_query(static_cast<cuda::Event>(event)));
  }

  Status stream_wait_event(Stream stream, Event event) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return check("cuStreamWaitEvent", cu_.stream_wait_event(static_cast<cuda::Stream>(stream),
                                                            static_cast<cuda::Event>(event), 0));
  }

  Result<void*> allocate_pinned(Bytes bytes, int device) override {
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
        check("cuMemHostAlloc",
              cu_.mem_host_alloc(&pointer, bytes,
                                 cuda::kMemHostAllocPortable | cuda::kMemHostAllocDeviceMap)));
    return own(pointer, device);
  }

  Status free_pinned(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
    owners_.remove(pointer);
    return check_free("cuMemFreeHost", cu_.mem_free_host(pointer));
  }

  Result<void*> allocate_device(int device, Bytes bytes) override {
    if (bytes == 0) {
      return no_bytes();
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    cuda::DevicePointer pointer = 0;
    TUTTI_RETURN_IF_ERROR(check("cuMemAlloc", cu_.mem_alloc(&pointer, bytes)));
    return own(reinterpret_cast<void*>(pointer), device);
  }

  Result<void*> allocate_shared(int device, Bytes bytes, Sharing sharing) override {
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

  Status free_device(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
    owners_.remove(pointer);
    if (virtual_memory_.has(pointer)) {
      return gone_is_fine(virtual_memory_.release(pointer));
    }
    return check_free("cuMemFree", cu_.mem_free(as_device_pointer(pointer)));
  }

  Result<IpcHandle> export_memory(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_owner(pointer));
    if (virtual_memory_.has(pointer)) {
      return virtual_memory_.export_memory(pointer);
    }
    cuda::IpcMemHandle inner{};
    TUTTI_RETURN_IF_ERROR(
        check("cuIpcGetMemHandle", cu_.ipc_get_mem_handle(&inner, as_device_pointer(pointer))));
    IpcHandle handle;
    static_assert(sizeof handle.bytes == sizeof inner.reserved);
    std::memcpy(handle.bytes, inner.reserved, sizeof handle.bytes);
    return handle;
  }

  Result<void*> open_memory(int device, const IpcHandle& handle) override {
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
        check("cuIpcOpenMemHandle",
              cu_.ipc_open_mem_handle(&pointer, inner, cuda::kIpcMemLazyEnablePeerAccess)));
    return own(reinterpret_cast<void*>(pointer), device);
  }

  Status close_memory(void* pointer) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(pointer)));
    if (virtual_memory_.has(pointer)) {
      owners_.remove(pointer);
      return gone_is_fine(virtual_memory_.release(pointer));
    }
    // The driver counts repeated opens of one handle and returns one address: the owner stays
    // known, it is the same for all of them.
    return check_free("cuIpcCloseMemHandle", cu_.ipc_close_mem_handle(as_device_pointer(pointer)));
  }

  Result<Module> load_module(int device, const void* image) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    cuda::Module module = nullptr;
    TUTTI_RETURN_IF_ERROR(check("cuModuleLoadData", cu_.module_load_data(&module, image)));
    return own(module, device);
  }

  Status unload_module(Module module) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(module)));
    owners_.remove(module);
    return check_free("cuModuleUnload", cu_.module_unload(static_cast<cuda::Module>(module)));
  }

  Result<Function> find_function(Module module, const char* function_name) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_owner(module));
    cuda::Function function = nullptr;
    TUTTI_RETURN_IF_ERROR(check(
        "cuModuleGetFunction",
        cu_.module_get_function(&function, static_cast<cuda::Module>(module), function_name)));
    return static_cast<void*>(function);
  }

  Status launch(Function function, const LaunchShape& shape, Stream stream,
                void** arguments) override {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
    return check("cuLaunchKernel",
                 cu_.launch_kernel(static_cast<cuda::Function>(function), shape.grid[0],
                                   shape.grid[1], shape.grid[2], shape.block[0], shape.block[1],
                                   shape.block[2], shape.shared_bytes,
                                   static_cast<cuda::Stream>(stream), arguments, nullptr));
  }

  Result<Launcher> create_launcher(Function function, int device, const LaunchShape& shape,
                                   void** arguments) override {
    if (cu_.graph_create == nullptr || cu_.graph_destroy == nullptr ||
        cu_.graph_add_kernel_node == nullptr || cu_.graph_instantiate == nullptr ||
        cu_.graph_exec_destroy == nullptr || cu_.graph_exec_kernel_node_set_params == nullptr ||
        cu_.graph_launch == nullptr) {
      return Launcher{};
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(device));
    auto launcher = std::make_unique<GraphLauncher>();
    launcher->device = device;
    launcher->function = static_cast<cuda::Function>(function);
    TUTTI_RETURN_IF_ERROR(check("cuGraphCreate", cu_.graph_create(&launcher->graph, 0)));
    const cuda::KernelNodeParameters parameters = launcher->parameters(shape, arguments);
    Status status =
        check("cuGraphAddKernelNode",
              cu_.graph_add_kernel_node(&launcher->node, launcher->graph, nullptr, 0, &parameters));
    int least = 0;
    cuda::LaunchAttributeValue priority{};
    if (status.ok() && cu_.graph_kernel_node_set_attribute != nullptr &&
        cu_.ctx_get_stream_priority_range(&least, &priority.priority) == cuda::kSuccess) {
      // As our streams have; a driver that does not know the attribute launches all the same.
      (void)cu_.graph_kernel_node_set_attribute(launcher->node, cuda::kLaunchAttributePriority,
                                                &priority);
    }
    if (status.ok()) {
      status = check("cuGraphInstantiate",
                     cu_.graph_instantiate(&launcher->executable, launcher->graph, 0));
    }
    if (!status.ok()) {
      (void)cu_.graph_destroy(launcher->graph);
      return status;
    }
    return static_cast<Launcher>(launcher.release());
  }

  Status destroy_launcher(Launcher handle) override {
    const std::unique_ptr<GraphLauncher> launcher(static_cast<GraphLauncher*>(handle));
    if (launcher == nullptr) {
      return {};
    }
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter(launcher->device)));
    const Status executable =
        check_free("cuGraphExecDestroy", cu_.graph_exec_destroy(launcher->executable));
    const Status graph = check_free("cuGraphDestroy", cu_.graph_destroy(launcher->graph));
    return executable.ok() ? graph : executable;
  }

  Status launch_again(Launcher handle, const LaunchShape& shape, Stream stream,
                      void** arguments) override {
    const auto& launcher = *static_cast<const GraphLauncher*>(handle);
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter(launcher.device));
    const cuda::KernelNodeParameters parameters = launcher.parameters(shape, arguments);
    TUTTI_RETURN_IF_ERROR(check(
        "cuGraphExecKernelNodeSetParams",
        cu_.graph_exec_kernel_node_set_params(launcher.executable, launcher.node, &parameters)));
    return check("cuGraphLaunch",
                 cu_.graph_launch(launcher.executable, static_cast<cuda::Stream>(stream)));
  }

  Result<void*> make_current(int device) override {
    cuda::Context previous = nullptr;
    TUTTI_RETURN_IF_ERROR(check("cuCtxGetCurrent", cu_.ctx_get_current(&previous)));
    // Pushed even when it is current already: whatever the callee does to the top of the stack,
    // popping it brings the application's choice back.
    TUTTI_RETURN_IF_ERROR(push(device));
    return static_cast<void*>(previous);
  }

  void restore_current(void* /*previous*/) override {
    cuda::Context popped = nullptr;
    (void)cu_.ctx_pop_current(&popped);
  }

 private:
  /// A graph of one kernel.
  struct GraphLauncher {
    int device = 0;
    cuda::Function function = nullptr;
    cuda::Graph graph = nullptr;
    cuda::GraphNode node = nullptr;
    cuda::GraphExec executable = nullptr;

    cuda::KernelNodeParameters parameters(const LaunchShape& shape, void** arguments) const {
      return {.function = function,
              .grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
              .block = {shape.block[0], shape.block[1], shape.block[2]},
              .shared_bytes = shape.shared_bytes,
              .arguments = arguments,
              .extra = nullptr,
              .kernel = nullptr,
              .context = nullptr};
    }
  };

  /// Makes a context current for one call; at its end the application's is current again.
  class Scope {
   public:
    explicit Scope(CudaApi& api) : api_(api) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      if (pushed_) {
        cuda::Context popped = nullptr;
        (void)api_.cu_.ctx_pop_current(&popped);
      }
    }

    /// The primary context of a device that the caller named.
    Status enter(int device) {
      if (device >= 0 && device < kDevicesMax) {
        cuda::Context current = nullptr;
        const cuda::Context primary = api_.primary_[device].load(std::memory_order_acquire);
        if (primary != nullptr && api_.cu_.ctx_get_current(&current) == cuda::kSuccess &&
            current == primary) {
          return {};
        }
      }
      TUTTI_RETURN_IF_ERROR(api_.push(device));
      pushed_ = true;
      return {};
    }

    /// The context of a stream, ours or the application's.
    Status enter_stream(device::Stream stream) { return enter_stream(stream, &CudaApi::check); }
    /// The same where the stream is to be judged.
    Status enter_given(device::Stream stream) {
      return enter_stream(stream, &CudaApi::check_given);
    }
    Status enter_stream(device::Stream stream,
                        Status (CudaApi::*check)(const char*, cuda::Result) const) {
      if (stream == nullptr) {
        return null_stream();
      }
      const int device = api_.owners_.find(stream);
      if (device != Owners::kUnknown) {
        return enter(device);
      }
      cuda::Context context = nullptr;
      TUTTI_RETURN_IF_ERROR((api_.*check)(
          "cuStreamGetCtx", api_.cu_.stream_get_ctx(static_cast<cuda::Stream>(stream), &context)));
      TUTTI_RETURN_IF_ERROR(api_.check("cuCtxPushCurrent", api_.cu_.ctx_push_current(context)));
      pushed_ = true;
      return {};
    }

    /// The context of another handle of ours; an unknown one takes what enter_any() takes, and
    /// the library judges it.
    Status enter_owner(const void* handle) {
      const int device = api_.owners_.find(handle);
      return device == Owners::kUnknown ? enter_any(device) : enter(device);
    }

    /// The current context; else that of `device` (kUnknown: of any device whose primary context
    /// is active already).
    Status enter_any(int device) {
      cuda::Context current = nullptr;
      TUTTI_RETURN_IF_ERROR(api_.check("cuCtxGetCurrent", api_.cu_.ctx_get_current(&current)));
      if (current != nullptr) {
        return {};
      }
      if (device == Owners::kUnknown) {
        device = api_.active_device();
      }
      if (device == Owners::kUnknown) {
        return no_active_device();
      }
      return enter(device);
    }

   private:
    CudaApi& api_;
    bool pushed_ = false;
  };

  Status check(const char* call, cuda::Result result) const {
    if (result == cuda::kSuccess) [[likely]] {
      return {};
    }
    const char* error = nullptr;
    const char* words = nullptr;
    (void)cu_.get_error_name(result, &error);
    (void)cu_.get_error_string(result, &words);
    return Status(code_of(result), std::string(call) + ": " +
                                       (error != nullptr ? error : std::to_string(result)) + " (" +
                                       (words != nullptr ? words : "no description") + ")");
  }

  /// Of a stream that the application gave: what is none, or of a context that is gone, is its
  /// mistake. All else is not.
  Status check_given(const char* call, cuda::Result result) const {
    Status status = check(call, result);
    return result == cuda::kErrorInvalidHandle || result == cuda::kErrorInvalidContext ||
                   result == cuda::kErrorContextIsDestroyed
               ? Status(ErrorCode::kInvalidArgument, status.message())
               : status;
  }

  /// At exit the driver may be gone before us, and with it everything that we would free.
  Status check_free(const char* call, cuda::Result result) const {
    return result == cuda::kErrorDeinitialized ? Status() : check(call, result);
  }
  /// The same for making the context current before a free; the free then gives the answer.
  static Status gone_is_fine(const Status& status) {
    return status.code() == ErrorCode::kUnavailable ? Status() : status;
  }

  Result<bool> done(const char* call, cuda::Result result) const {
    if (result == cuda::kErrorNotReady) {
      return false;
    }
    TUTTI_RETURN_IF_ERROR(check(call, result));
    return true;
  }

  Result<cuda::Device> device_handle(int ordinal) const {
    cuda::Device handle = -1;
    TUTTI_RETURN_IF_ERROR(check("cuDeviceGet", cu_.device_get(&handle, ordinal)));
    return handle;
  }

  void* own(void* handle, int device) {
    owners_.add(handle, device);
    return handle;
  }

  /// The primary context of `device`, retained at the first call for it.
  Result<cuda::Context> primary(int device) {
    if (device < 0 || device >= kDevicesMax) {
      return bad_device(device);
    }
    if (cuda::Context context = primary_[device].load(std::memory_order_acquire)) {
      return context;
    }
    const std::lock_guard lock(retain_mutex_);
    if (cuda::Context context = primary_[device].load(std::memory_order_acquire)) {
      return context;
    }
    TUTTI_ASSIGN_OR_RETURN(const cuda::Device handle, device_handle(device));
    cuda::Context context = nullptr;
    TUTTI_RETURN_IF_ERROR(
        check("cuDevicePrimaryCtxRetain", cu_.primary_ctx_retain(&context, handle)));
    primary_[device].store(context, std::memory_order_release);
    return context;
  }

  Status push(int device) {
    TUTTI_ASSIGN_OR_RETURN(cuda::Context context, primary(device));
    cuda::Result result = cu_.ctx_push_current(context);
    if (result == cuda::kErrorContextIsDestroyed || result == cuda::kErrorInvalidContext) {
      // The application reset the device (cudaDeviceReset): our reference went with it.
      primary_[device].compare_exchange_strong(context, nullptr);
      TUTTI_ASSIGN_OR_RETURN(context, primary(device));
      result = cu_.ctx_push_current(context);
    }
    return check("cuCtxPushCurrent", result);
  }

  /// Whether memory of `context` is beyond the primary context of `device`. Memory that was mapped
  /// or came out of a pool has no context: it is the GPU's.
  bool is_foreign(cuda::Context context, int device) {
    if (context == nullptr || device >= kDevicesMax ||
        context == primary_[device].load(std::memory_order_acquire)) [[likely]] {
      return false;
    }
    // The primary context may not be known yet, or have been made anew. One that is not active has
    // no memory, and is not to be made for the asking.
    cuda::Device handle = -1;
    unsigned flags = 0;
    int active = 0;
    if (cu_.device_get(&handle, device) != cuda::kSuccess ||
        cu_.primary_ctx_get_state(handle, &flags, &active) != cuda::kSuccess || active == 0) {
      return true;
    }
    Scope scope(*this);
    return !scope.enter(device).ok() || context != primary_[device].load(std::memory_order_acquire);
  }

  /// Of a context; -1: of none, or of one that is gone.
  int device_of(cuda::Context context) {
    if (context == nullptr || cu_.ctx_push_current(context) != cuda::kSuccess) {
      return -1;
    }
    const int device = current_device();
    (void)cu_.ctx_pop_current(&context);
    return device;
  }

  /// A device whose primary context exists, those that we have retained first; kUnknown: there is
  /// none.
  int active_device() const {
    for (int device = 0; device < kDevicesMax; ++device) {
      if (primary_[device].load(std::memory_order_acquire) != nullptr) {
        return device;
      }
    }
    int count = 0;
    if (cu_.device_get_count(&count) != cuda::kSuccess) {
      return Owners::kUnknown;
    }
    for (int device = 0; device < count && device < kDevicesMax; ++device) {
      unsigned flags = 0;
      int active = 0;
      cuda::Device handle = -1;
      if (cu_.device_get(&handle, device) == cuda::kSuccess &&
          cu_.primary_ctx_get_state(handle, &flags, &active) == cuda::kSuccess && active != 0) {
        return device;
      }
    }
    return Owners::kUnknown;
  }

  DynamicLibrary library_;
  cuda::Functions cu_;
  std::atomic<bool> is_in_use_{false};
  Owners owners_;
  CudaVirtualMemory virtual_memory_{
      cu_, [this](const char* call, cuda::Result result) { return check(call, result); }};
  std::mutex retain_mutex_;
  std::array<std::atomic<cuda::Context>, kDevicesMax> primary_{};
};

}  // namespace

std::unique_ptr<Api> open_cuda(OpenReport* report) {
  OpenReport unused;
  if (report == nullptr) {
    report = &unused;
  }
  report->taken = "none";
  // The one that the process has already, wherever it came from, before the linker's choice.
  const char* const file = "libcuda.so.1";
  Result<DynamicLibrary> library = DynamicLibrary::open_loaded(file);
  if (!library.ok()) {
    library = DynamicLibrary::open(file);
  }
  if (!library.ok()) {
    report->reason = "cuda: " + library.status().message();
    return nullptr;
  }
  cuda::Functions functions;
#define TUTTI_CUDA_RESOLVE(member, symbol, parameters)                                   \
  if (!library->resolve(#symbol, &functions.member)) {                                   \
    report->reason =                                                                     \
        "cuda: " + library->path() + " has no " #symbol " (CUDA 11 or newer is needed)"; \
    return nullptr;                                                                      \
  }
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_RESOLVE)
#undef TUTTI_CUDA_RESOLVE
#define TUTTI_CUDA_RESOLVE(member, symbol, parameters) library->resolve(#symbol, &functions.member);
  TUTTI_CUDA_OPTIONAL_FUNCTIONS(TUTTI_CUDA_RESOLVE)
#undef TUTTI_CUDA_RESOLVE
  auto api = std::make_unique<CudaApi>(*library, functions);
  report->taken = "cuda: " + api->library();
  report->reason.clear();
  return api;
}

}  // namespace tutti::device
