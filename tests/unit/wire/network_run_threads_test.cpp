// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The packet simulator on several threads, for the thread sanitizer, too.
#include <gtest/gtest.h>

#include "simulate/traffic.hpp"
#include "wire/sim/network_run.hpp"

namespace tutti::wire::sim {
namespace {

TEST(network_run, threads__change_nothing) {
  for (const char* protocol : {"transport", "go-back-n"}) {
    RunOptions options;
    options.shape = *simulate::fat_tree(16);
    options.connection.wire.paths = 64;
    options.protocol = protocol;
    options.network.loss.good_q32 = UINT32_MAX / 1000;
    const simulate::Workload workload =
        simulate::permutation({.hosts = 16, .bytes = 1'000'000, .messages = 2});
    const auto made = run_network(options, workload);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const RunResult& one = *made;
    EXPECT_EQ(0U, one.unfinished);
    for (const std::uint32_t threads : {2U, 3U, 8U}) {
      options.threads = threads;
      const auto again = run_network(options, workload);
      ASSERT_TRUE(again.ok()) << again.status().message();
      const RunResult& many = *again;
      EXPECT_EQ(one.trace_hash, many.trace_hash) << protocol << " " << threads;
      EXPECT_EQ(one.events, many.events);
      EXPECT_EQ(one.end_ps, many.end_ps);
      ASSERT_EQ(one.flows.size(), many.flows.size());
      for (std::size_t i = 0; i < one.flows.size(); ++i) {
        EXPECT_EQ(one.flows[i].end_ps, many.flows[i].end_ps);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::wire::sim
