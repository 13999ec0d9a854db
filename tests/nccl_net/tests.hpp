// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The driver's tests; each runs on every rank. They throw std::runtime_error where going on makes
// no sense.
#pragma once

#include <string>

#include "rank.hpp"

namespace tutti::driver {

/// Connects, moves the messages of every link, waits for all ranks, closes.
void run_pattern(Session& session, const std::string& pattern, int channels, int group_max = 1);

// traffic_tests.cpp
void test_ring(Rank& rank);
void test_alltoall(Rank& rank);
void test_pingpong(Rank& rank);
void test_grouped(Rank& rank);
void test_threads(Rank& rank);
void test_reload(Rank& rank);

// trouble_tests.cpp
void test_calls(Rank& rank);   ///< Arguments, limits and orders of calls.
void test_cancel(Rank& rank);  ///< Closing with unfinished requests.
void test_kill(Rank& rank);    ///< The last rank dies.
/// The last rank's host is cut off, or its process stopped, by whoever runs the driver.
void test_silence(Rank& rank);
void test_fork(Rank& rank);   ///< The process forks while it is connected.
void test_leave(Rank& rank);  ///< Unloading, and the process's end, with everything open.

}  // namespace tutti::driver
