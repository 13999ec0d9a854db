// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/result.hpp"

#include <iterator>

namespace tutti {

const char* to_string(ErrorCode code) {
  constexpr const char* kNames[] = {"ok",
                                    "invalid argument",
                                    "invalid configuration",
                                    "unsupported",
                                    "unavailable",
                                    "out of memory",
                                    "timeout",
                                    "library failed",
                                    "MPI failed",
                                    "calls differ",
                                    "fall-back refused by TUTTI_STRICT"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(ErrorCode::kFallback) + 1);
  return kNames[static_cast<std::size_t>(code)];
}

}  // namespace tutti
