// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "policy/loader.hpp"

#include <gtest/gtest.h>

#include "lossy_pair.hpp"

namespace tutti::policy {
namespace {

using transport::ConnectionOptions;
using transport::testing::LossyPair;
using transport::testing::pattern;

TEST(loader, load__the_example_drives_a_transfer) {
  const auto policy = load_transport_policy(POLICY);
  ASSERT_TRUE(policy.ok()) << policy.status().message();
  EXPECT_STREQ("delay_target", (*policy)->name);
  for (std::uint32_t loss : {0U, 20U}) {
    ConnectionOptions options;
    options.policy = *policy;
    options.wire.paths = 16;
    LossyPair pair(options, 2);
    pair.faults.loss = loss;
    const auto data = pattern(3'000'000, 1);
    std::vector<std::byte> into(3'000'000);
    const auto start = pair.now();
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    ASSERT_TRUE(pair.run_until_events(1, 1));
    EXPECT_TRUE(data == into);
    EXPECT_LT(pair.now() - start, loss == 0 ? 400'000U : 4'000'000U);
  }
}

TEST(loader, load__says_what_is_wrong) {
  EXPECT_EQ(nullptr, *load_transport_policy(""));
  const auto missing = load_transport_policy("/nowhere/mine.so");
  EXPECT_EQ(ErrorCode::kUnavailable, missing.status().code());
  EXPECT_EQ(0U, missing.status().message().rfind("TUTTI_TRANSPORT_POLICY=/nowhere/mine.so: ", 0));
  const auto plain = load_transport_policy(NO_POLICY);
  EXPECT_EQ(ErrorCode::kUnsupported, plain.status().code());
  EXPECT_NE(std::string::npos,
            plain.status().message().find("exports no function tutti_transport_policy"));
}

/// Every hook counts its calls; the transport obeys those that decide.
struct Counts {
  int opened = 0, closed = 0, chunk_size = 0, may_send = 0, choose_path = 0, may_retransmit = 0,
      on_data = 0, on_retransmitted_data = 0, on_ack = 0, on_credit = 0, on_loss = 0,
      on_timeout = 0;
  bool forbids = false;
  std::uint64_t inflight_bytes_max = 0;
};
Counts counts;

tutti_transport_policy counting() {
  using View = const tutti_transport_view*;
  using Chunk = const tutti_transport_chunk*;
  tutti_transport_policy table{};
  table.version = TUTTI_TRANSPORT_POLICY_VERSION;
  table.size_bytes = sizeof(table);
  table.name = "counting";
  table.open = [](View) -> void* { return ++counts.opened, &counts; };
  table.close = [](void* state) { static_cast<Counts*>(state)->closed++; };
  table.chunk_size = [](void*, View, std::uint64_t, std::uint64_t offset) {
    ++counts.chunk_size;
    return offset == 0 ? 1000U : 2000U;
  };
  table.may_send = [](void*, View view, std::uint32_t bytes) -> std::uint64_t {
    ++counts.may_send;
    counts.inflight_bytes_max = std::max(counts.inflight_bytes_max, view->inflight_bytes);
    return view->inflight_bytes + bytes <= 20'000 ? 0 : TUTTI_TRANSPORT_WAIT;
  };
  table.choose_path = [](void*, View, std::uint32_t, std::uint32_t lost) {
    ++counts.choose_path;
    return lost == 5 ? 6U : 5U;
  };
  table.may_retransmit = [](void*, View, Chunk) {
    ++counts.may_retransmit;
    return counts.forbids ? 0 : 1;
  };
  table.on_data = [](void*, View, Chunk) { ++counts.on_data; };
  table.on_retransmitted_data = [](void*, View, Chunk) { ++counts.on_retransmitted_data; };
  table.on_ack = [](void*, View, Chunk) { ++counts.on_ack; };
  table.on_credit = [](void*, View, std::uint64_t) { ++counts.on_credit; };
  table.on_loss = [](void*, View, Chunk) { ++counts.on_loss; };
  table.on_timeout = [](void*, View) { ++counts.on_timeout; };
  return table;
}

TEST(policy, hooks__are_called_and_obeyed) {
  counts = Counts{};
  const tutti_transport_policy table = counting();
  {
    ConnectionOptions options;
    options.policy = &table;
    options.controller = "nscc+rccc";
    options.wire.paths = 16;
    LossyPair pair(options);
    int data_packets = 0;
    std::map<transport::PathId, int> paths;
    std::map<std::uint32_t, int> sizes;
    bool drops_all = false;
    pair.drop = [&](const LossyPair::Delivered& packet) {
      if (packet.payload_bytes == 0) {
        return drops_all;
      }
      ++paths[packet.path];
      ++sizes[packet.payload_bytes];
      return drops_all || ++data_packets % 50 == 0;
    };
    const auto data = pattern(300'001, 1);
    std::vector<std::byte> into(300'001);
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    ASSERT_TRUE(pair.run_until_events(1, 1));
    EXPECT_TRUE(data == into);
    EXPECT_EQ(2, counts.opened);
    EXPECT_EQ(151, counts.chunk_size);  // 1000, 149 of 2000, 1001.
    EXPECT_EQ(3U, sizes.size());
    EXPECT_EQ(2U, paths.size());
    EXPECT_GT(paths[5], paths[6]);
    EXPECT_LE(counts.inflight_bytes_max, 20'000U);
    EXPECT_EQ(static_cast<int>(pair.counters(0).chunks_sent), counts.choose_path);
    EXPECT_EQ(151, counts.on_data + counts.on_retransmitted_data -
                       static_cast<int>(pair.counters(1).duplicates_received));
    EXPECT_GT(counts.on_retransmitted_data, 0);
    EXPECT_GT(counts.on_loss, 0);
    EXPECT_GT(counts.may_retransmit, 0);
    EXPECT_GT(counts.on_ack, 100);
    EXPECT_GT(counts.on_credit, 0);
    EXPECT_EQ(0, counts.on_timeout);

    // Forbidden retransmissions do not happen, until they are allowed.
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    pair.run(15'000);
    counts.forbids = true;
    drops_all = true;
    pair.run(5'000'000);
    drops_all = false;
    EXPECT_GT(counts.on_timeout, 0);
    EXPECT_EQ(1U, pair.events(0).size());
    counts.forbids = false;
    ASSERT_TRUE(pair.run_until_events(2, 2));
    EXPECT_TRUE(data == into);
  }
  EXPECT_EQ(2, counts.closed);
}

TEST(policy, choose_path__one_that_does_not_exist_is_the_transports_choice) {
  counts = Counts{};
  tutti_transport_policy table = counting();
  for (const std::uint32_t wrong : {16U, 1U << 20, TUTTI_TRANSPORT_ANY_PATH}) {
    static std::uint32_t answer;
    answer = wrong;
    table.choose_path = [](void*, const tutti_transport_view*, std::uint32_t, std::uint32_t) {
      ++counts.choose_path;
      return answer;
    };
    ConnectionOptions options;
    options.policy = &table;
    options.wire.paths = 16;
    LossyPair pair(options);
    std::map<transport::PathId, int> paths;
    pair.drop = [&](const LossyPair::Delivered& packet) {
      paths[packet.path] += packet.payload_bytes != 0 ? 1 : 0;
      return false;
    };
    const auto data = pattern(300'001, 1);
    std::vector<std::byte> into(300'001);
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    ASSERT_TRUE(pair.run_until_events(1, 1)) << wrong;
    EXPECT_TRUE(data == into);
    EXPECT_LT(paths.rbegin()->first, 16U);
    EXPECT_GT(paths.size(), 2U) << "the transport sprays";
  }
  EXPECT_GT(counts.choose_path, 300);
}

TEST(policy, version__another_one_is_refused) {
  tutti_transport_policy table = counting();
  table.version = 2;
  ConnectionOptions options;
  options.policy = &table;
  transport::Endpoint end({1});
  const auto made = end.connect(0, options);
  EXPECT_EQ("transport connection: the policy is of version 2, not 1", made.status().message());
  table.version = 1;
  table.size_bytes = 8;
  EXPECT_EQ(ErrorCode::kInvalidArgument, end.connect(0, options).status().code());
}

// A table of a newer header is longer; what this one knows of it counts, also after the caller has
// changed its own.
TEST(policy, size__a_longer_table_is_taken_for_what_is_known_of_it) {
  struct {
    tutti_transport_policy table;
    void (*later)();
  } newer{counting(), nullptr};
  newer.table.size_bytes = sizeof(newer);
  counts = Counts{};
  {
    ConnectionOptions options;
    options.policy = &newer.table;
    LossyPair pair(options);
    newer.table = {};
    EXPECT_EQ(2, counts.opened);
  }
  EXPECT_EQ(2, counts.closed);
}

// Each chunk is acknowledged once and told once, whether by an echo, a bit or the cumulative
// number; and each that was trimmed or lost is told as such.
TEST(policy, hooks__hear_of_every_acknowledgement_and_every_loss) {
  static std::uint64_t acked;
  static std::uint64_t lost;
  acked = lost = 0;
  tutti_transport_policy table{};
  table.version = TUTTI_TRANSPORT_POLICY_VERSION;
  table.size_bytes = sizeof(table);
  table.on_ack = [](void*, const tutti_transport_view*, const tutti_transport_chunk* chunk) {
    acked += chunk->bytes;
  };
  table.on_loss = [](void*, const tutti_transport_view*, const tutti_transport_chunk*) { ++lost; };
  for (const bool sparse : {false, true}) {
    acked = lost = 0;
    ConnectionOptions options;
    options.policy = &table;
    options.wire.paths = 16;
    options.wire.trims = true;
    options.receives = false;
    options.acknowledgement.echoes =
        sparse ? transport::EchoMode::kSparse : transport::EchoMode::kDense;
    LossyPair pair(options);
    pair.faults.loss = 20;
    pair.faults.trim = 20;
    const auto data = pattern(1'000'003, 1);
    std::vector<std::byte> into(data.size());
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    ASSERT_TRUE(pair.run_until_events(1, 1));
    EXPECT_EQ(data.size(), acked) << sparse;
    const transport::ConnectionCounters& counters = pair.counters(0);
    EXPECT_GT(counters.nacks, 0U);
    EXPECT_EQ(counters.nacks + counters.lost_same_path + counters.lost_rack + counters.lost_timeout,
              lost)
        << sparse;
  }
}

}  // namespace
}  // namespace tutti::policy
