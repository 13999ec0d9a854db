// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/endpoint.hpp"

#include <gtest/gtest.h>

#include "lossy_pair.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

TEST(endpoint, transfer__messages_of_every_size_arrive_once) {
  const std::vector<std::size_t> sizes = {0, 1, 4095, 4096, 4097, 100'000, 3'000'001};
  ConnectionOptions options;
  options.wire.paths = 16;
  LossyPair pair(options);
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sent.push_back(pattern(sizes[i], i + 1));
    got.emplace_back(sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    pair.receive(1, 7, got[i], 100 + i);
    pair.send(0, 7, sent[i], i);
  }
  ASSERT_TRUE(pair.run_until_events(sizes.size(), sizes.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(sent[i], got[i]) << sizes[i];
  }
  for (int end = 0; end < 2; ++end) {
    std::vector<bool> seen(sizes.size());
    for (const Event& event : pair.events(end)) {
      EXPECT_EQ(Outcome::kOk, event.outcome);
      EXPECT_EQ(end == 0 ? EventKind::kSendDone : EventKind::kReceiveDone, event.kind);
      const std::size_t i = event.context % 100;
      EXPECT_FALSE(seen[i]);
      seen[i] = true;
      EXPECT_EQ(sizes[i], event.part_bytes[0]);
    }
  }
  EXPECT_EQ(0U, pair.counters(0).retransmissions);
  EXPECT_EQ(pair.counters(0).chunks_sent, pair.counters(1).chunks_received);
  EXPECT_EQ(0U, pair.counters(0).malformed_dropped + pair.counters(1).malformed_dropped);
}

}  // namespace
}  // namespace tutti::transport
