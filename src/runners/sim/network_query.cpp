// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/sim/network_query.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "policy/loader.hpp"
#include "simulate/goal.hpp"
#include "simulate/traffic.hpp"
#include "transport/congestion/controller.hpp"
#include "transport/trace.hpp"
#include "wire/sim/network_run.hpp"

namespace tutti::runners::sim {
namespace {

using nlohmann::json;
using wire::sim::Flow;
using wire::sim::RunResult;
using wire::sim::TierUse;

constexpr std::uint64_t kBytesMaxQuery = 1ULL << 40;
constexpr std::uint64_t kThreadsMax = 256;
constexpr std::uint64_t kChunkMax = 1 << 20;
constexpr std::uint64_t kPpb = 1'000'000'000;

Status bad(const std::string& what) { return {ErrorCode::kInvalidArgument, "query: " + what}; }

/// Takes the keys of a query one after the other, then says which were not asked for. After an
/// error the rest is left alone.
class Reader {
 public:
  explicit Reader(json query) : query_(std::move(query)) {
    if (!query_.is_object()) {
      fail("not a JSON object");
    }
  }

  template <class T>
  void number(const char* key, std::uint64_t min, std::uint64_t max, T* out) {
    const json value = take(key);
    if (value.is_null()) {
      return;
    }
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < min ||
        value.get<std::uint64_t>() > max) {
      fail(std::string(key) + ": a whole number from " + std::to_string(min) + " to " +
           std::to_string(max) + " is expected");
      return;
    }
    *out = static_cast<T>(value.get<std::uint64_t>());
  }

  void text(const char* key, std::string* out) {
    const json value = take(key);
    if (value.is_string()) {
      *out = value.get<std::string>();
    } else if (!value.is_null()) {
      fail(std::string(key) + ": a string is expected");
    }
  }

  void flag(const char* key, bool* out) {
    const json value = take(key);
    if (value.is_boolean()) {
      *out = value.get<bool>();
    } else if (!value.is_null()) {
      fail(std::string(key) + ": true or false is expected");
    }
  }

  /// One of two words.
  void choice(const char* key, const char* no, const char* yes, bool* out) {
    std::string word = *out ? yes : no;
    text(key, &word);
    if (word != no && word != yes) {
      fail(std::string(key) + ": " + no + " or " + yes + " is expected");
    }
    *out = word == yes;
  }

  void fail(const std::string& what) {
    status_ = status_.ok() ? bad(what) : status_;
    query_ = json::object();
  }

  Status finish() {
    if (status_.ok() && !query_.empty()) {
      fail("unknown key '" + query_.begin().key() + "'");
    }
    return status_;
  }

 private:
  json take(const char* key) {
    const auto found = query_.find(key);
    if (found == query_.end()) {
      return nullptr;
    }
    json value = std::move(*found);
    query_.erase(found);
    return value;
  }

  json query_;
  Status status_;
};

struct Query {
  wire::sim::RunOptions run;
  std::string topology = "fat-tree:16";
  std::string traffic = "permutation";
  std::string goal;    ///< File; in place of `traffic`.
  std::string policy;  ///< Shared object of a transport policy.
  std::string trace;   ///< File for what the transport of one host tells.
  simulate::TrafficOptions pattern;
  bool wants_flows = true;
};

std::uint32_t q32(std::uint64_t parts_per_billion) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>((parts_per_billion << 32) / kPpb, UINT32_MAX));
}

void read_loss(Reader* reader, simulate::LossModel* loss) {
  std::uint64_t good = 0;
  std::uint64_t bad_state = 0;
  std::uint64_t good_to_bad = 0;
  std::uint64_t bad_to_good = 0;
  reader->number("loss_ppb", 0, kPpb, &good);
  reader->number("burst_loss_ppb", 0, kPpb, &bad_state);
  reader->number("burst_begins_ppb", 0, kPpb, &good_to_bad);
  reader->number("burst_ends_ppb", 0, kPpb, &bad_to_good);
  *loss = {q32(good), q32(bad_state), q32(good_to_bad), q32(bad_to_good)};
}

