// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A listing of a recorded tree is an error that names its line, or a tree; whatever stands in the
// tree, it makes a machine that a topology file can hold.
#include "fuzz.hpp"
#include "topology/sysfs.hpp"
#include "topology/topology_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::topology;
  const auto tree = RecordedTree::parse(tutti::fuzz::text_of(data, size), "file");
  if (!tree.ok()) {
    FUZZ_ASSERT(tutti::fuzz::readable(tree.status().message(), "file:"));
    return 0;
  }
  TopologyFile topology;
  topology.nodes.emplace_back().machine = machine_from_sysfs(*tree, {});
  const Machine& machine = topology.nodes[0].machine;
  FUZZ_ASSERT(nics_of_gpus(machine).size() == machine.gpus.size());
  const auto again = parse_topology(topology_json(topology), "again");
  FUZZ_ASSERT(again.ok());
  FUZZ_ASSERT(topology_json(*again) == topology_json(topology));
  return 0;
}
