// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Where a copy of NCCL or RCCL may lie, place by place: names and paths, best first. Loads nothing,
// so that it is tested without a library. The order of the places: open.cpp. Private to this room.
#pragma once

#include <string>
#include <vector>

namespace tutti::ccl {

/// The same API under two file names. NCCL drives CUDA devices only, RCCL HIP devices only.
enum class Brand { kNccl, kRccl };

const char* to_string(Brand brand);  ///< "nccl", "rccl".

/// What of this process the search depends on.
struct ProcessFacts {
  std::vector<std::string> loaded;  ///< Every object the dynamic loader holds, by path.
  std::string executable;           ///< /proc/self/exe.
  std::string invoked_as;           ///< argv[0]: a virtual environment's python is a link.
  std::string virtual_env;          ///< VIRTUAL_ENV
  std::string conda_prefix;         ///< CONDA_PREFIX
  std::string python_path;          ///< PYTHONPATH
  std::string home;                 ///< HOME, for pip install --user
  std::string rocm_path;            ///< ROCM_PATH
};

ProcessFacts process_facts();

/// Names under which the loader knows the library: "libnccl.so.2"; "librccl.so.1", "librccl.so".
std::vector<std::string> sonames(Brand brand);

/// True when the file name is this library's: libnccl.so*, not libnccl-net.so or libnccl_x.so.
bool is_copy_of(Brand brand, const std::string& path);

/// Loaded objects whose file name is the library's, in load order. Finds what a Python extension
/// loaded with RTLD_LOCAL under a file name that differs from its soname.
std::vector<std::string> loaded_copies(Brand brand, const ProcessFacts& facts);

/// Python's package directories as far as they can be told without Python, without duplicates:
/// of the loaded extension modules, of the environment, of the executable when it is a python.
std::vector<std::string> site_packages(const ProcessFacts& facts);

/// The file that a wheel would have put into each of site_packages(); it need not exist.
std::vector<std::string> wheel_copies(Brand brand, const ProcessFacts& facts);

/// What to ask the loader for in the system's directories, then well-known prefixes outside them.
std::vector<std::string> system_copies(Brand brand, const ProcessFacts& facts);

}  // namespace tutti::ccl
