// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls that nobody waits for, and communicators without an MPI.
#include <gtest/gtest.h>

#include "select/choose.hpp"
#include "unit/select/samples.hpp"

namespace tutti::select {
namespace {

std::string refused(const char* plan, Order order, bool has_mpi = true) {
  Shape shape = device_allreduce(1 << 20);
  shape.order = order;
  CommFacts facts = facts_on(1);
  facts.has_mpi = has_mpi;
  facts.direct_device_refusal.clear();
  facts.direct_host_refusal.clear();
  facts.device_reduces = true;
  return refusal(*parse_plan(plan), shape, facts);
}

TEST(Order, names) {
  for (const Order order : {Order::kBlocking, Order::kStream, Order::kCaptured}) {
    EXPECT_EQ(parse_order(to_string(order)), order);
  }
  EXPECT_EQ(parse_order("later"), std::nullopt);
}

TEST(Order, refusal__only_one_step_on_the_device_takes_a_stream) {
  for (const char* plan : {"direct-gamma", "ccl-gamma", "ccl-beta"}) {
    EXPECT_EQ(refused(plan, Order::kBlocking), "") << plan;
    EXPECT_EQ(refused(plan, Order::kStream), "") << plan;
  }
  for (const char* plan : {"mpi-gamma", "mpi-staged", "schedule:ring", "ccl:ring", "rings",
                           "ccl-streams(4)", "ccl-comms(2)"}) {
    EXPECT_EQ(refused(plan, Order::kBlocking), "") << plan;
    EXPECT_NE(refused(plan, Order::kStream), "") << plan;
    EXPECT_NE(refused(plan, Order::kCaptured), "") << plan;
  }
}

TEST(Order, refusal__copies_are_waited_for) {
  Shape shape{Collective::kAllgather, 64, DataType::kByte, ReduceOp::kNone, Memory::kDevice};
  CommFacts facts = facts_on(1);
  facts.direct_device_refusal.clear();
  EXPECT_EQ(refusal(*parse_plan("direct-copy"), shape, facts), "");
  for (const Order order : {Order::kStream, Order::kCaptured}) {
    shape.order = order;
    EXPECT_EQ(refusal(*parse_plan("direct-copy"), shape, facts),
              "copies that are queued cannot be called off when a call before them fails; use "
              "direct");
  }
}

TEST(Order, refusal__a_graph_has_short_calls_that_are_alike_between_all_ranks) {
  Shape shape{Collective::kAllreduce, 64, DataType::kFloat32, ReduceOp::kSum, Memory::kDevice,
              Order::kCaptured};
  CommFacts facts = facts_on(1);
  facts.direct_device_refusal.clear();
  const Plan direct = *parse_plan("direct-gamma");
  EXPECT_NE(refusal(direct, shape, facts).find("before the capture"), std::string::npos);
  facts.direct_capture_refusal.clear();
  EXPECT_EQ(refusal(direct, shape, facts), "");
  shape.bytes = kDirectCapturedUpTo + 1;
  EXPECT_EQ(refusal(direct, shape, facts), "in a graph direct carries at most 2048 KiB");
  shape.bytes = 64;
  shape.op = ReduceOp::kNone;
  for (int i = 0; i < kCollectiveCount; ++i) {
    shape.collective = static_cast<Collective>(i);
    if (DirectPlan().has(shape.collective) && !is_reduction(shape.collective)) {
      EXPECT_EQ(refusal(direct, shape, facts).empty(),
                DirectPlan::is_capturable(shape.collective, facts.ranks))
          << to_string(shape.collective);
    }
  }
  EXPECT_EQ(refused("ccl-gamma", Order::kCaptured), "");
}

TEST(WithoutMpi, refusal__nothing_goes_through_mpi) {
  for (const char* plan : {"mpi-gamma", "mpi-staged", "schedule:ring", "rings"}) {
    EXPECT_EQ(refused(plan, Order::kBlocking, false), "this communicator has no MPI") << plan;
  }
  EXPECT_EQ(refused("ccl:ring", Order::kBlocking, false), "");
  EXPECT_EQ(refused("direct-gamma", Order::kBlocking, false), "");
}

Decision chosen(Shape shape, const Table& table, bool ccl, const char* direct_refusal = "") {
  CommFacts facts = facts_on(1);
  facts.ranks = facts.ranks_per_node_max = 7;  // No shipped rule gives these to our own kernels.
  facts.has_mpi = false;
  facts.ccl_usable = ccl;
  facts.ccl_refusal = ccl ? "" : "no library";
  facts.direct_device_refusal = facts.direct_host_refusal = direct_refusal;
  return choose(shape, facts, without_mpi(table));
}

TEST(WithoutMpi, choose__shipped_rules_end_in_ccl_then_direct) {
  const Table table = default_table();
  Shape shape = device_allreduce(64);
  EXPECT_EQ(to_string(chosen(shape, table, true).plan), "ccl-gamma");
  EXPECT_EQ(to_string(chosen(shape, table, false).plan), "direct-gamma");
  shape.op = ReduceOp::kMinloc;
  shape.type = DataType::kFloat32Int;
  EXPECT_EQ(to_string(chosen(shape, table, true).plan), "direct-gamma");
  shape.memory = Memory::kHost;
  const Decision host = chosen(shape, table, true);
  EXPECT_EQ(to_string(host.plan), "direct-gamma");
  EXPECT_TRUE(host.refused.empty());  // Nobody asked for the shipped rules.
  EXPECT_TRUE(host.is_carried);
}

/// The plan of the shipped rules on host memory of `nodes` nodes; empty: none.
std::string on_host(Collective collective, std::optional<Bytes> bytes, int nodes,
                    const char* net_refusal = "") {
  Shape shape{collective, bytes, DataType::kByte, ReduceOp::kNone, Memory::kHost, Order::kBlocking};
  if (is_reduction(collective)) {
    shape.type = DataType::kFloat32Int;
    shape.op = ReduceOp::kMaxloc;
  }
  CommFacts facts = facts_on(nodes);
  facts.has_mpi = false;
  facts.direct_host_refusal.clear();
  facts.net_refusal = net_refusal;
  const Decision decision = choose(shape, facts, without_mpi(default_table()));
  EXPECT_TRUE(decision.refused.empty());
  return decision.is_carried ? to_string(decision.plan) : "";
}

TEST(WithoutMpi, choose__host_memory_of_several_nodes_goes_over_our_transport) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::kScan || collective == Collective::kExscan ||
        collective == Collective::kAlltoallw) {
      continue;  // The C API has none of them.
    }
    for (const Bytes bytes : {Bytes{1}, Bytes{1} << 14, Bytes{1} << 30}) {
      const auto size = has_size(collective) ? std::optional<Bytes>(bytes) : std::nullopt;
      EXPECT_TRUE(on_host(collective, size, 2).starts_with("net:")) << to_string(collective);
      EXPECT_EQ(on_host(collective, size, 1), "direct-gamma") << to_string(collective);
      EXPECT_EQ(on_host(collective, size, 2, "no interface"), "") << to_string(collective);
    }
  }
  EXPECT_EQ(on_host(Collective::kAllreduce, 16 << 10, 3), "net:recursive-doubling");
  EXPECT_EQ(on_host(Collective::kAllreduce, (16 << 10) + 1, 3), "net:rings");
}

TEST(WithoutMpi, choose__what_nothing_carries_says_so) {
  const Decision decision = chosen(device_allreduce(64), default_table(), false, "shared GPU");
  EXPECT_FALSE(decision.is_carried);
  ASSERT_FALSE(decision.passed_over.empty());
  EXPECT_EQ(decision.passed_over.back().reason, "shared GPU");
}

TEST(WithoutMpi, choose__a_rule_of_the_users_for_mpi_is_a_reported_fallback) {
  Table table = default_table();
  const auto wished = parse_plan_list(Collective::kAllreduce, "mpi", "TUTTI_ALLREDUCE");
  ASSERT_TRUE(wished.ok());
  table.rules.insert(table.rules.begin(), wished->begin(), wished->end());
  const Decision decision = chosen(device_allreduce(64), table, true);
  EXPECT_EQ(to_string(decision.plan), "ccl-gamma");
  ASSERT_EQ(decision.refused.size(), 1U);
  EXPECT_EQ(decision.refused[0].reason, "this communicator has no MPI");
}

}  // namespace
}  // namespace tutti::select
