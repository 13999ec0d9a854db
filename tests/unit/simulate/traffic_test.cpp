// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/traffic.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace tutti::simulate {
namespace {

std::uint32_t count(const HostWork& work, OperationKind kind, std::uint8_t group = 0) {
  std::uint32_t found = 0;
  for (const Operation& op : work.ops) {
    found += op.kind == kind && op.group == group ? 1 : 0;
  }
  return found;
}

std::vector<std::uint32_t> receivers(const Workload& workload) {
  std::vector<std::uint32_t> found;
  for (const HostWork& work : workload.hosts) {
    for (const Operation& op : work.ops) {
      if (op.kind == OperationKind::kSend) {
        found.push_back(op.peer);
      }
    }
  }
  return found;
}

TEST(traffic, permutation__one_circle_through_all_hosts_that_the_seed_picks) {
  const auto to = receivers(permutation({.hosts = 100, .bytes = 5, .seed = 3}));
  ASSERT_EQ(100U, to.size());
  std::uint32_t at = 0;
  std::uint32_t length = 0;
  do {
    at = to[at];
    ++length;
  } while (at != 0 && length < 1000);
  EXPECT_EQ(100U, length);
  EXPECT_EQ(to, receivers(permutation({.hosts = 100, .bytes = 5, .seed = 3})));
  EXPECT_NE(to, receivers(permutation({.hosts = 100, .bytes = 5, .seed = 4})));
}

TEST(traffic, incast__keeps_so_many_messages_in_flight) {
  const Workload workload =
      incast({.hosts = 16, .bytes = 1 << 20, .messages = 6, .in_flight = 4}, 15);
  EXPECT_EQ(90U, count(workload.hosts[0], OperationKind::kReceive));
  EXPECT_EQ(6U, count(workload.hosts[15], OperationKind::kSend));
  using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  EXPECT_EQ((Pairs{{0, 4}, {1, 5}}), workload.hosts[15].after);
  EXPECT_TRUE(workload.hosts[0].after.empty());
}

TEST(traffic, all_to_all__every_pair_beginning_with_the_right_neighbour) {
  const Workload workload = all_to_all({.hosts = 5, .bytes = 1});
  std::array<std::array<std::uint32_t, 5>, 5> pairs{};
  for (std::uint32_t src = 0; src < 5; ++src) {
    EXPECT_EQ(4U, count(workload.hosts[src], OperationKind::kReceive));
    for (const Operation& op : workload.hosts[src].ops) {
      pairs[src][op.peer] += op.kind == OperationKind::kSend ? 1 : 0;
    }
  }
  for (std::uint32_t src = 0; src < 5; ++src) {
    for (std::uint32_t dst = 0; dst < 5; ++dst) {
      EXPECT_EQ(src == dst ? 0U : 1U, pairs[src][dst]);
    }
  }
  for (const Operation& op : workload.hosts[3].ops) {
    if (op.kind == OperationKind::kSend) {
      EXPECT_EQ(4U, op.peer);
      break;
    }
  }
}

TEST(traffic, ring_allreduce__each_round_sends_on_what_the_last_brought) {
  const Workload workload = ring_allreduce({.hosts = 4, .bytes = 1001});
  const HostWork& work = workload.hosts[3];
  EXPECT_EQ(6U, count(work, OperationKind::kSend));
  EXPECT_EQ(6U, count(work, OperationKind::kReceive));
  for (const Operation& op : work.ops) {
    EXPECT_EQ(251U, op.bytes);
    EXPECT_EQ(op.kind == OperationKind::kSend ? 0U : 2U, op.peer);
  }
  ASSERT_EQ(5U, work.after.size());
  for (const auto& [earlier, later] : work.after) {
    EXPECT_EQ(OperationKind::kReceive, work.ops[earlier].kind);
    EXPECT_EQ(OperationKind::kSend, work.ops[later].kind);
    EXPECT_EQ(earlier + 1, later);
  }
}

TEST(traffic, make_traffic__patterns_by_name_and_refusals) {
  const TrafficOptions options{.hosts = 16, .bytes = 1};
  EXPECT_EQ(16U, receivers(*make_traffic("permutation", options)).size());
  EXPECT_EQ(7U, receivers(*make_traffic("incast:7", options)).size());
  EXPECT_EQ(15U, receivers(*make_traffic("incast", options)).size());
  EXPECT_EQ(240U, receivers(*make_traffic("alltoall", options)).size());
  const auto both = make_traffic("incast+permutation:15", options);
  EXPECT_EQ(15U, count(both->hosts[0], OperationKind::kReceive, 0));
  EXPECT_EQ(0U, count(both->hosts[0], OperationKind::kReceive, 1));
  EXPECT_EQ(15U, count(both->hosts[7], OperationKind::kReceive, 1));
  for (const char* text : {"", "incast:0", "incast:16", "incast:x", "permutation:3", "ring"}) {
    const auto refused = make_traffic(text, options);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ("traffic '" + std::string(text) + "'",
              refused.status().message().substr(0, 10 + std::string(text).size()));
  }
  EXPECT_FALSE(make_traffic("permutation", {.hosts = 1}).ok());
}

}  // namespace
}  // namespace tutti::simulate
