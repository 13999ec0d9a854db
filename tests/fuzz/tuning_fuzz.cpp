// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A tuning file either gives rules that are written and read back unchanged, or an error that
// begins with the file's name.
#include "fuzz.hpp"
#include "select/choose.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::select;
  tutti::Result<Table> table = parse_table(tutti::fuzz::text_of(data, size), "file");
  if (!table.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(table.status().message(), "file:"));
    return 0;
  }
  tutti::Result<Table> again = parse_table(tuning_file_json(*table), "again");
  FUZZ_ASSERT(again.ok());
  FUZZ_ASSERT(again->hash() == table->hash());
  Decision decision = choose(Shape{}, CommFacts{}, *table);
  FUZZ_ASSERT(refusal(decision.plan, Shape{}, CommFacts{}).empty());
  FUZZ_ASSERT(!explain_json(Shape{}, CommFacts{}, *table).empty());
  return 0;
}
