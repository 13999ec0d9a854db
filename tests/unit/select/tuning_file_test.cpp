// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "select/table.hpp"
#include "select/tuning_format.hpp"

namespace tutti::select {
namespace {

/// A file with one rule of this text; the rule stands on line 2.
std::string with_rule(const std::string& rule) {
  return "{\"schema\": \"tutti-tuning/1\", \"rules\": [\n" + rule + "]}";
}

std::string error_of(const std::string& text) {
  Result<Table> table = parse_table(text, "f");
  EXPECT_FALSE(table.ok()) << text;
  return table.ok() ? "" : table.status().message();
}

std::string rule_error(const std::string& rule) { return error_of(with_rule(rule)); }

std::string rule_text(const std::string& rule) {
  Result<Table> table = parse_table(with_rule(rule), "f");
  return table.ok() ? rule_to_text(table->rules.at(0)) : table.status().message();
}

TEST(TuningFile, parse_table__the_smallest) {
  Result<Table> table = parse_table(R"({"schema": "tutti-tuning/1", "rules": []})", "f");
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_TRUE(table->rules.empty());
}

TEST(TuningFile, parse_table__every_key) {
  Result<Table> table = parse_table(R"({
    "schema": "tutti-tuning/1",
    "comment": "c",
    "machine": {"name": "x", "gpu": "y"},
    "rules": [
      {"collective": ["allreduce", "reduce"], "bytes": {"min": "1K", "max": 8192},
       "nodes": {"min": 2}, "ranks": {"max": 64}, "ranks_per_node": 4, "memory": "device",
       "oversubscribed": false, "mpi": "mpich",
       "op": ["sum", "max"], "type": "fp32", "plan": "ccl-alpha",
       "parameters": {"chunk_bytes": "1M", "node_backend": "nccl", "leaders_backend": "mpi"},
       "comment": "d"},
      {"collective": "any", "plan": "native"}]})",
                                    "f");
  ASSERT_TRUE(table.ok()) << table.status().message();
  ASSERT_EQ(table->rules.size(), 2U);
  EXPECT_EQ(rule_to_text(table->rules[0]),
            "reduce|allreduce, device, nodes >= 2, ranks <= 64, ranks per node = 4, a core for "
            "each rank, mpich, bytes 1K to 8K, sum|max, float32 -> ccl-alpha, chunks of 1M, within "
            "nodes ccl, among leaders mpi");
  EXPECT_EQ(table->rules[0].origin, "f:6");
  EXPECT_EQ(rule_error(R"({"mpi": "lam", "plan": "mpi"})"),
            "f:2: rules[0].mpi: \"lam\" is no MPI; use mpich or openmpi");
  EXPECT_EQ(table->rules[0].comment, "d");
  EXPECT_EQ(rule_to_text(table->rules[1]), "any -> mpi");
  EXPECT_EQ(table->rules[1].origin, "f:12");
}

TEST(TuningFile, parse_table__order_of_names_does_not_matter) {
  EXPECT_EQ(
      parse_table(with_rule(R"({"collective": ["reduce", "bcast"], "plan": "mpi"})"), "f")->hash(),
      parse_table(with_rule(R"({"plan": "mpi", "collective": ["bcast", "reduce"]})"), "f")->hash());
}

TEST(TuningFile, parse_table__numbers_and_suffixes_mean_the_same) {
  EXPECT_EQ(rule_text(R"({"bytes": {"max": 65536}, "plan": "mpi"})"), "any, bytes <= 64K -> mpi");
  EXPECT_EQ(rule_text(R"({"bytes": {"max": "64K"}, "plan": "mpi"})"), "any, bytes <= 64K -> mpi");
  EXPECT_EQ(rule_text(R"({"bytes": {"min": 1, "max": "inf"}, "plan": "mpi"})"),
            "any, bytes >= 1 -> mpi");
  EXPECT_EQ(rule_text(R"({"nodes": {"min": 2, "max": "inf"}, "plan": "mpi"})"),
            "any, nodes >= 2 -> mpi");
}

