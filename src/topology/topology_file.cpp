// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "topology/topology_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_document.hpp"
#include "base/message.hpp"

namespace tutti::topology {
namespace {

using Kind = JsonValue::Kind;

constexpr std::uint64_t kNumberMax = 65535;
constexpr std::uint64_t kRateMax = 1'000'000'000'000;  // An exabit a second: certainly a slip.
constexpr std::size_t kDevicesMax = 256;

std::string element(const std::string& path, std::size_t i) {
  return path + "[" + std::to_string(i) + "]";
}

/// Each function reads one kind of value.
class TopologyReader : public JsonReader {
 public:
  using JsonReader::JsonReader;

  Result<TopologyFile> topology(const JsonValue& root) {
    TUTTI_RETURN_IF_ERROR(expect(root, Kind::kObject, "document"));
    TopologyFile result;
    bool has_schema = false;
    bool has_nodes = false;
    for (const JsonMember& member : root.members) {
      if (member.key == "schema") {
        has_schema = true;
        TUTTI_RETURN_IF_ERROR(expect_schema(member.value, kTopologySchema));
      } else if (member.key == "nodes") {
        has_nodes = true;
        TUTTI_RETURN_IF_ERROR(
            each(member.value, "nodes", [&](const JsonValue& value, const std::string& path) {
              return node(value, path, &result.nodes.emplace_back());
            }));
      } else if (member.key == "comment") {
        TUTTI_RETURN_IF_ERROR(expect(member.value, Kind::kString, "comment"));
      } else if (member.key != "derived" && member.key != "unavailable") {
        return unknown_key(member, "", {"schema", "comment", "nodes"});
      }
    }
    if (!has_schema) {
      return fail(root.line, "schema",
                  std::string("missing; add \"schema\": \"") + kTopologySchema + "\"");
    }
    if (!has_nodes) {
      return fail(root.line, "nodes", "missing; add \"nodes\": [...]");
    }
    return result;
  }

 private:
  /// Calls `read(value, path)` for each value of a list.
  template <class Read>
  Status each(const JsonValue& list, const std::string& path, Read read) const {
    TUTTI_RETURN_IF_ERROR(expect(list, Kind::kArray, path));
    if (list.items.size() > kDevicesMax) {
      return fail(list.line, path, "more than " + std::to_string(kDevicesMax) + " entries");
    }
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      TUTTI_RETURN_IF_ERROR(read(list.items[i], element(path, i)));
    }
    return {};
  }

  Status text(const JsonValue& value, const std::string& path, std::string* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
    *out = value.text;
    return {};
  }

  template <class T>
  Status number(const JsonValue& value, const std::string& path, std::uint64_t least,
                std::uint64_t most, T* out) const {
    if (value.kind != Kind::kUnsigned || value.number < least || value.number > most) {
      return fail(value.line, path,
                  "a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                      " is expected");
    }
    *out = static_cast<T>(value.number);
    return {};
  }

  Status flag(const JsonValue& value, const std::string& path, bool* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kBool, path));
    *out = value.boolean;
    return {};
  }

  Status pci(const JsonValue& value, const std::string& path, std::string* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
    const auto normal = normal_pci(value.text);
    if (!normal) {
      return fail(value.line, path,
                  "a PCI address as in '0000:1b:00.0' is expected, not " + in_quotes(value.text));
    }
    *out = *normal;
    return {};
  }

  Status cpus(const JsonValue& value, const std::string& path, std::vector<int>* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
    const auto parsed = parse_cpus(value.text);
    if (!parsed) {
      return fail(value.line, path,
                  "a list of CPUs as in '0-3,8' is expected, not " + in_quotes(value.text));
    }
    *out = *parsed;
    return {};
  }

