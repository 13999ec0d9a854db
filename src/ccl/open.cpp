// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which copy of NCCL or RCCL this process uses: the places in their order (what lies in each:
// search.hpp), and an error that says what each one had.
#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "ccl/loaded_library.hpp"

namespace tutti::ccl {
namespace {

/// The DT_SONAME of a loaded object, empty when it has none: tells NCCL from RCCL whatever the
/// file is called.
std::string soname_of(const std::string& path) {
  void* handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  link_map* map = nullptr;
  std::string soname;
  if (handle != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) {
    const char* strings = nullptr;
    std::uint64_t offset = 0;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) {
        // glibc relocates this pointer on most processors and musl on none.
        const auto address = static_cast<std::uintptr_t>(entry->d_un.d_ptr);
        const auto base = static_cast<std::uintptr_t>(map->l_addr);
        strings = reinterpret_cast<const char*>(address < base ? base + address : address);
      } else if (entry->d_tag == DT_SONAME) {
        offset = entry->d_un.d_val;
      }
    }
    if (strings != nullptr && offset != 0) {
      soname = strings + offset;
    }
  }
  if (handle != nullptr) {
    dlclose(handle);
  }
  return soname;
}

Brand other(Brand brand) { return brand == Brand::kNccl ? Brand::kRccl : Brand::kNccl; }

const char* display_name(Brand brand) { return brand == Brand::kNccl ? "NCCL" : "RCCL"; }

const char* display_device(Brand brand) { return brand == Brand::kNccl ? "CUDA" : "HIP"; }

std::string wrong_brand(Brand brand) {
  return std::string("is ") + display_name(other(brand)) + ", which cannot drive a " +
         display_device(brand) + " device";
}

std::string remedy(Brand brand) {
  return brand == Brand::kNccl
             ? "install NCCL 2.18 or newer (pip install nvidia-nccl-cu12) or set "
               "TUTTI_CCL_LIBRARY to its libnccl.so.2"
             : "install RCCL 2.18 or newer (ROCm 6.0) or set TUTTI_CCL_LIBRARY to its "
               "librccl.so.1";
}

/// Which library the two settings mean together.
Result<Brand> brand_for(const std::string& wanted, const std::string& device_name) {
  if (wanted != "auto" && wanted != "nccl" && wanted != "rccl") {
    return wanted == "none"
               ? Status(ErrorCode::kUnavailable, "TUTTI_CCL=none: NCCL and RCCL are turned off")
               : Status(ErrorCode::kInvalidConfig,
                        "TUTTI_CCL=" + wanted + ": takes auto, nccl, rccl or none");
  }
  if (device_name != "cuda" && device_name != "hip") {
    return Status(ErrorCode::kUnsupported,
                  "NCCL needs a CUDA device and RCCL a HIP device; the "
                  "device here is \"" +
                      device_name + "\"");
  }
  const Brand brand = device_name == "cuda" ? Brand::kNccl : Brand::kRccl;
  if (wanted != "auto" && wanted != to_string(brand)) {
    return Status(ErrorCode::kInvalidConfig, "TUTTI_CCL=" + wanted + ": " + wanted +
                                                 " cannot drive a " + display_device(brand) +
                                                 " device; use " + to_string(brand) + " or auto");
  }
  return brand;
}

/// Takes a library that has been loaded, unless it is the other brand's.
Result<std::unique_ptr<CclLibrary>> adopt(Brand brand, const DynamicLibrary& library,
                                          const std::string& found_by) {
  const std::string path = library.path();
  const std::string soname = soname_of(path);
  if (is_copy_of(other(brand), soname) || is_copy_of(other(brand), path)) {
    return Status(ErrorCode::kInvalidConfig, path + " " + wrong_brand(brand));
  }
  return make_library(brand, library, found_by);
}

/// The process's own copy, if it has one. Two copies in one process would each believe that the
/// GPUs are theirs, so an unusable one ends the search.
Result<DynamicLibrary> find_loaded(Brand brand, const ProcessFacts& facts) {
  std::vector<std::string> names = sonames(brand);
  for (std::string& path : loaded_copies(brand, facts)) {
    names.push_back(std::move(path));
  }
  for (const std::string& name : names) {
    if (auto library = DynamicLibrary::open_loaded(name); library.ok()) {
      return library;
    }
  }
  return Status(ErrorCode::kUnavailable,
                std::string("no lib") + to_string(brand) + ".so in this process");
}

}  // namespace

Result<std::unique_ptr<CclLibrary>> CclLibrary::open(const std::string& wanted,
                                                     const std::string& device_name,
                                                     const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(const Brand brand, brand_for(wanted, device_name));
  const ProcessFacts facts = process_facts();

  const auto loaded = find_loaded(brand, facts);
  if (loaded.ok()) {
    auto library = adopt(brand, *loaded, "already loaded in the process");
    if (!library.ok()) {
      return Status(library.status().code(),
                    "the " + std::string(display_name(brand)) +
                        " that this process has already loaded cannot be used: " +
                        library.status().message() + "; " + remedy(brand) +
                        " before the program loads its own");
    }
    return library;
  }
  std::string places = "already loaded: " + loaded.status().message();

  if (!path.empty()) {
    // Judged by its name before it is loaded: loading RCCL starts HIP's runtime.
    if (is_copy_of(other(brand), path)) {
      return Status(ErrorCode::kInvalidConfig,
                    "TUTTI_CCL_LIBRARY: " + path + " " + wrong_brand(brand));
    }
    const auto named = DynamicLibrary::open(path);
    if (!named.ok()) {
      return Status(ErrorCode::kInvalidConfig, "TUTTI_CCL_LIBRARY: " + named.status().message() +
                                                   "; correct the path or unset the variable");
    }
    auto library = adopt(brand, *named, "TUTTI_CCL_LIBRARY");
    if (!library.ok()) {
      return Status(library.status().code(),
                    "TUTTI_CCL_LIBRARY: " + library.status().message() + "; " + remedy(brand));
    }
    return library;
  }
  places += "; TUTTI_CCL_LIBRARY: not set";

  struct Step {
    const char* found_by;
    std::vector<std::string> names;
    const char* when_empty;
  };
  const Step steps[] = {
      {"PyTorch wheel", wheel_copies(brand, facts), "no site-packages directory known"},
      {"system", system_copies(brand, facts), "nothing to ask for"},
  };
  for (const Step& step : steps) {
    places += std::string("; ") + step.found_by + ": ";
    if (step.names.empty()) {
      places += step.when_empty;
    }
    for (const std::string& name : step.names) {
      const auto candidate = DynamicLibrary::open(name);
      auto library = candidate.ok() ? adopt(brand, *candidate, step.found_by)
                                    : Result<std::unique_ptr<CclLibrary>>(candidate.status());
      if (library.ok()) {
        return library;
      }
      places += (&name == &step.names.front() ? "" : ", ") + library.status().message();
    }
  }
  return Status(ErrorCode::kUnavailable, std::string("no usable ") + display_name(brand) +
                                             " for this " + display_device(brand) + " device (" +
                                             places + "); " + remedy(brand));
}

}  // namespace tutti::ccl
