// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One run of a workload on a simulated network, and what came of it. Times in picoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "simulate/network.hpp"
#include "simulate/work_host.hpp"
#include "simulate/workload.hpp"
#include "transport/trace.hpp"
#include "transport/types.hpp"

namespace tutti::wire::sim {

struct RunOptions {
  simulate::FabricShape shape;
  simulate::SimNetworkOptions network;
  /// "transport": ours; "go-back-n": an RDMA NIC's, network.lossless false or true.
  std::string protocol = "transport";
  /// transport: what all connections have in common; their wire is filled in from `network`.
  transport::ConnectionOptions connection;
  bool carries_bytes = false;  ///< transport: content, checked on arrival.
  /// transport: how long hosts sleep between reads of what has arrived; 0: not at all.
  simulate::TimePs nap_ps = 0;
  bool has_stamps = true;                 ///< transport: and know when it came.
  transport::TraceSink* trace = nullptr;  ///< transport: of `trace_host`; outlives the run.
  std::uint32_t trace_host = 0;
  bool rate_control = false;         ///< go-back-n: DCQCN's.
  std::uint32_t window_packets = 0;  ///< go-back-n: per connection; 0: 1.5 BDP.
  simulate::TimePs timeout_ps = 0;   ///< go-back-n; 0: 500 us.
  std::uint32_t threads = 1;
  simulate::TimePs until_ps = simulate::kNever;
  /// A run without arriving payload, ends or pauses for this time is an error. 0: longer than the
  /// protocol's own timeouts, so that connections that it declares dead are counted.
  simulate::TimePs stall_ps = 0;
};

/// One send.
struct Flow {
  std::uint32_t src = 0;
  std::uint32_t dst = 0;
  std::uint64_t bytes = 0;
  std::uint8_t group = 0;
  simulate::TimePs start_ps = 0;               ///< It could begin.
  simulate::TimePs end_ps = simulate::kNever;  ///< Its sender knows that all of it arrived.
};

/// All links between two kinds of node in one direction.
struct TierUse {
  simulate::NodeKind from = simulate::NodeKind::kHost;
  simulate::NodeKind to = simulate::NodeKind::kHost;
  std::uint64_t links = 0;
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_min = 0;  ///< Of one link.
  std::uint64_t bytes_max = 0;
  std::uint64_t marked = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t dropped = 0;
  std::uint64_t lost = 0;
  std::uint64_t pauses = 0;
  std::uint64_t queue_bytes_max = 0;
  std::array<std::uint64_t, simulate::kQueueBins> queue{};  ///< See PortCounters.
};

struct RunResult {
  std::vector<Flow> flows;                  ///< By source, in the order of its operations.
  std::uint32_t failed = 0;                 ///< Operations that the protocol gave up.
  std::uint64_t wrong_bytes = 0;            ///< When the run carries bytes.
  std::uint32_t unfinished = 0;             ///< Operations of any kind.
  simulate::TimePs end_ps = 0;              ///< The last operation's end.
  std::vector<simulate::TimePs> finish_ps;  ///< By host: its last operation; kNever: unfinished.
  simulate::HostCounters hosts;             ///< Sum.
  std::vector<TierUse> tiers;
  std::uint64_t events = 0;
  std::uint64_t trace_hash = 0;
  std::string waiting;           ///< Why it ended before `until_ps` with operations open, or empty.
  std::int64_t unaccounted = 0;  ///< Packets; 0 unless the simulator is wrong.
};

/// Errors: an unknown protocol, more ranks in the workload than hosts (kInvalidArgument); nothing
/// moves any more, with what waits (kTimeout).
Result<RunResult> run_network(const RunOptions& options, const simulate::Workload& workload);

/// What no transport can be faster than, when all may be sent at once; but for about a packet's
/// time, as the base round trip is of full packets.
struct LeastTime {
  /// Payload through the most loaded link of a host, in either direction, at line rate.
  simulate::TimePs ideal_ps = 0;
  /// The same with a header per packet, and the base round trip: the first packet's way, the last
  /// acknowledgement's. Acknowledgements of the other direction are left out, as is any narrower
  /// place behind the hosts' links.
  simulate::TimePs floor_ps = 0;
};
/// Has no meaning where sends wait for receives, as in a ring of rounds.
LeastTime least_time(const simulate::SimNetworkOptions& options, const simulate::Fabric& fabric,
                     const simulate::Workload& workload);

}  // namespace tutti::wire::sim
