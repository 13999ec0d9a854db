// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// C functions that need no communicator: knobs, machines, tuning files, explanations, simulations.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "discover/discover.hpp"
#include "engine/c_text.hpp"
#include "engine/process.hpp"
#include "engine/schedule_check.hpp"
#include "runners/sim/network_query.hpp"
#include "runners/sim/predict.hpp"
#include "select/choose.hpp"
#include "tutti/tutti.h"

namespace {

using nlohmann::json;
using tutti::Status;
using tutti::engine::document;
using tutti::engine::guarded;
using tutti::engine::Process;

json failure(const Status& status) { return {{"error", status.message()}}; }

/// What follows from a machine, so that no reader has to derive it again.
nlohmann::ordered_json derived_json(const tutti::topology::Machine& machine) {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (int device = 0; device < machine.devices(); ++device) {
    devices.push_back(tutti::topology::device_label(machine, device));
  }
  const int rails = tutti::topology::rail_count(machine);
  return {{"devices", devices},
          {"matrix", tutti::topology::link_matrix(machine)},
          {"nics_of_gpus", tutti::topology::nics_of_gpus(machine)},
          {"rail_nics", tutti::topology::rail_nics(machine)},
          {"rails", rails == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(rails)}};
}

/// The number `key` of a query; false: it is none from 1 on, or too large to be one of ranks.
bool read_ranks(const json& query, const char* key, int* value) {
  constexpr std::int64_t kRanksMax = 1 << 24;
  const json number = query.value(key, json(1));
  if (!number.is_number_integer() || number.get<std::int64_t>() < 1 ||
      number.get<std::int64_t>() > kRanksMax) {
    return false;
  }
  *value = number.get<int>();
  return true;
}

}  // namespace

