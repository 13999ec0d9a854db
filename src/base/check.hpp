// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// CHECK: our own broken invariant. Stays on in release; aborts with the place and the values.
// Never for what a user, a file, a library or a packet can cause: those are Status values.
#pragma once

#include <string>

namespace tutti {

[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& values);

}  // namespace tutti

#define CHECK(expression, values)                                       \
  do {                                                                  \
    if (!(expression)) [[unlikely]] {                                   \
      ::tutti::check_failed(__FILE__, __LINE__, #expression, (values)); \
    }                                                                   \
  } while (0)
