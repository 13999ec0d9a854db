// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A selection with its reasons, as JSON: what `tutti explain` prints.
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "select/choose.hpp"
#include "select/tuning_format.hpp"

namespace tutti::select {
namespace {

using Json = nlohmann::ordered_json;

Json call_json(const Shape& shape) {
  return {{"collective", to_string(shape.collective)},
          {"bytes", shape.bytes ? Json(*shape.bytes) : Json()},
          {"memory", to_string(shape.memory)},
          {"op", to_string(shape.op)},
          {"type", to_string(shape.type)},
          {"order", to_string(shape.order)}};
}

Json communicator_json(const CommFacts& facts) {
  Json json = {{"ranks", facts.ranks},
               {"nodes", facts.nodes},
               {"ranks_per_node", facts.ranks_per_node_max},
               {"oversubscribed", facts.oversubscribed},
               {"mpi", facts.has_mpi},
               {"mpi_name", facts.mpi},
               {"mpi_device_aware", facts.mpi_device_aware},
               {"ccl", facts.ccl_usable}};
  json[facts.ccl_usable ? "ccl_name" : "ccl_refusal"] =
      facts.ccl_usable ? facts.ccl_name : facts.ccl_refusal;
  return json;
}

Json rule_reference(const Table& table, std::size_t index) {
  return {{"index", index},
          {"origin", table.rules[index].origin},
          {"text", rule_to_text(table.rules[index])}};
}

Json plans_json(const Shape& shape, const CommFacts& facts) {
  Json plans = Json::array();
  for (const Plan& plan : all_plans()) {
    std::string reason = refusal(plan, shape, facts);
    Json entry = {{"plan", to_string(plan)}, {"possible", reason.empty()}};
    if (!reason.empty()) {
      entry["reason"] = reason;
    }
    plans.push_back(std::move(entry));
  }
  return plans;
}

std::string hexadecimal(std::uint64_t value) {
  char buffer[17];
  std::snprintf(buffer, sizeof(buffer), "%016" PRIx64, value);
  return buffer;
}

}  // namespace

std::string explain_json(const Shape& shape, const CommFacts& facts, const Table& table) {
  Decision decision = choose(shape, facts, table);
  Shape carried = shape;
  if (!decision.is_carried && may_stage(shape, facts)) {
    carried.memory = Memory::kHost;
    carried.order = Order::kBlocking;
    if (Decision staged = choose(carried, facts, table); staged.is_carried) {
      decision.refused.insert(decision.refused.end(), decision.passed_over.begin(),
                              decision.passed_over.end());
      staged.refused.insert(staged.refused.begin(), decision.refused.begin(),
                            decision.refused.end());
      decision = std::move(staged);
    }
  }
  const bool is_staged = decision.is_carried && carried.memory != shape.memory;
  const auto list = [&](const std::vector<Refused>& entries) {
    Json result = Json::array();
    for (const Refused& entry : entries) {
      result.push_back({{"rule", rule_reference(table, entry.rule)},
                        {"plan", to_string(entry.plan)},
                        {"reason", entry.reason}});
    }
    return result;
  };
  Json document = {
      {"call", call_json(shape)},
      {"communicator", communicator_json(facts)},
      {"plan", decision.is_carried ? Json(to_string(decision.plan)) : Json()},
      {"parameters", parameters_json(decision.plan)},
      {"rule",
       decision.rule < 0 ? Json() : rule_reference(table, static_cast<std::size_t>(decision.rule))},
      {"fallback", is_staged || !decision.refused.empty()},
      {"refused", list(decision.refused)},
      {"passed_over", list(decision.passed_over)},
      {"plans", plans_json(shape, facts)},
      {"table_hash", hexadecimal(table.hash())},
  };
  if (is_staged) {
    document["through"] = to_string(carried.memory);
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tutti::select
