// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/result.hpp"

namespace tutti {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kInvalidConfig:
      return "invalid configuration";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kLibraryFailed:
      return "library failed";
    case ErrorCode::kMpiFailed:
      return "MPI failed";
    case ErrorCode::kMismatch:
      return "calls differ";
    case ErrorCode::kFallback:
      return "fall-back refused by TUTTI_STRICT";
  }
  return "unknown";
}

}  // namespace tutti
