// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "select/choose.hpp"
#include "unit/select/samples.hpp"

namespace tutti::select {
namespace {

using nlohmann::json;

/// Where the default table has this rule; its length: nowhere.
std::size_t default_index(const std::string& text) {
  const std::vector<Rule> rules = default_table().rules;
  return static_cast<std::size_t>(
      std::find_if(rules.begin(), rules.end(),
                   [&](const Rule& rule) { return rule_to_text(rule) == text; }) -
      rules.begin());
}

TEST(Explain, explain_json__the_call_and_the_choice) {
  json document =
      json::parse(explain_json(device_allreduce(1 << 20), facts_on(2), default_table()));
  EXPECT_EQ(document["call"], json::parse(R"({"collective": "allreduce", "bytes": 1048576,
    "memory": "device", "op": "sum", "type": "float32", "order": "blocking"})"));
  EXPECT_EQ(document["communicator"], json::parse(R"({"ranks": 8, "nodes": 2, "ranks_per_node": 4,
    "oversubscribed": false, "mpi": true, "mpi_name": "", "mpi_device_aware": false, "ccl": true, "ccl_name": "nccl"})"));
  EXPECT_EQ(document["plan"], "ccl-beta");
  EXPECT_EQ(document["parameters"], json::object());
  EXPECT_EQ(document["rule"], json({{"index", default_index("any, device -> ccl")},
                                    {"origin", "default: device memory"},
                                    {"text", "any, device -> ccl"}}));
  EXPECT_EQ(document["fallback"], false);
  EXPECT_EQ(document["refused"], json::array());
  EXPECT_EQ(document["table_hash"].get<std::string>().size(), 16U);
}

TEST(Explain, explain_json__refused_rules_with_reasons) {
  CommFacts facts = facts_on(1);
  facts.ccl_usable = false;
  facts.ccl_refusal = "no library found";
  json document = json::parse(explain_json(device_allreduce(1 << 20), facts, default_table()));
  EXPECT_EQ(document["plan"], "mpi-gamma");
  EXPECT_EQ(document["fallback"], true);
  ASSERT_EQ(document["refused"].size(), 1U);
  EXPECT_EQ(document["refused"][0]["plan"], "ccl-gamma");
  EXPECT_EQ(document["refused"][0]["reason"], "no library found");
  EXPECT_EQ(document["refused"][0]["rule"]["index"], default_index("any, device -> ccl"));
  EXPECT_EQ(document["communicator"]["ccl_refusal"], "no library found");
}

/// Without an MPI and a CCL it says so; a graph cannot replay the copies.
TEST(Explain, explain_json__device_memory_through_the_host) {
  CommFacts facts = facts_on(1);
  facts.has_mpi = false;
  facts.ccl_usable = false;
  facts.ccl_refusal = "no library found";
  facts.direct_device_refusal = "no NVLink";
  facts.direct_host_refusal.clear();
  const Table table = without_mpi(default_table());
  Shape shape = device_allreduce(1 << 20);
  const json document = json::parse(explain_json(shape, facts, table));
  EXPECT_EQ(document["plan"], "direct-gamma");
  EXPECT_EQ(document["through"], "host");
  EXPECT_EQ(document["fallback"], true);
  EXPECT_EQ(document["call"]["memory"], "device");
  EXPECT_NE(document["refused"].dump().find("no NVLink"), std::string::npos);
  shape.order = Order::kStream;
  const json queued = json::parse(explain_json(shape, facts, table));
  EXPECT_EQ(queued["plan"], "direct-gamma");
  EXPECT_EQ(queued["through"], "host");
  EXPECT_EQ(queued["call"]["order"], "stream");
  shape.order = Order::kCaptured;
  const json captured = json::parse(explain_json(shape, facts, table));
  EXPECT_TRUE(captured["plan"].is_null());
  EXPECT_FALSE(captured.contains("through"));
  shape.memory = Memory::kHost;
  EXPECT_TRUE(json::parse(explain_json(shape, facts, table))["plan"].is_null());
}

TEST(Explain, explain_json__every_plan_with_its_verdict) {
  json document = json::parse(explain_json(device_allreduce(8), facts_on(1), default_table()));
  std::string possible;
  for (const json& plan : document["plans"]) {
    EXPECT_EQ(plan.contains("reason"), !plan["possible"].get<bool>());
    possible += plan["possible"].get<bool>() ? plan["plan"].get<std::string>() + " " : "";
  }
  EXPECT_EQ(document["plans"].size(), all_plans().size());
  EXPECT_EQ(possible,
            "mpi-beta mpi-gamma mpi-staged ccl-beta ccl-gamma ccl-streams(4) ccl-comms(4) rings "
            "schedule:ring ");
}

TEST(Explain, explain_json__unknown_size_and_no_rule) {
  Shape shape;
  shape.collective = Collective::kGatherv;
  json document = json::parse(explain_json(shape, facts_on(1), Table{}));
  EXPECT_TRUE(document["call"]["bytes"].is_null());
  EXPECT_TRUE(document["rule"].is_null());
}

TEST(Explain, explain_json__parameters_of_the_plan) {
  Rule rule;
  rule.plan = MpiPlan{Composition::kBeta, false, 1 << 20};
  json document = json::parse(explain_json(device_allreduce(8), facts_on(1), Table{{rule}}));
  EXPECT_EQ(document["parameters"], json::parse(R"({"chunk_bytes": "1M"})"));
}

}  // namespace
}  // namespace tutti::select
