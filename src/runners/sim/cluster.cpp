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
    Cluster result;
    const auto link_of = [&](LinkClass kind) {
      return [&result, kind, this](const JsonValue& value, const std::string&) {
        return link(value, kind, &result.link(kind));
      };
    };
    TUTTI_RETURN_IF_ERROR(
        read_object(root, "",
                    {schema(kClusterSchema),
                     {"name",
                      [&](const JsonValue& value, const auto& path) {
                        result.name = value.text;
                        return expect(value, Kind::kString, path);
                      }},
                     comment(),
                     {"gpus_per_node", number(kPerNode, &result.gpus_per_node)},
                     {"nics_per_node", number(kPerNode, &result.nics_per_node)},
                     {"socket_of_gpu",
                      [&](const JsonValue& value, const auto&) { return sockets(value, &result); }},
                     {"nvlink", link_of(LinkClass::kNvlink)},
                     {"inter_socket", link_of(LinkClass::kInterSocket)},
                     {"network", link_of(LinkClass::kNetwork)},
                     {"nccl", [&](const JsonValue& value, const auto& path) {
                        return read_object(
                            value, path, {{"message_ns", number(kDelay, &result.nccl_message_ns)}});
                      }}}));
    for (const char* key :
         {"schema", "name", "gpus_per_node", "nics_per_node", "nvlink", "network"}) {
      TUTTI_RETURN_IF_ERROR(
          require(root, "", key, "every cluster file has it (docs/simulation.md)"));
    }
    return with_sockets(root, std::move(result));
  }

 private:
  template <class T>
  Read number(const Range& range, T* out) const {
    return [=, this](const JsonValue& value, const std::string& path) -> Status {
      if (value.kind == Kind::kUnsigned && value.number >= range.min && value.number <= range.max) {
        *out = static_cast<T>(value.number);
        return {};
      }
      return fail(
          value.line, path,
          "a whole number from " + std::to_string(range.min) + " to " + std::to_string(range.max) +
              " is expected" +
              (value.kind == Kind::kUnsigned ? ", not " + std::to_string(value.number) : ""));
    };
  }

  Status sockets(const JsonValue& value, Cluster* cluster) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kArray, "socket_of_gpu"));
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      TUTTI_RETURN_IF_ERROR(number(kSocket, &cluster->socket_of_gpu.emplace_back())(
          value.items[i], "socket_of_gpu[" + std::to_string(i) + "]"));
    }
    return {};
  }

  Status read_wiring(const JsonValue& value, const std::string& path, LinkModel* link) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
    if (value.text != "mesh" && value.text != "switch") {
      return fail(value.line, path,
                  "'mesh' (each pair of GPUs has links of its own) or 'switch' is expected, not " +
                      in_quotes(value.text));
    }
    link->shares_inbound = value.text == "switch";
    return {};
  }

  Status link(const JsonValue& value, LinkClass kind, LinkModel* link) const {
    const std::string path = to_string(kind);
    std::vector<Field> fields = {{"mb_per_s", number(kRate, &link->mb_per_s)},
                                 {"message_ns", number(kDelay, &link->message_ns)},
                                 {"incast_percent", number(kPercent, &link->incast_percent)}};
    if (kind == LinkClass::kNvlink) {
      fields.push_back({"wiring", [&](const JsonValue& wiring, const std::string& here) {
                          return read_wiring(wiring, here, link);
                        }});
    }
    TUTTI_RETURN_IF_ERROR(read_object(value, path, fields));
    if (link->mb_per_s == 0) {
      return fail(value.line, path + ".mb_per_s", "missing");
    }
    return kind == LinkClass::kNvlink
               ? require(value, path, "wiring", "add \"wiring\": \"mesh\" or \"switch\"")
               : Status();
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
