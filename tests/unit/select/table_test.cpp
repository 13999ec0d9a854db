// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/table.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

namespace tutti::select {
namespace {

/// A rule with every predicate and parameter set.
Rule full_rule() {
  Rule rule;
  rule.collectives = {Collective::kReduce, Collective::kAllreduce};
  rule.bytes = Range{1024, 8192};
  rule.nodes = Range{2, UINT64_MAX};
  rule.ranks = Range{8, 16};
  rule.ranks_per_node = Range{4, 4};
  rule.oversubscribed = true;
  rule.mpi = "openmpi";
  rule.memory = Memory::kDevice;
  rule.ops = {ReduceOp::kSum, ReduceOp::kMax};
  rule.types = {DataType::kFloat32};
  rule.plan = AlphaPlan{Backend::kMpi, false, 1 << 20, Backend::kCcl, Backend::kMpi};
  rule.comment = "measured";
  rule.origin = "here";
  return rule;
}

TEST(Table, range__both_ends_belong_to_it) {
  Range range{2, 4};
  EXPECT_FALSE(range.contains(1));
  EXPECT_TRUE(range.contains(2));
  EXPECT_TRUE(range.contains(4));
  EXPECT_FALSE(range.contains(5));
}

TEST(Table, hash__origins_and_comments_do_not_count) {
  Rule other = full_rule();
  other.origin = "elsewhere";
  other.comment = "";
  EXPECT_EQ(Table{{full_rule()}}.hash(), Table{{other}}.hash());
}

AlphaPlan& alpha(Rule* rule) { return std::get<AlphaPlan>(rule->plan); }

TEST(Table, hash__every_field_counts) {
  const std::vector<std::function<void(Rule*)>> changes = {
      [](Rule* r) { r->collectives.clear(); },
      [](Rule* r) { r->oversubscribed = false; },
      [](Rule* r) { r->oversubscribed.reset(); },
      [](Rule* r) { r->mpi = "mpich"; },
      [](Rule* r) { r->collectives = {Collective::kReduce}; },
      [](Rule* r) { r->bytes.reset(); },
      [](Rule* r) { r->bytes->min = 1; },
      [](Rule* r) { r->bytes->max = 1; },
      [](Rule* r) { r->nodes.reset(); },
      [](Rule* r) { r->nodes->min = 1; },
      [](Rule* r) { r->ranks.reset(); },
      [](Rule* r) { r->ranks_per_node.reset(); },
      [](Rule* r) { r->memory.reset(); },
      [](Rule* r) { r->memory = Memory::kHost; },
      [](Rule* r) { r->ops.clear(); },
      [](Rule* r) { r->types.clear(); },
      [](Rule* r) { r->types = {DataType::kFloat64}; },
      [](Rule* r) { alpha(r).backend = Backend::kCcl; },
      [](Rule* r) { alpha(r).staged = true; },
      [](Rule* r) { alpha(r).chunk_bytes.reset(); },
      [](Rule* r) { alpha(r).chunk_bytes = 0; },
      [](Rule* r) { alpha(r).node_backend.reset(); },
      [](Rule* r) { alpha(r).node_backend = Backend::kMpi; },
      [](Rule* r) { alpha(r).leaders_backend.reset(); },
      [](Rule* r) { r->plan = MpiPlan{}; },
      [](Rule* r) { r->plan = MpiPlan{Composition::kBeta}; },
      [](Rule* r) { r->plan = MpiPlan{Composition::kGamma}; },
      [](Rule* r) {
        r->plan = MpiPlan{Composition::kBeta, true};
      },
      [](Rule* r) {
        r->plan = MpiPlan{Composition::kBeta, false, 0};
      },
      [](Rule* r) { r->plan = CclPlan{}; },
      [](Rule* r) { r->plan = CclPlan{Composition::kBeta}; },
      [](Rule* r) {
        r->plan = PipelinePlan{Pipeline::kStreams, 2};
      },
      [](Rule* r) {
        r->plan = PipelinePlan{Pipeline::kStreams, 4};
      },
      [](Rule* r) {
        r->plan = PipelinePlan{Pipeline::kComms, 2};
      },
      [](Rule* r) { r->plan = DirectPlan{}; },
      [](Rule* r) { r->plan = DirectPlan{true}; },
      [](Rule* r) { r->plan = SchedulePlan{"ring"}; },
      [](Rule* r) { r->plan = SchedulePlan{"rings"}; },
      [](Rule* r) {
        r->plan = SchedulePlan{"ring", Backend::kCcl};
      },
      [](Rule* r) {
        r->plan = SchedulePlan{"ring", Backend::kMpi, 2};
      },
      [](Rule* r) {
        r->plan = SchedulePlan{"ring", Backend::kMpi, {}, 2};
      },
  };
  std::set<std::uint64_t> hashes = {Table{{full_rule()}}.hash()};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Rule rule = full_rule();
    changes[i](&rule);
    EXPECT_TRUE(hashes.insert(Table{{rule}}.hash()).second) << "change " << i;
  }
}

TEST(Table, hash__order_and_number_count) {
  Rule a = full_rule();
  Rule b;
  EXPECT_NE((Table{{a, b}}).hash(), (Table{{b, a}}).hash());
  EXPECT_NE((Table{{a}}).hash(), (Table{{a, a}}).hash());
  EXPECT_NE(Table{}.hash(), Table{{b}}.hash());
}

TEST(Table, hash__is_the_same_in_every_build) { EXPECT_EQ(Table{}.hash(), 0xa8c7f832281a39c5ULL); }

TEST(Table, rule_to_text__reads_like_a_sentence) {
  Rule rule;
  rule.collectives = {Collective::kAllreduce};
  rule.memory = Memory::kDevice;
  rule.nodes = Range{1, 1};
  rule.bytes = Range{0, 8192};
  rule.plan = *parse_plan("mpi-gamma");
  EXPECT_EQ(rule_to_text(rule), "allreduce, device, 1 node, bytes <= 8K -> mpi-gamma");
}

TEST(Table, rule_to_text__every_part) {
  EXPECT_EQ(rule_to_text(full_rule()),
            "reduce|allreduce, device, nodes >= 2, ranks 8 to 16, ranks per node = 4, more ranks "
            "than cores, openmpi, bytes 1K to 8K, sum|max, float32 -> mpi-alpha, chunks of 1M, "
            "within nodes ccl, among leaders mpi");
  EXPECT_EQ(rule_to_text(Rule{}), "any -> mpi");
}

TEST(Table, table_json__rules_in_order_with_origins) {
  Rule second;
  second.origin = "default: why";
  nlohmann::json document = nlohmann::json::parse(table_json(Table{{full_rule(), second}}));
  ASSERT_EQ(document.size(), 2U);
  EXPECT_EQ(document[0], nlohmann::json::parse(R"({
    "collective": ["reduce", "allreduce"], "memory": "device", "nodes": {"min": 2},
    "ranks": {"min": 8, "max": 16}, "ranks_per_node": 4, "oversubscribed": true, "mpi": "openmpi",
    "bytes": {"min": "1K", "max": "8K"},
    "op": ["sum", "max"], "type": "float32", "plan": "mpi-alpha",
    "parameters": {"chunk_bytes": "1M", "node_backend": "ccl", "leaders_backend": "mpi"},
    "comment": "measured", "origin": "here"})"));
  EXPECT_EQ(document[1], nlohmann::json::parse(R"({"plan": "mpi", "origin": "default: why"})"));
}

TEST(Table, table_json__origin_that_is_not_utf8) {
  Rule rule;
  rule.origin = "/home/\xff/t.json:1";
  EXPECT_EQ(nlohmann::json::parse(table_json(Table{{rule}}))[0]["origin"],
            "/home/\xef\xbf\xbd/t.json:1");
}

TEST(Table, tuning_file_json__reads_back) {
  Table table{{full_rule(), Rule{}}};
  Result<Table> back = parse_table(tuning_file_json(table, "made by a test"), "t.json");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->hash(), table.hash());
  EXPECT_EQ(back->rules[0].comment, "measured");
}

TEST(Table, tuning_file_json__shipped_rules_read_back) {
  Result<Table> back = parse_table(tuning_file_json(default_table()), "t.json");
  ASSERT_TRUE(back.ok()) << back.status().message();
  const Table shipped = default_table();
  ASSERT_EQ(back->rules.size(), shipped.rules.size());
  for (std::size_t i = 0; i < shipped.rules.size(); ++i) {
    EXPECT_EQ(Table{{back->rules[i]}}.hash(), Table{{shipped.rules[i]}}.hash())
        << rule_to_text(shipped.rules[i]) << "\n"
        << rule_to_text(back->rules[i]);
  }
  EXPECT_EQ(back->hash(), shipped.hash());
}

}  // namespace
}  // namespace tutti::select
