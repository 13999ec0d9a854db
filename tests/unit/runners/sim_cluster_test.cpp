// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Cluster files of the simulator: read, written, refused.
#include <gtest/gtest.h>

#include "runners/sim/cluster.hpp"

namespace tutti::runners::sim {
namespace {

constexpr const char* kRight = R"({
  "schema": "tutti-cluster/1",
  "name": "four",
  "comment": "for people",
  "gpus_per_node": 4,
  "nics_per_node": 2,
  "socket_of_gpu": [0, 0, 1, 1],
  "nvlink": {"wiring": "mesh", "mb_per_s": 90000},
  "inter_socket": {"mb_per_s": 12000, "incast_percent": 80},
  "network": {"mb_per_s": 12200, "message_ns": 10000},
  "nccl": {"message_ns": 13000}
})";

/// The document above with one piece of text replaced.
std::string with(const std::string& piece, const std::string& other) {
  std::string text = kRight;
  const std::size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), other);
}

std::string error_of(const std::string& text) {
  const auto cluster = parse_cluster(text, "f.json");
  return cluster.ok() ? "" : cluster.status().message();
}

TEST(parse_cluster, reads_all_keys) {
  const auto cluster = parse_cluster(kRight, "f.json");
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_EQ(cluster->name, "four");
  EXPECT_EQ(cluster->gpus_per_node, 4);
  EXPECT_EQ(cluster->nics_per_node, 2);
  EXPECT_EQ(cluster->socket_of_gpu, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(cluster->link(LinkClass::kNvlink).mb_per_s, 90000U);
  EXPECT_FALSE(cluster->link(LinkClass::kNvlink).shares_inbound);
  EXPECT_EQ(cluster->link(LinkClass::kInterSocket).incast_percent, 80U);
  EXPECT_EQ(cluster->link(LinkClass::kNetwork).message_ns, 10000U);
  EXPECT_EQ(cluster->link(LinkClass::kNetwork).incast_percent, 100U);
  EXPECT_EQ(cluster->nccl_message_ns, 13000U);
}

TEST(parse_cluster, one_socket_needs_no_inter_socket_link) {
  const auto cluster = parse_cluster(
      R"({"schema": "tutti-cluster/1", "name": "n", "gpus_per_node": 8, "nics_per_node": 8,
          "nvlink": {"wiring": "switch", "mb_per_s": 1}, "network": {"mb_per_s": 1}})",
      "f.json");
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_EQ(cluster->socket_of_gpu, std::vector<int>(8, 0));
  EXPECT_TRUE(cluster->link(LinkClass::kNvlink).shares_inbound);
  EXPECT_EQ(cluster->link(LinkClass::kInterSocket).mb_per_s, 0U);
}

TEST(parse_cluster, complaints_name_file_line_and_key) {
  EXPECT_EQ(error_of("[]"), "f.json:1: document: an object is expected, not a list");
  EXPECT_EQ(error_of(with("tutti-cluster/1", "tutti-cluster/2")),
            "f.json:2: schema: this build reads 'tutti-cluster/1', not 'tutti-cluster/2'");
  EXPECT_EQ(error_of(with("\"nics_per_node\": 2,", "")),
            "f.json:1: nics_per_node: missing; every cluster file has it (docs/simulation.md)");
  EXPECT_EQ(error_of(with("\"gpus_per_node\": 4", "\"gpus_per_node\": 0")),
            "f.json:5: gpus_per_node: a whole number from 1 to 256 is expected, not 0");
  EXPECT_EQ(error_of(with("\"gpus_per_node\": 4", "\"gpus_per_node\": 4.5")),
            "f.json:5: gpus_per_node: a whole number from 1 to 256 is expected");
  EXPECT_EQ(error_of(with("\"gpus_per_node\": 4", "\"gpus_per_node\": 8")),
            "f.json:1: socket_of_gpu: 4 entries, but gpus_per_node is 8");
  EXPECT_EQ(error_of(with("mesh", "ring")),
            "f.json:8: nvlink.wiring: 'mesh' (each pair of GPUs has links of its own) or 'switch' "
            "is expected, not 'ring'");
  EXPECT_EQ(error_of(with("\"wiring\": \"mesh\", ", "")),
            "f.json:8: nvlink.wiring: missing; add \"wiring\": \"mesh\" or \"switch\"");
  EXPECT_EQ(error_of(with("\"incast_percent\": 80", "\"incast_percent\": 101")),
            "f.json:9: inter_socket.incast_percent: a whole number from 1 to 100 is expected, not "
            "101");
  EXPECT_EQ(error_of(with("\"mb_per_s\": 12200, ", "")), "f.json:10: network.mb_per_s: missing");
  EXPECT_EQ(error_of(with("\"message_ns\": 13000", "\"latency_ns\": 13000")).substr(0, 43),
            "f.json:11: nccl: unknown key 'latency_ns'; ");
  EXPECT_EQ(error_of(with("\"comment\"", "\"coment\"")),
            "f.json:4: unknown key 'coment'; did you mean 'comment'?");
}

TEST(parse_cluster, several_sockets_need_a_link) {
  const std::string line = "\"inter_socket\": {\"mb_per_s\": 12000, \"incast_percent\": 80},";
  EXPECT_EQ(error_of(with(line, "")),
            "f.json:1: inter_socket: missing; socket_of_gpu names more than one socket");
}

TEST(load_cluster, names_a_file_that_is_not_there) {
  const auto cluster = load_cluster("/nonexistent/c.json");
  ASSERT_FALSE(cluster.ok());
  EXPECT_NE(cluster.status().message().find("/nonexistent/c.json: cannot be opened"),
            std::string::npos);
}

TEST(layout_of, fills_nodes_in_order) {
  const auto cluster = parse_cluster(kRight, "f.json");
  ASSERT_TRUE(cluster.ok());
  const topology::Layout layout = layout_of(*cluster, 6);
  EXPECT_EQ(layout.nodes(), 2);
  EXPECT_EQ(layout.node_of, (std::vector<int>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(layout.socket_of, (std::vector<int>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(layout.rails_of, (std::vector<int>{2, 2}));
}

}  // namespace
}  // namespace tutti::runners::sim
