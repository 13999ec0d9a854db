// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/topology_file.hpp"

#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

std::string with_nodes(const std::string& nodes) {
  return R"({"schema": "tutti-topology/1", "nodes": )" + nodes + "}";
}

TopologyFile file_of(const std::string& nodes) {
  auto topology = parse_topology(with_nodes(nodes), "f");
  EXPECT_TRUE(topology.ok()) << topology.status().message();
  return topology.ok() ? *topology : TopologyFile{};
}

std::string error_of(const std::string& text) {
  const auto topology = parse_topology(text, "f");
  return topology.ok() ? "" : topology.status().message();
}

constexpr const char* kFull = R"([
  {"hosts": ["a.site", "b"], "rails": 2,
   "sockets": [{"number": 0, "cpus": "0-3"}, {"cpus": "4-7"}],
   "numa_nodes": [{"number": 0, "socket": 0, "cpus": "0-3"}, {"number": 1, "socket": 1}],
   "gpus": [{"name": "H", "pci": "1B:00.0", "identity": "GPU-1", "numa": 0, "socket": 0}, {}],
   "nics": [{"name": "mlx5_0", "net": "ib0", "pci": "0000:18:00.0", "mbit_s": 400000, "rdma": true,
             "numa": 1, "socket": 1}, {"up": false}],
   "links": [{"between": ["NIC0", "GPU1"], "kind": "PIX", "mbit_s": 504000, "latency_ns": 700},
             {"between": ["GPU0", "GPU1"], "kind": "NV18"}]},
  {}])";

TEST(topology_file, parse__every_key) {
  const TopologyFile topology = file_of(kFull);
  ASSERT_EQ(2U, topology.nodes.size());
  const Machine& machine = topology.nodes[0].machine;
  EXPECT_EQ((std::vector<std::string>{"a.site", "b"}), topology.nodes[0].hosts);
  EXPECT_EQ(2, rail_count(machine));
  EXPECT_EQ("4-7", format_cpus(machine.sockets[1].cpus));
  EXPECT_EQ("0000:1b:00.0", machine.gpus[0].pci);
  EXPECT_TRUE(machine.nics[0].is_up);
  EXPECT_FALSE(machine.nics[1].is_up);
  EXPECT_EQ(-1, machine.gpus[1].socket);
  EXPECT_EQ(700U, link_between(machine, 1, 2).latency_ns);
  EXPECT_EQ(18, link_between(machine, 1, 0).nvlinks);
  EXPECT_EQ(0, rail_count(topology.nodes[1].machine));
}

TEST(topology_file, topology_json__reads_back) {
  const TopologyFile topology = file_of(kFull);
  const auto again = parse_topology(topology_json(topology), "again");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(topology, *again);
}

TEST(topology_file, parse__what_the_command_writes_along_is_not_read) {
  EXPECT_EQ("", error_of(R"({"schema": "tutti-topology/1", "nodes": [], "comment": "c",
                            "derived": [1], "unavailable": {"a": 1}})"));
}

