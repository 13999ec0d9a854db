// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Invariant 9, and 7 of connections that have no way left: after the network healed all ends
// within a bound of virtual time.
#pragma once

#include "simulation/records.hpp"

namespace tutti::transport::simulation {

/// Applications that may wait for nothing (a cancelled partner, a peer that is gone) close this
/// long after the network healed.
inline constexpr TimeNs kSettleNs = 1'000'000'000;

namespace check_liveness {

/// `now` is in the liveness phase, which began at `healed_ns`.
void on_time(const ConnectionRecord& connection, TimeNs now, TimeNs healed_ns);

}  // namespace check_liveness
}  // namespace tutti::transport::simulation
