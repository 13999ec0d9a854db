// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "select/table.hpp"

namespace tutti::select {
namespace {

std::vector<std::string> texts(Collective collective, std::string_view list) {
  Result<std::vector<Rule>> rules = parse_plan_list(collective, list, "TUTTI_X");
  std::vector<std::string> result;
  if (!rules.ok()) {
    return {rules.status().message()};
  }
  for (const Rule& rule : *rules) {
    result.push_back(rule_to_text(rule));
  }
  return result;
}

std::string error(std::string_view list) {
  Result<std::vector<Rule>> rules =
      parse_plan_list(Collective::kAllreduce, list, "TUTTI_ALLREDUCE");
  EXPECT_FALSE(rules.ok()) << list;
  return rules.ok() ? "" : rules.status().message();
}

using Texts = std::vector<std::string>;

TEST(PlanList, parse_plan_list__one_name_for_all_sizes) {
  EXPECT_EQ(texts(Collective::kAllreduce, "mpi-gamma"), Texts{"allreduce -> mpi-gamma"});
  EXPECT_EQ(texts(Collective::kAllreduce, "nccl"), Texts{"allreduce -> ccl"});
}

TEST(PlanList, parse_plan_list__bounds_are_inclusive) {
  EXPECT_EQ(
      texts(Collective::kAllreduce, "8K:mpi-gamma,64K:ccl-beta,mpi"),
      (Texts{"allreduce, bytes <= 8K -> mpi-gamma", "allreduce, bytes 8193 to 64K -> ccl-beta",
             "allreduce, bytes >= 65537 -> mpi"}));
}

TEST(PlanList, parse_plan_list__inf_may_close_the_list) {
  EXPECT_EQ(texts(Collective::kBcast, "0:mpi,inf:ccl"),
            (Texts{"bcast, bytes = 0 -> mpi", "bcast, bytes >= 1 -> ccl"}));
}

TEST(PlanList, parse_plan_list__schedules_have_a_colon_of_their_own) {
  EXPECT_EQ(texts(Collective::kAllgather, "schedule:ring"), Texts{"allgather -> schedule:ring"});
  EXPECT_EQ(
      texts(Collective::kAllgather, "8K:schedule:bruck,rings"),
      (Texts{"allgather, bytes <= 8K -> schedule:bruck", "allgather, bytes >= 8193 -> rings"}));
  EXPECT_EQ(texts(Collective::kAllgather, "ccl:ring"), Texts{"allgather -> ccl:ring"});
  EXPECT_EQ(
      texts(Collective::kAllgather, "8K:nccl:bruck,ccl:rings"),
      (Texts{"allgather, bytes <= 8K -> ccl:bruck", "allgather, bytes >= 8193 -> ccl:rings"}));
}

TEST(PlanList, parse_plan_list__pipelines) {
  EXPECT_EQ(
      texts(Collective::kAllreduce, "1M:ccl,ccl-streams(4)"),
      (Texts{"allreduce, bytes <= 1M -> ccl", "allreduce, bytes >= 1048577 -> ccl-streams(4)"}));
  EXPECT_EQ(error("1M:ccl,ccl-comms(1)"),
            "TUTTI_ALLREDUCE: entry 2 'ccl-comms(1)': 'ccl-comms(1)' does not say into how many "
            "chunks a call is cut; write ccl-comms(2) to ccl-comms(16)");
}

TEST(PlanList, parse_plan_list__blanks_do_not_matter) {
  EXPECT_EQ(texts(Collective::kAllreduce, " 8K : mpi , ccl "),
            texts(Collective::kAllreduce, "8K:mpi,ccl"));
}

TEST(PlanList, parse_plan_list__last_plan_where_no_size_is_known) {
  EXPECT_EQ(texts(Collective::kGatherv, "8K:mpi,64K:ccl-beta,ccl"), Texts{"gatherv -> ccl"});
  EXPECT_EQ(texts(Collective::kBarrier, "mpi"), Texts{"barrier -> mpi"});
}

TEST(PlanList, parse_plan_list__origin_in_each_rule) {
  Result<std::vector<Rule>> rules =
      parse_plan_list(Collective::kAllreduce, "8K:mpi,ccl", "TUTTI_ALLREDUCE");
  ASSERT_TRUE(rules.ok());
  EXPECT_EQ((*rules)[0].origin, "TUTTI_ALLREDUCE");
  EXPECT_EQ((*rules)[1].origin, "TUTTI_ALLREDUCE");
}

TEST(PlanList, parse_plan_list__errors_name_variable_and_position) {
  EXPECT_EQ(error("8K:mpi,64K:cl,mpi").rfind("TUTTI_ALLREDUCE: entry 2 '64K:cl': 'cl' is not", 0),
            0U);
  EXPECT_EQ(
      error("8Q:mpi,ccl").rfind("TUTTI_ALLREDUCE: entry 1 '8Q:mpi': '8Q' is not a size; write", 0),
      0U);
  EXPECT_EQ(error("64K:mpi,8K:ccl,mpi"),
            "TUTTI_ALLREDUCE: entry 2 '8K:ccl': sizes must ascend; the one before is 64K");
  EXPECT_EQ(error("8K:mpi,8K:ccl,mpi"),
            "TUTTI_ALLREDUCE: entry 2 '8K:ccl': sizes must ascend; the one before is 8K");
}

TEST(PlanList, parse_plan_list__only_the_last_stands_without_a_size) {
  EXPECT_EQ(error("mpi,ccl"),
            "TUTTI_ALLREDUCE: entry 1 'mpi': only the last entry stands without a size; write it "
            "as SIZE:PLAN");
  EXPECT_EQ(error("8K:mpi"),
            "TUTTI_ALLREDUCE: entry 1 '8K:mpi': the last entry stands without a size, it holds for "
            "all larger ones; add ',PLAN'");
  EXPECT_EQ(error("inf:mpi,ccl"),
            "TUTTI_ALLREDUCE: entry 1 'inf:mpi': nothing is larger than inf; leave out what "
            "follows");
}

TEST(PlanList, parse_plan_list__empty_entries) {
  for (const char* list : {"", ",", "8K:mpi,", ",mpi", ":", ":mpi", "8K:", "8K:mpi,,ccl"}) {
    EXPECT_NE(error(list).find("TUTTI_ALLREDUCE: entry "), std::string::npos) << list;
  }
}

}  // namespace
}  // namespace tutti::select
