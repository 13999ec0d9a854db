// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/config_table.hpp"

namespace tutti {
namespace {

constexpr std::string_view kPrefix = "TUTTI_";
constexpr int kDidYouMeanDistance = 3;
/// Bad values come from anywhere; a message shows at most this much of one.
constexpr std::size_t kValueCharacters = 80;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// A value as it may stand in a log line: short, printable ASCII.
std::string shown(std::string_view text) {
  std::string result;
  for (char c : text.substr(0, kValueCharacters)) {
    result += c >= ' ' && c <= '~' ? c : '?';
  }
  return text.size() > kValueCharacters ? result + "..." : result;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    std::size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(at + 1);
  }
}

/// "low..high"; the table is ours, so both parts are there.
struct Bounds {
  std::string low;
  std::string high;
};

Bounds bounds_of(const Knob& knob) {
  std::size_t dots = knob.range.find("..");
  return {knob.range.substr(0, dots), knob.range.substr(dots + 2)};
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::string format_number(double value) {
  char buffer[64];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return error == std::errc() ? std::string(buffer, end) : "?";
}

/// One overload of parse, format and type name for each alternative of KnobField. Parsing returns
/// false for a value outside the knob's range and then leaves the field alone.
struct ParseValue {
  const Knob& knob;
  std::string_view text;
  Config* config;

  bool operator()(std::monostate) const { return true; }
  bool operator()(bool Config::*field) const {
    static const std::set<std::string> kTrue = {"1", "y", "yes", "on", "true"};
    static const std::set<std::string> kFalse = {"0", "n", "no", "off", "false"};
    std::string value = lower(text);
    if (kTrue.count(value) == 0 && kFalse.count(value) == 0) {
      return false;
    }
    config->*field = kTrue.count(value) != 0;
    return true;
  }
  bool operator()(int Config::*field) const { return number(field); }
  bool operator()(double Config::*field) const { return number(field); }
  bool operator()(Bytes Config::*field) const {
    Result<Bytes> value = parse_bytes(text);
    Bounds bounds = bounds_of(knob);
    if (!value.ok() || *value < *parse_bytes(bounds.low) || *value > *parse_bytes(bounds.high)) {
      return false;
    }
    config->*field = *value;
    return true;
  }
  bool operator()(LogLevel Config::*field) const {
    std::vector<std::string> choices = split(knob.range, '|');
    auto found = std::find(choices.begin(), choices.end(), lower(text));
    if (found == choices.end()) {
      return false;
    }
    config->*field = static_cast<LogLevel>(found - choices.begin());
    return true;
  }
  bool operator()(std::string Config::*field) const {
    if (knob.range.empty()) {
      config->*field = text;
      return true;
    }
    std::vector<std::string> choices = split(knob.range, '|');
    std::string value = lower(text);
    if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
      return false;
    }
    config->*field = value;
    return true;
  }
  bool operator()(VirtualNodes Config::*field) const {
    std::vector<int> numbers;
    for (const std::string& word : split(text, ',')) {
      const std::optional<int> value = parse_number<int>(word);
      if (!value || *value < 0 || *value > parse_number<int>(bounds_of(knob).high)) {
        return false;
      }
      numbers.push_back(*value);
    }
    if (numbers.size() == 1) {
      config->*field = {.count = numbers[0], .sizes = {}};
      return true;
    }
    if (std::find(numbers.begin(), numbers.end(), 0) != numbers.end()) {
      return false;
    }
    config->*field = {.count = static_cast<int>(numbers.size()), .sizes = numbers};
    return true;
  }
  bool operator()(std::size_t collective) const {
    config->plans[collective] = text;
    return true;
  }

 private:
  template <class T>
  bool number(T Config::*field) const {
    std::optional<T> value = parse_number<T>(text);
    Bounds bounds = bounds_of(knob);
    // Written so that NaN is outside.
    if (!value || !(*value >= *parse_number<T>(bounds.low)) ||
        !(*value <= *parse_number<T>(bounds.high))) {
      return false;
    }
    config->*field = *value;
    return true;
  }
};

/// The value as a user would type it.
struct FormatValue {
  const Knob& knob;
  const Config& config;

  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(bool Config::*field) const { return config.*field ? "1" : "0"; }
  std::string operator()(int Config::*field) const { return std::to_string(config.*field); }
  std::string operator()(double Config::*field) const { return format_number(config.*field); }
  std::string operator()(Bytes Config::*field) const { return format_bytes(config.*field); }
  std::string operator()(LogLevel Config::*field) const {
    return split(knob.range, '|')[static_cast<std::size_t>(config.*field)];
  }
  std::string operator()(std::string Config::*field) const { return config.*field; }
  std::string operator()(VirtualNodes Config::*field) const {
    const VirtualNodes& nodes = config.*field;
    if (nodes.sizes.empty()) {
      return std::to_string(nodes.count);
    }
    std::string text;
    for (const int ranks : nodes.sizes) {
      text += (text.empty() ? "" : ",") + std::to_string(ranks);
    }
    return text;
  }
  std::string operator()(std::size_t collective) const { return config.plans[collective]; }
};

struct TypeName {
  const Knob& knob;

