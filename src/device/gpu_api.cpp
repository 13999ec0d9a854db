// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "device/gpu_api.hpp"

#include <cstring>
#include <utility>

namespace tutti::device {
namespace {

ErrorCode code_of(driver::Result result) {
  switch (result) {
    case driver::kErrorOutOfMemory:
      return ErrorCode::kOutOfMemory;
    case driver::kErrorNotInitialized:
    case driver::kErrorDeinitialized:
    case driver::kErrorNoDevice:
    case driver::kErrorSystemNotReady:
      return ErrorCode::kUnavailable;
    case driver::kErrorNotSupported:
      return ErrorCode::kUnsupported;
    default:
      return ErrorCode::kLibraryFailed;
  }
}

/// Initial-exec: as mpi/comm_state.hpp's.
thread_local constinit Stream t_current_stream __attribute__((tls_model("initial-exec"))) = nullptr;

/// "cuMemAlloc" of "cuMemAlloc_v2", as in the vendor's documents.
std::string plain_name(const std::string& symbol) { return symbol.substr(0, symbol.find("_v2")); }

}  // namespace

Status GpuApi::Scope::enter_stream(Stream stream, bool is_judged) {
  if (stream == nullptr) {
    return Status(ErrorCode::kInvalidArgument,
                  std::string(api_.name()) + ": the null stream is never one of ours");
  }
  if (stream == t_current_stream) {
    return {};
  }
  const int device = api_.owners_.find(stream);
  return device == Owners::kUnknown ? api_.enter_foreign(*this, stream, is_judged) : enter(device);
}

Status GpuApi::Scope::enter_owner(const void* handle) {
  const int device = api_.owners_.find(handle);
  return device == Owners::kUnknown ? enter_any(device) : enter(device);
}

Status GpuApi::failure(driver::Outcome outcome) const {
  forget_last_error();
  const auto [error, words] = describe(outcome.code);
  return Status(code_of(outcome.code),
                plain_name(outcome.symbol) + ": " +
                    (error != nullptr ? error : std::to_string(outcome.code)) + " (" +
                    (words != nullptr ? words : "no description") + ")");
}

Status GpuApi::check_given(driver::Outcome outcome) const {
  Status status = check(outcome);
  return outcome == driver::kErrorInvalidHandle || outcome == driver::kErrorInvalidContext ||
                 outcome == driver::kErrorContextIsDestroyed
             ? Status(ErrorCode::kInvalidArgument, status.message())
             : status;
}

Status GpuApi::check_free(driver::Outcome outcome) const {
  if (outcome == driver::kErrorDeinitialized) {
    forget_last_error();
    return {};
  }
  return check(outcome);
}

Result<bool> GpuApi::done(driver::Outcome outcome) const {
  if (outcome == driver::kErrorNotReady) {
    forget_last_error();
    return false;
  }
  TUTTI_RETURN_IF_ERROR(check(outcome));
  return true;
}

Status GpuApi::no_bytes() const {
  return Status(ErrorCode::kInvalidArgument, std::string(name()) + ": an allocation of 0 bytes");
}

Result<int> GpuApi::device_count() {
  int count = 0;
  const driver::Outcome outcome = gpu_.device_get_count(&count);
  if (outcome == driver::kErrorNotInitialized || outcome == driver::kErrorNoDevice) {
    forget_last_error();
    return 0;
  }
  TUTTI_RETURN_IF_ERROR(check(outcome));
  return count;
}

Status GpuApi::initialize() { return check(gpu_.init(0)); }

Result<driver::Device> GpuApi::device_handle(int ordinal) const {
  driver::Device handle = -1;
  TUTTI_RETURN_IF_ERROR(check(gpu_.device_get(&handle, ordinal)));
  return handle;
}

Result<std::string> GpuApi::pci_address(int device) {
  TUTTI_ASSIGN_OR_RETURN(const driver::Device handle, device_handle(device));
  if (!gpu_.device_get_pci_bus_id) {
    return Status(ErrorCode::kUnsupported, std::string(name()) + ": the library has no " +
                                               gpu_.device_get_pci_bus_id.symbol());
  }
  char text[64] = {};
  TUTTI_RETURN_IF_ERROR(check(gpu_.device_get_pci_bus_id(text, sizeof text - 1, handle)));
  return std::string(text);
}

Result<std::string> GpuApi::device_name(int device) {
  TUTTI_ASSIGN_OR_RETURN(const driver::Device handle, device_handle(device));
  char text[256] = {};
  TUTTI_RETURN_IF_ERROR(check(gpu_.device_get_name(text, sizeof text - 1, handle)));
  return std::string(text);
}

Status GpuApi::copy(void* destination, const void* source, Bytes bytes) {
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
  TUTTI_RETURN_IF_ERROR(check(copy_now(destination, source, bytes)));
  return to < 0 ? Status() : check(gpu_.stream_synchronize(nullptr));
}

Result<Stream> GpuApi::create_stream(int device) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  int least = 0;
  int greatest = 0;
  TUTTI_RETURN_IF_ERROR(check(gpu_.get_stream_priority_range(&least, &greatest)));
  Stream stream = nullptr;
  TUTTI_RETURN_IF_ERROR(
      check(gpu_.stream_create_with_priority(&stream, driver::kStreamNonBlocking, greatest)));
  return own(stream, device);
}

