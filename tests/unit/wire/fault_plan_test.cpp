// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/fault/fault_plan.hpp"

#include <gtest/gtest.h>

namespace tutti::wire::fault {
namespace {

using transport::kNever;

FaultPlan parsed(const std::string& text) {
  const Result<FaultPlan> plan = parse_fault_plan(text);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : FaultPlan{};
}

std::string problem_of(const std::string& text) {
  const Result<FaultPlan> plan = parse_fault_plan(text);
  EXPECT_FALSE(plan.ok()) << text;
  EXPECT_EQ(ErrorCode::kInvalidConfig, plan.status().code());
  return plan.status().message();
}

TEST(fault_plan, parse__nothing_is_no_faults) {
  EXPECT_EQ(FaultPlan{}, parsed(""));
  EXPECT_EQ(FaultPlan{}, parsed(" \t"));
}

TEST(fault_plan, parse__every_entry) {
  FaultPlan wanted;
  wanted.seed = 7;
  wanted.drop_ppb = 10'000'000;
  wanted.duplicate_ppb = 1'000'000;
  wanted.duplicate_ns = 3'000'000;
  wanted.reorder_ppb = kAlwaysPpb;
  wanted.delay_ppb = 20'000'000;
  wanted.delay_ns = 200'000;
  wanted.corrupt_ppb = 1;
  wanted.corrupt_part = CorruptPart::kHeader;
  wanted.kills = {{false, 3, 1'000'000'000, kNever},
                  {false, Kill::kAll, 2'000'000'000, 500'000'000},
                  {true, 15, 0, 1}};
  const FaultPlan plan = parsed(
      "seed=7,drop=0.01,duplicate=0.001:3ms,reorder=1,delay=0.02:200us,corrupt=0.000000001:header,"
      "kill_path=3@1s,kill_path=all@2s:500ms,kill_rail=15@0s:1ns");
  EXPECT_EQ(wanted, plan);
}

TEST(fault_plan, parse__blanks_around_entries) {
  EXPECT_EQ(parsed("drop=0.5,seed=2"), parsed(" drop = 0.5 ,\tseed=2 "));
}

TEST(fault_plan, parse__chances_are_exact_and_bounded) {
  EXPECT_EQ(1U, parsed("drop=0.000000001").drop_ppb);
  EXPECT_EQ(kAlwaysPpb, parsed("drop=1.0").drop_ppb);
  EXPECT_EQ(0U, parsed("drop=0").drop_ppb);
  for (const char* text : {"drop=1.000000001", "drop=2", "drop=-0.1", "drop=.5", "drop=1.",
                           "drop=", "drop=0.0000000001", "drop=1e-3", "drop=nan", "drop=1%",
                           "drop=18446744073709551617"}) {
    EXPECT_NE(std::string::npos, problem_of(text).find("is not a chance; write a number")) << text;
  }
}

TEST(fault_plan, parse__times_are_bounded) {
  EXPECT_EQ(kFaultTimeNsMax, parsed("delay=1:1000000s").delay_ns);
  EXPECT_NE(std::string::npos, problem_of("delay=1:1000001s").find("is too long"));
  for (const char* text : {"delay=1:5", "delay=1:us", "delay=1:1.5ms", "delay=1:-1ms",
                           "delay=1:", "delay=1:1 ms", "delay=1:99999999999999999999s"}) {
    EXPECT_NE(std::string::npos, problem_of(text).find("is not a time; write")) << text;
  }
}

TEST(fault_plan, parse__errors_name_place_and_remedy) {
  EXPECT_EQ("TUTTI_FAULT: entry 2 'drp=0.1': no such fault; did you mean 'drop'?",
            problem_of("seed=1,drp=0.1"));
  EXPECT_EQ("TUTTI_FAULT: entry 1 'drop': what value? Write drop=VALUE", problem_of("drop"));
  EXPECT_EQ("TUTTI_FAULT: entry 3 'drop=0': drop stands there before; leave one of the two out",
            problem_of("drop=0,seed=1,drop=0"));
  EXPECT_EQ(
      "TUTTI_FAULT: entry 1 'delay=0.1': for how long? Write a time behind it, as in "
      "delay=0.02:200us",
      problem_of("delay=0.1"));
  EXPECT_EQ(
      "TUTTI_FAULT: entry 1 'kill_rail=16@1s': '16' is no rail; write a number from 0 to 15, or "
      "all",
      problem_of("kill_rail=16@1s"));
  EXPECT_EQ("TUTTI_FAULT: entry 1 'kill_path=2': from when on? Write a time behind it, as in 2@1s",
            problem_of("kill_path=2"));
  EXPECT_EQ(
      "TUTTI_FAULT: entry 1 'corrupt=1:tail': 'tail' is no part of a packet; write header or "
      "payload, or neither for either",
      problem_of("corrupt=1:tail"));
  EXPECT_EQ(0U, problem_of("seed=1,").find("TUTTI_FAULT: entry 2 '': no such fault"));
  EXPECT_EQ("--fault: entry 1 'seed=x': 'x' is not a seed; write a whole number below 2^64",
            parse_fault_plan("seed=x", "--fault").status().message());
}

TEST(fault_plan, check_kills__of_what_is_there) {
  const FaultPlan plan = parsed("kill_path=7@1s,kill_path=all@1s,kill_rail=1@1s,kill_rail=all@0s");
  EXPECT_TRUE(check_kills(plan, 8, 2).ok());
  EXPECT_EQ(
      "TUTTI_FAULT: 'kill_path=7@1s' would kill nothing: there are 7 path(s), and the first is 0",
      check_kills(plan, 7, 2).message());
  EXPECT_EQ("--fault: 'kill_rail=1@1s' would kill nothing: there are 1 rail(s), and the first is 0",
            check_kills(plan, 8, 1, "--fault").message());
}

TEST(fault_plan, parse__as_many_kills_as_there_may_be) {
  std::string text = "seed=1";
  for (std::size_t i = 0; i < kKillsMax; ++i) {
    text += ",kill_path=" + std::to_string(i) + "@1s";
  }
  EXPECT_EQ(kKillsMax, parsed(text).kills.size());
  EXPECT_NE(std::string::npos, problem_of(text + ",kill_rail=0@1s").find("64 kills before it"));
}

TEST(fault_plan, format__text_of_the_same_plan) {
  for (const char* text :
       {"seed=1", "seed=7,drop=0.01,duplicate=0.001:0s,reorder=0.5,delay=0.02:200us,corrupt=1",
        "seed=2,corrupt=0:payload,kill_path=all@2s:500ms,kill_rail=0@1500us"}) {
    EXPECT_EQ(text, format_fault_plan(parsed(text)));
  }
}

}  // namespace
}  // namespace tutti::wire::fault