  Status node(const JsonValue& value, const std::string& path, NodeEntry* entry) {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, path));
    Machine& machine = entry->machine;
    const JsonValue* links = nullptr;
    for (const JsonMember& member : value.members) {
      const std::string below = path + "." + member.key;
      if (member.key == "links") {
        links = &member.value;  // Read last: they name devices.
      } else if (member.key == "hosts") {
        TUTTI_RETURN_IF_ERROR(
            each(member.value, below, [&](const JsonValue& one, const std::string& at) {
              return host(one, at, &entry->hosts.emplace_back());
            }));
      } else if (member.key == "rails") {
        int rails = 0;
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 1, kRailsMax, &rails));
        machine.rails = rails;
      } else if (member.key == "sockets") {
        TUTTI_RETURN_IF_ERROR(
            each(member.value, below, [&](const JsonValue& one, const std::string& at) {
              return socket(one, at, &machine.sockets.emplace_back());
            }));
      } else if (member.key == "numa_nodes") {
        TUTTI_RETURN_IF_ERROR(
            each(member.value, below, [&](const JsonValue& one, const std::string& at) {
              return numa_node(one, at, &machine.numa_nodes.emplace_back());
            }));
      } else if (member.key == "gpus") {
        TUTTI_RETURN_IF_ERROR(
            each(member.value, below, [&](const JsonValue& one, const std::string& at) {
              return gpu(one, at, &machine.gpus.emplace_back());
            }));
      } else if (member.key == "nics") {
        TUTTI_RETURN_IF_ERROR(
            each(member.value, below, [&](const JsonValue& one, const std::string& at) {
              return nic(one, at, &machine.nics.emplace_back());
            }));
      } else {
        return unknown_key(member, path,
                           {"hosts", "rails", "sockets", "numa_nodes", "gpus", "nics", "links"});
      }
    }
    TUTTI_RETURN_IF_ERROR(check_sockets(value.line, path, machine));
    if (links != nullptr) {
      return each(*links, path + ".links", [&](const JsonValue& one, const std::string& at) {
        return link(one, at, &machine);
      });
    }
    return {};
  }

  Status host(const JsonValue& value, const std::string& path, std::string* out) {
    TUTTI_RETURN_IF_ERROR(text(value, path, out));
    if (!hosts_.insert(*out).second || out->empty()) {
      return fail(value.line, path,
                  out->empty() ? "empty" : in_quotes(*out) + " stands twice in the file");
    }
    return {};
  }

  Status socket(const JsonValue& value, const std::string& path, Socket* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, path));
    for (const JsonMember& member : value.members) {
      const std::string below = path + "." + member.key;
      if (member.key == "number") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kNumberMax, &out->number));
      } else if (member.key == "cpus") {
        TUTTI_RETURN_IF_ERROR(cpus(member.value, below, &out->cpus));
      } else {
        return unknown_key(member, path, {"number", "cpus"});
      }
    }
    return {};
  }

  Status numa_node(const JsonValue& value, const std::string& path, NumaNode* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, path));
    for (const JsonMember& member : value.members) {
      const std::string below = path + "." + member.key;
      if (member.key == "number") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kNumberMax, &out->number));
      } else if (member.key == "socket") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kNumberMax, &out->socket));
      } else if (member.key == "cpus") {
        TUTTI_RETURN_IF_ERROR(cpus(member.value, below, &out->cpus));
      } else {
        return unknown_key(member, path, {"number", "socket", "cpus"});
      }
    }
    return {};
  }

  Status gpu(const JsonValue& value, const std::string& path, Gpu* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, path));
    for (const JsonMember& member : value.members) {
      const std::string below = path + "." + member.key;
      if (member.key == "name") {
        TUTTI_RETURN_IF_ERROR(text(member.value, below, &out->name));
      } else if (member.key == "pci") {
        TUTTI_RETURN_IF_ERROR(pci(member.value, below, &out->pci));
      } else if (member.key == "identity") {
        TUTTI_RETURN_IF_ERROR(text(member.value, below, &out->identity));
      } else if (member.key == "numa") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kNumberMax, &out->numa));
      } else if (member.key == "socket") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kNumberMax, &out->socket));
      } else {
        return unknown_key(member, path, {"name", "pci", "identity", "numa", "socket"});
      }
    }
    return {};
  }

  Status nic(const JsonValue& value, const std::string& path, Nic* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, path));
    out->is_up = true;  // Who lists a NIC means to use it.
    for (const JsonMember& member : value.members) {
      const std::string below = path + "." + member.key;
      if (member.key == "name") {
        TUTTI_RETURN_IF_ERROR(text(member.value, below, &out->name));
      } else if (member.key == "net") {
        TUTTI_RETURN_IF_ERROR(text(member.value, below, &out->net));
      } else if (member.key == "pci") {
        TUTTI_RETURN_IF_ERROR(pci(member.value, below, &out->pci));
      } else if (member.key == "mbit_s") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kRateMax, &out->rate_mbit_s));
      } else if (member.key == "rdma") {
        TUTTI_RETURN_IF_ERROR(flag(member.value, below, &out->is_rdma));
      } else if (member.key == "up") {
        TUTTI_RETURN_IF_ERROR(flag(member.value, below, &out->is_up));
      } else if (member.key == "numa") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kNumberMax, &out->numa));
      } else if (member.key == "socket") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kNumberMax, &out->socket));
      } else {
        return unknown_key(member, path,
                           {"name", "net", "pci", "mbit_s", "rdma", "up", "numa", "socket"});
      }
    }
    return {};
  }

  Status link(const JsonValue& value, const std::string& path, Machine* machine) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kObject, path));
    Link link;
    std::vector<int> ends;
    bool has_kind = false;
    for (const JsonMember& member : value.members) {
      const std::string below = path + "." + member.key;
      if (member.key == "between") {
        TUTTI_RETURN_IF_ERROR(
            each(member.value, below, [&](const JsonValue& one, const std::string& at) {
              return device(one, at, *machine, &ends.emplace_back());
            }));
      } else if (member.key == "kind") {
        TUTTI_RETURN_IF_ERROR(expect(member.value, Kind::kString, below));
        const auto parsed = parse_link_word(member.value.text);
        if (!parsed) {
          return fail(member.value.line, below,
                      "NV1, NV2, ..., XGMI, PIX, PXB, PHB, NODE or SYS is expected, not " +
                          in_quotes(member.value.text));
        }
        link.kind = parsed->kind;
        link.nvlinks = parsed->nvlinks;
        has_kind = true;
      } else if (member.key == "mbit_s") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kRateMax, &link.rate_mbit_s));
      } else if (member.key == "latency_ns") {
        TUTTI_RETURN_IF_ERROR(number(member.value, below, 0, kRateMax, &link.latency_ns));
      } else {
        return unknown_key(member, path, {"between", "kind", "mbit_s", "latency_ns"});
      }
    }
    if (ends.size() != 2 || ends[0] == ends[1]) {
      return fail(value.line, path + ".between", "two different devices are expected");
    }
    if (!has_kind) {
      return fail(value.line, path + ".kind", "missing; add \"kind\": \"PIX\" or another");
    }
    link.a = std::min(ends[0], ends[1]);
    link.b = std::max(ends[0], ends[1]);
    for (const Link& other : machine->links) {
      if (other.a == link.a && other.b == link.b) {
        return fail(value.line, path + ".between",
                    device_label(*machine, link.a) + " and " + device_label(*machine, link.b) +
                        " have a link already");
      }
    }
    machine->links.push_back(link);
    return {};
  }

  Status device(const JsonValue& value, const std::string& path, const Machine& machine,
                int* out) const {
    TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
    const auto parsed = parse_device_label(machine, value.text);
    if (!parsed) {
      return fail(value.line, path, in_quotes(value.text) + " is no device of this node");
    }
    *out = *parsed;
    return {};
  }

  Status check_sockets(int line, const std::string& path, const Machine& machine) const {
    const auto sockets = static_cast<int>(machine.sockets.size());
    const auto check = [&](const char* list, std::size_t i, int socket) {
      return socket < sockets ? Status()
                              : fail(line, element(path + "." + list, i) + ".socket",
                                     "the node lists " + std::to_string(sockets) + " sockets");
    };
    for (std::size_t i = 0; i < machine.numa_nodes.size(); ++i) {
      TUTTI_RETURN_IF_ERROR(check("numa_nodes", i, machine.numa_nodes[i].socket));
    }
    for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
      TUTTI_RETURN_IF_ERROR(check("gpus", i, machine.gpus[i].socket));
    }
    for (std::size_t i = 0; i < machine.nics.size(); ++i) {
      TUTTI_RETURN_IF_ERROR(check("nics", i, machine.nics[i].socket));
    }
    return {};
  }

  std::set<std::string> hosts_;
};