Status GpuApi::destroy_stream(Stream stream) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_stream(stream)));
  owners_.remove(stream);
  return check_free(gpu_.stream_destroy(native_stream(stream)));
}

Result<bool> GpuApi::stream_done(Stream stream) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  return done(gpu_.stream_query(native_stream(stream)));
}

Status GpuApi::wait_stream(Stream stream) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  return check(gpu_.stream_synchronize(native_stream(stream)));
}

Stream GpuApi::exchange_current_stream(Stream stream) {
  return std::exchange(t_current_stream, stream);
}

Status GpuApi::wait_device(int device) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  return check(gpu_.synchronize());
}

Result<bool> GpuApi::is_capturing(Stream stream) {
  if (!gpu_.stream_is_capturing) {
    return false;
  }
  int status = driver::kCaptureStatusNone;
  // Most streams say by themselves whose they are, where a device is current at all.
  driver::Outcome outcome = gpu_.stream_is_capturing(native_stream(stream), &status);
  if (is_default_stream(stream) || outcome == driver::kErrorInvalidContext) {
    Scope scope(*this);
    TUTTI_RETURN_IF_ERROR(scope.enter_given(stream));
    outcome = gpu_.stream_is_capturing(native_stream(stream), &status);
  }
  TUTTI_RETURN_IF_ERROR(check_given(outcome));
  return status != driver::kCaptureStatusNone;
}

int GpuApi::exchange_capture_mode(int mode) {
  if (!gpu_.thread_exchange_capture_mode ||
      gpu_.thread_exchange_capture_mode(&mode) != driver::kSuccess) {
    return driver::kCaptureModeGlobal;  // What a thread has before the library is initialised.
  }
  return mode;
}

Result<Event> GpuApi::create_event(int device) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  Event event = nullptr;
  TUTTI_RETURN_IF_ERROR(check(gpu_.event_create(&event, driver::kEventDisableTiming)));
  return own(event, device);
}

Status GpuApi::destroy_event(Event event) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(event)));
  owners_.remove(event);
  return check_free(gpu_.event_destroy(event));
}

Status GpuApi::record_event(Event event, Stream stream) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  return check(gpu_.event_record(event, native_stream(stream)));
}

Result<bool> GpuApi::event_done(Event event) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_owner(event));
  return done(gpu_.event_query(event));
}

Status GpuApi::stream_wait_event(Stream stream, Event event) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  return check(gpu_.stream_wait_event(native_stream(stream), event, 0));
}

Result<Module> GpuApi::load_module(int device, const void* image) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  Module module = nullptr;
  TUTTI_RETURN_IF_ERROR(check(gpu_.module_load_data(&module, image)));
  return own(module, device);
}

Status GpuApi::unload_module(Module module) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter_owner(module)));
  owners_.remove(module);
  return check_free(gpu_.module_unload(module));
}

Result<Function> GpuApi::find_function(Module module, const char* function_name) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_owner(module));
  Function function = nullptr;
  TUTTI_RETURN_IF_ERROR(check(gpu_.module_get_function(&function, module, function_name)));
  return function;
}

Status GpuApi::launch(Function function, const LaunchShape& shape, Stream stream,
                      void** arguments) {
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter_stream(stream));
  return check(gpu_.launch_kernel(function, shape.grid[0], shape.grid[1], shape.grid[2],
                                  shape.block[0], shape.block[1], shape.block[2],
                                  shape.shared_bytes, native_stream(stream), arguments, nullptr));
}

}  // namespace tutti::device
