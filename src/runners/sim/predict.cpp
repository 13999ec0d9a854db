// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/sim/predict.hpp"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "runners/sim/nccl_rings.hpp"
#include "runners/sim/packet_runner.hpp"
#include "runners/sim/sim_runner.hpp"
#include "schedule/algorithm.hpp"

namespace tutti::runners::sim {
namespace {

using nlohmann::json;
using schedule::Algorithm;
using schedule::Problem;
using schedule::Program;
using schedule::Task;
using select::Collective;

constexpr std::uint64_t kRanksMax = 1 << 20;
constexpr std::uint64_t kKnobMax = 1 << 20;
constexpr std::uint64_t kElementBytesMax = 64;
constexpr std::uint32_t kPacketPaths = 64;

const Algorithm kNcclAlgorithm{Collective::kAllgather, kNcclRings,
                               "for comparison: NCCL's flat rings, a channel per NIC", nccl_rings,
                               nullptr};

struct Query {
  std::string cluster;
  Collective collective = Collective::kAllgather;
  std::string algorithm;
  int ranks = 1;
  Bytes element_bytes = 1;
  std::vector<Bytes> sizes;
  schedule::Parameters parameters;
  bool wants_steps = false;
  std::string network = "fluid";       ///< "packet": packet_runner.hpp.
  std::string topology;                ///< Of a packet network; empty: a fat-tree of the ranks.
  std::uint32_t paths = kPacketPaths;  ///< Of a packet network, from host to host.
  std::string spray = "mixed";         ///< Of a packet network: which of them a chunk takes.
  std::uint64_t seed = 1;              ///< Of a packet network: the switches' hashes.
};

Status bad(const std::string& what) { return {ErrorCode::kInvalidArgument, "query: " + what}; }

/// Nothing for what is no whole number from 0 on.
std::optional<std::uint64_t> whole_number(const json& value) {
  const bool is_negative =
      value.is_number_integer() && !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
  return value.is_number_integer() && !is_negative ? std::optional(value.get<std::uint64_t>())
                                                   : std::nullopt;
}

template <class T>
Status read_number(const json& query, const char* key, std::uint64_t min, std::uint64_t max,
                   T* out) {
  if (!query.contains(key)) {
    return {};
  }
  const auto number = whole_number(query[key]);
  if (!number || *number < min || *number > max) {
    return bad(std::string(key) + ": a whole number from " + std::to_string(min) + " to " +
               std::to_string(max) + " is expected");
  }
  *out = static_cast<T>(*number);
  return {};
}

Status read_text(const json& query, const char* key, std::string* out) {
  if (!query.contains(key) || !query[key].is_string()) {
    return bad(std::string(key) + ": a string is expected");
  }
  *out = query[key].get<std::string>();
  return {};
}

Result<Query> read_query(const json& query) {
  if (!query.is_object()) {
    return bad("not a JSON object");
  }
  for (const auto& [key, value] : query.items()) {
    const std::initializer_list<const char*> known = {
        "cluster",  "collective", "algorithm", "ranks",    "element_bytes", "bytes", "radix",
        "segments", "steps",      "network",   "topology", "paths",         "spray", "seed"};
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return bad("unknown key '" + key + "'");
    }
  }
  Query result;
  std::string collective;
  TUTTI_RETURN_IF_ERROR(read_text(query, "cluster", &result.cluster));
  TUTTI_RETURN_IF_ERROR(read_text(query, "collective", &collective));
  TUTTI_RETURN_IF_ERROR(read_text(query, "algorithm", &result.algorithm));
  const auto parsed = select::parse_collective(collective);
  if (!parsed) {
    return bad("collective: unknown value '" + collective + "'");
  }
  result.collective = *parsed;
  TUTTI_RETURN_IF_ERROR(read_number(query, "ranks", 1, kRanksMax, &result.ranks));
  TUTTI_RETURN_IF_ERROR(
      read_number(query, "element_bytes", 1, kElementBytesMax, &result.element_bytes));
  TUTTI_RETURN_IF_ERROR(read_number(query, "radix", 0, kKnobMax, &result.parameters.radix));
  TUTTI_RETURN_IF_ERROR(read_number(query, "segments", 0, kKnobMax, &result.parameters.segments));
  TUTTI_RETURN_IF_ERROR(read_number(query, "paths", 1, transport::kPathsMax, &result.paths));
  TUTTI_RETURN_IF_ERROR(read_number(query, "seed", 0, UINT64_MAX, &result.seed));
  if (query.contains("steps")) {
    if (!query["steps"].is_boolean()) {
      return bad("steps: true or false is expected");
    }
    result.wants_steps = query["steps"].get<bool>();
  }
  for (const auto& [key, out] :
       {std::pair("network", &result.network), std::pair("topology", &result.topology),
        std::pair("spray", &result.spray)}) {
    if (query.contains(key)) {
      TUTTI_RETURN_IF_ERROR(read_text(query, key, out));
    }
  }
  if (result.network != "fluid" && result.network != "packet") {
    return bad("network: fluid or packet is expected");
  }
  for (const char* key : {"paths", "spray", "seed"}) {
    if (result.network == "fluid" && query.contains(key)) {
      return bad(std::string(key) + ": of a packet network");
    }
  }
  if (result.network == "packet" && result.wants_steps) {
    return bad("steps: not of a packet network");
  }
  if (!query.contains("bytes") || !query["bytes"].is_array()) {
    return bad("bytes: a list of sizes is expected");
  }
  for (const json& size : query["bytes"]) {
    const auto bytes = whole_number(size);
    if (!bytes) {
      return bad("bytes: whole numbers are expected");
    }
    result.sizes.push_back(*bytes);
  }
  return result;
}

Result<const Algorithm*> algorithm_of(const Query& query) {
  if (query.collective == Collective::kAlltoallv) {
    return bad("alltoallv: its blocks are the program's own; take alltoall");
  }
  const bool is_allgather =
      query.collective == Collective::kAllgather || query.collective == Collective::kAllgatherv;
  if (is_allgather && query.algorithm == kNcclRings) {
    return &kNcclAlgorithm;
  }
  const Algorithm* found = schedule::find_algorithm(query.collective, query.algorithm);
  if (found == nullptr) {
    return bad("algorithm: " + std::string(select::to_string(query.collective)) + " has no '" +
               query.algorithm + "'");
  }
  return found;
}

/// `bytes` is the vector, or the ranks' blocks together, as in the results document.
Problem problem_of(const Query& query, Bytes bytes) {
  const bool is_vector = query.collective == Collective::kBcast ||
                         query.collective == Collective::kReduce ||
                         query.collective == Collective::kAllreduce;
  const auto ranks = static_cast<std::size_t>(query.ranks);
  Problem problem;
  problem.collective = query.collective;
  problem.ranks = query.ranks;
  if (is_vector || query.collective == Collective::kAlltoall) {
    problem.counts.assign(1, bytes / query.element_bytes / (is_vector ? 1 : ranks));
  } else if (query.collective != Collective::kBarrier) {
    problem.counts.assign(ranks, bytes / query.element_bytes / ranks);
  }
  return problem;
}

json links_json(const Cluster& cluster, const SimOutcome& outcome) {
  json links = json::array();
  const double end_us = static_cast<double>(outcome.end_ps) / 1e6;
  for (const LinkClass kind : {LinkClass::kNvlink, LinkClass::kInterSocket, LinkClass::kNetwork}) {
    for (const bool is_out : {true, false}) {
      const auto& uses = is_out ? outcome.out : outcome.in;
      Bytes sum = 0;
      Bytes most = 0;
      TimePs busy = 0;
      TimePs incast = 0;
      std::size_t ends = 0;
      for (std::size_t i = 0; i < uses.size(); ++i) {
        if (outcome.ends[i].kind == kind) {
          ++ends;
          sum += uses[i].bytes;
          most = std::max(most, uses[i].bytes);
          busy = std::max(busy, uses[i].busy_ps);
          incast = std::max(incast, uses[i].incast_ps);
        }
      }
      if (sum == 0) {
        continue;
      }
      const double possible = end_us * static_cast<double>(cluster.link(kind).mb_per_s);
      const auto share = [&](double part, double whole) { return whole > 0 ? part / whole : 0.0; };
      json link = {{"kind", to_string(kind)},
                   {"direction", is_out ? "out" : "in"},
                   {"ends", ends},
                   {"bytes", sum},
                   {"bytes_max", most},
                   {"utilisation_mean",
                    share(static_cast<double>(sum), possible * static_cast<double>(ends))},
                   {"utilisation_max", share(static_cast<double>(most), possible)}};
      if (is_out || cluster.link(kind).shares_inbound) {
        link["busy_max"] = share(static_cast<double>(busy) / 1e6, end_us);
      }
      if (!is_out && cluster.link(kind).shares_inbound) {
        link["incast_max"] = share(static_cast<double>(incast) / 1e6, end_us);
      }
      links.push_back(std::move(link));
    }
  }
  return links;
}

json steps_json(const SimOutcome& outcome) {
  json steps = json::array();
  for (const Transfer& transfer : outcome.transfers) {
    steps.push_back({{"from", transfer.from},
                     {"to", transfer.to},
                     {"send_step", transfer.send_step},
                     {"recv_step", transfer.recv_step},
                     {"bytes", transfer.bytes},
                     {"link", to_string(transfer.kind)},
                     {"ready_ps", transfer.ready_ps},
                     {"start_ps", transfer.start_ps},
                     {"end_ps", transfer.end_ps}});
  }
  return steps;
}

/// On the network that the query asks for.
Result<SimOutcome> carry_out(const Query& query, std::span<const Program> programs,
                             const topology::Layout& layout, const Cluster& cluster) {
  if (query.network == "fluid") {
    return run(programs, layout, cluster, query.element_bytes, query.wants_steps);
  }
  wire::sim::RunOptions options;
  options.connection.wire.paths = query.paths;
  options.connection.spray = query.spray;
  options.network.seed = query.seed;
  TUTTI_ASSIGN_OR_RETURN(options.shape,
                         query.topology.empty()
                             ? simulate::fat_tree(static_cast<std::uint32_t>(query.ranks))
                             : simulate::parse_fabric(query.topology));
  return run_packets(programs, layout, cluster, query.element_bytes, options);
}

}  // namespace

