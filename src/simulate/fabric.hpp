// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which nodes are connected, and by which port a packet leaves: one switch, leaf-spine, fat-trees
// of two and three tiers. Nodes are numbered hosts, leaves, aggregation switches (the spines where
// there are two tiers), cores. A link is one direction of a cable and is named by its sender's
// port: link = first_link(node) + port. Routing is arithmetic on the address (Leiserson 1985; Al-
// Fares et al., SIGCOMM 2008): up to the lowest common switch by hash, then down the one way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::simulate {

struct FabricShape {
  std::uint32_t hosts = 0;
  std::uint32_t tiers = 1;           ///< Of switches: 1, 2 or 3.
  std::uint32_t hosts_per_leaf = 0;  ///< The last leaf may have fewer.
  std::uint32_t leaves_per_pod = 1;  ///< Three tiers; with two, one pod holds all leaves.
  std::uint32_t aggs_per_pod = 0;    ///< Up-links of a leaf; with two tiers, spines.
  std::uint32_t cores_per_agg = 0;   ///< Up-links of an aggregation switch; three tiers.
};

FabricShape single_switch(std::uint32_t hosts);
/// Errors: no hosts, no spines.
Result<FabricShape> leaf_spine(std::uint32_t hosts, std::uint32_t hosts_per_leaf,
                               std::uint32_t spines);
/// The smallest full-bisection fat-tree of equal switches that holds `hosts`; leaves and pods
/// without a host are left out. `tiers`: 2 or 3.
Result<FabricShape> fat_tree(std::uint32_t hosts, std::uint32_t tiers = 3);

/// "single:16", "leaf-spine:64", "leaf-spine:64:8:4" (hosts, hosts per leaf, spines),
/// "fat-tree:1024", "fat-tree:1024:2" (hosts, tiers). Errors name the part.
Result<FabricShape> parse_fabric(std::string_view text);

enum class NodeKind : std::uint8_t { kHost, kLeaf, kAgg, kCore };
const char* to_string(NodeKind kind);  ///< "host", "leaf", "agg", "core"

class Fabric {
 public:
  explicit Fabric(const FabricShape& shape);

  const FabricShape& shape() const { return shape_; }
  std::uint32_t hosts() const { return shape_.hosts; }
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(first_link_.size() - 1); }
  std::uint32_t links() const { return first_link_.back(); }
  std::uint32_t leaves() const { return leaves_; }
  std::uint32_t pods() const { return pods_; }
  NodeKind kind(std::uint32_t node) const;

  std::uint32_t first_link(std::uint32_t node) const { return first_link_[node]; }
  std::uint32_t ports(std::uint32_t node) const {
    return first_link_[node + 1] - first_link_[node];
  }
  std::uint32_t from(std::uint32_t link) const { return from_[link]; }
  std::uint32_t to(std::uint32_t link) const { return from_[reverse_[link]]; }
  std::uint32_t reverse(std::uint32_t link) const { return reverse_[link]; }

  /// The port of switch `node` towards host `dst`; `hash` picks among equals.
  std::uint32_t route(std::uint32_t node, std::uint32_t dst, std::uint32_t hash) const;
  /// True when the port's link ends at a host.
  bool is_last_hop(std::uint32_t link) const { return to(link) < hosts(); }

  /// Links between two hosts, one way: 2, 4 or 6.
  std::uint32_t hops(std::uint32_t src, std::uint32_t dst) const;
  /// Of the farthest pair.
  std::uint32_t hops_max() const { return 2 * shape_.tiers; }

 private:
  /// Where a host is.
  struct HostPosition {
    std::uint32_t pod = 0;
    std::uint32_t leaf = 0;         ///< Node.
    std::uint16_t leaf_in_pod = 0;  ///< Port of the pod's aggregation switches.
    std::uint16_t port = 0;         ///< Of the leaf.
  };

  std::uint32_t first_agg() const { return shape_.hosts + leaves_; }
  std::uint32_t first_core() const { return first_agg() + pods_ * shape_.aggs_per_pod; }
  std::uint32_t hosts_of_leaf(std::uint32_t leaf_index) const;
  std::uint32_t leaves_of_pod(std::uint32_t pod) const;
  void add_links();
  void join(std::uint32_t node, std::uint32_t port, std::uint32_t peer, std::uint32_t peer_port);

  FabricShape shape_;
  std::uint32_t leaves_ = 0;
  std::uint32_t pods_ = 1;
  std::vector<std::uint32_t> first_link_;  ///< By node, and one more.
  std::vector<std::uint32_t> from_;        ///< By link.
  std::vector<std::uint32_t> reverse_;     ///< By link.
  std::vector<HostPosition> positions_;    ///< By host.
  /// By switch: its pod (leaf, aggregation), and how many of its ports go down.
  std::vector<std::uint32_t> pod_of_;
  std::vector<std::uint32_t> down_ports_;
};

}  // namespace tutti::simulate