void read_network(Reader* reader, simulate::SimNetworkOptions* network) {
  std::uint64_t latency_ns = 1000;
  bool by_mtu = false;
  reader->number("mbit_per_s", 1000, 100'000'000, &network->mbit_per_s);
  reader->number("latency_ns", 1, 1'000'000'000, &latency_ns);
  reader->number("chunk_bytes", 64, kChunkMax, &network->chunk_bytes);
  reader->number("mtu_bytes", 64, kChunkMax, &network->mtu_bytes);
  reader->number("header_bytes", 1, 1024, &network->header_bytes);
  reader->choice("forwarding", "chunk", "mtu", &by_mtu);
  reader->flag("trim", &network->trim);
  reader->flag("lossless", &network->lossless);
  reader->flag("ecn_on_last_hop", &network->ecn_on_last_hop);
  reader->number("queue_bytes", 0, 1 << 30, &network->queue_bytes);
  reader->number("ecn_low_bytes", 0, 1 << 30, &network->ecn_low_bytes);
  reader->number("ecn_high_bytes", 0, 1 << 30, &network->ecn_high_bytes);
  reader->number("seed", 0, UINT64_MAX, &network->seed);
  read_loss(reader, &network->loss);
  network->latency_ps = latency_ns * simulate::kPsPerNs;
  network->forwarding = by_mtu ? simulate::Forwarding::kMtu : simulate::Forwarding::kChunk;
}

void read_transport(Reader* reader, transport::ConnectionOptions* options) {
  bool is_sparse = false;
  reader->text("congestion", &options->controller);
  reader->text("spray", &options->spray);
  reader->number("paths", 1, transport::kPathsMax, &options->wire.paths);
  reader->number("window_groups", 1, transport::kPathsMax, &options->window_groups);
  reader->choice("ack", "dense", "sparse", &is_sparse);
  reader->number("window_bytes_max", 0, kBytesMaxQuery, &options->window_bytes_max);
  options->acknowledgement.echoes =
      is_sparse ? transport::EchoMode::kSparse : transport::EchoMode::kDense;
}

Result<Query> read_query(const json& document) {
  Reader reader(document);
  Query query;
  reader.text("topology", &query.topology);
  reader.text("traffic", &query.traffic);
  reader.text("goal", &query.goal);
  reader.number("bytes", 0, kBytesMaxQuery, &query.pattern.bytes);
  reader.number("messages", 1, 1 << 20, &query.pattern.messages);
  reader.number("in_flight", 0, 1 << 20, &query.pattern.in_flight);
  reader.number("traffic_seed", 0, UINT64_MAX, &query.pattern.seed);
  reader.text("protocol", &query.run.protocol);
  reader.flag("rate_control", &query.run.rate_control);
  reader.number("threads", 1, kThreadsMax, &query.run.threads);
  reader.number("until_ps", 0, UINT64_MAX, &query.run.until_ps);
  reader.flag("flows", &query.wants_flows);
  reader.text("policy", &query.policy);
  reader.text("trace", &query.trace);
  reader.number("trace_host", 0, UINT32_MAX, &query.run.trace_host);
  read_network(&reader, &query.run.network);
  read_transport(&reader, &query.run.connection);
  TUTTI_RETURN_IF_ERROR(reader.finish());
  TUTTI_ASSIGN_OR_RETURN(query.run.shape, simulate::parse_fabric(query.topology));
  query.pattern.hosts = query.run.shape.hosts;
  TUTTI_ASSIGN_OR_RETURN(query.run.connection.policy, policy::load_transport_policy(query.policy));
  return query;
}

/// A line of JSON for each record.
class TraceFile : public transport::TraceSink {
 public:
  explicit TraceFile(const std::string& path) : file_(path, std::ios::binary) {}
  void record(const transport::TraceRecord& record) override {
    file_ << transport::trace_line(record) << '\n';
  }
  bool is_good() { return static_cast<bool>(file_.flush()); }

 private:
  std::ofstream file_;
};

Result<simulate::Workload> workload_of(const Query& query) {
  if (query.goal.empty()) {
    return simulate::make_traffic(query.traffic, query.pattern);
  }
  std::ifstream file(query.goal, std::ios::binary);
  if (!file) {
    return bad(query.goal + ": cannot be read");
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return simulate::parse_goal(text, query.goal);
}

json time_json(simulate::TimePs time_ps) {
  return time_ps == simulate::kNever ? json() : json(time_ps);
}

json flows_json(const std::vector<Flow>& flows) {
  json list = json::array();
  for (const Flow& flow : flows) {
    list.push_back({flow.src, flow.dst, flow.bytes, flow.group, time_json(flow.start_ps),
                    time_json(flow.end_ps)});
  }
  return list;
}

json tiers_json(const std::vector<TierUse>& tiers) {
  json list = json::array();
  for (const TierUse& use : tiers) {
    list.push_back({{"from", simulate::to_string(use.from)},
                    {"to", simulate::to_string(use.to)},
                    {"links", use.links},
                    {"packets", use.packets},
                    {"bytes", use.bytes},
                    {"bytes_min", use.bytes_min},
                    {"bytes_max", use.bytes_max},
                    {"marked", use.marked},
                    {"trimmed", use.trimmed},
                    {"dropped", use.dropped},
                    {"lost", use.lost},
                    {"pauses", use.pauses},
                    {"queue_bytes_max", use.queue_bytes_max},
                    {"queue", use.queue}});
  }
  return list;
}

/// Why no least time can be said of the traffic; empty: it can.
std::string no_floor(const Query& query) {
  if (!query.goal.empty()) {
    return "a trace's own order and pauses bound it";
  }
  return query.traffic == "allreduce" ? "its rounds wait for each other" : "";
}

json answer_json(const Query& query, const simulate::Workload& workload, const RunResult& result) {
  const simulate::Fabric fabric(query.run.shape);
  const simulate::SimNetworkOptions network = simulate::resolved(query.run.network, fabric);
  json answer = {
      {"hosts", fabric.hosts()},
      {"links", fabric.links()},
      {"base_rtt_ps", network.base_rtt_ps(fabric)},
      {"bdp_bytes", network.bdp_bytes(fabric)},
      {"queue_bytes", network.queue_bytes},
      {"ecn_low_bytes", network.ecn_low_bytes},
      {"ecn_high_bytes", network.ecn_high_bytes},
      {"ideal_ps", nullptr},
      {"floor_ps", nullptr},
      {"floor_reason", nullptr},
      {"end_ps", result.end_ps},
      {"unfinished", result.unfinished},
      {"failed", result.failed},
      {"packets_sent", result.hosts.packets_sent},
      {"retransmissions", result.hosts.retransmissions},
      {"spurious", result.hosts.spurious},
      {"timeouts", result.hosts.timeouts},
      {"acks_sent", result.hosts.acks_sent},
      {"events", result.events},
      {"trace_hash", result.trace_hash},
      {"tiers", tiers_json(result.tiers)},
  };
  if (const std::string reason = no_floor(query); reason.empty()) {
    const wire::sim::LeastTime least = wire::sim::least_time(network, fabric, workload);
    answer["ideal_ps"] = least.ideal_ps;
    answer["floor_ps"] = least.floor_ps;
  } else {
    answer["floor_reason"] = reason;
  }
  if (query.wants_flows) {
    answer["flows"] = flows_json(result.flows);
  }
  return answer;
}

}  // namespace

Result<json> simulate_network(const json& document) {
  TUTTI_ASSIGN_OR_RETURN(Query query, read_query(document));
  TUTTI_ASSIGN_OR_RETURN(const simulate::Workload workload, workload_of(query));
  std::optional<TraceFile> trace;
  if (!query.trace.empty()) {
    if (query.run.protocol != "transport" || query.run.trace_host >= query.run.shape.hosts) {
      return bad("trace: of the transport, and of one of the hosts 0 to " +
                 std::to_string(query.run.shape.hosts - 1));
    }
    trace.emplace(query.trace);
    if (!trace->is_good()) {
      return bad(query.trace + ": cannot be written");
    }
    query.run.trace = &*trace;
  }
  TUTTI_ASSIGN_OR_RETURN(const RunResult result, wire::sim::run_network(query.run, workload));
  if (trace && !trace->is_good()) {
    return bad(query.trace + ": the disk is full, or the file went away");
  }
  return answer_json(query, workload, result);
}

std::string congestion_controllers() { return transport::controller_names(); }

}  // namespace tutti::runners::sim
