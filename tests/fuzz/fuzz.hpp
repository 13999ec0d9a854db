// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the fuzz targets share: the entry point's name and an assertion that every driver sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

/// Called by libFuzzer or by replay_main.cpp for each input; returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

#define FUZZ_ASSERT(expression)                                                            \
  do {                                                                                     \
    if (!(expression)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #expression); \
      std::abort();                                                                        \
    }                                                                                      \
  } while (0)

namespace tutti::fuzz {

inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return std::string(reinterpret_cast<const char*>(data), size);
}

/// A message that a person can read: it begins with the place and holds no control characters.
inline bool readable(const std::string& message, const std::string& place) {
  for (char c : message) {
    if (c < ' ' || c > '~') {
      return false;
    }
  }
  return message.rfind(place, 0) == 0 && message.size() > place.size() && message.size() < 1000;
}

}  // namespace tutti::fuzz
