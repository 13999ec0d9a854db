// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/split.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "lossy_pair.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

TEST(split, part_bytes__add_up_and_follow_the_units) {
  for (std::uint32_t engines = 1; engines <= 5; ++engines) {
    const Split split(engines, 100);
    for (Bytes bytes = 0; bytes < 1300; bytes += 7) {
      std::vector<Bytes> expected(engines);
      for (Bytes at = 0; at < bytes; ++at) {
        ++expected[at / 100 % engines];
      }
      for (std::uint32_t engine = 0; engine < engines; ++engine) {
        ASSERT_EQ(expected[engine], split.part_bytes(bytes, engine))
            << engines << " " << bytes << " " << engine;
      }
    }
  }
}

TEST(split, part_of__each_byte_of_the_message_once) {
  const Split split(3, 100);
  std::vector<std::byte> data(1234);
  std::vector<int> seen(data.size());
  for (std::uint32_t engine = 0; engine < 3; ++engine) {
    const SendRequest part = split.part_of(SendRequest{7, data.data(), data.size(), 9}, engine);
    EXPECT_EQ(7U, part.tag);
    EXPECT_EQ(9U, part.context);
    for (Bytes offset = 0; offset < part.bytes; ++offset) {
      ++seen[static_cast<std::size_t>(part.data - data.data()) + part.stride.at(offset)];
    }
  }
  EXPECT_EQ(std::vector<int>(data.size(), 1), seen);
}

/// Several engines on each side, as pairs of endpoints that know nothing of each other.
class SplitTransfer : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kEngines = 4;
  SplitTransfer() {
    ConnectionOptions options;
    options.wire.paths = 16;
    for (std::uint32_t engine = 0; engine < kEngines; ++engine) {
      options.seed = engine;
      pairs.push_back(std::make_unique<LossyPair>(options, engine));
    }
  }
  void send(Tag tag, const std::vector<std::byte>& data) {
    for (std::uint32_t i = 0; i < kEngines; ++i) {
      const SendRequest part = split.part_of(SendRequest{tag, data.data(), data.size(), 1}, i);
      ASSERT_TRUE(pairs[i]->end(0).post_send(pairs[i]->now(), pairs[i]->handle(0), part).ok());
    }
  }
  void receive(const ReceiveRequest& whole) {
    for (std::uint32_t i = 0; i < kEngines; ++i) {
      const ReceiveRequest part = split.part_of(whole, i);
      ASSERT_TRUE(pairs[i]->end(1).post_receive(pairs[i]->now(), pairs[i]->handle(1), part).ok());
    }
  }
  /// The joined event of the end's only message.
  Event finish(int end, std::size_t sends, std::size_t receives) {
    SplitJoin join(kEngines);
    Event whole;
    for (std::uint32_t i = 0; i < kEngines; ++i) {
      EXPECT_TRUE(pairs[i]->run_until_events(sends, receives));
      EXPECT_EQ(i + 1 == kEngines, join.on_event(pairs[i]->events(end).front(), whole));
    }
    return whole;
  }
  Split split{kEngines, 16'384};
  std::vector<std::unique_ptr<LossyPair>> pairs;
};

TEST_F(SplitTransfer, any_size_arrives_whole_whatever_the_network_does) {
  for (const std::size_t bytes : {0U, 1U, 16'383U, 16'384U, 16'385U, 70'001U, 1'000'003U}) {
    pairs.clear();
    ConnectionOptions options;
    options.wire.paths = 16;
    for (std::uint32_t engine = 0; engine < kEngines; ++engine) {
      pairs.push_back(std::make_unique<LossyPair>(options, bytes + engine));
      pairs.back()->faults.loss = 50;
      pairs.back()->faults.delay = 100;
    }
    const auto data = pattern(bytes, bytes);
    std::vector<std::byte> into(bytes + 10, std::byte{9});
    ReceiveRequest whole;
    whole.parts[0] = {5, into.data(), into.size()};
    receive(whole);
    send(5, data);
    const Event sent = finish(0, 1, 1);
    const Event received = finish(1, 1, 1);
    EXPECT_EQ(Outcome::kOk, sent.outcome);
    EXPECT_EQ(Outcome::kOk, received.outcome);
    EXPECT_EQ(bytes, sent.part_bytes[0]);
    EXPECT_EQ(bytes, received.part_bytes[0]);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), into.begin())) << bytes;
    EXPECT_EQ(std::vector<std::byte>(10, std::byte{9}),
              std::vector<std::byte>(into.end() - 10, into.end()));
  }
}

TEST_F(SplitTransfer, a_group_keeps_its_tags_and_a_long_message_is_truncated_as_one) {
  const auto small = pattern(100, 1);
  const auto large = pattern(200'000, 2);
  std::vector<std::byte> into_small(100);
  std::vector<std::byte> into_large(150'000);  // Too short.
  ReceiveRequest whole;
  whole.part_count = 2;
  whole.parts[0] = {1, into_small.data(), into_small.size()};
  whole.parts[1] = {2, into_large.data(), into_large.size()};
  receive(whole);
  send(2, large);
  send(1, small);
  const Event received = finish(1, 2, 1);
  EXPECT_EQ(Outcome::kTruncated, received.outcome);
  EXPECT_EQ(2U, received.part_count);
  EXPECT_EQ(100U, received.part_bytes[0]);
  EXPECT_EQ(small, into_small);
}

TEST(split, a_peer_with_other_units_is_refused_not_misread) {
  LossyPair pair;
  const auto data = pattern(60'000, 1);
  std::vector<std::byte> into(60'000);
  const Split here(1, 30'000);
  const Split there(1, 10'000);
  ReceiveRequest whole;
  whole.parts[0] = {1, into.data(), into.size()};
  ASSERT_TRUE(pair.end(1).post_receive(pair.now(), pair.handle(1), there.part_of(whole, 0)).ok());
  ASSERT_TRUE(pair.end(0)
                  .post_send(pair.now(), pair.handle(0),
                             here.part_of(SendRequest{1, data.data(), data.size(), 1}, 0))
                  .ok());
  EXPECT_FALSE(pair.run_until_events(1, 1, pair.now() + 100'000'000));
  EXPECT_GT(pair.counters(1).malformed_dropped, 0U);
}

}  // namespace
}  // namespace tutti::transport
