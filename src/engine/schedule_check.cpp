// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/schedule_check.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "schedule/algorithm.hpp"
#include "schedule/validate.hpp"

namespace tutti::engine {
namespace {

using nlohmann::json;
using select::Collective;

/// The validator keeps, for each step, which steps come before it: more is for a test, not for a
/// command.
constexpr int kRanksMax = 1024;
constexpr std::int64_t kCountMax = std::int64_t{1} << 40;

struct Query {
  Collective collective = Collective::kAllgather;
  std::string algorithm;
  std::vector<std::int64_t> nodes;
  std::int64_t sockets = 1;
  std::int64_t count = 16;
  std::int64_t root = 0;
  std::int64_t radix = 0;
  std::int64_t segments = 0;
  std::int64_t rank = -1;
  bool in_place = false;

  std::int64_t ranks() const {
    std::int64_t sum = 0;
    for (const std::int64_t many : nodes) {
      sum += many;
    }
    return sum;
  }
};

Status bad(const std::string& key, const std::string& what) {
  return Status(ErrorCode::kInvalidArgument, key + ": " + what);
}

Status read_number(const json& query, const char* key, std::int64_t least, std::int64_t most,
                   std::int64_t* value) {
  if (!query.contains(key)) {
    return {};
  }
  if (!query[key].is_number_integer() || query[key].get<std::int64_t>() < least ||
      query[key].get<std::int64_t>() > most) {
    return bad(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                        " is expected");
  }
  *value = query[key].get<std::int64_t>();
  return {};
}

Result<Query> read(const json& document) {
  if (!document.is_object()) {
    return bad("query", "a JSON object is expected");
  }
  Query query;
  const auto collective = select::parse_collective(document.value("collective", ""));
  if (!collective) {
    return bad("collective", "'" + document.value("collective", "") + "' is none");
  }
  query.collective = *collective;
  query.algorithm = document.value("algorithm", "");
  if (schedule::find_algorithm(query.collective, query.algorithm) == nullptr) {
    return bad("algorithm", std::string(select::to_string(query.collective)) + " has no '" +
                                query.algorithm + "'");
  }
  if (!document.contains("nodes") || !document["nodes"].is_array() || document["nodes"].empty()) {
    return bad("nodes", "a list of ranks per node is expected");
  }
  for (const json& many : document["nodes"]) {
    if (!many.is_number_integer() || many.get<std::int64_t>() < 1 ||
        many.get<std::int64_t>() > kRanksMax) {
      return bad("nodes", "ranks per node are whole numbers from 1 on");
    }
    query.nodes.push_back(many.get<std::int64_t>());
  }
  if (query.ranks() > kRanksMax) {
    return bad("nodes", std::to_string(query.ranks()) + " ranks; at most " +
                            std::to_string(kRanksMax) + " can be checked");
  }
  TUTTI_RETURN_IF_ERROR(read_number(document, "sockets", 1, 64, &query.sockets));
  TUTTI_RETURN_IF_ERROR(read_number(document, "count", 0, kCountMax, &query.count));
  TUTTI_RETURN_IF_ERROR(read_number(document, "root", 0, query.ranks() - 1, &query.root));
  TUTTI_RETURN_IF_ERROR(read_number(document, "radix", 0, 1024, &query.radix));
  TUTTI_RETURN_IF_ERROR(read_number(document, "segments", 0, 256, &query.segments));
  TUTTI_RETURN_IF_ERROR(read_number(document, "rank", 0, query.ranks() - 1, &query.rank));
  query.in_place = document.value("in_place", false);
  return query;
}

topology::Layout layout_of(const Query& query) {
  std::vector<std::uint64_t> identities;
  for (std::size_t node = 0; node < query.nodes.size(); ++node) {
    identities.insert(identities.end(), static_cast<std::size_t>(query.nodes[node]), node);
  }
  topology::Layout layout = topology::make_layout(identities);
  if (query.sockets > 1) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const auto index = topology::Layout::index(rank);
      const auto on_node = static_cast<std::int64_t>(
          layout.ranks_of[topology::Layout::index(layout.node_of[index])].size());
      layout.socket_of.push_back(
          static_cast<int>(layout.local_of[index] * query.sockets / on_node));
    }
  }
  return layout;
}

