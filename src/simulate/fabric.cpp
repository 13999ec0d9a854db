// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/fabric.hpp"

#include <algorithm>
#include <charconv>

#include "base/check.hpp"
#include "base/message.hpp"
#include "base/random.hpp"

namespace tutti::simulate {
namespace {

constexpr std::uint32_t kHostsMax = 1 << 20;
// Of a switch: arrivals.hpp orders by port and priority.
constexpr std::uint64_t kPortsMax = 1 << 15;

Status bad(const std::string& what) { return {ErrorCode::kInvalidArgument, "topology: " + what}; }

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

Status check_hosts(std::uint32_t hosts) {
  if (hosts < 1 || hosts > kHostsMax) {
    return bad("the number of hosts must be 1 to " + std::to_string(kHostsMax));
  }
  return {};
}

Status check_ports(std::uint64_t ports) {
  if (ports > kPortsMax) {
    return bad("a switch would have " + std::to_string(ports) + " ports; it can have " +
               std::to_string(kPortsMax));
  }
  return {};
}

Result<std::vector<std::uint32_t>> numbers(std::string_view text) {
  std::vector<std::uint32_t> found;
  while (!text.empty()) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    std::uint32_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + colon, value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + colon) {
      return bad(in_quotes(text.substr(0, colon)) + " is not a number");
    }
    found.push_back(value);
    text.remove_prefix(std::min(colon + 1, text.size()));
  }
  return found;
}

}  // namespace

FabricShape single_switch(std::uint32_t hosts) {
  return {.hosts = hosts, .tiers = 1, .hosts_per_leaf = hosts, .aggs_per_pod = 0};
}

Result<FabricShape> leaf_spine(std::uint32_t hosts, std::uint32_t hosts_per_leaf,
                               std::uint32_t spines) {
  TUTTI_RETURN_IF_ERROR(check_hosts(hosts));
  if (hosts_per_leaf < 1 || spines < 1) {
    return bad("a leaf needs a host and a spine");
  }
  TUTTI_RETURN_IF_ERROR(check_ports(std::uint64_t{hosts_per_leaf} + spines));
  TUTTI_RETURN_IF_ERROR(check_ports(ceil_div(hosts, hosts_per_leaf)));
  return FabricShape{.hosts = hosts,
                     .tiers = 2,
                     .hosts_per_leaf = hosts_per_leaf,
                     .leaves_per_pod = ceil_div(hosts, hosts_per_leaf),
                     .aggs_per_pod = spines};
}

Result<FabricShape> fat_tree(std::uint32_t hosts, std::uint32_t tiers) {
  TUTTI_RETURN_IF_ERROR(check_hosts(hosts));
  if (tiers != 2 && tiers != 3) {
    return bad("a fat-tree has 2 or 3 tiers");
  }
  // Half of a switch's ports: half^tiers * 2 hosts.
  std::uint64_t half = 1;
  while (2 * half * half * (tiers == 3 ? half : 1) < hosts) {
    ++half;
  }
  const auto h = static_cast<std::uint32_t>(half);
  if (tiers == 2) {
    return leaf_spine(hosts, h, h);
  }
  return FabricShape{.hosts = hosts,
                     .tiers = 3,
                     .hosts_per_leaf = h,
                     .leaves_per_pod = h,
                     .aggs_per_pod = h,
                     .cores_per_agg = h};
}

Result<FabricShape> parse_fabric(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name(text.substr(0, colon));
  TUTTI_ASSIGN_OR_RETURN(const auto n, numbers(text.substr(std::min(colon + 1, text.size()))));
  if (name == "single" && n.size() == 1) {
    TUTTI_RETURN_IF_ERROR(check_hosts(n[0]));
    TUTTI_RETURN_IF_ERROR(check_ports(n[0]));
    return single_switch(n[0]);
  }
  if (name == "leaf-spine" && n.size() == 1) {
    return fat_tree(n[0], 2);
  }
  if (name == "leaf-spine" && n.size() == 3) {
    return leaf_spine(n[0], n[1], n[2]);
  }
  if (name == "fat-tree" && (n.size() == 1 || n.size() == 2)) {
    return fat_tree(n[0], n.size() == 2 ? n[1] : 3);
  }
  return bad(in_quotes(text) +
             " is none; write single:HOSTS, leaf-spine:HOSTS[:HOSTS_PER_LEAF:SPINES] or "
             "fat-tree:HOSTS[:TIERS]");
}

const char* to_string(NodeKind kind) {
  constexpr const char* kNames[] = {"host", "leaf", "agg", "core"};
  return kNames[static_cast<std::size_t>(kind)];
}

