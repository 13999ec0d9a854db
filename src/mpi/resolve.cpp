// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/resolve.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace tutti::mpi {
namespace {

void* g_handle = nullptr;

std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

bool looks_like_mpi(std::string_view path) {
  const std::string_view name = file_name(path);
  return name.starts_with("libmpi.so") || name.starts_with("libmpich.so") ||
         name.starts_with("libmpi_abi.so") || name.starts_with("libmpi_cray.so") ||
         name.starts_with("libmpi_gnu");
}

std::vector<std::string> loaded_mpis() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        if (info->dlpi_name != nullptr && looks_like_mpi(info->dlpi_name)) {
          static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &paths);
  return paths;
}

/// File that defines `symbol`, empty when the address is nobody's.
std::string file_of(const void* symbol) {
  Dl_info info;
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  return info.dli_fname;
}

std::string path_of_mpi(const void* caller, const std::vector<std::string>& loaded) {
  if (void* symbol = dlsym(RTLD_NEXT, "PMPI_Comm_rank"); symbol != nullptr) {
    return file_of(symbol);
  }
  const std::string caller_path = file_of(caller);
  if (!caller_path.empty()) {
    if (void* handle = dlopen(caller_path.c_str(), RTLD_LAZY | RTLD_NOLOAD); handle != nullptr) {
      void* symbol = dlsym(handle, "PMPI_Comm_rank");
      std::string path = file_of(symbol);
      dlclose(handle);
      if (!path.empty()) {
        return path;
      }
    }
  }
  return loaded.empty() ? std::string() : loaded.front();
}

Flavour flavour_of(void* handle) {
  if (dlsym(handle, "ompi_mpi_comm_world") != nullptr) {
    return Flavour::kOpenMpi;
  }
  using AbiGetVersion = int(int*, int*);
  if (auto* query = reinterpret_cast<AbiGetVersion*>(dlsym(handle, "PMPI_Abi_get_version"));
      query != nullptr) {
    int major = -1;
    int minor = -1;
    if (query(&major, &minor) == 0 && major >= 1) {
      return Flavour::kAbi;
    }
  }
  return dlsym(handle, "PMPI_Comm_rank") != nullptr ? Flavour::kMpich : Flavour::kUnknown;
}

}  // namespace

MpiInProcess find_mpi(const void* caller) {
  MpiInProcess found;
  const std::vector<std::string> loaded = loaded_mpis();
  found.path = path_of_mpi(caller, loaded);
  if (found.path.empty()) {
    return found;
  }
  g_handle = dlopen(found.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (g_handle == nullptr) {
    // A statically linked MPI: its symbols are the executable's own.
    g_handle = dlopen(nullptr, RTLD_LAZY);
  }
  found.flavour = flavour_of(g_handle);
  for (const std::string& other : loaded) {
    if (file_name(other) != file_name(found.path)) {
      found.other_path = other;
    }
  }
  return found;
}

void* mpi_lookup(const char* name) {
  if (std::strncmp(name, "ompi_", 5) == 0) {
    // An executable linked without PIC has its own copy of Open MPI's predefined objects (copy
    // relocation), and all code uses that one: ask in the order in which the linker bound it.
    if (void* object = dlsym(RTLD_DEFAULT, name); object != nullptr) {
      return object;
    }
  }
  return dlsym(g_handle, name);
}

void* mpi_lookup_next_in_chain(const char* name) {
  // "PMPI_X" -> "MPI_X": the next definition after ours, be it a profiler's or the library's.
  void* next = std::strncmp(name, "PMPI_", 5) == 0 ? dlsym(RTLD_NEXT, name + 1) : nullptr;
  return next != nullptr ? next : mpi_lookup(name);
}

}  // namespace tutti::mpi