  const char* operator()(std::monostate) const { return "removed"; }
  const char* operator()(bool Config::*) const { return "bool"; }
  const char* operator()(int Config::*) const { return "integer"; }
  const char* operator()(double Config::*) const { return "number"; }
  const char* operator()(Bytes Config::*) const { return "size"; }
  const char* operator()(LogLevel Config::*) const { return "choice"; }
  const char* operator()(std::string Config::*) const {
    return knob.range.empty() ? "text" : "choice";
  }
  const char* operator()(VirtualNodes Config::*) const { return "integer or list"; }
  const char* operator()(std::size_t) const { return "plan list"; }
};

std::string range_of(const Knob& knob) {
  if (std::holds_alternative<bool Config::*>(knob.field)) {
    return "0|1|yes|no|on|off|true|false|y|n";
  }
  return knob.range;
}

std::string unknown_name(std::string_view name) {
  const Knob* nearest = nullptr;
  int distance = kDidYouMeanDistance + 1;
  // Longer names cannot be near; this bounds the work for what is not ours.
  constexpr std::size_t kLongestName = 64;
  for (const Knob& knob : knobs()) {
    const bool is_far =
        name.size() > kLongestName || std::holds_alternative<std::monostate>(knob.field);
    const int d = is_far ? distance : edit_distance(name, knob.name);
    if (d < distance) {
      distance = d;
      nearest = &knob;
    }
  }
  std::string text = shown(name) + ": no such variable";
  return nearest != nullptr ? text + "; did you mean " + nearest->name + "?"
                            : text + "; `tutti config` lists those there are";
}

const Knob* find_knob(std::string_view name) {
  const std::vector<Knob>& table = knobs();
  const auto knob =
      std::find_if(table.begin(), table.end(), [&](const Knob& k) { return k.name == name; });
  return knob == table.end() ? nullptr : &*knob;
}

/// The knob that a removed one gives its value to; null: none.
const Knob* renamed(const Knob& knob) {
  return std::holds_alternative<std::monostate>(knob.field) ? find_knob(knob.replaced_by) : nullptr;
}

/// Takes one variable into `parsed`, and its knob into `set_names`, if it sets one. Those with an
/// old name come after all others: beside the new name they do not count.
void take(std::string_view name, std::string_view value, ParsedConfig* parsed,
          std::set<std::string>* set_names) {
  const Knob* knob = find_knob(name);
  if (knob == nullptr) {
    parsed->problems.push_back({false, unknown_name(name)});
    return;
  }
  if (value.empty()) {
    return;  // Set to nothing is the same as not set.
  }
  if (std::holds_alternative<std::monostate>(knob->field)) {
    const Knob* const now = renamed(*knob);
    parsed->problems.push_back(
        {false, knob->name + (now == nullptr ? " is gone; " : " is an old name; write ") +
                    knob->replaced_by});
    if (now == nullptr || set_names->count(now->name) != 0) {
      return;
    }
    knob = now;
  }
  if (std::visit(ParseValue{*knob, value, &parsed->config}, knob->field)) {
    set_names->insert(knob->name);
    return;
  }
  Config defaults;
  parsed->problems.push_back(
      {true, std::string(name) + ": '" + shown(value) + "' is not allowed; allowed: " +
                 range_of(*knob) + (knob->unit.empty() ? "" : " " + knob->unit) +
                 "; the default is " + std::visit(FormatValue{*knob, defaults}, knob->field)});
}

/// parse_config, and the names of the variables that set something.
ParsedConfig parse(const std::vector<std::string>& environment, std::set<std::string>* set_names) {
  ParsedConfig parsed;
  std::set<std::string_view> seen;
  std::vector<std::pair<std::string_view, std::string_view>> old_names;
  for (const std::string& entry : environment) {
    std::string_view text = entry;
    if (text.substr(0, kPrefix.size()) != kPrefix) {
      continue;
    }
    std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
      continue;
    }
    std::string_view name = text.substr(0, equals);
    // As getenv does, the first of two equal names counts.
    if (!seen.insert(name).second) {
      continue;
    }
    const Knob* const knob = find_knob(name);
    if (knob != nullptr && renamed(*knob) != nullptr) {
      old_names.emplace_back(name, text.substr(equals + 1));
    } else {
      take(name, text.substr(equals + 1), &parsed, set_names);
    }
  }
  for (const auto& [name, value] : old_names) {
    take(name, value, &parsed, set_names);
  }
  return parsed;
}

}  // namespace

ParsedConfig parse_config(const std::vector<std::string>& environment) {
  std::set<std::string> set_names;
  return parse(environment, &set_names);
}

std::vector<std::string> process_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    entries.emplace_back(*entry);
  }
  return entries;
}

ParsedConfig config_from_environment() { return parse_config(process_environment()); }

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<std::uint64_t> launcher_rank() {
  for (const char* const name :
       {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const std::optional<std::uint64_t> rank = parse_number<std::uint64_t>(environment_value(name));
    if (rank) {
      return rank;
    }
  }
  return std::nullopt;
}

std::string config_json(const std::vector<std::string>& environment) {
  std::set<std::string> set_names;
  Config config = parse(environment, &set_names).config;
  Config defaults;
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const Knob& knob : knobs()) {
    nlohmann::ordered_json entry = {
        {"name", knob.name},
        {"type", std::visit(TypeName{knob}, knob.field)},
        {"unit", knob.unit},
        {"range", range_of(knob)},
        {"default", std::visit(FormatValue{knob, defaults}, knob.field)},
        {"value", std::visit(FormatValue{knob, config}, knob.field)},
        {"origin", set_names.count(knob.name) != 0 ? "environment" : "default"},
        {"effect", knob.effect},
        {"since", knob.since},
    };
    if (!knob.replaced_by.empty()) {
      entry["replaced_by"] = knob.replaced_by;
    }
    document.push_back(std::move(entry));
  }
  // A path may hold bytes that are not UTF-8; the document must not throw for them.
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tutti
