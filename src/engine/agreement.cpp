// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/agreement.hpp"

#include <bit>
#include <string>
#include <string_view>

namespace tutti::engine {

MemoryModes::Class& MemoryModes::of(select::Collective collective, std::optional<Bytes> bytes) {
  const auto size_class = bytes ? static_cast<std::size_t>(std::bit_width(*bytes)) : kUnsized;
  return classes_[static_cast<std::size_t>(collective) * kSizeClasses + size_class];
}

std::optional<select::Memory> MemoryModes::known(select::Collective collective) const {
  const Class& memory = classes_[static_cast<std::size_t>(collective) * kSizeClasses + kUnsized];
  return agreement_due(memory.calls + 1) ? std::nullopt : std::optional(memory.mode);
}

std::optional<select::Memory> asserted_memory(const std::string& kinds) {
  bool host = false;
  bool device = false;
  std::string_view rest = kinds;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    std::string_view kind = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    while (!kind.empty() && kind.front() == ' ') {
      kind.remove_prefix(1);
    }
    while (!kind.empty() && kind.back() == ' ') {
      kind.remove_suffix(1);
    }
    if (kind == "system" || kind == "mpi" || kind.starts_with("mpi:") || kind == "cuda:host" ||
        kind == "rocm:host") {
      host = true;
    } else if (kind == "cuda:device" || kind == "rocm:device") {
      device = true;
    } else if (!kind.empty()) {
      return std::nullopt;  // Managed and unknown kinds can be either.
    }
  }
  if (host == device) {
    return std::nullopt;
  }
  return device ? select::Memory::kDevice : select::Memory::kHost;
}

}  // namespace tutti::engine
