// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// An MPICH selection file either becomes a valid tuning file, or an error that begins with the
// file's name.
#include "fuzz.hpp"
#include "select/table.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::select;
  tutti::Result<ImportedTable> imported = import_mpich(tutti::fuzz::text_of(data, size), "file");
  if (!imported.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(imported.status().message(), "file:"));
    return 0;
  }
  for (const std::string& line : imported->not_carried) {
    FUZZ_ASSERT(tutti::fuzz::readable(line, "file:"));
  }
  FUZZ_ASSERT(parse_table(imported->json, "imported").ok());
  return 0;
}
