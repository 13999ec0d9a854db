// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/descriptors.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace tutti {

int descriptors_max() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0
             ? static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX))
             : INT_MAX;
}

int descriptors_left() {
  DIR* const open = opendir("/proc/self/fd");
  if (open == nullptr) {
    return errno == EMFILE ? 0 : descriptors_max();
  }
  const int most = descriptors_max();
  int count = -1;  // The directory's own.
  while (const dirent* const entry = readdir(open)) {
    // Numbers beyond the limit are from before it was lowered, and take no room.
    const bool is_one = entry->d_name[0] != '.' && std::atoi(entry->d_name) < most;
    count += is_one ? 1 : 0;
  }
  closedir(open);
  return most - count;
}

std::string why_no_descriptor() {
  const std::string why = std::strerror(errno);
  return errno == EMFILE
             ? why + "; remedy: a higher ulimit -n than " + std::to_string(descriptors_max())
             : why;
}

}  // namespace tutti
