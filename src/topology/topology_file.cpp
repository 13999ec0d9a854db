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

/// Each function reads one kind of value, or makes what reads it into `out`.
class TopologyReader : public JsonReader {
 public:
  using JsonReader::JsonReader;

  Result<TopologyFile> topology(const JsonValue& root) {
    TopologyFile result;
    TUTTI_RETURN_IF_ERROR(read_object(root, "",
                                      {schema(kTopologySchema),
                                       comment(),
                                       {"nodes", list(&TopologyReader::node, &result.nodes)},
                                       {"derived", {}},
                                       {"unavailable", {}}}));
    TUTTI_RETURN_IF_ERROR(
        require(root, "", "schema", std::string("add \"schema\": \"") + kTopologySchema + "\""));
    TUTTI_RETURN_IF_ERROR(require(root, "", "nodes", "add \"nodes\": [...]"));
    return result;
  }

 private:
  /// Calls `read(value, path)` for each value of a list.
  Read each(Read read) const {
    return
        [this, read = std::move(read)](const JsonValue& values, const std::string& path) -> Status {
          TUTTI_RETURN_IF_ERROR(expect(values, Kind::kArray, path));
          if (values.items.size() > kDevicesMax) {
            return fail(values.line, path, "more than " + std::to_string(kDevicesMax) + " entries");
          }
          for (std::size_t i = 0; i < values.items.size(); ++i) {
            TUTTI_RETURN_IF_ERROR(read(values.items[i], element(path, i)));
          }
          return {};
        };
  }

  /// A list whose values the function `read` reads, each into a new element of `out`.
  template <class Method, class T>
  Read list(Method read, std::vector<T>* out) {
    return each([=, this](const JsonValue& value, const std::string& path) {
      return (this->*read)(value, path, &out->emplace_back());
    });
  }

  Read text(std::string* out) const {
    return [this, out](const JsonValue& value, const std::string& path) {
      *out = value.text;
      return expect(value, Kind::kString, path);
    };
  }

  template <class T>
  Read number(std::uint64_t least, std::uint64_t most, T* out) const {
    return [=, this](const JsonValue& value, const std::string& path) -> Status {
      if (value.kind != Kind::kUnsigned || value.number < least || value.number > most) {
        return fail(value.line, path,
                    "a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                        " is expected");
      }
      *out = static_cast<T>(value.number);
      return {};
    };
  }

  Read flag(bool* out) const {
    return [this, out](const JsonValue& value, const std::string& path) {
      *out = value.boolean;
      return expect(value, Kind::kBool, path);
    };
  }

  /// What `parse` makes of a string; `expected` says what that should be.
  template <class Parse, class T>
  Read parsed(Parse parse, const char* expected, T* out) const {
    return [=, this](const JsonValue& value, const std::string& path) -> Status {
      TUTTI_RETURN_IF_ERROR(expect(value, Kind::kString, path));
      const auto made = parse(value.text);
      if (!made) {
        return fail(value.line, path,
                    std::string(expected) + " is expected, not " + in_quotes(value.text));
      }
      *out = *made;
      return {};
    };
  }
  Read pci(std::string* out) const {
    return parsed(normal_pci, "a PCI address as in '0000:1b:00.0'", out);
  }
  Read cpus(std::vector<int>* out) const {
    return parsed(parse_cpus, "a list of CPUs as in '0-3,8'", out);
  }

  Status node(const JsonValue& value, const std::string& path, NodeEntry* entry) {
    Machine& machine = entry->machine;
    const JsonValue* links = nullptr;
    int rails = 0;
    TUTTI_RETURN_IF_ERROR(
        read_object(value, path,
                    {{"hosts", list(&TopologyReader::host, &entry->hosts)},
                     {"rails", number(1, kRailsMax, &rails)},
                     {"sockets", list(&TopologyReader::socket, &machine.sockets)},
                     {"numa_nodes", list(&TopologyReader::numa_node, &machine.numa_nodes)},
                     {"gpus", list(&TopologyReader::gpu, &machine.gpus)},
                     {"nics", list(&TopologyReader::nic, &machine.nics)},
                     {"links", [&](const JsonValue& given, const std::string&) {
                        links = &given;  // Read last: they name devices.
                        return Status();
                      }}}));
    if (rails != 0) {
      machine.rails = rails;
    }
    TUTTI_RETURN_IF_ERROR(check_sockets(value.line, path, machine));
    const auto read_link = [&](const JsonValue& one, const std::string& at) {
      return link(one, at, &machine);
    };
    return links == nullptr ? Status() : each(read_link)(*links, path + ".links");
  }

  Status host(const JsonValue& value, const std::string& path, std::string* out) {
    TUTTI_RETURN_IF_ERROR(text(out)(value, path));
    if (!hosts_.insert(*out).second || out->empty()) {
      return fail(value.line, path,
                  out->empty() ? "empty" : in_quotes(*out) + " stands twice in the file");
    }
    return {};
  }

  Status socket(const JsonValue& value, const std::string& path, Socket* out) const {
    return read_object(
        value, path, {{"number", number(0, kNumberMax, &out->number)}, {"cpus", cpus(&out->cpus)}});
  }

  Status numa_node(const JsonValue& value, const std::string& path, NumaNode* out) const {
    return read_object(value, path,
                       {{"number", number(0, kNumberMax, &out->number)},
                        {"socket", number(0, kNumberMax, &out->socket)},
                        {"cpus", cpus(&out->cpus)}});
  }

  Status gpu(const JsonValue& value, const std::string& path, Gpu* out) const {
    return read_object(value, path,
                       {{"name", text(&out->name)},
                        {"pci", pci(&out->pci)},
                        {"identity", text(&out->identity)},
                        {"numa", number(0, kNumberMax, &out->numa)},
                        {"socket", number(0, kNumberMax, &out->socket)}});
  }

  Status nic(const JsonValue& value, const std::string& path, Nic* out) const {
    out->is_up = true;  // Who lists a NIC means to use it.
    return read_object(value, path,
                       {{"name", text(&out->name)},
                        {"net", text(&out->net)},
                        {"pci", pci(&out->pci)},
                        {"mbit_s", number(0, kRateMax, &out->rate_mbit_s)},
                        {"rdma", flag(&out->is_rdma)},
                        {"up", flag(&out->is_up)},
                        {"numa", number(0, kNumberMax, &out->numa)},
                        {"socket", number(0, kNumberMax, &out->socket)}});
  }

  Status link(const JsonValue& value, const std::string& path, Machine* machine) const {
    Link link;
    Link word;  // Its kind and number alone.
    std::vector<int> ends;
    TUTTI_RETURN_IF_ERROR(read_object(
        value, path,
        {{"between", each([&](const JsonValue& one, const std::string& at) {
            return device(one, at, *machine, &ends.emplace_back());
          })},
         {"kind",
          parsed(parse_link_word, "NV1, NV2, ..., XGMI, PIX, PXB, PHB, NODE or SYS", &word)},
         {"mbit_s", number(0, kRateMax, &link.rate_mbit_s)},
         {"latency_ns", number(0, kRateMax, &link.latency_ns)}}));
    if (ends.size() != 2 || ends[0] == ends[1]) {
      return fail(value.line, path + ".between", "two different devices are expected");
    }
    TUTTI_RETURN_IF_ERROR(require(value, path, "kind", "add \"kind\": \"PIX\" or another"));
    link.kind = word.kind;
    link.nvlinks = word.nvlinks;
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
    const auto device = parse_device_label(machine, value.text);
    if (!device) {
      return fail(value.line, path, in_quotes(value.text) + " is no device of this node");
    }
    *out = *device;
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
