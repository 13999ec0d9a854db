// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "ccl/search.hpp"

#include <link.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/config.hpp"

namespace tutti::ccl {

namespace fs = std::filesystem;

namespace {

void add_once(std::vector<std::string>& list, std::string entry) {
  if (!entry.empty() && std::find(list.begin(), list.end(), entry) == list.end()) {
    list.push_back(std::move(entry));
  }
}

int add_object(dl_phdr_info* info, std::size_t, void* list) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0') {
    static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
  }
  return 0;
}

/// `<prefix>/lib/python3*/site-packages`, newest name first where a prefix holds several.
std::vector<std::string> site_packages_of_prefix(const fs::path& prefix) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(prefix / "lib", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().filename().string().rfind("python3", 0) == 0 &&
        fs::is_directory(entry->path() / "site-packages", ignored)) {
      found.push_back((entry->path() / "site-packages").string());
    }
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

bool is_python(const std::string& program) {
  return fs::path(program).filename().string().rfind("python", 0) == 0;
}

/// "<prefix>" of "<prefix>/bin/python3"; empty for a bare name that PATH resolved.
fs::path prefix_of(const std::string& program) {
  return program.find('/') == std::string::npos ? fs::path()
                                                : fs::path(program).parent_path().parent_path();
}

}  // namespace

const char* to_string(Brand brand) { return brand == Brand::kNccl ? "nccl" : "rccl"; }

ProcessFacts process_facts() {
  ProcessFacts facts;
  dl_iterate_phdr(add_object, &facts.loaded);
  std::error_code error;
  facts.executable = fs::read_symlink("/proc/self/exe", error).string();
  std::ifstream command_line("/proc/self/cmdline", std::ios::binary);
  std::getline(command_line, facts.invoked_as, '\0');
  facts.virtual_env = environment_value("VIRTUAL_ENV");
  facts.conda_prefix = environment_value("CONDA_PREFIX");
  facts.python_path = environment_value("PYTHONPATH");
  facts.home = environment_value("HOME");
  facts.rocm_path = environment_value("ROCM_PATH");
  return facts;
}

std::vector<std::string> sonames(Brand brand) {
  if (brand == Brand::kNccl) {
    return {"libnccl.so.2"};
  }
  return {"librccl.so.1", "librccl.so"};
}

bool is_copy_of(Brand brand, const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  const std::string_view stem = brand == Brand::kNccl ? "libnccl.so" : "librccl.so";
  return name == stem || name.rfind(std::string(stem) + ".", 0) == 0;
}

std::vector<std::string> loaded_copies(Brand brand, const ProcessFacts& facts) {
  std::vector<std::string> copies;
  for (const std::string& path : facts.loaded) {
    if (is_copy_of(brand, path)) {
      add_once(copies, path);
    }
  }
  return copies;
}

std::vector<std::string> site_packages(const ProcessFacts& facts) {
  std::vector<std::string> directories;
  constexpr std::string_view kMark = "/site-packages/";
  for (const std::string& path : facts.loaded) {
    if (const auto at = path.rfind(kMark); at != std::string::npos) {
      add_once(directories, path.substr(0, at + kMark.size() - 1));
    }
  }
  std::vector<fs::path> prefixes = {facts.virtual_env, facts.conda_prefix};
  if (is_python(facts.executable)) {
    for (std::size_t begin = 0; begin < facts.python_path.size();) {
      const std::size_t end =
          std::min(facts.python_path.find(':', begin), facts.python_path.size());
      add_once(directories, facts.python_path.substr(begin, end - begin));
      begin = end + 1;
    }
    prefixes.push_back(prefix_of(facts.invoked_as));
    prefixes.push_back(prefix_of(facts.executable));
    if (!facts.home.empty()) {
      prefixes.push_back(fs::path(facts.home) / ".local");
    }
  }
  for (const fs::path& prefix : prefixes) {
    if (!prefix.empty()) {
      for (std::string& directory : site_packages_of_prefix(prefix)) {
        add_once(directories, std::move(directory));
      }
    }
  }
  return directories;
}

std::vector<std::string> wheel_copies(Brand brand, const ProcessFacts& facts) {
  // NCCL has a wheel of its own beside PyTorch's; RCCL lies inside PyTorch's.
  const char* const inside =
      brand == Brand::kNccl ? "nvidia/nccl/lib/libnccl.so.2" : "torch/lib/librccl.so";
  std::vector<std::string> copies;
  for (const std::string& directory : site_packages(facts)) {
    copies.push_back((fs::path(directory) / inside).string());
  }
  return copies;
}

std::vector<std::string> system_copies(Brand brand, const ProcessFacts& facts) {
  std::vector<std::string> copies = sonames(brand);
  if (!facts.conda_prefix.empty()) {
    add_once(copies, (fs::path(facts.conda_prefix) / "lib" / copies.front()).string());
  }
  if (brand == Brand::kRccl) {
    // ROCm's own packages do not always register their directory with the loader.
    const std::string rocm = facts.rocm_path.empty() ? "/opt/rocm" : facts.rocm_path;
    add_once(copies, rocm + "/lib/librccl.so.1");
  }
  return copies;
}

}  // namespace tutti::ccl
