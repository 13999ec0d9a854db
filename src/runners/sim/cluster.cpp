// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/sim/cluster.hpp"

#include <algorithm>

#include "base/json_document.hpp"
#include "base/message.hpp"

namespace tutti::runners::sim {
namespace {

using Kind = JsonValue::Kind;

struct Range {
  std::uint64_t min;
  std::uint64_t max;
};

// Wide enough for any machine, narrow enough that picoseconds and byte sums stay in 64 bits.
constexpr Range kPerNode{1, 256};
constexpr Range kSocket{0, 255};
constexpr Range kRate{1, 100'000'000};
constexpr Range kDelay{0, 1'000'000'000};
constexpr Range kPercent{1, 100};

class ClusterReader : public JsonReader {
 public:
  using JsonReader::JsonReader;

  Result<Cluster> cluster(const JsonValue& root) {
    TUTTI_RETURN_IF_ERROR(expect(root, Kind::kObject, "document"));
    Cluster result;
    for (const JsonMember& member : root.members) {
      TUTTI_RETURN_IF_ERROR(member_of_root(member, &result));
    }
    for (const char* key :
         {"schema", "name", "gpus_per_node", "nics_per_node", "nvlink", "network"}) {
      if (!has(root, key)) {
        return fail(root.line, key, "missing; every cluster file has it (docs/simulation.md)");
      }
    }
    return with_sockets(root, std::move(result));
  }

 private:
  static bool has(const JsonValue& object, const char* key) {
    return std::any_of(object.members.begin(), object.members.end(),
                       [&](const JsonMember& member) { return member.key == key; });
  }

  Result<std::uint64_t> number(const JsonValue& value, const Range& range,
                               const std::string& path) const {
    if (value.kind == Kind::kUnsigned && value.number >= range.min && value.number <= range.max) {
      return value.number;
    }
    return fail(value.line, path,
                "a whole number from " + std::to_string(range.min) + " to " +
                    std::to_string(range.max) + " is expected" +
                    (value.kind == Kind::kUnsigned ? ", not " + std::to_string(value.number) : ""));
  }

  Status read_int(const JsonValue& value, const Range& range, const std::string& path,
                  int* out) const {
    TUTTI_ASSIGN_OR_RETURN(const std::uint64_t read, number(value, range, path));
    *out = static_cast<int>(read);
    return {};
  }

  Status member_of_root(const JsonMember& member, Cluster* cluster) const {
    const JsonValue& value = member.value;
    const std::string& key = member.key;
    if (key == "schema") {
      return expect_schema(value, kClusterSchema);
    }
    if (key == "name") {
      cluster->name = value.text;
      return expect(value, Kind::kString, key);
    }
    if (key == "comment") {
      return expect(value, Kind::kString, key);
    }
    if (key == "gpus_per_node") {
      return read_int(value, kPerNode, key, &cluster->gpus_per_node);
    }
    if (key == "nics_per_node") {
      return read_int(value, kPerNode, key, &cluster->nics_per_node);
    }
    if (key == "socket_of_gpu") {
      return sockets(value, cluster);
    }
    if (key == "nccl") {
      return nccl(value, cluster);
    }
    for (const LinkClass kind :
         {LinkClass::kNvlink, LinkClass::kInterSocket, LinkClass::kNetwork}) {
      if (key == to_string(kind)) {
        return link(value, kind, &cluster->link(kind));
      }
    }
    return unknown_key(member, "",
                       {"schema", "name", "comment", "gpus_per_node", "nics_per_node",
                        "socket_of_gpu", "nvlink", "inter_socket", "network", "nccl"});
  }

  Status sockets(const JsonValue& value, Cluster* cluster) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kArray, "socket_of_gpu"));
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      int socket = 0;
      TUTTI_RETURN_IF_ERROR(
          read_int(value.items[i], kSocket, "socket_of_gpu[" + std::to_string(i) + "]", &socket));
      cluster->socket_of_gpu.push_back(socket);
    }
    return {};
  }

  Status nccl(const JsonValue& value, Cluster* cluster) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, "nccl"));
    for (const JsonMember& member : value.members) {
      if (member.key != "message_ns") {
        return unknown_key(member, "nccl", {"message_ns"});
      }
      TUTTI_ASSIGN_OR_RETURN(cluster->nccl_message_ns,
                             number(member.value, kDelay, "nccl.message_ns"));
    }
    return {};
  }

  Status link(const JsonValue& value, LinkClass kind, LinkModel* link) const {
    const std::string path = to_string(kind);
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, path));
    std::vector<std::string> keys = {"mb_per_s", "message_ns", "incast_percent"};
    if (kind == LinkClass::kNvlink) {
      keys.emplace_back("wiring");
    }
    for (const JsonMember& member : value.members) {
      const std::string here = path + "." + member.key;
      if (member.key == "mb_per_s") {
        TUTTI_ASSIGN_OR_RETURN(link->mb_per_s, number(member.value, kRate, here));
      } else if (member.key == "message_ns") {
        TUTTI_ASSIGN_OR_RETURN(link->message_ns, number(member.value, kDelay, here));
      } else if (member.key == "incast_percent") {
        TUTTI_ASSIGN_OR_RETURN(link->incast_percent, number(member.value, kPercent, here));
      } else if (member.key == "wiring" && kind == LinkClass::kNvlink) {
        TUTTI_RETURN_IF_ERROR(expect(member.value, Kind::kString, here));
        if (member.value.text != "mesh" && member.value.text != "switch") {
          return fail(member.value.line, here,
                      "'mesh' (each pair of GPUs has links of its own) or 'switch' is expected, "
                      "not " +
                          in_quotes(member.value.text));
        }
        link->shares_inbound = member.value.text == "switch";
      } else {
        return unknown_key(member, path, keys);
      }
    }
    if (link->mb_per_s == 0) {
      return fail(value.line, path + ".mb_per_s", "missing");
    }
    if (kind == LinkClass::kNvlink && !has(value, "wiring")) {
      return fail(value.line, path + ".wiring", "missing; add \"wiring\": \"mesh\" or \"switch\"");
    }
    return {};
  }

  Result<Cluster> with_sockets(const JsonValue& root, Cluster cluster) const {
    const auto gpus = static_cast<std::size_t>(cluster.gpus_per_node);
    if (!has(root, "socket_of_gpu")) {
      cluster.socket_of_gpu.assign(gpus, 0);
    }
    const auto& sockets = cluster.socket_of_gpu;
    if (sockets.size() != gpus) {
      return fail(root.line, "socket_of_gpu",
                  std::to_string(sockets.size()) + " entries, but gpus_per_node is " +
                      std::to_string(gpus));
    }
    const bool has_several = std::any_of(sockets.begin(), sockets.end(),
                                         [&](int socket) { return socket != sockets.front(); });
    if (has_several && !has(root, "inter_socket")) {
      return fail(root.line, "inter_socket", "missing; socket_of_gpu names more than one socket");
    }
    return cluster;
  }
};

}  // namespace

const char* to_string(LinkClass kind) {
  constexpr const char* kNames[kLinkKinds] = {"nvlink", "inter_socket", "network"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<Cluster> parse_cluster(const std::string& text, const std::string& file) {
  TUTTI_ASSIGN_OR_RETURN(const JsonValue root, parse_json(text, file));
  return ClusterReader(file).cluster(root);
}

Result<Cluster> load_cluster(const std::string& file) {
  TUTTI_ASSIGN_OR_RETURN(const std::string text, read_json_file(file));
  return parse_cluster(text, file);
}

topology::Layout layout_of(const Cluster& cluster, int ranks) {
  std::vector<std::uint64_t> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    nodes.push_back(static_cast<std::uint64_t>(rank / cluster.gpus_per_node));
  }
  topology::Layout layout = topology::make_layout(nodes);
  for (int rank = 0; rank < ranks; ++rank) {
    layout.socket_of.push_back(
        cluster.socket_of_gpu[topology::Layout::index(rank % cluster.gpus_per_node)]);
  }
  layout.rails_of.assign(layout.ranks_of.size(), cluster.nics_per_node);
  return layout;
}

}  // namespace tutti::runners::sim
