// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/choose.hpp"

#include <gtest/gtest.h>

#include "unit/select/samples.hpp"

namespace tutti::select {
namespace {

Rule rule_for(const char* plan) {
  Rule rule;
  rule.plan = *parse_plan(plan);
  return rule;
}

TEST(Choose, matches__no_predicates_match_everything) {
  EXPECT_TRUE(matches(Rule{}, device_allreduce(8), facts_on(1)));
  EXPECT_TRUE(matches(Rule{}, Shape{}, CommFacts{}));
}

TEST(Choose, matches__each_predicate) {
  Shape shape = device_allreduce(100);
  CommFacts facts = facts_on(2);
  auto with = [&](auto set) {
    Rule rule;
    set(&rule);
    return matches(rule, shape, facts);
  };
  EXPECT_TRUE(with([](Rule* r) { r->collectives = {Collective::kAllreduce}; }));
  EXPECT_FALSE(with([](Rule* r) { r->collectives = {Collective::kBcast}; }));
  EXPECT_TRUE(with([](Rule* r) { r->bytes = Range{100, 100}; }));
  EXPECT_FALSE(with([](Rule* r) { r->bytes = Range{101, 200}; }));
  EXPECT_FALSE(with([](Rule* r) { r->bytes = Range{0, 99}; }));
  EXPECT_TRUE(with([](Rule* r) { r->nodes = Range{2, 2}; }));
  EXPECT_FALSE(with([](Rule* r) { r->nodes = Range{1, 1}; }));
  EXPECT_TRUE(with([](Rule* r) { r->ranks = Range{8, 8}; }));
  EXPECT_FALSE(with([](Rule* r) { r->ranks = Range{9, UINT64_MAX}; }));
  EXPECT_TRUE(with([](Rule* r) { r->ranks_per_node = Range{4, 4}; }));
  EXPECT_FALSE(with([](Rule* r) { r->ranks_per_node = Range{0, 3}; }));
  EXPECT_TRUE(with([](Rule* r) { r->memory = Memory::kDevice; }));
  EXPECT_FALSE(with([](Rule* r) { r->memory = Memory::kHost; }));
  EXPECT_TRUE(with([](Rule* r) { r->ops = {ReduceOp::kMax, ReduceOp::kSum}; }));
  EXPECT_FALSE(with([](Rule* r) { r->ops = {ReduceOp::kMax}; }));
  EXPECT_TRUE(with([](Rule* r) { r->types = {DataType::kFloat32}; }));
  EXPECT_FALSE(with([](Rule* r) { r->types = {DataType::kFloat64}; }));
}

TEST(Choose, matches__bytes_predicate_never_matches_an_unknown_size) {
  Shape shape;
  shape.collective = Collective::kGatherv;
  Rule rule;
  rule.bytes = Range{};
  EXPECT_FALSE(matches(rule, shape, facts_on(1)));
  EXPECT_TRUE(matches(Rule{}, shape, facts_on(1)));
}

TEST(Choose, choose__no_rule_is_native) {
  Decision decision = choose(device_allreduce(8), facts_on(1), Table{});
  EXPECT_EQ(to_string(decision.plan), "mpi-gamma");
  EXPECT_EQ(decision.rule, -1);
  EXPECT_TRUE(decision.refused.empty());
}

TEST(Choose, choose__first_match_wins) {
  Table table{{rule_for("mpi-beta"), rule_for("ccl")}};
  Decision decision = choose(device_allreduce(8), facts_on(1), table);
  EXPECT_EQ(to_string(decision.plan), "mpi-beta");
  EXPECT_EQ(decision.rule, 0);
}

TEST(Choose, choose__refused_rules_are_kept_with_reasons) {
  Table table{{rule_for("ccl-gamma"), rule_for("ccl-alpha"), rule_for("mpi")}};
  Shape shape = device_allreduce(8);
  shape.op = ReduceOp::kBxor;
  shape.type = DataType::kInt32;
  Decision decision = choose(shape, facts_on(2), table);
  EXPECT_EQ(to_string(decision.plan), "mpi-beta");
  EXPECT_EQ(decision.rule, 2);
  ASSERT_EQ(decision.refused.size(), 2U);
  EXPECT_EQ(decision.refused[0].rule, 0U);
  EXPECT_EQ(to_string(decision.refused[0].plan), "ccl-gamma");
  EXPECT_EQ(decision.refused[0].reason, "gamma is for one node; this communicator is on 2 nodes");
  EXPECT_EQ(decision.refused[1].reason,
            "nccl has no operation 'bxor'; it has sum, prod, min, max and avg");
}

TEST(Choose, choose__all_refused_is_native) {
  Table table{{rule_for("ccl")}};
  CommFacts facts = facts_on(1);
  facts.ccl_usable = false;
  facts.ccl_refusal = "no library";
  Decision decision = choose(device_allreduce(8), facts, table);
  EXPECT_EQ(to_string(decision.plan), "mpi-gamma");
  EXPECT_EQ(decision.rule, -1);
  ASSERT_EQ(decision.refused.size(), 1U);
  EXPECT_EQ(decision.refused[0].reason, "no library");
}

TEST(Choose, choose__parameters_come_with_the_plan) {
  Rule rule;
  rule.plan = MpiPlan{Composition::kOpen, false, 4096};
  const Plan plan = choose(device_allreduce(8), facts_on(1), Table{{rule}}).plan;
  EXPECT_EQ(plan, Plan(MpiPlan{Composition::kGamma, false, 4096}));
}

}  // namespace
}  // namespace tutti::select
