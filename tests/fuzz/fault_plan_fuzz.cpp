// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The text of TUTTI_FAULT is a plan within its limits that prints as text of the same plan, or an
// error that begins with the variable's name.
#include "fuzz.hpp"
#include "wire/fault/fault_plan.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::wire::fault;
  const tutti::Result<FaultPlan> plan = parse_fault_plan(tutti::fuzz::text_of(data, size));
  if (!plan.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(plan.status().message(), "TUTTI_FAULT: entry "));
    return 0;
  }
  for (const ChancePpb chance_ppb : {plan->drop_ppb, plan->duplicate_ppb, plan->reorder_ppb,
                                     plan->delay_ppb, plan->corrupt_ppb}) {
    FUZZ_ASSERT(chance_ppb <= kAlwaysPpb);
  }
  FUZZ_ASSERT(plan->delay_ns <= kFaultTimeNsMax && plan->duplicate_ns <= kFaultTimeNsMax);
  FUZZ_ASSERT(plan->kills.size() <= kKillsMax);
  for (const Kill& kill : plan->kills) {
    FUZZ_ASSERT(kill.number == Kill::kAll || kill.number < tutti::transport::kPathsMax);
    FUZZ_ASSERT(kill.begin_ns <= kFaultTimeNsMax);
    FUZZ_ASSERT(kill.length_ns <= kFaultTimeNsMax || kill.length_ns == tutti::transport::kNever);
  }
  const tutti::Result<FaultPlan> again = parse_fault_plan(format_fault_plan(*plan));
  FUZZ_ASSERT(again.ok() && *again == *plan);
  return 0;
}
