// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/check_flow.hpp"

#include <algorithm>
#include <utility>

#include "transport/congestion/controller.hpp"

namespace tutti::transport::simulation::check_flow {
namespace {

Bytes window_bytes_max(const ConnectionOptions& options) {
  const WireCapabilities& wire = options.wire;
  const Bytes bdp = wire.base_rtt_ns * 1000 * wire.rails / wire.ps_per_byte;
  const Bytes most = options.window_bytes_max != 0 ? options.window_bytes_max : bdp * 3 / 2;
  return std::max<Bytes>(most, wire.chunk_bytes);
}

}  // namespace

void on_data(ConnectionRecord& connection, int end, const Transmission& out,
             const ConnectionCounters& counters, const ConnectionStatus& status,
             Bytes granted_bytes) {
  const ConnectionOptions& options = connection.ends[end].options;
  const Bytes chunk = options.wire.chunk_bytes;
  const std::string name = name_of(connection, end);
  if (out.payload_bytes > chunk || out.path >= options.wire.paths ||
      out.rail != out.path % options.wire.rails) {
    fail("packet", name + ": a chunk that is too long, or a path that is not there");
  }
  if (uses_credit(options.controller)) {
    const Bytes speculative = std::min(options.credit.speculative_bytes, window_bytes_max(options));
    // A tail probe asks nobody.
    const Bytes allowed = speculative + granted_bytes + (1 + counters.tail_probes) * chunk;
    if (counters.bytes_sent > allowed) {
      fail("credit", name + ": sent " + std::to_string(counters.bytes_sent) + " bytes of " +
                         std::to_string(allowed));
    }
  }
  // One group only: of several, some may have shrunk below what they have in the air. A tail probe
  // asks nobody.
  std::uint64_t& tail_probes = connection.ends[end].tail_probes;
  const bool is_tail_probe =
      std::exchange(tail_probes, counters.tail_probes) != counters.tail_probes;
  if (options.window_groups == 1 && !is_tail_probe &&
      status.inflight_bytes > std::max(status.window_bytes, chunk) + chunk) {
    fail("window", name + ": " + std::to_string(status.inflight_bytes) + " bytes in the air, of " +
                       std::to_string(status.window_bytes));
  }
  // Windows never grow beyond their most, each group's being a chunk at least.
  const Bytes window_most = window_bytes_max(options) + options.window_groups * chunk;
  if (status.window_bytes > window_most) {
    fail("window", name + ": a window of " + std::to_string(status.window_bytes) + " of at most " +
                       std::to_string(window_most) + " bytes");
  }
}

void on_grant(const ConnectionRecord& connection, int end, Bytes granted_bytes, TimeNs elapsed_ns,
              std::uint32_t ps_per_byte) {
  // The first grant is made at once; clocks may run fast by 200 ppm.
  constexpr Bytes kGrantBytesMax = 65536;
  const Bytes allowed = elapsed_ns * 1000 / ps_per_byte * 1001 / 1000 + kGrantBytesMax;
  if (granted_bytes > allowed) {
    fail("pacer", name_of(connection, end) + ": its host granted " + std::to_string(granted_bytes) +
                      " bytes of " + std::to_string(allowed) + " that its link takes");
  }
}

void at_end(const ConnectionRecord& connection, int end, const ConnectionCounters& counters) {
  const std::string name = name_of(connection, end);
  const std::uint64_t reasons = counters.nacks + counters.lost_same_path + counters.lost_rack +
                                counters.lost_timeout + counters.tail_probes;
  if (counters.retransmissions > reasons) {
    fail("retransmissions", name + ": " + std::to_string(counters.retransmissions) + " for " +
                                std::to_string(reasons) + " losses");
  }
  const std::uint64_t losses = reasons - counters.tail_probes;
  // Paths of different length and a shared link make a few look lost.
  if (connection.knobs.is_clean && losses > 20 + counters.chunks_sent / 5) {
    fail("spurious", name + ": " + std::to_string(losses) + " losses where nothing is lost");
  }
  const LinkFaults& faults = connection.knobs.faults[1 - end];
  if (counters.malformed_dropped > 0 && faults.corrupt_header == 0 && faults.corrupt_payload == 0) {
    fail("malformed", name + ": the peer sent " + std::to_string(counters.malformed_dropped) +
                          " senseless packets");
  }
}

}  // namespace tutti::transport::simulation::check_flow
