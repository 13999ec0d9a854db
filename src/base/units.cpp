// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/units.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

namespace tutti {

Result<Bytes> parse_bytes(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "inf") {
    return kBytesMax;
  }
  Bytes number = 0;
  const char* end = lower.data() + lower.size();
  auto [rest, error] = std::from_chars(lower.data(), end, number);
  if (error != std::errc()) {
    return Status(ErrorCode::kInvalidConfig, "'" + std::string(text) +
                                                 "' is not a size; write a whole number with K, M, "
                                                 "G or T behind it, or inf");
  }
  std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  static constexpr std::string_view kSuffixes = "kmgt";
  int shift = 0;
  if (!suffix.empty() && suffix != "b") {
    auto at = kSuffixes.find(suffix[0]);
    std::string_view unit = suffix.substr(1);
    if (at == std::string_view::npos || !(unit.empty() || unit == "b" || unit == "ib")) {
      return Status(ErrorCode::kInvalidConfig, "'" + std::string(text) +
                                                   "': unknown size suffix '" +
                                                   std::string(suffix) + "'; use K, M, G or T");
    }
    shift = static_cast<int>(at + 1) * 10;
  }
  if (number > (kBytesMax >> shift)) {
    return Status(ErrorCode::kInvalidConfig, "'" + std::string(text) + "' is over 64 bits");
  }
  return number << shift;
}

std::string format_bytes(Bytes bytes) {
  if (bytes == kBytesMax) {
    return "inf";
  }
  static constexpr std::string_view kSuffixes[] = {"", "K", "M", "G", "T"};
  std::size_t index = 0;
  while (bytes != 0 && bytes % 1024 == 0 && index + 1 < std::size(kSuffixes)) {
    bytes /= 1024;
    ++index;
  }
  return std::to_string(bytes) + std::string(kSuffixes[index]);
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = static_cast<int>(j);
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      int substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace tutti
