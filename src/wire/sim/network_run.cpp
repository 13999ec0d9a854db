// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/sim/network_run.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/message.hpp"
#include "simulate/baseline/go_back_n.hpp"
#include "wire/sim/endpoint_host.hpp"
#include "wire/sim/windows.hpp"

namespace tutti::wire::sim {
namespace {

using simulate::Fabric;
using simulate::HostCounters;
using simulate::NodeKind;
using simulate::Operation;
using simulate::OperationKind;
using simulate::Progress;
using simulate::SimNetwork;
using simulate::SimNetworkOptions;
using simulate::TimePs;
using simulate::WorkHost;
using simulate::Workload;

constexpr TimePs kHardwareTimeoutPs = 500 * simulate::kPsPerUs;

void add_flows(std::uint32_t host, const Progress& progress, RunResult* result) {
  for (std::uint32_t index = 0; index < progress.size(); ++index) {
    const Operation& op = progress.op(index);
    const TimePs end_ps = progress.end_ps(index);
    result->unfinished += end_ps == simulate::kNever ? 1 : 0;
    if (end_ps != simulate::kNever) {
      result->end_ps = std::max(result->end_ps, end_ps);
    }
    if (op.kind == OperationKind::kSend && !op.is_local) {
      result->flows.push_back({.src = host,
                               .dst = op.peer,
                               .bytes = op.bytes,
                               .group = op.group,
                               .start_ps = progress.start_ps(index),
                               .end_ps = end_ps});
    }
  }
}

void add(const HostCounters& one, HostCounters* sum) {
  sum->packets_sent += one.packets_sent;
  sum->retransmissions += one.retransmissions;
  sum->spurious += one.spurious;
  sum->timeouts += one.timeouts;
  sum->acks_sent += one.acks_sent;
}

std::vector<TierUse> tiers(const SimNetwork& network) {
  const Fabric& fabric = network.fabric();
  std::map<std::pair<NodeKind, NodeKind>, TierUse> found;
  for (std::uint32_t link = 0; link < fabric.links(); ++link) {
    const NodeKind from = fabric.kind(fabric.from(link));
    const NodeKind to = fabric.kind(fabric.to(link));
    TierUse& use = found[{from, to}];
    const simulate::PortCounters& port = network.counters(link);
    use.from = from;
    use.to = to;
    use.bytes_min = use.links == 0 ? port.bytes : std::min(use.bytes_min, port.bytes);
    use.bytes_max = std::max(use.bytes_max, port.bytes);
    ++use.links;
    use.packets += port.packets;
    use.bytes += port.bytes;
    use.marked += port.marked;
    use.trimmed += port.trimmed;
    use.dropped += port.dropped;
    use.lost += port.lost;
    use.pauses += port.pauses;
    use.queue_bytes_max = std::max<std::uint64_t>(use.queue_bytes_max, port.queue_bytes_max);
    for (std::size_t bin = 0; bin < port.queue.size(); ++bin) {
      use.queue[bin] += port.queue[bin];
    }
  }
  std::vector<TierUse> list;
  for (const auto& entry : found) {
    list.push_back(entry.second);
  }
  return list;
}

/// What goes between hosts of a node without the network. A host's local sends are carried out one
/// after the other; the ends are set between windows, so none comes before the window's end.
class LocalExchange {
 public:
  LocalExchange(SimNetwork* network, const std::vector<WorkHost*>& hosts)
      : network_(network), hosts_(hosts), free_ps_(hosts.size()) {}

  void settle() {
    for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
      Progress& progress = hosts_[host]->progress();
      if (progress.local_sends().empty()) {
        continue;
      }
      for (const Progress::LocalSend& send : progress.local_sends()) {
        const Operation& op = progress.op(send.index);
        free_ps_[host] = std::max(free_ps_[host], send.start_ps) + op.wait_ps;
        const TimePs end_ps = std::max(free_ps_[host], network_->window_end_ps());
        progress.complete_at(end_ps, send.index);
        hosts_[op.peer]->progress().complete_at(end_ps, op.partner);
        network_->wake(op.peer);
      }
      progress.local_sends().clear();
      network_->wake(host);
    }
  }

