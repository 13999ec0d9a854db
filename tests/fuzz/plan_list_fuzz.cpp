// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A plan list either gives rules that divide all sizes among themselves, or an error that begins
// with the variable's name. The first byte chooses the collective.
#include "fuzz.hpp"
#include "select/choose.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::select;
  if (size == 0) {
    return 0;
  }
  auto collective = static_cast<Collective>(data[0] % tutti::kCollectiveCount);
  tutti::Result<std::vector<Rule>> rules =
      parse_plan_list(collective, tutti::fuzz::text_of(data + 1, size - 1), "TUTTI_X");
  if (!rules.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(rules.status().message(), "TUTTI_X: entry "));
    return 0;
  }
  FUZZ_ASSERT(!rules->empty());
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < rules->size(); ++i) {
    const Rule& rule = (*rules)[i];
    Range range = rule.bytes.value_or(Range{});
    FUZZ_ASSERT(range.min == next && range.min <= range.max);
    FUZZ_ASSERT((range.max == UINT64_MAX) == (i + 1 == rules->size()));
    FUZZ_ASSERT(parse_plan(to_string(rule.plan)).ok());
    next = range.max + 1;
  }
  return 0;
}
