// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The JSON schema of tuning files (draft 2020-12), for editors: it follows from what the reader
// goes by. What a schema cannot say (min <= max, parameters that fit the plan) the reader says.
#include <nlohmann/json.hpp>
#include <utility>

#include "select/table.hpp"
#include "select/tuning_format.hpp"

namespace tutti::select {
namespace {

using Json = nlohmann::ordered_json;

Json one_of(const std::vector<std::string>& names) { return {{"enum", names}}; }
Json reference(const std::string& definition) { return {{"$ref", "#/$defs/" + definition}}; }
Json number(std::uint64_t least, std::uint64_t most = UINT64_MAX) {
  return {{"type", "integer"}, {"minimum", least}, {"maximum", most}};
}
/// Of these keys, each of which `form` describes.
Json object(const std::vector<std::string>& keys, const Json& form) {
  Json json = {{"type", "object"}, {"minProperties", 1}, {"additionalProperties", false}};
  for (const std::string& key : keys) {
    json["properties"][key] = form;
  }
  return json;
}
Json with_description(Json json, const std::string& description) {
  json["description"] = description;
  return json;
}

/// One of the names or a list of different ones.
template <class Enum>
Json form_of(const std::vector<Enum>& /*field*/, bool /*is_bytes*/) {
  constexpr bool kHasAny = std::is_same_v<Enum, Collective>;
  std::vector<std::string> all = enumerators<Enum>();
  if constexpr (std::is_same_v<Enum, DataType>) {
    for (std::string& name : other_data_type_names()) {
      all.push_back(std::move(name));
    }
  }
  const Json names = one_of(all);
  Json forms = Json::array({names});
  forms.push_back({{"type", "array"}, {"minItems", 1}, {"uniqueItems", true}, {"items", names}});
  if (kHasAny) {
    forms.push_back({{"const", "any"}});
  }
  return {{"anyOf", forms}};
}
Json form_of(const std::optional<Range>& /*field*/, bool is_bytes) {
  return reference(is_bytes ? "size_range" : "count_range");
}
Json form_of(const std::optional<Memory>& /*field*/, bool /*is_bytes*/) {
  return one_of({to_string(Memory::kHost), to_string(Memory::kDevice)});
}
Json form_of(const std::optional<bool>& /*field*/, bool /*is_bytes*/) {
  return {{"type", "boolean"}};
}
Json form_of(const std::string& /*field*/, bool /*is_bytes*/) { return one_of(mpi_names()); }

Json form_of(const std::optional<Bytes>* /*field*/, const ParameterForm& /*form*/) {
  return reference("size");
}
Json form_of(const std::optional<int>* /*field*/, const ParameterForm& form) {
  return number(form.least, form.most);
}
Json form_of(const std::optional<Backend>* /*field*/, const ParameterForm& /*form*/) {
  return one_of({"mpi", "native", "ccl", "nccl", "rccl"});
}

Json rule_schema() {
  Json properties;
  Rule rule;
  const auto predicate = [&](const char* key, const auto& field, auto fact, auto...) {
    properties[key] = form_of(field, kIsBytes<decltype(fact)>);
  };
  for_each_predicate(rule, predicate, /*is_written=*/true);
  properties["plan"] = {{"type", "string"}, {"pattern", plan_pattern()}};
  Json parameters = object({}, {});
  for_each_parameter(rule.plan, [&](const char* key, auto* field, const ParameterForm& form) {
    parameters["properties"][key] =
        with_description(form_of(field, form), std::string("Of ") + form.plans + ".");
  });
  parameters.erase("minProperties");
  properties["parameters"] = parameters;
  properties["optional"] = with_description(
      {{"type", "boolean"}}, "Passed over silently where the plan cannot carry the call.");
  properties["comment"] = {{"type", "string"}};
  return {{"description", "Keys that are left out match everything."},
          {"type", "object"},
          {"required", {"plan"}},
          {"additionalProperties", false},
          {"properties", properties}};
}

}  // namespace

std::string tuning_schema_json() {
  const Json count = {{"anyOf", {number(0), {{"const", "inf"}}}}};
  const Json size = {{"anyOf",
                      {number(0),
                       {{"type", "string"},
                        {"pattern", "^([0-9]+([bB]|[kKmMgGtT]([iI]?[bB])?)?|[iI][nN][fF])$"}}}}};
  const Json machine =
      with_description({{"type", "object"}, {"additionalProperties", {{"type", "string"}}}},
                       "Where the file was made: free names and texts, not read.");
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "Tutti tuning file"},
                       {"description",
                        "Ordered rules that say which plan carries a collective; the first match "
                        "wins. `tutti tuning check` says what a schema cannot."},
                       {"type", "object"},
                       {"required", {"schema", "rules"}},
                       {"additionalProperties", false},
                       {"properties",
                        {{"schema", {{"const", kTuningSchema}}},
                         {"comment", {{"type", "string"}}},
                         {"machine", machine},
                         {"rules", {{"type", "array"}, {"items", reference("rule")}}}}},
                       {"$defs",
                        {{"rule", rule_schema()},
                         {"size", size},
                         {"count_range", {{"anyOf", {number(0), object({"min", "max"}, count)}}}},
                         {"size_range", object({"min", "max"}, reference("size"))}}}};
  return schema.dump(2) + "\n";
}

}  // namespace tutti::select
