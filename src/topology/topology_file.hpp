// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The topology file, format tutti-topology/1 (docs/topology.md): what `tutti topo --json` writes
// and TUTTI_TOPOLOGY_FILE reads. Strict: an unknown key, a wrong type, a device that does not exist
// are errors that name file, line and key. "derived" and "unavailable", which the command writes
// along, are not read.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace tutti::topology {

inline constexpr const char* kTopologySchema = "tutti-topology/1";
inline constexpr int kRailsMax = 256;

/// One kind of node and the hosts that are of it.
struct NodeEntry {
  std::vector<std::string> hosts;  ///< Names with or without domain; empty: see entry_for().
  Machine machine;                 ///< Its `host` is empty.
  friend bool operator==(const NodeEntry&, const NodeEntry&) = default;
};

struct TopologyFile {
  std::vector<NodeEntry> nodes;
  friend bool operator==(const TopologyFile&, const TopologyFile&) = default;
};

/// Pure. Errors: "<file>:<line>: <key>: what is wrong; remedy".
Result<TopologyFile> parse_topology(const std::string& text, const std::string& file);
/// Reads back as the same value. Indented JSON.
std::string topology_json(const TopologyFile& topology);

/// The entry of a node; null when the file says nothing of it.
/// A real node (`virtual_node` -1): the entry that names its host, else the only one without hosts.
/// A virtual node: the only entry without hosts, or the one of its number among several.
const NodeEntry* entry_for(const TopologyFile& topology, const std::string& host, int virtual_node);

}  // namespace tutti::topology
