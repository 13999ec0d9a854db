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
  void add_enum(Enum value) {
    add(static_cast<std::uint64_t>(value));
  }
  template <class Enum>
  void add_list(const std::vector<Enum>& list) {
    add(list.size());
    for (Enum value : list) {
      add_enum(value);
    }
  }
  void add_range(const std::optional<Range>& range) {
    add(range.has_value());
    if (range) {
      add(range->min);
      add(range->max);
    }
  }
  template <class Enum>
  void add_optional(const std::optional<Enum>& value) {
    add(value.has_value());
    if (value) {
      add_enum(*value);
    }
  }
  void add_text(const std::string& text) {
    add(text.size());
    for (const char c : text) {
      add(static_cast<unsigned char>(c));
    }
  }
  std::uint64_t value() const { return hash_.value(); }

 private:
  Fnv1a hash_;
};

void add_rule(const Rule& rule, TableHash* hash) {
  hash->add_list(rule.collectives);
  hash->add_range(rule.bytes);
  hash->add_range(rule.nodes);
  hash->add_range(rule.ranks);
  hash->add_range(rule.ranks_per_node);
  hash->add_optional(rule.oversubscribed);
  hash->add_text(rule.mpi);
  hash->add_optional(rule.memory);
  hash->add_list(rule.ops);
  hash->add_list(rule.types);
  hash->add_enum(rule.plan.backend);
  hash->add_enum(rule.plan.composition);
  hash->add(rule.plan.staged);
  hash->add_text(rule.plan.algorithm);
  hash->add_enum(rule.plan.pipeline);
  hash->add(static_cast<std::uint64_t>(rule.plan.chunks));
  hash->add_enum(rule.plan.carrier);
  hash->add_optional(rule.plan.parameters.chunk_bytes);
  hash->add_optional(rule.plan.parameters.node_backend);
  hash->add_optional(rule.plan.parameters.leaders_backend);
  hash->add_optional(rule.plan.parameters.radix);
  hash->add_optional(rule.plan.parameters.segments);
  hash->add(rule.composition_fits);
  hash->add(rule.optional);
}

using FormatNumber = std::string (*)(std::uint64_t);

std::string plain_number(std::uint64_t value) { return std::to_string(value); }

/// "1 node", "bytes <= 8K", "ranks 8 to 16"
std::string range_text(const char* name, const Range& range, FormatNumber format) {
  std::string text(name);
  if (range.min == range.max) {
    return text + " = " + format(range.min);
  }
  if (range.max == UINT64_MAX) {
    return text + " >= " + format(range.min);
  }
  if (range.min == 0) {
    return text + " <= " + format(range.max);
  }
  return text + " " + format(range.min) + " to " + format(range.max);
}

template <class Enum>
std::string list_text(const std::vector<Enum>& list) {
  std::string text;
  for (Enum value : list) {
    text += (text.empty() ? "" : "|") + std::string(to_string(value));
  }
  return text;
}

/// One name alone, several as a list.
template <class Enum>
Json list_json(const std::vector<Enum>& list) {
  if (list.size() == 1) {
    return to_string(list.front());
  }
  Json names = Json::array();
  for (Enum value : list) {
    names.push_back(to_string(value));
  }
  return names;
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

Json rule_json(const Rule& rule) {
  Json json = Json::object();
  if (!rule.collectives.empty()) {
    json["collective"] = list_json(rule.collectives);
  }
  if (rule.memory) {
    json["memory"] = to_string(*rule.memory);
  }
  if (rule.nodes) {
    json["nodes"] = range_json(*rule.nodes, false);
  }
  if (rule.ranks) {
    json["ranks"] = range_json(*rule.ranks, false);
  }
  if (rule.ranks_per_node) {
    json["ranks_per_node"] = range_json(*rule.ranks_per_node, false);
  }
  if (rule.oversubscribed) {
    json["oversubscribed"] = *rule.oversubscribed;
  }
  if (!rule.mpi.empty()) {
    json["mpi"] = rule.mpi;
  }
  if (rule.bytes) {
    json["bytes"] = range_json(*rule.bytes, true);
  }
  if (!rule.ops.empty()) {
    json["op"] = list_json(rule.ops);
  }
  if (!rule.types.empty()) {
    json["type"] = list_json(rule.types);
  }
  json["plan"] = plan_name(rule);
  if (rule.plan.parameters != PlanParameters{}) {
    json["parameters"] = parameters_json(rule.plan.parameters);
  }
  if (rule.optional) {
    json["optional"] = true;
  }
  if (!rule.comment.empty()) {
    json["comment"] = rule.comment;
  }
  return json;
}

/// Origins hold file names, which need not be UTF-8; the document must not throw for them.
std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::ordered_json parameters_json(const PlanParameters& parameters) {
  Json json = Json::object();
  if (parameters.chunk_bytes) {
    json["chunk_bytes"] = format_bytes(*parameters.chunk_bytes);
  }
  if (parameters.node_backend) {
    json["node_backend"] = to_string(*parameters.node_backend);
  }
  if (parameters.leaders_backend) {
    json["leaders_backend"] = to_string(*parameters.leaders_backend);
  }
  if (parameters.radix) {
    json["radix"] = *parameters.radix;
  }
  if (parameters.segments) {
    json["segments"] = *parameters.segments;
  }
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

std::string plan_name(const Rule& rule) {
  return rule.composition_fits ? to_string(rule.plan.backend) : to_string(rule.plan);
}

std::string rule_to_text(const Rule& rule) {
  std::string text = rule.collectives.empty() ? "any" : list_text(rule.collectives);
  auto add = [&text](const std::string& part) { text += ", " + part; };
  if (rule.memory) {
    add(to_string(*rule.memory));
  }
  if (rule.nodes) {
    add(*rule.nodes == Range{1, 1} ? "1 node" : range_text("nodes", *rule.nodes, plain_number));
  }
  if (rule.ranks) {
    add(range_text("ranks", *rule.ranks, plain_number));
  }
  if (rule.ranks_per_node) {
    add(range_text("ranks per node", *rule.ranks_per_node, plain_number));
  }
  if (rule.oversubscribed) {
    add(*rule.oversubscribed ? "more ranks than cores" : "a core for each rank");
  }
  if (!rule.mpi.empty()) {
    add(rule.mpi);
  }
  if (rule.bytes) {
    add(range_text("bytes", *rule.bytes, format_bytes));
  }
  if (!rule.ops.empty()) {
    add(list_text(rule.ops));
  }
  if (!rule.types.empty()) {
    add(list_text(rule.types));
  }
  text += " -> " + plan_name(rule);
  const PlanParameters& parameters = rule.plan.parameters;
  if (parameters.chunk_bytes) {
    add("chunks of " + format_bytes(*parameters.chunk_bytes));
  }
  if (parameters.node_backend) {
    add(std::string("within nodes ") + to_string(*parameters.node_backend));
  }
  if (parameters.radix) {
    add("radix " + std::to_string(*parameters.radix));
  }
  if (parameters.segments) {
    add(std::to_string(*parameters.segments) + " segments");
  }
  if (parameters.leaders_backend) {
    add(std::string("among leaders ") + to_string(*parameters.leaders_backend));
  }
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