 private:
  SimNetwork* network_;
  const std::vector<WorkHost*>& hosts_;
  std::vector<TimePs> free_ps_;  ///< By host: its local sends until now are through.
};

/// The transport tries for four times its patience where a peer answers and takes no data; NICs
/// have no limit, so some hundreds of their timeouts must do.
TimePs stall_of(const RunOptions& options) {
  if (options.stall_ps != 0) {
    return options.stall_ps;
  }
  constexpr TimePs kLeast = 1'000'000 * simulate::kPsPerUs;
  return options.protocol == "transport"
             ? 5 * options.connection.loss.give_up_ns * simulate::kPsPerNs
             : std::max(kLeast, 200 * options.timeout_ps);
}

/// Says when nothing has moved for a while: no payload arrived, no operation ended, no pause runs.
/// Looks once in `stall_ps`, so it says so after one to two of them.
class StallWatch {
 public:
  StallWatch(const std::vector<WorkHost*>& hosts, TimePs stall_ps)
      : hosts_(hosts), stall_ps_(stall_ps), next_ps_(stall_ps) {}

  bool is_stalled(TimePs now_ps) {
    if (now_ps < next_ps_) {
      return false;
    }
    next_ps_ = now_ps + stall_ps_;
    std::uint64_t moved = 0;
    bool pauses = false;
    for (const WorkHost* host : hosts_) {
      moved += host->counters().bytes_received + host->progress().ended();
      pauses = pauses || host->progress().next_time_ps() != simulate::kNever;
    }
    return std::exchange(moved_, moved) == moved && !pauses;
  }

