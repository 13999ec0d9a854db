// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A topology file either gives nodes that are written and read back unchanged, and of which every
// question has an answer, or an error that begins with the file's name.
#include "fuzz.hpp"
#include "topology/topology_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::topology;
  tutti::Result<TopologyFile> topology = parse_topology(tutti::fuzz::text_of(data, size), "file");
  if (!topology.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(topology.status().message(), "file:"));
    return 0;
  }
  // Names that are not UTF-8 are written with replacements, which then stay.
  tutti::Result<TopologyFile> again = parse_topology(topology_json(*topology), "again");
  if (again.ok()) {
    FUZZ_ASSERT(topology_json(*again) == topology_json(*topology));
  } else {
    FUZZ_ASSERT(again.status().message().find("stands twice") != std::string::npos);
  }
  FUZZ_ASSERT(entry_for(*topology, "host", 1 << 30) == nullptr || topology->nodes.size() >= 1);
  for (const NodeEntry& node : topology->nodes) {
    const Machine& machine = node.machine;
    if (machine.devices() > 16) {
      continue;  // The answers grow with the square.
    }
    FUZZ_ASSERT(link_matrix(machine).size() == static_cast<std::size_t>(machine.devices()));
    const bool has_rails = !rail_nics(machine).empty();
    for (const auto& nics : nics_of_gpus(machine)) {
      FUZZ_ASSERT(nics.empty() != has_rails);
    }
  }
  return 0;
}
