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
#include "device/cuda.hpp"

#include <cstdio>
#include <string>

namespace tutti::device {

CudaApi::~CudaApi() {
  // At exit the driver may be gone before us; its answers do not matter any more.
  for (int device = 0; device < kDevicesMax; ++device) {
    cuda::Device handle = -1;
    if (primary_[device].load() != nullptr && gpu_.device_get(&handle, device) == cuda::kSuccess) {
      (void)cu_.primary_ctx_release(handle);
    }
  }
}

std::string CudaApi::library() const {
  std::string text = library_.path();
  int version = 0;
  if (cu_.driver_get_version(&version) == cuda::kSuccess) {
    text += " (CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
            ")";
  }
  return text;
}

bool CudaApi::is_in_use() {
  if (!is_in_use_.load(std::memory_order_relaxed)) {
    cuda::Context context = nullptr;
    if (cu_.ctx_get_current(&context) == cuda::kErrorNotInitialized) {
      return false;
    }
    is_in_use_.store(true, std::memory_order_relaxed);
  }
  return true;
}

std::pair<const char*, const char*> CudaApi::describe(driver::Result error) const {
  const char* name = nullptr;
  const char* words = nullptr;
  (void)cu_.get_error_name(error, &name);
  (void)cu_.get_error_string(error, &words);
  return {name, words};
}

int CudaApi::current_device() {
  cuda::Device device = -1;
  return cu_.ctx_get_device(&device) == cuda::kSuccess ? device : -1;
}

Result<std::string> CudaApi::identity(int device) {
  TUTTI_ASSIGN_OR_RETURN(const cuda::Device handle, device_handle(device));
  // _v2 tells the instances of a partitioned (MIG) GPU apart; the first version names the GPU.
  const auto& get = cu_.device_get_uuid_v2 ? cu_.device_get_uuid_v2 : gpu_.device_get_uuid;
  if (!get) {
    return Status(ErrorCode::kUnsupported, "cuda: the driver has no cuDeviceGetUuid");
  }
  cuda::Uuid uuid{};
  TUTTI_RETURN_IF_ERROR(check(get(&uuid, handle)));
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

Result<int> CudaApi::concurrent_processors(int device) {
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
      cu_.device_get_attribute(&processors, cuda::kDeviceAttributeMultiprocessorCount, handle)));
  return processors;
}

Result<Stream> CudaApi::default_stream(int /*device*/) { return cuda::kStreamLegacy; }