TEST(topology_file, parse__errors_name_file_line_and_key) {
  const auto of_node = [](const std::string& keys) {
    return error_of(with_nodes("[{" + keys + "}]"));
  };
  EXPECT_EQ("f: empty; a JSON object is expected", error_of(""));
  EXPECT_EQ("f:1: document: an object is expected, not a list", error_of("[]"));
  EXPECT_EQ("f:1: schema: missing; add \"schema\": \"tutti-topology/1\"",
            error_of("{\"nodes\": []}"));
  EXPECT_EQ("f:1: schema: this build reads 'tutti-topology/1', not 'tutti-topology/2'",
            error_of(R"({"schema": "tutti-topology/2", "nodes": []})"));
  EXPECT_EQ("f:1: nodes: missing; add \"nodes\": [...]",
            error_of(R"({"schema": "tutti-topology/1"})"));
  EXPECT_EQ("f:1: nodes[0]: unknown key 'railz'; did you mean 'rails'?", of_node(R"("railz": 1)"));
  EXPECT_EQ("f:1: nodes[0].rails: a whole number from 1 to 256 is expected",
            of_node(R"("rails": 0)"));
  EXPECT_EQ("f:1: nodes[0].hosts[1]: 'a' stands twice in the file",
            of_node(R"("hosts": ["a", "a"])"));
  EXPECT_EQ("f:1: nodes[0].hosts[0]: empty", of_node(R"("hosts": [""])"));
  EXPECT_EQ("f:1: nodes[0].sockets[0].cpus: a list of CPUs as in '0-3,8' is expected, not 'all'",
            of_node(R"("sockets": [{"cpus": "all"}])"));
  EXPECT_EQ("f:1: nodes[0].gpus[0].socket: the node lists 1 sockets",
            of_node(R"("sockets": [{}], "gpus": [{"socket": 1}])"));
  EXPECT_EQ("f:1: nodes[0].gpus[0].pci: a PCI address as in '0000:1b:00.0' is expected, not 'x'",
            of_node(R"("gpus": [{"pci": "x"}])"));
  EXPECT_EQ("f:1: nodes[0].nics[0].mbit_s: a whole number from 0 to 1000000000000 is expected",
            of_node(R"("nics": [{"mbit_s": -1}])"));
  EXPECT_EQ("f:1: nodes[0].nics[0].up: true or false is expected, not a number",
            of_node(R"("nics": [{"up": 1}])"));
  const std::string two = R"("gpus": [{}, {}], "links": )";
  EXPECT_EQ("f:1: nodes[0].links[0].between[1]: 'GPU2' is no device of this node",
            of_node(two + R"([{"between": ["GPU0", "GPU2"], "kind": "PIX"}])"));
  EXPECT_EQ("f:1: nodes[0].links[0].between: two different devices are expected",
            of_node(two + R"([{"between": ["GPU0", "GPU0"], "kind": "PIX"}])"));
  EXPECT_EQ("f:1: nodes[0].links[0].kind: missing; add \"kind\": \"PIX\" or another",
            of_node(two + R"([{"between": ["GPU0", "GPU1"]}])"));
  EXPECT_EQ(
      "f:1: nodes[0].links[0].kind: NV1, NV2, ..., XGMI, PIX, PXB, PHB, NODE or SYS is "
      "expected, not 'NV'",
      of_node(two + R"([{"between": ["GPU0", "GPU1"], "kind": "NV"}])"));
  EXPECT_EQ("f:1: nodes[0].links[1].between: GPU0 and GPU1 have a link already",
            of_node(two + R"([{"between": ["GPU0", "GPU1"], "kind": "PIX"}, )" +
                    R"({"between": ["GPU1", "GPU0"], "kind": "SYS"}])"));
}

TEST(topology_file, entry_for__real_nodes_by_name) {
  const TopologyFile topology =
      file_of(R"([{"hosts": ["a.site"]}, {"hosts": ["b"]}, {"rails": 3}])");
  EXPECT_EQ(&topology.nodes[0], entry_for(topology, "a.site", -1));
  EXPECT_EQ(&topology.nodes[0], entry_for(topology, "a", -1));
  EXPECT_EQ(&topology.nodes[1], entry_for(topology, "b.other", -1));
  EXPECT_EQ(&topology.nodes[2], entry_for(topology, "c", -1))
      << "the one without hosts is for the rest";
  const TopologyFile two = file_of(R"([{"rails": 1}, {"rails": 2}])");
  EXPECT_EQ(nullptr, entry_for(two, "c", -1)) << "real nodes have no order";
  EXPECT_EQ(nullptr, entry_for({}, "c", -1));
}

TEST(topology_file, entry_for__virtual_nodes_in_order) {
  const TopologyFile two = file_of(R"([{"hosts": ["a"]}, {"rails": 1}, {"rails": 2}])");
  EXPECT_EQ(&two.nodes[1], entry_for(two, "", 0));
  EXPECT_EQ(&two.nodes[2], entry_for(two, "", 1));
  EXPECT_EQ(nullptr, entry_for(two, "", 2));
  const TopologyFile one = file_of(R"([{"rails": 1}])");
  EXPECT_EQ(&one.nodes[0], entry_for(one, "", 5));
}

}  // namespace
}  // namespace tutti::topology