schedule::Problem problem_of(const Query& query) {
  schedule::Problem problem;
  problem.collective = query.collective;
  problem.ranks = static_cast<int>(query.ranks());
  problem.root = static_cast<int>(query.root);
  const auto ranks = static_cast<std::size_t>(query.ranks());
  const auto count = static_cast<std::uint64_t>(query.count);
  switch (query.collective) {
    case Collective::kBarrier:
      break;
    case Collective::kBcast:
    case Collective::kReduce:
    case Collective::kAllreduce:
    case Collective::kAlltoall:
      problem.counts = {count};
      break;
    case Collective::kAlltoallv:
      problem.matrix.assign(ranks * ranks, count);
      break;
    default:
      problem.counts.assign(ranks, count);
  }
  return problem;
}

}  // namespace

Result<std::string> check_schedule(const std::string& text) {
  TUTTI_ASSIGN_OR_RETURN(const Query query, read(json::parse(text, nullptr, false)));
  const schedule::Algorithm& algorithm =
      *schedule::find_algorithm(query.collective, query.algorithm);
  const topology::Layout layout = layout_of(query);
  const schedule::Problem problem = problem_of(query);
  const schedule::Parameters parameters{static_cast<int>(query.radix),
                                        static_cast<int>(query.segments)};
  json answer = {{"ranks", problem.ranks}, {"nodes", layout.nodes()}};
  const schedule::Task task{layout, problem, 0, parameters};
  if (algorithm.refusal != nullptr) {
    if (std::string why = algorithm.refusal(task); !why.empty()) {
      answer["refusal"] = why;
      return answer.dump();
    }
  }
  std::vector<schedule::Program> programs;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    programs.push_back(schedule::generate(algorithm, {layout, problem, rank, parameters}));
  }
  const schedule::Report report = validate(problem, programs, query.in_place);
  const auto most = [](const auto& numbers) {
    return numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end());
  };
  std::uint64_t scratch = 0;
  std::size_t steps = 0;
  for (const schedule::Program& program : programs) {
    scratch = std::max(scratch, program.scratch_count);
    steps = std::max(steps, program.steps.size());
  }
  answer["ok"] = report.ok();
  answer["errors"] = report.errors;
  answer["rounds"] = report.rounds;
  answer["sent_max"] = most(report.sent);
  answer["messages_max"] = most(report.messages);
  answer["scratch_max"] = scratch;
  answer["steps_max"] = steps;
  const auto out = network_out(programs, layout);
  answer["network_out"] = out;
  answer["node_out_max"] = most(out);
  // The closed formulas are for equal nodes.
  const bool equal_nodes = std::adjacent_find(query.nodes.begin(), query.nodes.end(),
                                              std::not_equal_to<>()) == query.nodes.end();
  if (equal_nodes && query.collective != Collective::kAlltoallv) {
    const schedule::Cost cost = cost_of(algorithm, task);
    answer["formula"] = {{"rounds", cost.rounds},
                         {"sent_max", cost.sent_max},
                         {"scratch_max", cost.scratch_max},
                         {"node_out_max", cost.node_out_max},
                         {"exact", query.sockets == 1 && query.segments < 2}};
  }
  if (query.rank >= 0) {
    const auto& program = programs[static_cast<std::size_t>(query.rank)];
    answer["steps"] = json::array();
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      json step = {{"text", describe(static_cast<int>(query.rank), i, program.steps[i])},
                   {"after", json::array()}};
      for (const std::uint32_t before : program.dependencies_of(program.steps[i])) {
        step["after"].push_back(before);
      }
      answer["steps"].push_back(step);
    }
  }
  return answer.dump();
}

}  // namespace tutti::engine
