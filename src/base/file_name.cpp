// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/file_name.hpp"

#include <unistd.h>

#include "base/host_name.hpp"

namespace tutti {

std::string expand_file_name(std::string_view pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size() && pattern[i + 1] == 'h') {
      path += host_name();
      ++i;
    } else if (pattern[i] == '%' && i + 1 < pattern.size() && pattern[i + 1] == 'p') {
      path += std::to_string(getpid());
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

std::string expand_own_file_name(std::string_view pattern) {
  const std::string file = expand_file_name(pattern);
  return pattern.find("%p") == std::string_view::npos
             ? before_ending(file, std::to_string(getpid()))
             : file;
}

std::string before_ending(std::string_view file, std::string_view word) {
  const std::size_t name = file.rfind('/') == std::string_view::npos ? 0 : file.rfind('/') + 1;
  std::size_t dot = file.rfind('.');
  // A dot in front makes a hidden file and no ending.
  if (dot == std::string_view::npos || dot <= name) {
    dot = file.size();
  }
  return std::string(file.substr(0, dot)) + "." + std::string(word) + std::string(file.substr(dot));
}

}  // namespace tutti