TEST(TuningFile, parse_table__missing_parts) {
  EXPECT_EQ(error_of("{}"), "f:1: schema: missing; add \"schema\": \"tutti-tuning/1\"");
  EXPECT_EQ(error_of(R"({"schema": "tutti-tuning/1"})"),
            "f:1: rules: missing; add \"rules\": [...]");
  EXPECT_EQ(rule_error("{}"), "f:2: rules[0]: has no plan; add \"plan\": \"mpi\" or another");
}

TEST(TuningFile, parse_table__other_versions) {
  EXPECT_EQ(error_of(R"({"schema": "tutti-tuning/2", "rules": []})"),
            "f:1: schema: this build reads 'tutti-tuning/1', not 'tutti-tuning/2'");
}

TEST(TuningFile, parse_table__unknown_keys) {
  EXPECT_EQ(error_of(R"({"rule": []})"), "f:1: unknown key 'rule'; did you mean 'rules'?");
  EXPECT_EQ(rule_error(R"({"plan": "mpi",
                           "collectiv": "bcast"})"),
            "f:3: rules[0]: unknown key 'collectiv'; did you mean 'collective'?");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "bytes": {"maximum": 1}})"),
            "f:2: rules[0].bytes: unknown key 'maximum'; there are min, max");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "parameters": {"chunk": 1}})"),
            "f:2: rules[0].parameters: unknown key 'chunk'; there are chunk_bytes, node_backend, "
            "leaders_backend, radix, segments");
}

TEST(TuningFile, parse_table__duplicate_keys) {
  EXPECT_EQ(rule_error(R"({"plan": "mpi",
                           "plan": "ccl"})"),
            "f:3: the key 'plan' stands twice in one object; remove one of them");
}

TEST(TuningFile, parse_table__wrong_kinds) {
  EXPECT_EQ(error_of("[]"), "f:1: document: an object is expected, not a list");
  EXPECT_EQ(error_of(R"({"schema": 1})"), "f:1: schema: a string is expected, not a number");
  EXPECT_EQ(error_of(R"({"machine": {"gpus": 8}})"),
            "f:1: machine.gpus: a string is expected, not a number");
  EXPECT_EQ(error_of(R"({"comment": null})"), "f:1: comment: a string is expected, not null");
  EXPECT_EQ(error_of(R"({"rules": {}})"), "f:1: rules: a list is expected, not an object");
  EXPECT_EQ(rule_error("true"), "f:2: rules[0]: an object is expected, not true or false");
  EXPECT_EQ(rule_error(R"({"plan": 1})"), "f:2: rules[0].plan: a string is expected, not a number");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "collective": []})"),
            "f:2: rules[0].collective: a name or a list of names is expected");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "parameters": []})"),
            "f:2: rules[0].parameters: an object is expected, not a list");
}

TEST(TuningFile, parse_table__line_is_that_of_the_value) {
  EXPECT_EQ(rule_error("{\"plan\": \"mpi\",\n\"bytes\": {\"min\": 0,\n\"max\":\n-1\n}}"),
            "f:5: rules[0].bytes.max: a size is expected: a whole number, \"8K\" or \"inf\"");
}

TEST(TuningFile, parse_table__bad_sizes) {
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "bytes": {"max": "8Q"}})"),
            "f:2: rules[0].bytes.max: '8Q' is not a size; write a whole number, with K, M, G or T "
            "behind it in quotes, or \"inf\"");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "bytes": 8192})"),
            "f:2: rules[0].bytes: an object is expected, such as {\"min\": 0, \"max\": \"8K\"}");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "bytes": {}})"),
            "f:2: rules[0].bytes: an object is expected, such as {\"min\": 0, \"max\": \"8K\"}");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "nodes": 1.5})"),
            "f:2: rules[0].nodes: a number or an object is expected, such as 1 or {\"min\": 2}");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "ranks": {"max": "8K"}})"),
            "f:2: rules[0].ranks.max: a whole number that is not negative is expected");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "bytes": {"max": 1e400}})").rfind("f:2: not valid", 0),
            0U);
}

