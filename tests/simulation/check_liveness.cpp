// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/check_liveness.hpp"

#include <algorithm>

namespace tutti::transport::simulation::check_liveness {
namespace {

constexpr TimeNs kBoundNs = 60'000'000'000;

}  // namespace

void on_time(const ConnectionRecord& connection, TimeNs now, TimeNs healed_ns) {
  if (connection.is_over()) {
    return;
  }
  const TimeNs since = std::max(healed_ns, connection.opened_ns);
  if (now <= since + kBoundNs) {
    return;
  }
  for (int end = 0; end < 2; ++end) {
    const EndRecord& here = connection.ends[end];
    if (!here.is_done && !here.has_crashed) {
      fail("liveness", name_of(connection, end) + ": " + std::to_string(now - since) +
                           " ns after the network healed, " + std::to_string(here.sends_done) +
                           " of " + std::to_string(here.sends.size()) + " sends and " +
                           std::to_string(here.receives_done) + " of " +
                           std::to_string(here.receives.size()) + " receives have ended");
    }
  }
}

}  // namespace tutti::transport::simulation::check_liveness
