// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/table.hpp"

#include <nlohmann/json.hpp>

#include "base/fnv1a.hpp"
#include "select/tuning_format.hpp"

namespace tutti::select {
namespace {

using Json = nlohmann::ordered_json;

/// Every number goes in as eight bytes, and every list behind its length, so that no two tables
/// share one serialisation.
class TableHash {
 public:
  void add(std::uint64_t value) { hash_.add_number(value); }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void add(Enum value) { add(static_cast<std::uint64_t>(value)); }
  void add(const Range& range) {
    add(range.min);
    add(range.max);
  }
  template <class T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) {
      add(*value);
    }
  }
  template <class Enum>
  void add(const std::vector<Enum>& list) {
    add(list.size());
    for (const Enum value : list) {
      add(value);
    }
  }
  void add(const std::string& text) {
    add(text.size());
    for (const char c : text) {
      add(std::uint64_t{static_cast<unsigned char>(c)});
    }
  }
  std::uint64_t value() const { return hash_.value(); }

 private:
  Fnv1a hash_;
};

void add_rule(const Rule& rule, TableHash* hash) {
  for_each_predicate(rule, [&](const char*, const auto& field, auto...) { hash->add(field); });
  hash->add(to_string(rule.plan));
  Plan plan = rule.plan;
  for_each_parameter(plan, [&](const char*, const auto* field, const ParameterForm&) {
    field == nullptr ? hash->add(0) : hash->add(*field);
  });
  hash->add(rule.optional);
}

/// "bytes <= 8K", "ranks 8 to 16"
std::string range_text(const std::string& name, const Range& range, bool is_bytes) {
  const auto number = [&](std::uint64_t value) {
    return is_bytes ? format_bytes(value) : std::to_string(value);
  };
  if (range.min == range.max) {
    return name + " = " + number(range.min);
  }
  if (range.max == UINT64_MAX) {
    return name + " >= " + number(range.min);
  }
  if (range.min == 0) {
    return name + " <= " + number(range.max);
  }
  return name + " " + number(range.min) + " to " + number(range.max);
}

Json bound(std::uint64_t value, bool is_bytes) {
  if (is_bytes || value == UINT64_MAX) {
    return format_bytes(value);
  }
  return value;
}

Json range_json(const Range& range, bool is_bytes) {
  if (range.min == range.max && !is_bytes && range.max != UINT64_MAX) {
    return range.min;
  }
  Json json = Json::object();
  if (range.min != 0 || range.max == UINT64_MAX) {
    json["min"] = bound(range.min, is_bytes);
  }
  if (range.max != UINT64_MAX) {
    json["max"] = bound(range.max, is_bytes);
  }
  return json;
}

template <class T>
Json json_of(const std::optional<T>& field, bool is_bytes) {
  if constexpr (std::is_same_v<T, Range>) {
    return range_json(*field, is_bytes);
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return format_bytes(*field);
  } else if constexpr (std::is_enum_v<T>) {
    return to_string(*field);
  } else {
    return *field;
  }
}
Json json_of(const std::string& text, bool /*is_bytes*/) { return text; }
/// One name alone, several as a list.
template <class Enum>
Json json_of(const std::vector<Enum>& list, bool /*is_bytes*/) {
  Json names = Json::array();
  for (Enum value : list) {
    names.push_back(to_string(value));
  }
  return names.size() == 1 ? names[0] : names;
}

template <class T>
bool is_set(const std::optional<T>& field) {
  return field.has_value();
}
template <class List>
bool is_set(const List& field) {
  return !field.empty();
}

Json rule_json(const Rule& rule) {
  Json json = Json::object();
  const auto add = [&](const char* key, const auto& field, auto fact, auto...) {
    if (is_set(field)) {
      json[key] = json_of(field, kIsBytes<decltype(fact)>);
    }
  };
  for_each_predicate(rule, add, /*is_written=*/true);
  json["plan"] = to_string(rule.plan);
  if (Json parameters = parameters_json(rule.plan); !parameters.empty()) {
    json["parameters"] = std::move(parameters);
  }
  if (rule.optional) {
    json["optional"] = true;
  }
  if (!rule.comment.empty()) {
    json["comment"] = rule.comment;
  }
  return json;
}

/// A value in an explanation, from that in a file.
std::string text_of(const Json& value) {
  std::string text;
  for (const Json& name : value.is_array() ? value : Json::array({value})) {
    text += (text.empty() ? "" : "|") + (name.is_string() ? name.get<std::string>() : name.dump());
  }
  return text;
}

/// Origins hold file names, which need not be UTF-8; the document must not throw for them.
std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::ordered_json parameters_json(Plan plan) {
  Json json = Json::object();
  for_each_parameter(plan, [&](const char* key, const auto* field, const ParameterForm&) {
    if (field != nullptr && *field) {
      json[key] = json_of(*field, false);
    }
  });
  return json;
}

std::uint64_t Table::hash() const {
  TableHash hash;
  hash.add(rules.size());
  for (const Rule& rule : rules) {
    add_rule(rule, &hash);
  }
  return hash.value();
}

std::string rule_to_text(const Rule& rule) {
  std::string text = rule.collectives.empty() ? "any" : "";
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const auto predicate = [&](const char*, const auto& field, auto fact, const char* name = "",
                             const char* other = nullptr) {
    if (!is_set(field)) {
      return;
    }
    if constexpr (requires { field->min; }) {
      const bool is_one = other != nullptr && *field == Range{1, 1};
      add(is_one ? other : range_text(name, *field, kIsBytes<decltype(fact)>));
    } else if constexpr (std::is_same_v<decltype(field), const std::optional<bool>&>) {
      add(*field ? name : other);
    } else {
      add(text_of(json_of(field, false)));
    }
  };
  for_each_predicate(rule, predicate, /*is_written=*/true);
  text += " -> " + to_string(rule.plan);
  Plan plan = rule.plan;
  for_each_parameter(plan, [&](const char*, const auto* field, const ParameterForm& form) {
    if (field != nullptr && *field) {
      add(form.before + text_of(json_of(*field, false)) + form.behind);
    }
  });
  return text;
}

std::string table_json(const Table& table) {
  Json rules = Json::array();
  for (const Rule& rule : table.rules) {
    rules.push_back(rule_json(rule));
    rules.back()["origin"] = rule.origin;
  }
  return dump(rules);
}

std::string tuning_file_json(const Table& table, const std::string& comment) {
  Json document = {{"schema", kTuningSchema}};
  if (!comment.empty()) {
    document["comment"] = comment;
  }
  document["rules"] = Json::array();
  for (const Rule& rule : table.rules) {
    document["rules"].push_back(rule_json(rule));
  }
  return dump(document) + "\n";
}

}  // namespace tutti::select