extern "C" {

const char* tutti_version(void) { return TUTTI_VERSION; }

int tutti_abi_version(void) { return TUTTI_ABI_VERSION; }

void tutti_free(char* text) { std::free(text); }

char* tutti_config_json(void) {
  return guarded([] {
    std::string text = tutti::config_json(tutti::process_environment());
    // Their table is in a component that the table of variables does not know.
    const std::string_view place = "{controllers}";
    if (const std::size_t at = text.find(place); at != std::string::npos) {
      text.replace(at, place.size(), tutti::runners::sim::congestion_controllers());
    }
    return document(text);
  });
}

char* tutti_config_problems_json(void) {
  return guarded([] {
    json problems = json::array();
    for (const auto& problem : tutti::config_from_environment().problems) {
      problems.push_back({{"error", problem.is_error}, {"text", problem.text}});
    }
    return document(problems);
  });
}

char* tutti_explain_json(const char* text) {
  return guarded([&] {
    const json query = json::parse(text == nullptr ? "" : text, nullptr, false);
    tutti::select::Shape shape;
    const std::string problem = tutti::engine::read_shape(query, &shape);
    if (!problem.empty()) {
      return document(json{{"error", problem}});
    }
    tutti::select::CommFacts facts;
    if (!read_ranks(query, "ranks", &facts.ranks) || !read_ranks(query, "nodes", &facts.nodes) ||
        facts.ranks < facts.nodes) {
      return document(json{{"error", "nodes must be at least 1 and at most ranks"}});
    }
    facts.ranks_per_node_max = (facts.ranks + facts.nodes - 1) / facts.nodes;
    facts.mpi = query.value("mpi_name", "");
    facts.oversubscribed = query.value("oversubscribed", false);
    facts.mpi_device_aware = query.value("mpi_device_aware", false);
    facts.ccl_usable = query.value("ccl", true);
    facts.ccl_name = query.value("ccl_name", "ccl");
    facts.direct_device_refusal = query.value("direct", true) ? "" : "the query says so";
    facts.direct_host_refusal = facts.direct_capture_refusal = facts.direct_device_refusal;
    facts.net_refusal = query.value("net", true) ? "" : "the query says so";
    if (!facts.ccl_usable) {
      facts.ccl_refusal = "the query says there is no CCL";
    }
    auto table = tutti::select::effective_table(tutti::config_from_environment().config);
    if (!table.ok()) {
      return document(failure(table.status()));
    }
    facts.has_mpi = query.value("mpi", true);
    if (!facts.has_mpi) {
      *table = tutti::select::without_mpi(std::move(*table));
    }
    return document(tutti::select::explain_json(shape, facts, *table));
  });
}

char* tutti_algorithms_json(void) {
  return guarded([] { return document(tutti::runners::sim::algorithms_json()); });
}

char* tutti_schedule_check_json(const char* text) {
  return guarded([&] {
    const auto result = tutti::engine::check_schedule(text == nullptr ? "" : text);
    return result.ok() ? document(*result) : document(failure(result.status()));
  });
}

char* tutti_simulate_json(const char* text) {
  return guarded([&] {
    const auto result =
        tutti::runners::sim::predict(json::parse(text == nullptr ? "" : text, nullptr, false));
    return result.ok() ? document(*result) : document(failure(result.status()));
  });
}

char* tutti_simulate_network_json(const char* text) {
  return guarded([&] {
    const auto result = tutti::runners::sim::simulate_network(
        json::parse(text == nullptr ? "" : text, nullptr, false));
    return result.ok() ? document(*result) : document(failure(result.status()));
  });
}

char* tutti_tuning_check_json(const char* path) {
  return guarded([&] {
    const auto table = tutti::select::load_table(path == nullptr ? "" : path);
    if (!table.ok()) {
      return document(failure(table.status()));
    }
    return document(json{{"ok", true}, {"rules", table->rules.size()}});
  });
}

char* tutti_tuning_import_json(const char* path) {
  return guarded([&] {
    std::ifstream file(path == nullptr ? "" : path, std::ios::binary);
    if (!file) {
      return document(
          json{{"error", std::string(path == nullptr ? "" : path) + ": cannot be read"}});
    }
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto imported = tutti::select::import_mpich(text, path);
    if (!imported.ok()) {
      return document(failure(imported.status()));
    }
    return document(
        json{{"tuning", json::parse(imported->json)}, {"not_carried", imported->not_carried}});
  });
}

char* tutti_tuning_schema_json(void) {
  return guarded([] { return document(tutti::select::tuning_schema_json()); });
}

char* tutti_tuning_show_json(void) {
  return guarded([] {
    const auto config = tutti::config_from_environment().config;
    const auto table = tutti::select::effective_table(config);
    if (!table.ok()) {
      return document(failure(table.status()));
    }
    const std::string file = tutti::select::tuning_file_path(config);
    return document(json{{"file", file.empty() ? json() : json(file)},
                         {"rules", json::parse(tutti::select::table_json(*table))}});
  });
}

char* tutti_machine_json(void) {
  return guarded([] {
    Process& process = Process::get();
    json devices = json::array();
    json device = {{"name", nullptr},
                   {"library", nullptr},
                   {"taken", process.device_report().taken},
                   {"reason", process.device_report().reason}};
    if (tutti::device::Api* api = process.device(); api != nullptr) {
      device["name"] = api->name();
      device["library"] = api->library();
      const Status ready = api->initialize();
      const auto count = ready.ok() ? api->device_count() : tutti::Result<int>(ready);
      if (!count.ok()) {
        device["reason"] = count.status().message();
      } else {
        for (int ordinal = 0; ordinal < *count; ++ordinal) {
          const auto name = api->device_name(ordinal);
          const auto identity = api->identity(ordinal);
          devices.push_back(
              {{"ordinal", ordinal},
               {"name", name.ok() ? *name : name.status().message()},
               {"identity", identity.ok() ? *identity : identity.status().message()}});
        }
      }
    }
    device["devices"] = devices;
    json ccl;
    if (const auto library = process.ccl(); library.ok()) {
      ccl = {{"name", (*library)->name()},
             {"path", (*library)->path()},
             {"version", tutti::ccl::format_version((*library)->version())},
             {"found_by", (*library)->found_by()}};
    } else {
      ccl = {{"reason", library.status().message()}};
    }
    return document(json{{"device", device}, {"ccl", ccl}});
  });
}

char* tutti_topology_json(const char* file, const char* root) {
  return guarded([&] {
    std::string path = file == nullptr ? "" : file;
    const std::string recorded = root == nullptr ? "" : root;
    if (path.empty() && recorded.empty()) {
      path = tutti::config_from_environment().config.topology_file;
    }
    tutti::topology::TopologyFile topology;
    std::vector<std::string> unavailable;
    if (!path.empty()) {
      auto loaded = tutti::engine::load_topology(path);
      if (!loaded.ok()) {
        return document(failure(loaded.status()));
      }
      topology = std::move(*loaded);
    } else {
      auto found = recorded.empty()
                       ? tutti::Result<tutti::discover::Discovery>(tutti::discover::this_machine())
                       : tutti::discover::recorded_machine(recorded);
      if (!found.ok()) {
        return document(failure(found.status()));
      }
      unavailable = found->unavailable;
      auto& node = topology.nodes.emplace_back();
      if (!found->machine.host.empty()) {
        node.hosts.push_back(found->machine.host);
      }
      node.machine = std::move(found->machine);
    }
    auto answer = nlohmann::ordered_json::parse(tutti::topology::topology_json(topology));
    answer["derived"] = nlohmann::ordered_json::array();
    for (const auto& node : topology.nodes) {
      answer["derived"].push_back(derived_json(node.machine));
    }
    answer["unavailable"] = unavailable;
    return document(answer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  });
}

char* tutti_counters_json(void) {
  return guarded([] { return document(Process::get().counters().json()); });
}

}  // extern "C"