json algorithms_json() {
  json list = json::array();
  auto add = [&](const Algorithm& algorithm) {
    list.push_back({{"collective", select::to_string(algorithm.collective)},
                    {"name", algorithm.name},
                    {"summary", algorithm.summary},
                    {"simulated_only", algorithm.cost == nullptr}});
  };
  for (const Algorithm& algorithm : schedule::algorithms()) {
    add(algorithm);
  }
  add(kNcclAlgorithm);
  return list;
}

Result<json> predict(const json& text) {
  TUTTI_ASSIGN_OR_RETURN(const Query query, read_query(text));
  TUTTI_ASSIGN_OR_RETURN(Cluster cluster, load_cluster(query.cluster));
  TUTTI_ASSIGN_OR_RETURN(const Algorithm* algorithm, algorithm_of(query));
  if (algorithm == &kNcclAlgorithm) {
    cluster.link(LinkClass::kNetwork).message_ns = cluster.nccl_message_ns;
  }
  const topology::Layout layout = layout_of(cluster, query.ranks);
  json result = {{"cluster", cluster.name},
                 {"nodes", layout.nodes()},
                 {"refusal", nullptr},
                 {"rows", json::array()}};
  for (const Bytes size : query.sizes) {
    const Problem problem = problem_of(query, size);
    const auto task_of = [&](int rank) { return Task{layout, problem, rank, query.parameters}; };
    if (const std::string refusal =
            algorithm->refusal == nullptr ? "" : algorithm->refusal(task_of(0));
        !refusal.empty()) {
      result["refusal"] = refusal;
      break;
    }
    std::vector<Program> programs;
    std::size_t steps = 0;
    for (int rank = 0; rank < query.ranks; ++rank) {
      programs.push_back(schedule::generate(*algorithm, task_of(rank)));
      steps += programs.back().steps.size();
    }
    TUTTI_ASSIGN_OR_RETURN(const SimOutcome outcome, carry_out(query, programs, layout, cluster));
    const auto first = std::min_element(outcome.finish_ps.begin(), outcome.finish_ps.end());
    const bool has_blocks =
        problem.counts.size() > 1 || query.collective == Collective::kAlltoall || query.ranks == 1;
    const Bytes block = problem.counts.empty() ? 0 : problem.counts[0] * query.element_bytes;
    json row = {{"bytes", has_blocks ? block * static_cast<Bytes>(query.ranks) : block},
                {"block_bytes", block},
                {"time_ps", outcome.end_ps},
                {"time_ps_min", *first},
                {"program_steps", steps},
                {"links", links_json(cluster, outcome)}};
    if (query.wants_steps) {
      row["steps"] = steps_json(outcome);
    }
    result["rows"].push_back(std::move(row));
  }
  return result;
}

}  // namespace tutti::runners::sim