TEST(TuningFile, parse_table__min_over_max) {
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "bytes": {"min": "8K", "max": 8191}})"),
            "f:2: rules[0].bytes: min is over max; swap them");
  EXPECT_EQ(rule_text(R"({"plan": "mpi", "bytes": {"min": "8K", "max": 8192}})"),
            "any, bytes = 8K -> mpi");
}

TEST(TuningFile, parse_table__unknown_names) {
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "collective": "alreduce"})"),
            "f:2: rules[0].collective: unknown name 'alreduce'; did you mean 'allreduce'?");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "type": ["float32", "flot64"]})"),
            "f:2: rules[0].type[1]: unknown name 'flot64'; did you mean 'float64'?");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "memory": "managed"})"),
            "f:2: rules[0].memory: unknown name 'managed'; there are host, device");
  EXPECT_EQ(rule_error(R"({"plan": "mpi", "op": ["sum", "MPI_SUM"]})"),
            "f:2: rules[0].op[1]: 'sum' stands twice; remove one of them");
  for (const std::string plan : {"rigs", "direct+ccl(2)"}) {
    const std::string error = rule_error(R"({"plan": ")" + plan + R"("})");
    EXPECT_TRUE(
        error.starts_with("f:2: rules[0].plan: '" + plan + "' is not a plan; plans are mpi"))
        << error;
  }
}

TEST(TuningFile, parse_table__parameters_must_fit_the_plan) {
  EXPECT_EQ(rule_error(R"({"parameters": {"node_backend": "ccl"}, "plan": "mpi-beta"})"),
            "f:2: rules[0].parameters.node_backend: is for alpha plans only; leave it out");
  EXPECT_EQ(rule_error(R"({"parameters": {"chunk_bytes": "1M"}, "plan": "ccl"})"),
            "f:2: rules[0].parameters.chunk_bytes: is for what goes through the MPI library; this "
            "plan has no such part, leave it out");
  EXPECT_EQ(
      rule_error(R"({"parameters": {"segments": 4}, "plan": "mpi"})"),
      "f:2: rules[0].parameters.segments: is for schedules (rings, schedule:NAME) only; leave "
      "it out");
  EXPECT_EQ(rule_error(R"({"parameters": {"radix": 1}, "plan": "schedule:knomial"})"),
            "f:2: rules[0].parameters.radix: must be 2 to 1024");
  EXPECT_EQ(rule_text(R"({"parameters": {"segments": 4, "radix": 3}, "plan": "schedule:knomial"})"),
            "any -> schedule:knomial, radix 3, 4 segments");
  EXPECT_EQ(rule_text(R"({"parameters": {"chunk_bytes": 0}, "plan": "mpi"})"),
            "any -> mpi, chunks of 0");
}

TEST(TuningFile, parse_table__pipelines) {
  EXPECT_EQ(rule_text(R"x({"plan": "nccl-comms(16)"})x"), "any -> ccl-comms(16)");
  EXPECT_EQ(rule_error(R"({"plan": "ccl-streams"})"),
            "f:2: rules[0].plan: 'ccl-streams' does not say into how many chunks a call is cut; "
            "write ccl-streams(2) to ccl-streams(16)");
  EXPECT_EQ(rule_error(R"x({"parameters": {"segments": 4}, "plan": "ccl-streams(4)"})x"),
            "f:2: rules[0].parameters.segments: is for schedules (rings, schedule:NAME) only; "
            "leave it out");
}

