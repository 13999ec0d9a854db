// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/check_liveness.hpp"

#include <algorithm>

namespace tutti::transport::simulation::check_liveness {
namespace {

// What a transfer may take over the core alone: some hundreds of the longest timeouts.
constexpr TimeNs kBoundNs = 20'000'000'000;

}  // namespace

void on_time(const ConnectionRecord& connection, TimeNs now, TimeNs healed_ns) {
  if (connection.is_over()) {
    return;
  }
  const TimeNs since = std::max(healed_ns, connection.opened_ns);
  // One that has no way left may be noticed by either end after the other has given up.
  const bool is_alone = connection.is_hopeless() || connection.ends[0].has_crashed ||
                        connection.ends[1].has_crashed || connection.knobs.abort_ns != kNever ||
                        connection.knobs.close_ns != kNever;
  const TimeNs give_up_ns = connection.knobs.options.loss.give_up_ns;
  // Where few sends may be posted, each message may need some timeouts of its own.
  const std::size_t messages =
      connection.knobs.plans[0].sends.size() + connection.knobs.plans[1].sends.size();
  const TimeNs bound_ns = kBoundNs + messages * 10 * connection.knobs.options.loss.rto_ns_max +
                          (is_alone ? 2 * give_up_ns : 0);
  if (now <= since + bound_ns) {
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