 private:
  const std::vector<WorkHost*>& hosts_;
  TimePs stall_ps_;
  TimePs next_ps_;
  std::uint64_t moved_ = 0;
};

std::string text_of(std::uint32_t host, const Operation& op) {
  const bool is_send = op.kind == OperationKind::kSend;
  return "rank " + std::to_string(host) + (is_send ? " sends " : " receives ") +
         std::to_string(op.bytes) + " bytes " + (is_send ? "to" : "from") + " rank " +
         std::to_string(op.peer) + ", tag " + std::to_string(op.tag);
}

/// Which operations have begun and not ended; those that wait for them are a number.
std::string waiting(const std::vector<WorkHost*>& hosts, TimePs now_ps) {
  constexpr std::size_t kNamed = 4;
  std::size_t begun = 0;
  std::size_t others = 0;
  std::string names;
  for (std::uint32_t host = 0; host < hosts.size(); ++host) {
    const Progress& progress = hosts[host]->progress();
    for (std::uint32_t index = 0; index < progress.size(); ++index) {
      if (progress.end_ps(index) != simulate::kNever) {
        continue;
      }
      if (progress.start_ps(index) == simulate::kNever) {
        ++others;
      } else if (begun++ < kNamed) {
        names += (begun > 1 ? "; " : "") + text_of(host, progress.op(index));
      }
    }
  }
  return "after " + std::to_string(now_ps / simulate::kPsPerUs) +
         " us of simulated time nothing moves any more, " + std::to_string(begun) +
         " operations have begun and not ended (" + names + (begun > kNamed ? "; ..." : "") +
         "), " + std::to_string(others) + " have not begun";
}

/// Runs a protocol's hosts until all their work is done. `between`: after each window.
RunResult run_hosts(const RunOptions& options, const Fabric& fabric,
                    const std::vector<WorkHost*>& hosts, const std::function<void()>& between) {
  SimNetwork network(fabric, options.network, {hosts.begin(), hosts.end()});
  LocalExchange local(&network, hosts);
  std::size_t busy = 0;  // Hosts before this one have nothing left to do.
  StallWatch watch(hosts, stall_of(options));
  const auto goes_on = [&] {
    if (between) {
      between();
    }
    local.settle();
    while (busy < hosts.size() && hosts[busy]->progress().done()) {
      ++busy;
    }
    return busy < hosts.size() && !watch.is_stalled(network.window_end_ps());
  };
  TimePs next_ps = 0;
  if (goes_on()) {
    next_ps = run_windows(&network, {options.threads, options.until_ps, goes_on});
  }
  RunResult result;
  if (busy < hosts.size() && (next_ps == simulate::kNever || next_ps < options.until_ps)) {
    result.waiting = waiting(hosts, network.window_end_ps());
  }
  for (std::uint32_t host = 0; host < hosts.size(); ++host) {
    add_flows(host, hosts[host]->progress(), &result);
    TimePs last_ps = 0;
    for (std::uint32_t index = 0; index < hosts[host]->progress().size(); ++index) {
      last_ps = std::max(last_ps, hosts[host]->progress().end_ps(index));
    }
    result.finish_ps.push_back(last_ps);
    add(hosts[host]->counters(), &result.hosts);
  }
  result.tiers = tiers(network);
  result.events = network.events();
  result.trace_hash = network.trace_hash();
  result.unaccounted = network.unaccounted();
  return result;
}

template <class Owners>
std::vector<WorkHost*> pointers(const Owners& owners) {
  std::vector<WorkHost*> found;
  for (const auto& owner : owners) {
    found.push_back(owner.get());
  }
  return found;
}

Result<RunResult> run_go_back_n(const RunOptions& options, const Fabric& fabric,
                                const Workload& workload) {
  const SimNetworkOptions& network = options.network;
  for (const simulate::HostWork& host : workload.hosts) {
    std::uint64_t packets = 0;
    for (const simulate::Operation& op : host.ops) {
      packets += 1 + op.bytes / network.chunk_bytes;
      if (packets > simulate::kGoBackNPacketsMax) {
        return Status(ErrorCode::kInvalidArgument,
                      "go-back-n numbers at most " + std::to_string(simulate::kGoBackNPacketsMax) +
                          " packets of a host; send less, or in larger chunks");
      }
    }
  }
  const std::uint64_t window = network.bdp_bytes(fabric) * 3 / 2 / network.packet_bytes();
  const auto hosts = go_back_n_hosts(
      workload, {.seed = network.seed,
                 .packet_bytes = network.chunk_bytes,
                 .header_bytes = network.header_bytes,
                 .window_packets = options.window_packets > 0 ? options.window_packets
                                                              : static_cast<std::uint32_t>(window),
                 .timeout_ps = options.timeout_ps > 0 ? options.timeout_ps : kHardwareTimeoutPs,
                 .rate_control = options.rate_control,
                 .mbit_per_s = network.mbit_per_s});
  return run_hosts(options, fabric, pointers(hosts.hosts), {});
}

/// The wire as the transport's options describe it.
transport::WireCapabilities wire_of(const SimNetworkOptions& network, const Fabric& fabric,
                                    std::uint32_t paths) {
  const bool whole = network.forwarding == simulate::Forwarding::kChunk;
  return {
      .chunk_bytes = network.chunk_bytes,
      .mtu_bytes = whole ? network.chunk_bytes : std::min(network.chunk_bytes, network.mtu_bytes),
      .paths = paths,
      // Up: credit must not come faster than the link takes data.
      .ps_per_byte = static_cast<std::uint32_t>((std::uint64_t{network.rate()} + 0xffff) >> 16),
      .base_rtt_ns = network.base_rtt_ps(fabric) / simulate::kPsPerNs,
      .trims = network.trim && !network.lossless};
}

Result<RunResult> run_transport(const RunOptions& options, const Fabric& fabric,
                                const Workload& workload) {
  SlotExchange exchange(fabric.hosts());
  EndpointHostOptions host_options{.host = 0,
                                   .header_bytes = options.network.header_bytes,
                                   .seed = options.network.seed,
                                   .carries_bytes = options.carries_bytes,
                                   .nap_ps = options.nap_ps,
                                   .has_stamps = options.has_stamps,
                                   .trace = nullptr,
                                   .connection = options.connection};
  host_options.connection.wire = wire_of(options.network, fabric, options.connection.wire.paths);
  std::vector<std::unique_ptr<EndpointHost>> hosts;
  for (std::uint32_t host = 0; host < fabric.hosts(); ++host) {
    host_options.host = host;
    host_options.trace = host == options.trace_host ? options.trace : nullptr;
    TUTTI_ASSIGN_OR_RETURN(auto made,
                           EndpointHost::make(workload.hosts[host], host_options, &exchange));
    hosts.push_back(std::move(made));
  }
  RunResult result =
      run_hosts(options, fabric, pointers(hosts), [&exchange] { exchange.settle(); });
  for (const auto& host : hosts) {
    result.failed += host->failed();
    result.wrong_bytes += host->wrong_bytes();
  }
  return result;
}

/// A run that ended with operations open is an error, unless the protocol gave some up: then what
/// waits is their consequence, and the result counts them.
Result<RunResult> unless_stuck(Result<RunResult> result) {
  if (result.ok() && result->failed == 0 && !result->waiting.empty()) {
    return Status(ErrorCode::kTimeout,
                  "traffic: " + result->waiting +
                      "; remedy: operations that do not wait for each other in a circle over "
                      "several ranks, and links that carry something");
  }
  return result;
}

}  // namespace