TEST(TuningFile, parse_table__bytes_of_a_collective_without_a_size) {
  EXPECT_EQ(rule_error(R"({"collective": "gatherv", "bytes": {"max": 1}, "plan": "mpi"})"),
            "f:2: rules[0].bytes: gatherv has no size that every rank knows, the rule would never "
            "match; leave bytes out");
  EXPECT_EQ(
      rule_text(R"({"collective": ["gatherv", "gather"], "bytes": {"max": 1}, "plan": "mpi"})"),
      "gather|gatherv, bytes <= 1 -> mpi");
}

TEST(TuningFile, load_table__missing_file) {
  EXPECT_EQ(load_table("/nonexistent.json").status().message(),
            "/nonexistent.json: cannot be opened: No such file or directory");
}

TEST(TuningFile, load_table__shipped_example_is_valid) {
  Result<Table> table = load_table(std::string(TUNING_DIRECTORY) + "/example.json");
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_GT(table->rules.size(), 3U);
}

TEST(TuningFile, schema__takes_the_plans_that_the_reader_takes) {
  const nlohmann::json schema = nlohmann::json::parse(tuning_schema_json());
  const std::regex pattern(
      schema["$defs"]["rule"]["properties"]["plan"]["pattern"].get<std::string>());
  for (const Plan& plan : all_plans()) {
    EXPECT_TRUE(std::regex_match(to_string(plan), pattern)) << to_string(plan);
  }
  for (const char* name :
       {"ccl-streams(2)", "rccl-comms(16)", "ccl-streams(1)", "ccl-comms(17)", "ccl-comms(04)",
        "ccl-streams", "mpi-streams(2)", "ccl-beta(2)", "nccl:ring", "direct", "direct-alpha",
        "direct+ccl(2)", "direct-ccl(2)", "direct-copy", "direct-copy-staged"}) {
    EXPECT_EQ(std::regex_match(name, pattern), parse_plan(name).ok()) << name;
  }
}

TEST(TuningFile, schema__has_the_keys_and_names_that_the_reader_knows) {
  const nlohmann::json schema = nlohmann::json::parse(tuning_schema_json());
  const nlohmann::json& rule = schema["$defs"]["rule"]["properties"];
  // What the reader lists beside an unknown key.
  const std::string error = rule_error(R"({"planet": "mpi"})");
  for (const auto& [key, form] : rule.items()) {
    EXPECT_FALSE(rule_error("{\"" + key + "\": null}").find("unknown key") != std::string::npos)
        << key;
  }
  EXPECT_NE(error.find("unknown key"), std::string::npos) << error;
  EXPECT_EQ(rule.size(), 14U);
  EXPECT_EQ(rule["collective"]["anyOf"][0]["enum"].size(), std::size_t{kCollectiveCount});
  EXPECT_EQ(rule["collective"]["anyOf"][2]["const"], "any");
  EXPECT_EQ(rule["op"]["anyOf"][1]["items"]["enum"].size(), std::size_t{kReduceOpCount});
  const std::vector<std::string> types = rule["type"]["anyOf"][0]["enum"];
  std::size_t own = 0;
  for (const std::string& type : types) {
    ASSERT_TRUE(parse_data_type(type).has_value()) << type;
    own += type == to_string(*parse_data_type(type)) ? 1 : 0;
  }
  EXPECT_EQ(own, std::size_t{kDataTypeCount});
  for (const char* other : {"fp16", "half", "bf16", "fp32", "float", "fp64", "double", "int"}) {
    EXPECT_NE(std::find(types.begin(), types.end(), other), types.end()) << other;
  }
  EXPECT_EQ(rule["bytes"]["$ref"], "#/$defs/size_range");
  EXPECT_EQ(rule["nodes"]["$ref"], "#/$defs/count_range");
  const nlohmann::json& parameters = rule["parameters"]["properties"];
  EXPECT_EQ(parameters["radix"]["minimum"], 2);
  EXPECT_EQ(parameters["radix"]["maximum"], 1024);
  for (const auto& backend : parameters["node_backend"]["enum"]) {
    EXPECT_TRUE(parse_backend(backend.get<std::string>()).has_value()) << backend;
  }
}

}  // namespace
}  // namespace tutti::select
