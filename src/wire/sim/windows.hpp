// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Drives a simulated network, with threads if wanted: the network is stepped in windows within
// which its nodes do not depend on each other. The number of threads changes nothing but the time.
#pragma once

#include <cstdint>
#include <functional>

#include "simulate/network.hpp"

namespace tutti::wire::sim {

struct WindowOptions {
  std::uint32_t threads = 1;
  simulate::TimePs until_ps = simulate::kNever;
  /// After each window, in the calling thread, with all others at rest; false ends the run.
  std::function<bool()> goes_on;
};

/// Returns the time of what would happen next; kNever: nothing is left.
simulate::TimePs run_windows(simulate::SimNetwork* network, const WindowOptions& options);

}  // namespace tutti::wire::sim
