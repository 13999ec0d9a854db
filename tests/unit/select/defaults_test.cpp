// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>

#include "select/choose.hpp"
#include "unit/select/samples.hpp"

namespace tutti::select {
namespace {

/// One line for each call of the grid: the call, the plan, the rule, and what was refused.
std::string decisions(DataType type, const CommFacts& base) {
  const Table table = default_table();
  std::ostringstream out;
  for (Memory memory : {Memory::kHost, Memory::kDevice}) {
    for (int nodes : {1, 2}) {
      for (int i = 0; i < kCollectiveCount; ++i) {
        for (Bytes bytes :
             {Bytes{0}, Bytes{8192}, Bytes{8193}, Bytes{32768}, Bytes{32769}, Bytes{1} << 20}) {
          Shape shape;
          shape.collective = static_cast<Collective>(i);
          shape.memory = memory;
          if (has_size(shape.collective)) {
            shape.bytes = bytes;
          } else if (bytes != 0) {
            continue;
          }
          if (is_reduction(shape.collective)) {
            shape.op = ReduceOp::kSum;
            shape.type = type;
          }
          CommFacts facts = base;
          facts.nodes = nodes;
          Decision decision = choose(shape, facts, table);
          out << to_string(memory) << " " << nodes << (nodes == 1 ? " node  " : " nodes ")
              << to_string(shape.collective) << " "
              << (shape.bytes ? format_bytes(*shape.bytes) : "-") << " -> "
              << to_string(decision.plan) << " by rule " << decision.rule;
          for (const Refused& refused : decision.refused) {
            out << "; not " << to_string(refused.plan) << ": " << refused.reason;
          }
          out << "\n";
        }
      }
    }
  }
  return out.str();
}

/// Compares with golden/<name>.txt. GOLDEN_UPDATE=1 writes the file; read the difference before
/// committing it: it is a change of what users get.
void expect_golden(const std::string& name, const std::string& actual) {
  std::string file = std::string(GOLDEN_DIRECTORY) + "/" + name + ".txt";
  if (getenv("GOLDEN_UPDATE") != nullptr) {
    std::ofstream(file) << actual;
  }
  std::ifstream stream(file);
  std::stringstream expected;
  expected << stream.rdbuf();
  EXPECT_EQ(actual, expected.str());
}

TEST(Defaults, default_table__golden_decisions) {
  expect_golden("defaults", decisions(DataType::kFloat32, facts_on(1)));
}

TEST(Defaults, default_table__golden_decisions_of_a_type_no_ccl_has) {
  expect_golden("defaults_int16", decisions(DataType::kInt16, facts_on(1)));
}

TEST(Defaults, default_table__golden_decisions_without_a_ccl) {
  CommFacts facts = facts_on(1);
  facts.ccl_usable = false;
  facts.ccl_refusal = "no library found";
  expect_golden("defaults_without_ccl", decisions(DataType::kFloat32, facts));
}

TEST(Defaults, default_table__switch_points_on_both_sides) {
  const Table table = default_table();
  auto plan = [&](Bytes bytes, int nodes) {
    return to_string(choose(device_allreduce(bytes), facts_on(nodes), table).plan);
  };
  EXPECT_EQ(plan(8192, 1), "mpi-gamma");
  EXPECT_EQ(plan(8193, 1), "ccl-gamma");
  EXPECT_EQ(plan(32768, 2), "mpi-beta");
  EXPECT_EQ(plan(32769, 2), "ccl-beta");
}

TEST(Defaults, default_table__host_memory_and_missing_collectives_are_no_fallback) {
  CommFacts facts = facts_on(1);
  facts.ccl_usable = false;
  const Table table = default_table();
  Shape host = device_allreduce(1 << 20);
  host.memory = Memory::kHost;
  EXPECT_TRUE(choose(host, facts, table).refused.empty());
  for (Collective collective : {Collective::kBarrier, Collective::kScan, Collective::kExscan}) {
    Shape shape = device_allreduce(1 << 20);
    shape.collective = collective;
    EXPECT_TRUE(choose(shape, facts, table).refused.empty()) << to_string(collective);
  }
}

TEST(Defaults, default_table__host_memory_on_both_sides_of_the_measured_ranges) {
  const Table table = default_table();
  CommFacts facts;
  facts.ranks = 8;
  facts.ranks_per_node_max = 8;
  facts.direct_host_refusal.clear();
  Shape shape{.collective = Collective::kAllreduce,
              .bytes = 4096,
              .type = DataType::kFloat32,
              .op = ReduceOp::kSum};
  const auto plan = [&](const char* mpi, Bytes bytes) {
    facts.mpi = mpi;
    shape.bytes = bytes;
    const Decision decision = choose(shape, facts, table);
    EXPECT_TRUE(decision.refused.empty());
    return to_string(decision.plan);
  };
  EXPECT_EQ(plan("mpich", 4095), "mpi-gamma");
  EXPECT_EQ(plan("mpich", 4096), "direct-gamma");
  EXPECT_EQ(plan("mpich", 64 << 20), "direct-gamma");
  EXPECT_EQ(plan("mpich", (64 << 20) + 1), "mpi-gamma");
  // An MPI that nobody measured, more ranks than cores, several nodes: as without us.
  EXPECT_EQ(plan("", 1 << 20), "mpi-gamma");
  facts.oversubscribed = true;
  EXPECT_EQ(plan("mpich", 1 << 20), "mpi-gamma");
  facts.oversubscribed = false;
  facts.nodes = 2;
  EXPECT_EQ(plan("mpich", 1 << 20), "mpi-beta");
  facts.nodes = 1;
  // Where shared memory cannot be had, that is no fall-back: nobody asked for it.
  facts.direct_host_refusal = "ranks are of different users";
  EXPECT_EQ(plan("mpich", 1 << 20), "mpi-gamma");
}

TEST(Defaults, default_table__what_the_ccl_cannot_carry_is_a_fallback) {
  Shape shape = device_allreduce(1 << 20);
  shape.op = ReduceOp::kMaxloc;
  Decision decision = choose(shape, facts_on(1), default_table());
  EXPECT_EQ(to_string(decision.plan), "mpi-gamma");
  ASSERT_EQ(decision.refused.size(), 1U);
  EXPECT_NE(decision.refused[0].reason.find("maxloc"), std::string::npos);
}

TEST(Defaults, default_table__origins_say_why) {
  for (const Rule& rule : default_table().rules) {
    EXPECT_EQ(rule.origin.rfind("default: ", 0), 0U) << rule.origin;
  }
}

}  // namespace
}  // namespace tutti::select
