// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A foreign shared library, found at run time and never linked. Never closed: other threads of
// the host program may still be inside it.
#pragma once

#include <string>

#include "base/result.hpp"

namespace tutti {

class DynamicLibrary {
 public:
  DynamicLibrary() = default;

  /// Loads `name` (a soname or a path) with RTLD_NOW | RTLD_LOCAL. Error: dlerror()'s words.
  static Result<DynamicLibrary> open(const std::string& name);
  /// Only if the process has it already (RTLD_NOLOAD).
  static Result<DynamicLibrary> open_loaded(const std::string& name);

  /// The program and what it was linked with, or has opened with RTLD_GLOBAL.
  static DynamicLibrary process();

  /// Null when the library has no such symbol.
  void* symbol(const char* name) const;
  /// Resolves into `*function`; false when missing.
  template <class F>
  bool resolve(const char* name, F** function) const {
    *function = reinterpret_cast<F*>(symbol(name));
    return *function != nullptr;
  }

  /// File it was loaded from, as the linker knows it.
  std::string path() const;
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}
  static Result<DynamicLibrary> open_with(const std::string& name, int flags);
  void* handle_ = nullptr;
};

}  // namespace tutti
