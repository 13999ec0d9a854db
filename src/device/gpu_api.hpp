// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the tables over CUDA and over HIP have alike: streams, events, code and launches, and how
// each call makes a device current and turns the library's answer into a Status. What differs is in
// cuda.hpp and hip.cpp.
#pragma once

#include <string>
#include <utility>

#include "base/dynamic_library.hpp"
#include "device/device.hpp"
#include "device/driver.hpp"
#include "device/owners.hpp"

namespace tutti::device {

class GpuApi : public Api {
 public:
  Result<int> device_count() override;
  Status initialize() override;
  Result<std::string> pci_address(int device) override;
  Result<std::string> device_name(int device) override;
  Status copy(void* destination, const void* source, Bytes bytes) override;

  Result<Stream> create_stream(int device) override;
  Status destroy_stream(Stream stream) override;
  Result<bool> stream_done(Stream stream) override;
  Status wait_stream(Stream stream) override;
  Status wait_device(int device) override;
  Result<bool> is_capturing(Stream stream) override;
  int exchange_capture_mode(int mode) override;
  Stream exchange_current_stream(Stream stream) override;

  Result<Event> create_event(int device) override;
  Status destroy_event(Event event) override;
  Status record_event(Event event, Stream stream) override;
  Result<bool> event_done(Event event) override;
  Status stream_wait_event(Stream stream, Event event) override;

  Result<Module> load_module(int device, const void* image) override;
  Status unload_module(Module module) override;
  Result<Function> find_function(Module module, const char* function_name) override;
  Status launch(Function function, const LaunchShape& shape, Stream stream,
                void** arguments) override;

 protected:
  /// Makes a device current for one call; at its end the application's is current again.
  class Scope {
   public:
    explicit Scope(GpuApi& api) : api_(api) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      if (has_entered_) {
        api_.restore_current(previous_);
      }
    }

    /// A device that the caller named.
    Status enter(int device) { return api_.enter(*this, device); }
    /// That of a stream, ours or the application's.
    Status enter_stream(Stream stream) { return enter_stream(stream, /*is_judged=*/false); }
    /// The same where the stream is to be judged.
    Status enter_given(Stream stream) { return enter_stream(stream, /*is_judged=*/true); }
    /// That of another handle of ours; an unknown one takes what enter_any() takes, and the library
    /// judges it.
    Status enter_owner(const void* handle);
    Status enter_any(int device) { return api_.enter_any(*this, device); }

    /// Another device is current now; `previous` is for restore_current().
    void entered(void* previous) {
      previous_ = previous;
      has_entered_ = true;
    }

   private:
    Status enter_stream(Stream stream, bool is_judged);

    GpuApi& api_;
    void* previous_ = nullptr;
    bool has_entered_ = false;
  };

  GpuApi(DynamicLibrary library, const driver::Functions& functions)
      : library_(library), gpu_(functions) {}

  /// Makes `device` current and tells `scope`, unless it is so already.
  virtual Status enter(Scope& scope, int device) = 0;
  /// For calls that any device will do for: what is current, else `device` (kUnknown: one in use).
  virtual Status enter_any(Scope& scope, int device) = 0;
  /// The device of a stream of the application's. `is_judged`: by check_given().
  virtual Status enter_foreign(Scope& scope, Stream stream, bool is_judged) = 0;
  /// A blocking copy; into device memory it may return before the data is there.
  virtual driver::Outcome copy_now(void* destination, const void* source, Bytes bytes) = 0;
  /// The library's name of an error, and its words; either may be null.
  virtual std::pair<const char*, const char*> describe(driver::Result error) const = 0;
  /// Takes back the error that a failing call of ours left for the application to find.
  virtual void forget_last_error() const {}

  Status check(driver::Outcome outcome) const {
    if (outcome == driver::kSuccess) [[likely]] {
      return {};
    }
    return failure(outcome);
  }
  /// Of a stream that the application gave: what is none, or of a context that is gone, is its
  /// mistake. All else is not.
  Status check_given(driver::Outcome outcome) const;
  /// At exit the library may be gone before us, and with it everything that we would free.
  Status check_free(driver::Outcome outcome) const;
  /// The same for making the device current before a free; the free then gives the answer.
  static Status gone_is_fine(const Status& status) {
    return status.code() == ErrorCode::kUnavailable ? Status() : status;
  }
  /// Of a query: whether the work is done.
  Result<bool> done(driver::Outcome outcome) const;
  Status no_bytes() const;

  Result<driver::Device> device_handle(int ordinal) const;
  void* own(void* handle, int device) {
    owners_.add(handle, device);
    return handle;
  }

  const DynamicLibrary library_;
  const driver::Functions gpu_;  ///< Those that CUDA and HIP have alike.
  Owners owners_;

 private:
  Status failure(driver::Outcome outcome) const;
};

}  // namespace tutti::device
