// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/resolve.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
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

bool is_fortran_of_open_mpi(std::string_view path) {
  return file_name(path).starts_with("libmpi_mpifh");
}

struct Loaded {
  std::vector<std::string> mpis;
  bool has_fortran_of_open_mpi = false;
};

Loaded loaded_libraries() {
  Loaded loaded;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto* const found = static_cast<Loaded*>(data);
        if (info->dlpi_name != nullptr) {
          found->has_fortran_of_open_mpi |= is_fortran_of_open_mpi(info->dlpi_name);
          if (looks_like_mpi(info->dlpi_name)) {
            found->mpis.emplace_back(info->dlpi_name);
          }
        }
        return 0;
      },
      &loaded);
  return loaded;
}

std::string path_of_mpi(const void* caller, const std::vector<std::string>& loaded) {
  std::string path = file_of(next_symbol("PMPI_Comm_rank", caller));
  if (!path.empty()) {
    return path;
  }
  return loaded.empty() ? std::string() : loaded.front();
}

/// Null: there is no such library. A statically linked MPI's symbols are the executable's own.
void* open_mpi(const std::string& path) {
  if (path.empty()) {
    return nullptr;
  }
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return handle != nullptr ? handle : dlopen(nullptr, RTLD_LAZY);
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

/// The symbol, null where it is of the object that holds this function. A search of the whole
/// process finds this library's PMPI_X first, which would call itself.
void* foreign(void* symbol) {
  Dl_info theirs;
  Dl_info own;
  const bool is_own = symbol != nullptr && dladdr(symbol, &theirs) != 0 &&
                      dladdr(reinterpret_cast<void*>(foreign), &own) != 0 &&
                      theirs.dli_fbase == own.dli_fbase;
  return is_own ? nullptr : symbol;
}

}  // namespace

std::string file_of(const void* address) {
  Dl_info info;
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  return info.dli_fname;
}

MpiInProcess find_mpi(const void* caller) {
  MpiInProcess found;
  const Loaded loaded = loaded_libraries();
  found.path = path_of_mpi(caller, loaded.mpis);
  if (found.path.empty()) {
    return found;
  }
  g_handle = open_mpi(found.path);
  found.flavour = flavour_of(g_handle);
  found.has_fortran_past_us = found.flavour == Flavour::kOpenMpi && loaded.has_fortran_of_open_mpi;
  for (const std::string& other : loaded.mpis) {
    if (file_name(other) != file_name(found.path)) {
      found.other_path = other;
    }
  }
  return found;
}

void* next_symbol(const char* name, const void* caller) {
  if (void* symbol = dlsym(RTLD_NEXT, name); symbol != nullptr) {
    return symbol;
  }
  // Python loads the caller, and with it what the caller needs, out of RTLD_NEXT's sight.
  const std::string caller_path = file_of(caller);
  void* handle =
      caller_path.empty() ? nullptr : dlopen(caller_path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) {
    return nullptr;
  }
  void* symbol = foreign(dlsym(handle, name));
  dlclose(handle);
  return symbol;
}

void* mpi_lookup(const char* name) {
  if (std::strncmp(name, "ompi_", 5) == 0) {
    // An executable linked without PIC has its own copy of Open MPI's predefined objects (copy
    // relocation), and all code uses that one: ask in the order in which the linker bound it.
    if (void* object = dlsym(RTLD_DEFAULT, name); object != nullptr) {
      return object;
    }
  }
  return foreign(dlsym(g_handle, name));
}

void* mpi_lookup_of(const void* caller, const char* name) {
  return foreign(dlsym(open_mpi(path_of_mpi(caller, loaded_libraries().mpis)), name));
}

void* tool_lookup(const char* name) {
  void* next = dlsym(RTLD_NEXT, name);
  return next != nullptr && next != mpi_lookup(name) && !looks_like_mpi(file_of(next)) ? next
                                                                                       : nullptr;
}

AddressRange mpi_addresses() {
  struct Search {
    std::uintptr_t inside;
    AddressRange found;
  } search{reinterpret_cast<std::uintptr_t>(mpi_lookup("PMPI_Comm_rank")), {}};
  if (search.inside == 0) {
    return {};
  }
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        AddressRange code{UINTPTR_MAX, 0};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
            const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
            code.begin = std::min(code.begin, begin);
            code.end = std::max<std::uintptr_t>(code.end, begin + segment.p_memsz);
          }
        }
        const bool is_it = wanted->inside >= code.begin && wanted->inside < code.end;
        if (is_it) {
          wanted->found = code;
        }
        return is_it ? 1 : 0;
      },
      &search);
  return search.found;
}

std::string initialised_mpi() {
  for (const std::string& path : loaded_libraries().mpis) {
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
      continue;
    }
    // Both may be called at any time, before MPI_Init and after MPI_Finalize.
    const auto says = [handle](const char* name) {
      using Query = int(int*);
      auto* query = reinterpret_cast<Query*>(dlsym(handle, name));
      int flag = 0;
      return query != nullptr && query(&flag) == 0 && flag != 0;
    };
    const bool is_initialised = says("PMPI_Initialized") || says("PMPI_Finalized");
    dlclose(handle);
    if (is_initialised) {
      return path;
    }
  }
  return {};
}

}  // namespace tutti::mpi
