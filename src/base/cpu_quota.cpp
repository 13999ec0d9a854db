// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/cpu_quota.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace tutti {
namespace {

constexpr std::int64_t kCoresMax = 1 << 20;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

int cpu_quota_cores(const std::string& cgroups, const std::string& mounted) {
  int least = 0;
  const auto take = [&least](int cores) {
    least = least == 0 ? cores : cores == 0 ? least : std::min(least, cores);
  };
  std::ifstream groups(cgroups);
  for (std::string line; std::getline(groups, line);) {
    // "0::/a/b" (v2), "4:cpu,cpuacct:/a/b" (v1).
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) {
      continue;
    }
    std::string group = line.substr(second + 1);
    // In a container the path may be the host's: what is mounted is looked at from its root, too.
    for (;; group = group.substr(0, group.rfind('/'))) {
      const std::string end = group == "/" ? "" : group;
      if (is_v2) {
        take(quota_of_cpu_max(first_line(mounted + end + "/cpu.max")));
      } else {
        const std::string at = mounted + "/cpu" + end;
        const std::string quota = first_line(at + "/cpu.cfs_quota_us");
        if (!quota.empty() && quota[0] != '-') {
          take(quota_of_cpu_max(quota + " " + first_line(at + "/cpu.cfs_period_us")));
        }
      }
      if (end.empty()) {
        break;
      }
    }
  }
  return least;
}

int quota_of_cpu_max(const std::string& cpu_max) {
  std::istringstream words(cpu_max);
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
  if (!(words >> quota_us >> period_us) || quota_us <= 0 || period_us <= 0) {
    return 0;
  }
  return static_cast<int>(std::clamp<std::int64_t>(quota_us / period_us, 1, kCoresMax));
}

}  // namespace tutti