using Json = nlohmann::ordered_json;

void put(Json* object, const char* key, const std::string& value) {
  if (!value.empty()) {
    (*object)[key] = value;
  }
}

void put_known(Json* object, const char* key, int value) {
  if (value >= 0) {
    (*object)[key] = value;
  }
}

Json node_json(const NodeEntry& entry) {
  const Machine& machine = entry.machine;
  Json node = Json::object();
  if (!entry.hosts.empty()) {
    node["hosts"] = entry.hosts;
  }
  if (machine.rails) {
    node["rails"] = *machine.rails;
  }
  node["sockets"] = Json::array();
  for (const Socket& socket : machine.sockets) {
    Json one = {{"number", socket.number}};
    put(&one, "cpus", format_cpus(socket.cpus));
    node["sockets"].push_back(one);
  }
  node["numa_nodes"] = Json::array();
  for (const NumaNode& numa : machine.numa_nodes) {
    Json one = {{"number", numa.number}};
    put_known(&one, "socket", numa.socket);
    put(&one, "cpus", format_cpus(numa.cpus));
    node["numa_nodes"].push_back(one);
  }
  node["gpus"] = Json::array();
  for (const Gpu& gpu : machine.gpus) {
    Json one = Json::object();
    put(&one, "name", gpu.name);
    put(&one, "pci", gpu.pci);
    put(&one, "identity", gpu.identity);
    put_known(&one, "numa", gpu.numa);
    put_known(&one, "socket", gpu.socket);
    node["gpus"].push_back(one);
  }
  node["nics"] = Json::array();
  for (const Nic& nic : machine.nics) {
    Json one = Json::object();
    put(&one, "name", nic.name);
    put(&one, "net", nic.net);
    put(&one, "pci", nic.pci);
    one["mbit_s"] = nic.rate_mbit_s;
    one["rdma"] = nic.is_rdma;
    one["up"] = nic.is_up;
    put_known(&one, "numa", nic.numa);
    put_known(&one, "socket", nic.socket);
    node["nics"].push_back(one);
  }
  node["links"] = Json::array();
  for (const Link& link : machine.links) {
    Json one = {{"between", {device_label(machine, link.a), device_label(machine, link.b)}},
                {"kind", link_word(link)}};
    if (link.rate_mbit_s != 0) {
      one["mbit_s"] = link.rate_mbit_s;
    }
    if (link.latency_ns != 0) {
      one["latency_ns"] = link.latency_ns;
    }
    node["links"].push_back(one);
  }
  return node;
}

