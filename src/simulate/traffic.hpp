// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Traffic patterns as workloads. Equal seeds give equal patterns.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"
#include "base/units.hpp"
#include "simulate/workload.hpp"

namespace tutti::simulate {

struct TrafficOptions {
  std::uint32_t hosts = 0;
  Bytes bytes = 0;              ///< Of a message.
  std::uint32_t messages = 1;   ///< From each sender to each of its receivers.
  std::uint32_t in_flight = 0;  ///< Messages that a sender has under way at once; 0: all.
  std::uint64_t seed = 1;
};

/// Each host sends to one other and receives from one other: one random cycle through all.
Workload permutation(const TrafficOptions& options);
/// Hosts 1..senders send to host 0.
Workload incast(const TrafficOptions& options, std::uint32_t senders);
/// Each host sends to each other, beginning with its right neighbour.
Workload all_to_all(const TrafficOptions& options);
/// A ring allreduce of `bytes` on each host: 2 * (hosts - 1) rounds, each sends a hosts-th to the
/// right when the one from the left has come.
Workload ring_allreduce(const TrafficOptions& options);
/// An incast to host 0 and a permutation over all others at the same time: what the one does to
/// traffic that never meets it at its receiver. The permutation is group 1 and has `senders` times
/// the messages, so that both last about as long.
Workload incast_beside_permutation(const TrafficOptions& options, std::uint32_t senders);

/// "permutation", "incast:15", "alltoall", "allreduce", "incast+permutation:15". Errors name what
/// is wrong. A new one: a function here and its name there; `tutti sim` hands names on unread.
Result<Workload> make_traffic(std::string_view pattern, const TrafficOptions& options);

}  // namespace tutti::simulate
