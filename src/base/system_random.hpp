// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Random bytes that nobody can guess: keys, and names that must not meet another process's. What
// must be the same on any machine is in random.hpp.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/result.hpp"

namespace tutti {

/// Fills `out`. Errors: the system gives none (kUnavailable).
inline Status system_random(void* out, std::size_t bytes) {
  if (getrandom(out, bytes, 0) != static_cast<ssize_t>(bytes)) {
    return Status(ErrorCode::kUnavailable,
                  std::string("no random numbers of the system: ") + std::strerror(errno));
  }
  return {};
}

}  // namespace tutti