std::string_view short_name(std::string_view host) { return host.substr(0, host.find('.')); }

}  // namespace

Result<TopologyFile> parse_topology(const std::string& text, const std::string& file) {
  TUTTI_ASSIGN_OR_RETURN(const JsonValue root, parse_json(text, file));
  return TopologyReader(file).topology(root);
}

std::string topology_json(const TopologyFile& topology) {
  Json document = {{"schema", kTopologySchema}, {"nodes", Json::array()}};
  for (const NodeEntry& entry : topology.nodes) {
    document["nodes"].push_back(node_json(entry));
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

const NodeEntry* entry_for(const TopologyFile& topology, const std::string& host,
                           int virtual_node) {
  std::vector<const NodeEntry*> nameless;
  const NodeEntry* by_short_name = nullptr;
  for (const NodeEntry& entry : topology.nodes) {
    if (entry.hosts.empty()) {
      nameless.push_back(&entry);
    }
    for (const std::string& name : entry.hosts) {
      if (virtual_node < 0 && name == host) {
        return &entry;
      }
      if (by_short_name == nullptr && short_name(name) == short_name(host)) {
        by_short_name = &entry;
      }
    }
  }
  if (virtual_node < 0 && by_short_name != nullptr) {
    return by_short_name;
  }
  if (nameless.size() == 1) {
    return nameless[0];
  }
  const auto number = static_cast<std::size_t>(virtual_node);
  return virtual_node >= 0 && number < nameless.size() ? nameless[number] : nullptr;
}

}  // namespace tutti::topology