Result<RunResult> run_network(const RunOptions& options, const Workload& workload) {
  if (workload.hosts.size() > options.shape.hosts) {
    return Status(ErrorCode::kInvalidArgument,
                  "traffic: " + std::to_string(workload.hosts.size()) + " ranks on " +
                      std::to_string(options.shape.hosts) + " hosts; remedy: a larger topology");
  }
  Workload padded = workload;
  padded.hosts.resize(options.shape.hosts);
  const Fabric fabric(options.shape);
  if (options.protocol == "transport") {
    return unless_stuck(run_transport(options, fabric, padded));
  }
  if (options.protocol == "go-back-n") {
    return unless_stuck(run_go_back_n(options, fabric, padded));
  }
  return Status(ErrorCode::kInvalidArgument,
                "protocol: " + in_quotes(options.protocol) + " is none of transport, go-back-n");
}

LeastTime least_time(const SimNetworkOptions& options, const Fabric& fabric,
                     const Workload& workload) {
  const std::uint32_t mtu_bytes = options.packet_bytes() - options.header_bytes;
  const auto packets = [&](std::uint64_t bytes) {
    const std::uint64_t tail = bytes % options.chunk_bytes;
    const auto cut = [&](std::uint64_t part) { return (part + mtu_bytes - 1) / mtu_bytes; };
    return std::max<std::uint64_t>(
        1, bytes / options.chunk_bytes * cut(options.chunk_bytes) + cut(tail));
  };
  struct Load {
    std::uint64_t bytes = 0;
    std::uint64_t packets = 0;
  };
  std::vector<Load> out(fabric.hosts());
  std::vector<Load> in(fabric.hosts());
  for (std::uint32_t host = 0; host < workload.hosts.size(); ++host) {
    for (const Operation& op : workload.hosts[host].ops) {
      if (op.kind == OperationKind::kSend && !op.is_local) {
        for (Load* load : {&out[host], &in[op.peer]}) {
          load->bytes += op.bytes;
          load->packets += packets(op.bytes);
        }
      }
    }
  }
  LeastTime least;
  for (const auto* loads : {&out, &in}) {
    for (const Load& load : *loads) {
      const std::uint64_t on_wire = load.bytes + load.packets * options.header_bytes;
      least.ideal_ps =
          std::max(least.ideal_ps, simulate::serialisation_ps(load.bytes, options.rate()));
      least.floor_ps =
          std::max(least.floor_ps, simulate::serialisation_ps(on_wire, options.rate()));
    }
  }
  least.floor_ps += options.base_rtt_ps(fabric);
  return least;
}

}  // namespace tutti::wire::sim
