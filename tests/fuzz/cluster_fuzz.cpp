// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A cluster file either gives a cluster that a layout can be made on, or an error that begins with
// the file's name.
#include "fuzz.hpp"
#include "runners/sim/cluster.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::runners::sim;
  const auto cluster = parse_cluster(tutti::fuzz::text_of(data, size), "file");
  if (!cluster.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(cluster.status().message(), "file:"));
    return 0;
  }
  FUZZ_ASSERT(cluster->link(LinkClass::kNvlink).mb_per_s > 0);
  FUZZ_ASSERT(cluster->link(LinkClass::kNetwork).mb_per_s > 0);
  FUZZ_ASSERT(layout_of(*cluster, 300).ranks() == 300);
  return 0;
}
