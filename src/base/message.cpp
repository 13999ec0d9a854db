// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/message.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace tutti {
namespace {

constexpr std::size_t kShownCharacters = 60;
constexpr int kNear = 3;

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (char c : text.substr(0, kShownCharacters)) {
    result += c >= ' ' && c <= '~' ? c : '?';
  }
  return result + (text.size() > kShownCharacters ? "...'" : "'");
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& names) {
  const std::string* nearest = nullptr;
  // Half a short word is another word.
  int distance = std::clamp(static_cast<int>(text.size()) / 2, 1, kNear) + 1;
  std::string all;
  for (const std::string& name : names) {
    // A far longer text cannot be near; this bounds the work on hostile input.
    int d = text.size() > kShownCharacters ? distance : edit_distance(text, name);
    if (d < distance) {
      distance = d;
      nearest = &name;
    }
    all += (all.empty() ? "" : ", ") + name;
  }
  return nearest != nullptr ? "; did you mean '" + *nearest + "'?" : "; there are " + all;
}

}  // namespace tutti
