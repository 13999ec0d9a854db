// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The packet simulator with our transport in it: runs, their hashes, faults.
#include "wire/sim/network_run.hpp"

#include <gtest/gtest.h>

#include "simulate/goal.hpp"
#include "simulate/traffic.hpp"

namespace tutti::wire::sim {
namespace {

using simulate::fat_tree;
using simulate::incast;
using simulate::permutation;
using simulate::Workload;

constexpr std::uint32_t kPerMille = UINT32_MAX / 1000;

RunOptions options_of(std::uint32_t hosts) {
  RunOptions options;
  options.shape = *fat_tree(hosts);
  options.connection.wire.paths = 64;
  return options;
}

RunResult run(const RunOptions& options, const Workload& workload) {
  auto result = run_network(options, workload);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : RunResult{};
}

std::uint64_t sum(const RunResult& result, std::uint64_t TierUse::*field) {
  std::uint64_t total = 0;
  for (const TierUse& tier : result.tiers) {
    total += tier.*field;
  }
  return total;
}

TEST(network_run, transport__a_permutation_ends_close_to_the_floor) {
  const RunOptions options = options_of(16);
  const Workload workload = permutation({.hosts = 16, .bytes = 4'000'000});
  const auto result = run(options, workload);
  EXPECT_EQ(0U, result.unfinished);
  EXPECT_EQ(0U, result.failed);
  EXPECT_EQ(0, result.unaccounted);
  ASSERT_EQ(16U, result.flows.size());
  const simulate::Fabric fabric(options.shape);
  const auto floor = least_time(options.network, fabric, workload).floor_ps;
  EXPECT_EQ(80'000'000U + 977 * 64 * 20 + 12'506'880, floor);
  for (const Flow& flow : result.flows) {
    EXPECT_GE(flow.end_ps, floor - 8'341'760) << "a neighbour saves four links each way";
    EXPECT_LE(flow.end_ps, floor * 3 / 2);
  }
}

/// Windows of the one connection that sends.
class Windows : public transport::TraceSink {
 public:
  void record(const transport::TraceRecord& record) override {
    if (record.kind == transport::TraceKind::kWindow) {
      last_bytes = record.bytes;
    }
  }
  Bytes last_bytes = 0;
};

struct Nap {
  Bytes window_bytes = 0;
  RunResult result;
};

/// 16 hosts that send to each other and sleep for so long between looks at what has come.
Nap run_with_naps(simulate::TimePs nap_ps, bool has_stamps) {
  RunOptions options = options_of(16);
  options.connection.controller = "swift";
  options.connection.window_bytes_min = 2 * Bytes{options.network.chunk_bytes};
  // The first answer comes later than the network alone explains.
  options.connection.loss.rto_ns_min = 4 * nap_ps / simulate::kPsPerNs;
  options.nap_ps = nap_ps;
  options.has_stamps = has_stamps;
  Windows windows;
  options.trace = &windows;
  Nap nap;
  nap.result = run(options, permutation({.hosts = 16, .bytes = 10'000'000}));
  nap.window_bytes = windows.last_bytes;
  EXPECT_EQ(0U, nap.result.unfinished);
  return nap;
}

TEST(network_run, nap__is_no_congestion_where_packets_say_when_they_came) {
  const Nap awake = run_with_naps(0, true);
  for (const simulate::TimePs nap_ps : {100'000'000U, 400'000'000U}) {
    const Nap with = run_with_naps(nap_ps, true);
    const Nap without = run_with_naps(nap_ps, false);
    SCOPED_TRACE(nap_ps);
    EXPECT_GE(with.window_bytes, awake.window_bytes * 9 / 10);
    EXPECT_LE(without.window_bytes, awake.window_bytes / 16);
    EXPECT_LT(with.result.end_ps, without.result.end_ps / 16);
    for (const Nap& nap : {with, without}) {
      EXPECT_EQ(0U, nap.result.hosts.timeouts);
      EXPECT_EQ(0U, nap.result.hosts.retransmissions);
    }
  }
}

TEST(network_run, least_time__is_of_the_most_loaded_link_of_a_host) {
  RunOptions options = options_of(16);
  const simulate::Fabric fabric(options.shape);
  const simulate::TimePs round_trip = options.network.base_rtt_ps(fabric);
  const simulate::TrafficOptions pattern{.hosts = 16, .bytes = 1'000'000, .messages = 2};
  const simulate::TimePs ideal = 20'000'000;            // Of one message,
  const simulate::TimePs busy = ideal + 245 * 64 * 20;  // with its headers.
  const auto check = [&](const Workload& workload, std::uint64_t messages) {
    const LeastTime least = least_time(options.network, fabric, workload);
    EXPECT_EQ(messages * ideal, least.ideal_ps);
    EXPECT_EQ(messages * busy + round_trip, least.floor_ps);
    const auto result = run(options, workload);
    EXPECT_GE(result.end_ps, least.floor_ps);
    EXPECT_LE(result.end_ps, least.floor_ps * 3 / 2);
  };
  check(permutation(pattern), 2);
  options.connection.controller = "rccc";
  check(incast(pattern, 7), 2 * 7);
  check(simulate::all_to_all(pattern), 2 * 15);
  // Cut into packets of 4096 bytes: of each whole chunk 4, of the tail of 576 one.
  options.network.chunk_bytes = 16384;
  options.network.forwarding = simulate::Forwarding::kMtu;
  EXPECT_EQ(2 * busy + options.network.base_rtt_ps(fabric),
            least_time(options.network, fabric, permutation(pattern)).floor_ps);
}

TEST(network_run, transport__bytes_arrive_as_they_were_sent_under_loss_trims_and_cuts) {
  RunOptions options = options_of(16);
  options.carries_bytes = true;
  options.network.loss.good_q32 = 10 * kPerMille;
  for (const auto forwarding : {simulate::Forwarding::kChunk, simulate::Forwarding::kMtu}) {
    options.network.forwarding = forwarding;
    options.network.chunk_bytes = 16384;
    const auto result = run(options, incast({.hosts = 16, .bytes = 300'001, .messages = 3}, 15));
    EXPECT_EQ(0U, result.unfinished);
    EXPECT_EQ(0U, result.failed);
    EXPECT_EQ(0U, result.wrong_bytes);
    EXPECT_GT(result.hosts.retransmissions, 0U);
    EXPECT_GT(sum(result, &TierUse::lost), 0U);
    EXPECT_GT(sum(result, &TierUse::trimmed), 0U);
    EXPECT_EQ(0, result.unaccounted);
  }
}

TEST(network_run, transport__credit_serves_an_incast) {
  for (const char* controller : {"rccc", "nscc+rccc"}) {
    RunOptions options = options_of(16);
    options.connection.controller = controller;
    const auto result = run(options, incast({.hosts = 16, .bytes = 1'000'000, .messages = 2}, 15));
    EXPECT_EQ(0U, result.unfinished);
    EXPECT_EQ(0U, result.failed);
    // 30 messages of 245 packets over one link, which the first bursts crowd with headers.
    const std::uint64_t busy = 30 * (1'000'000 + 245 * 64) * 20;
    EXPECT_GE(result.end_ps, busy);
    EXPECT_LE(result.end_ps, busy * 120 / 100);
  }
}

TEST(network_run, seed__changes_the_trace_and_repeats_it) {
  RunOptions options = options_of(16);
  const Workload workload = permutation({.hosts = 16, .bytes = 1'000'000});
  const auto first = run(options, workload);
  EXPECT_EQ(first.trace_hash, run(options, workload).trace_hash);
  options.network.seed = 2;
  EXPECT_NE(first.trace_hash, run(options, workload).trace_hash);
}

TEST(network_run, go_back_n__sends_everything_behind_a_hole_again) {
  RunOptions options = options_of(16);
  options.protocol = "go-back-n";
  options.network.trim = false;
  const Workload workload = incast({.hosts = 16, .bytes = 4'000'000}, 1);
  const auto clean = run(options, workload);
  EXPECT_EQ(0U, clean.unfinished);
  EXPECT_EQ(977U, clean.hosts.packets_sent);
  EXPECT_EQ(0U, clean.hosts.retransmissions);
  options.network.loss.good_q32 = 10 * kPerMille;
  const auto lossy = run(options, workload);
  EXPECT_EQ(0U, lossy.unfinished);
  // About ten losses, and for each what a round trip holds besides.
  EXPECT_GT(lossy.hosts.retransmissions, 5 * sum(lossy, &TierUse::lost));
  EXPECT_GT(lossy.end_ps, clean.end_ps);
}

TEST(network_run, go_back_n__on_a_lossless_network_sends_everything_once) {
  RunOptions options = options_of(16);
  options.protocol = "go-back-n";
  options.network.trim = false;
  options.network.lossless = true;
  for (const bool rate_control : {false, true}) {
    options.rate_control = rate_control;
    const auto result = run(options, incast({.hosts = 16, .bytes = 2'000'000}, 15));
    EXPECT_EQ(0U, result.unfinished);
    EXPECT_EQ(0U, result.hosts.retransmissions);
    EXPECT_EQ(15U * 489, result.hosts.packets_sent);
    EXPECT_GT(sum(result, &TierUse::pauses), 0U);
    EXPECT_EQ(0U, sum(result, &TierUse::dropped));
    // 15 times 2 MB and their headers over one link.
    EXPECT_GE(result.end_ps, 15U * (2'000'000 + 489 * 64) * 20);
  }
}

TEST(network_run, goal__a_trace_runs_in_its_order) {
  // Rank 0 computes 50 us, sends; rank 15 answers; all of it is one chain.
  const auto workload = simulate::parse_goal(
      "num_ranks 16\n"
      "rank 0 { a: calc 50000\n b: send 4096b to 15 tag 1\n b requires a\n c: recv 4096b from 15 "
      "}\n"
      "rank 15 { a: recv 4096b from 0 tag 1\n b: send 4096b to 0\n b requires a }\n",
      "ping.goal");
  ASSERT_TRUE(workload.ok());
  for (const char* protocol : {"transport", "go-back-n"}) {
    RunOptions options = options_of(16);
    options.protocol = protocol;
    const auto result = run(options, *workload);
    EXPECT_EQ(0U, result.unfinished) << protocol;
    ASSERT_EQ(2U, result.flows.size());
    EXPECT_EQ(50'000'000U, result.flows[0].start_ps);
    // Six links of 1 us and six serialisations of 4160 bytes.
    EXPECT_GE(result.flows[1].start_ps, 50'000'000U + 6'499'200U);
    EXPECT_LE(result.flows[1].start_ps, 50'000'000U + 8'000'000U);
  }
}

TEST(network_run, stall__ranks_that_wait_for_each_other_end_with_what_waits) {
  const auto workload = simulate::parse_goal(
      "num_ranks 2\n"
      "rank 0 { a: recv 1000b from 1 b: send 2000b to 1 tag 3 b requires a }\n"
      "rank 1 { a: recv 2000b from 0 tag 3 b: send 1000b to 0 b requires a }\n",
      "circle.goal");
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  for (const char* protocol : {"transport", "go-back-n"}) {
    RunOptions options = options_of(16);
    options.protocol = protocol;
    const auto result = run_network(options, *workload);
    ASSERT_FALSE(result.ok()) << protocol;
    EXPECT_EQ(ErrorCode::kTimeout, result.status().code());
    const std::string& said = result.status().message();
    EXPECT_NE(std::string::npos, said.find("nothing moves any more, 2 operations have begun"))
        << said;
    EXPECT_NE(std::string::npos, said.find("rank 0 receives 1000 bytes from rank 1, tag 0; rank 1 "
                                           "receives 2000 bytes from rank 0, tag 3"))
        << said;
    EXPECT_NE(std::string::npos, said.find("2 have not begun")) << said;
  }
}

TEST(network_run, stall__a_network_that_carries_nothing_ends_and_a_pause_is_no_stall) {
  RunOptions options = options_of(16);
  options.protocol = "go-back-n";  // Never gives up by itself.
  options.network.trim = false;
  options.network.loss.good_q32 = UINT32_MAX;
  options.stall_ps = 5'000 * simulate::kPsPerUs;
  const auto lost = run_network(options, permutation({.hosts = 16, .bytes = 10'000}));
  ASSERT_FALSE(lost.ok());
  EXPECT_NE(std::string::npos, lost.status().message().find("32 operations have begun"))
      << lost.status().message();
  options.network.loss = {};
  const auto slow = simulate::parse_goal(
      "num_ranks 2\nrank 0 { a: calc 50000000 b: send 1b to 1 b requires a }\n"
      "rank 1 { recv 1b from 0 }\n",
      "slow.goal");
  for (const char* protocol : {"transport", "go-back-n"}) {
    options.protocol = protocol;
    const auto result = run(options, *slow);
    EXPECT_EQ(0U, result.unfinished) << "ten times as long as a stall";
    EXPECT_GT(result.end_ps, 50'000 * simulate::kPsPerUs);
  }
}

TEST(network_run, run_network__refuses_what_it_does_not_know) {
  RunOptions options = options_of(16);
  const Workload workload = permutation({.hosts = 17, .bytes = 1});
  EXPECT_EQ("traffic: 17 ranks on 16 hosts; remedy: a larger topology",
            run_network(options, workload).status().message());
  options.protocol = "pigeon";
  EXPECT_EQ("protocol: 'pigeon' is none of transport, go-back-n",
            run_network(options, permutation({.hosts = 16, .bytes = 1})).status().message());
  options.protocol = "transport";
  options.connection.controller = "none";
  EXPECT_FALSE(run_network(options, permutation({.hosts = 16, .bytes = 1})).ok());
}

}  // namespace
}  // namespace tutti::wire::sim
