// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The tables under test. The GPU ones run over the fakes, loaded by path before open() so that
// it finds them as "already in the process"; TUTTI_TEST_REAL_CUDA=1 takes the machine's own
// libcuda instead, and the cases that need a fake are skipped.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "device/device.hpp"
#include "support/host_device/host_device.hpp"

namespace tutti::device::test {

/// A gate that holds a stream until it is opened.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  static void wait(void* gate) {
    auto* self = static_cast<Gate*>(gate);
    std::unique_lock lock(self->mutex_);
    self->changed_.wait(lock, [self] { return self->open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

struct Table {
  std::string name;
  std::unique_ptr<Api> api;
  void* library = nullptr;  // The fake; null for the host device and for a real library.

  template <class F>
  F* symbol(const char* symbol_name) const {
    void* found = library == nullptr ? nullptr : dlsym(library, symbol_name);
    EXPECT_NE(found, nullptr) << symbol_name;
    return reinterpret_cast<F*>(found);
  }

  bool is_real() const { return library == nullptr && name != "host"; }

  /// Queues a host function on a stream.
  void enqueue(Stream stream, void (*function)(void*), void* argument) const {
    if (name == "host") {
      tutti_host_device_enqueue(stream, function, argument);
    } else {
      symbol<void(void*, void (*)(void*), void*)>("tutti_fake_enqueue")(stream, function, argument);
    }
  }
  void hold(Stream stream, Gate* gate) const { enqueue(stream, &Gate::wait, gate); }

  /// Makes calls of the fake fail; "" ends it and sets the counts to 0.
  void fail(const std::string& spec) const {
    symbol<void(const char*)>("tutti_fake_fail")(spec.c_str());
  }
  long calls(const char* symbol_name) const {
    return symbol<long(const char*)>("tutti_fake_calls")(symbol_name);
  }
};

inline bool wants_real_cuda() {
  const char* value = std::getenv("TUTTI_TEST_REAL_CUDA");
  return value != nullptr && std::string(value) == "1";
}

/// Loads the fake, not the table.
inline void* load_fake(const std::string& name) {
  const char* file = name == "cuda" ? TUTTI_FAKE_CUDA : TUTTI_FAKE_HIP;
  void* library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

inline Table open_table(const std::string& name) {
  Table table;
  table.name = name;
  if (name == "hip" || (name == "cuda" && !wants_real_cuda())) {
    table.library = load_fake(name);
  }
  OpenReport report;
  table.api = open(name, &report);
  EXPECT_NE(table.api, nullptr) << report.reason;
  return table;
}

}  // namespace tutti::device::test