Fabric::Fabric(const FabricShape& shape) : shape_(shape) {
  CHECK(shape.hosts > 0 && shape.hosts_per_leaf > 0 && shape.tiers >= 1 && shape.tiers <= 3,
        "hosts " + std::to_string(shape.hosts) + ", tiers " + std::to_string(shape.tiers));
  leaves_ = ceil_div(shape_.hosts, shape_.hosts_per_leaf);
  if (shape_.tiers < 3) {
    shape_.leaves_per_pod = leaves_;
    shape_.cores_per_agg = 0;
  }
  if (shape_.tiers < 2) {
    shape_.aggs_per_pod = 0;
  }
  pods_ = ceil_div(leaves_, shape_.leaves_per_pod);
  for (std::uint32_t host = 0; host < shape_.hosts; ++host) {
    const std::uint32_t leaf = host / shape_.hosts_per_leaf;
    positions_.push_back({.pod = leaf / shape_.leaves_per_pod,
                          .leaf = shape_.hosts + leaf,
                          .leaf_in_pod = static_cast<std::uint16_t>(leaf % shape_.leaves_per_pod),
                          .port = static_cast<std::uint16_t>(host % shape_.hosts_per_leaf)});
  }
  add_links();
}

std::uint32_t Fabric::hosts_of_leaf(std::uint32_t leaf_index) const {
  return std::min(shape_.hosts_per_leaf, shape_.hosts - leaf_index * shape_.hosts_per_leaf);
}

std::uint32_t Fabric::leaves_of_pod(std::uint32_t pod) const {
  return std::min(shape_.leaves_per_pod, leaves_ - pod * shape_.leaves_per_pod);
}

void Fabric::add_links() {
  const std::uint32_t cores = shape_.aggs_per_pod * shape_.cores_per_agg;
  first_link_.push_back(0);
  const auto add = [&](std::uint32_t pod, std::uint32_t down, std::uint32_t up) {
    first_link_.push_back(first_link_.back() + down + up);
    pod_of_.push_back(pod);
    down_ports_.push_back(down);
  };
  for (std::uint32_t host = 0; host < shape_.hosts; ++host) {
    first_link_.push_back(first_link_.back() + 1);
  }
  for (std::uint32_t leaf = 0; leaf < leaves_; ++leaf) {
    add(leaf / shape_.leaves_per_pod, hosts_of_leaf(leaf), shape_.aggs_per_pod);
  }
  for (std::uint32_t pod = 0; pod < pods_; ++pod) {
    for (std::uint32_t agg = 0; agg < shape_.aggs_per_pod; ++agg) {
      add(pod, leaves_of_pod(pod), shape_.cores_per_agg);
    }
  }
  for (std::uint32_t core = 0; core < cores; ++core) {
    add(0, pods_, 0);
  }
  from_.resize(links());
  reverse_.resize(links());
  for (std::uint32_t host = 0; host < shape_.hosts; ++host) {
    join(host, 0, positions_[host].leaf, positions_[host].port);
  }
  for (std::uint32_t leaf = 0; leaf < leaves_; ++leaf) {
    const std::uint32_t pod = leaf / shape_.leaves_per_pod;
    for (std::uint32_t agg = 0; agg < shape_.aggs_per_pod; ++agg) {
      join(shape_.hosts + leaf, hosts_of_leaf(leaf) + agg,
           first_agg() + pod * shape_.aggs_per_pod + agg, leaf % shape_.leaves_per_pod);
    }
  }
  for (std::uint32_t pod = 0; pod < pods_; ++pod) {
    for (std::uint32_t core = 0; core < cores; ++core) {
      join(first_agg() + pod * shape_.aggs_per_pod + core / shape_.cores_per_agg,
           leaves_of_pod(pod) + core % shape_.cores_per_agg, first_core() + core, pod);
    }
  }
}

void Fabric::join(std::uint32_t node, std::uint32_t port, std::uint32_t peer,
                  std::uint32_t peer_port) {
  const std::uint32_t up = first_link_[node] + port;
  const std::uint32_t down = first_link_[peer] + peer_port;
  from_[up] = node;
  from_[down] = peer;
  reverse_[up] = down;
  reverse_[down] = up;
}

NodeKind Fabric::kind(std::uint32_t node) const {
  return node < shape_.hosts   ? NodeKind::kHost
         : node < first_agg()  ? NodeKind::kLeaf
         : node < first_core() ? NodeKind::kAgg
                               : NodeKind::kCore;
}

std::uint32_t Fabric::route(std::uint32_t node, std::uint32_t dst, std::uint32_t hash) const {
  const HostPosition& position = positions_[dst];
  if (node == position.leaf) {
    return position.port;
  }
  const std::uint32_t down = down_ports_[node - shape_.hosts];
  if (node < first_agg()) {
    return down + below(hash, shape_.aggs_per_pod);
  }
  if (node >= first_core()) {
    return position.pod;
  }
  return pod_of_[node - shape_.hosts] == position.pod ? position.leaf_in_pod
                                                      : down + below(hash, shape_.cores_per_agg);
}

std::uint32_t Fabric::hops(std::uint32_t src, std::uint32_t dst) const {
  const HostPosition& a = positions_[src];
  const HostPosition& b = positions_[dst];
  return a.leaf == b.leaf ? 2 : a.pod == b.pod ? 4 : 6;
}

}  // namespace tutti::simulate
