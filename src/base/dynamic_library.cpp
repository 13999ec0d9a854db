// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/dynamic_library.hpp"

#include <dlfcn.h>
#include <link.h>

namespace tutti {

Result<DynamicLibrary> DynamicLibrary::open_with(const std::string& name, int flags) {
  void* handle = dlopen(name.c_str(), flags);
  if (handle == nullptr) {
    const char* why = dlerror();
    return Status(ErrorCode::kUnavailable, why != nullptr ? why : name + ": not loaded");
  }
  return DynamicLibrary(handle);
}

Result<DynamicLibrary> DynamicLibrary::open(const std::string& name) {
  return open_with(name, RTLD_NOW | RTLD_LOCAL);
}

Result<DynamicLibrary> DynamicLibrary::open_loaded(const std::string& name) {
  return open_with(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

DynamicLibrary DynamicLibrary::process() { return DynamicLibrary(dlopen(nullptr, RTLD_NOW)); }

void* DynamicLibrary::symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

std::string DynamicLibrary::path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    return {};
  }
  return map->l_name;
}

}  // namespace tutti