Status CudaApi::check_stream(Stream stream, int device) {
  cuda::Context theirs = nullptr;
  const bool is_default = is_default_stream(stream);
  if (is_default) {
    TUTTI_RETURN_IF_ERROR(check(cu_.ctx_get_current(&theirs)));
  } else {
    TUTTI_RETURN_IF_ERROR(check_given(cu_.stream_get_ctx(stream, &theirs)));
  }
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  if (theirs == primary_[device].load(std::memory_order_acquire)) [[likely]] {
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

/// The per-thread stream is another one in each thread.
std::uint64_t CudaApi::stream_id(Stream stream) {
  unsigned long long id = 0;
  return stream != cuda::kStreamPerThread && cu_.stream_get_id &&
                 cu_.stream_get_id(stream, &id) == cuda::kSuccess
             ? id
             : 0;
}

int CudaApi::stream_device(Stream stream) {
  cuda::Context context = nullptr;
  return is_default_stream(stream) || cu_.stream_get_ctx(stream, &context) != cuda::kSuccess
             ? current_device()
             : device_of(context);
}

Result<void*> CudaApi::make_current(int device) {
  cuda::Context previous = nullptr;
  TUTTI_RETURN_IF_ERROR(check(cu_.ctx_get_current(&previous)));
  // Pushed even when it is current already: whatever the callee does to the top of the stack,
  // popping it brings the application's choice back.
  TUTTI_RETURN_IF_ERROR(push(device));
  return static_cast<void*>(previous);
}

void CudaApi::restore_current(void* /*previous*/) {
  cuda::Context popped = nullptr;
  (void)cu_.ctx_pop_current(&popped);
}

Status CudaApi::enter(Scope& scope, int device) {
  if (device >= 0 && device < kDevicesMax) {
    cuda::Context current = nullptr;
    const cuda::Context primary = primary_[device].load(std::memory_order_acquire);
    if (primary != nullptr && cu_.ctx_get_current(&current) == cuda::kSuccess &&
        current == primary) {
      return {};
    }
  }
  TUTTI_RETURN_IF_ERROR(push(device));
  scope.entered(nullptr);
  return {};
}

Status CudaApi::enter_any(Scope& scope, int device) {
  cuda::Context current = nullptr;
  TUTTI_RETURN_IF_ERROR(check(cu_.ctx_get_current(&current)));
  if (current != nullptr) {
    return {};
  }
  if (device == Owners::kUnknown) {
    device = active_device();
  }
  return device == Owners::kUnknown ? no_active_device() : enter(scope, device);
}

Status CudaApi::enter_foreign(Scope& scope, Stream stream, bool is_judged) {
  cuda::Context context = nullptr;
  const cuda::Outcome found = cu_.stream_get_ctx(stream, &context);
  TUTTI_RETURN_IF_ERROR(is_judged ? check_given(found) : check(found));
  TUTTI_RETURN_IF_ERROR(check(cu_.ctx_push_current(context)));
  scope.entered(nullptr);
  return {};
}

Result<cuda::Context> CudaApi::primary(int device) {
  if (device < 0 || device >= kDevicesMax) {
    return Status(ErrorCode::kInvalidArgument, "cuda: no device " + std::to_string(device));
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
  TUTTI_RETURN_IF_ERROR(check(cu_.primary_ctx_retain(&context, handle)));
  primary_[device].store(context, std::memory_order_release);
  return context;
}

Status CudaApi::push(int device) {
  TUTTI_ASSIGN_OR_RETURN(cuda::Context context, primary(device));
  cuda::Outcome result = cu_.ctx_push_current(context);
  if (result == cuda::kErrorContextIsDestroyed || result == cuda::kErrorInvalidContext) {
    // The application reset the device (cudaDeviceReset): our reference went with it.
    primary_[device].compare_exchange_strong(context, nullptr);
    TUTTI_ASSIGN_OR_RETURN(context, primary(device));
    result = cu_.ctx_push_current(context);
  }
  return check(result);
}

int CudaApi::device_of(cuda::Context context) {
  if (context == nullptr || cu_.ctx_push_current(context) != cuda::kSuccess) {
    return -1;
  }
  const int device = current_device();
  (void)cu_.ctx_pop_current(&context);
  return device;
}

Status CudaApi::no_active_device() {
  return Status(ErrorCode::kUnavailable,
                "cuda: no device of this process is in use yet (no active context)");
}

int CudaApi::active_device() const {
  for (int device = 0; device < kDevicesMax; ++device) {
    if (primary_[device].load(std::memory_order_acquire) != nullptr) {
      return device;
    }
  }
  int count = 0;
  if (gpu_.device_get_count(&count) != cuda::kSuccess) {
    return Owners::kUnknown;
  }
  for (int device = 0; device < count && device < kDevicesMax; ++device) {
    unsigned flags = 0;
    int active = 0;
    cuda::Device handle = -1;
    if (gpu_.device_get(&handle, device) == cuda::kSuccess &&
        cu_.primary_ctx_get_state(handle, &flags, &active) == cuda::kSuccess && active != 0) {
      return device;
    }
  }
  return Owners::kUnknown;
}

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
  driver::Functions common;
  cuda::Functions functions;
  const char* missing = nullptr;
  const auto need = [&](bool is_there, const char* symbol) {
    if (!is_there && missing == nullptr) {
      missing = symbol;
    }
  };
#define TUTTI_RESOLVE_COMMON(member, cuda, hip, parameters) \
  need(common.member.resolve(*library, #cuda), #cuda);
#define TUTTI_RESOLVE(member, symbol, parameters) \
  need(functions.member.resolve(*library, #symbol), #symbol);
  TUTTI_DRIVER_FUNCTIONS(TUTTI_RESOLVE_COMMON)
  TUTTI_CUDA_FUNCTIONS(TUTTI_RESOLVE)
  if (missing != nullptr) {
    report->reason =
        "cuda: " + library->path() + " has no " + missing + " (CUDA 11 or newer is needed)";
    return nullptr;
  }
  TUTTI_DRIVER_OPTIONAL_FUNCTIONS(TUTTI_RESOLVE_COMMON)
  TUTTI_CUDA_OPTIONAL_FUNCTIONS(TUTTI_RESOLVE)
#undef TUTTI_RESOLVE_COMMON
#undef TUTTI_RESOLVE
  auto api = std::make_unique<CudaApi>(*library, common, functions);
  report->taken = "cuda: " + api->library();
  report->reason.clear();
  return api;
}

}  // namespace tutti::device
