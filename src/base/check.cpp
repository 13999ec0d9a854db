// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace tutti {

void check_failed(const char* file, int line, const char* expression, const std::string& values) {
  std::fprintf(stderr, "tutti: %s:%d: broken invariant: %s (%s). Please report this.\n", file, line,
               expression, values.c_str());
  std::abort();
}

}  // namespace tutti
