// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Invariants 3 to 6 of a sender, from its status and counters: what is in the air fits the window,
// what was sent fits the credit, and what is sent again was lost before. The sums inside are
// Endpoint::check_invariants().
#pragma once

#include "simulation/records.hpp"

namespace tutti::transport::simulation::check_flow {

/// A chunk leaves. `granted_bytes`: all that the peer granted so far.
void on_data(ConnectionRecord& connection, int end, const Transmission& out,
             const ConnectionCounters& counters, const ConnectionStatus& status,
             Bytes granted_bytes);
/// Credit leaves a host, whose link takes `ps_per_byte`: all that it granted in `elapsed_ns`.
void on_grant(const ConnectionRecord& connection, int end, Bytes granted_bytes, TimeNs elapsed_ns,
              std::uint32_t ps_per_byte);
/// The connection ended.
void at_end(const ConnectionRecord& connection, int end, const ConnectionCounters& counters);

}  // namespace tutti::transport::simulation::check_flow
