// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/split_layout.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "lossy_pair.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

TEST(split, part_bytes__add_up_and_follow_the_units) {
  for (std::uint32_t sub_connections = 1; sub_connections <= 5; ++sub_connections) {
    const SplitLayout split(sub_connections, 100);
    for (Bytes bytes = 0; bytes < 1300; bytes += 7) {
      std::vector<Bytes> expected(sub_connections);
      for (Bytes at = 0; at < bytes; ++at) {
        ++expected[at / 100 % sub_connections];
      }
      for (std::uint32_t sub = 0; sub < sub_connections; ++sub) {
        ASSERT_EQ(expected[sub], split.part_bytes(bytes, sub))
            << sub_connections << " " << bytes << " " << sub;
      }
    }
  }
}

/// Sizes on both sides of each multiple of the unit.
std::vector<Bytes> sizes_around(Bytes unit, Bytes units_max) {
  std::vector<Bytes> sizes = {0, 1};
  for (Bytes units = 1; units <= units_max; ++units) {
    for (const Bytes bytes : {units * unit - 1, units * unit, units * unit + 1}) {
      sizes.push_back(bytes);
    }
  }
  return sizes;
}

TEST(split, is_split__the_receiver_learns_it_from_the_first_part) {
  constexpr Bytes kUnit = 100;
  for (std::uint32_t sub_connections = 1; sub_connections <= 8; ++sub_connections) {
    const SplitLayout split(sub_connections, kUnit);
    for (const Bytes capacity : sizes_around(kUnit, 20)) {
      const ReceivePart receive = split.first_part(ReceivePart{.capacity_bytes = capacity});
      EXPECT_EQ(receive.whole_bytes, split.is_split(capacity) ? capacity : 0);
      for (const Bytes bytes : sizes_around(kUnit, 20)) {
        if (bytes > capacity) {
          break;
        }
        const SendRequest first = split.first_part(SendRequest{.bytes = bytes});
        ASSERT_EQ(split.is_split(first.bytes), split.is_split(bytes))
            << sub_connections << " " << bytes;
        ASSERT_LE(first.bytes, receive.capacity_bytes);
        ASSERT_EQ(first.tells_match, split.is_split(bytes));
        for (std::uint32_t sub = 1; sub < sub_connections && split.is_split(bytes); ++sub) {
          ASSERT_TRUE(split.is_split(capacity));
          ASSERT_LE(split.other_part(SendRequest{.bytes = bytes}, sub, 1).bytes,
                    split.other_part(SplitReceive{.capacity_bytes = capacity}, sub).capacity_bytes);
        }
      }
    }
  }
}

TEST(split, parts__each_byte_of_the_message_once) {
  for (std::uint32_t sub_connections = 1; sub_connections <= 8; ++sub_connections) {
    const SplitLayout split(sub_connections, 100);
    for (const Bytes bytes : sizes_around(100, 18)) {
      std::vector<std::byte> data(bytes);
      std::vector<std::byte> into(bytes + 50);
      std::vector<int> seen(bytes);
      const auto note = [&](const SendRequest& send, std::byte* to, const Stride& stride) {
        for (Bytes offset = 0; offset < send.bytes; ++offset) {
          const auto at =
              static_cast<std::size_t>(send.data - data.data()) + send.stride.at(offset);
          ++seen[at];
          ASSERT_EQ(at, static_cast<std::size_t>(to - into.data()) + stride.at(offset));
        }
      };
      const SendRequest whole{.tag = 7, .data = data.data(), .bytes = bytes, .context = 9};
      const SendRequest first = split.first_part(whole);
      const ReceivePart receive =
          split.first_part(ReceivePart{.data = into.data(), .capacity_bytes = into.size()});
      note(first, receive.data, receive.stride);
      for (std::uint32_t sub = 1; sub < sub_connections && split.is_split(bytes); ++sub) {
        const SendRequest other = split.other_part(whole, sub, 5);
        EXPECT_EQ(other.slot, 5U);
        EXPECT_EQ(other.context, 9U);
        const SplitReceive split_receive =
            split.other_part(SplitReceive{.data = into.data(), .capacity_bytes = into.size()}, sub);
        note(other, split_receive.data, split_receive.stride);
      }
      ASSERT_EQ(std::vector<int>(bytes, 1), seen) << sub_connections << " " << bytes;
    }
  }
}

/// Several sub-connections, each a pair of endpoints that know nothing of the others, and the
/// caller that connects them.
class SubConnections {
 public:
  static constexpr Bytes kUnit = 10'000;

  SubConnections(std::uint32_t sub_connections, std::uint64_t seed)
      : split(sub_connections, kUnit), random_(seed) {
    ConnectionOptions options;
    options.wire.paths = 4;
    for (std::uint32_t sub = 0; sub < sub_connections; ++sub) {
      sources_.push_back(std::make_unique<Source>(*this, sub));
      options.split_receives = sub == 0 ? nullptr : sources_.back().get();
      options.seed = seed + sub;
      pairs.push_back(std::make_unique<LossyPair>(options, seed + sub));
      seen_.push_back({0, 0});
    }
  }

  void send(Tag tag, const std::vector<std::byte>& data) {
    const std::uint64_t context = sends_.size();
    sends_.push_back({.tag = tag, .data = data.data(), .bytes = data.size(), .context = context});
    sent.push_back({.open = 1});
    post(0, split.first_part(sends_.back()));
  }

  void receive(const std::vector<ReceivePart>& parts) {
    ReceiveRequest request;
    request.context = received.size();
    request.part_count = static_cast<std::uint8_t>(parts.size());
    received.push_back({.open = 1});
    for (std::size_t i = 0; i < parts.size(); ++i) {
      request.parts[i] = split.first_part(parts[i]);
      receives_[next_slot_++] = {
          parts[i].data, parts[i].capacity_bytes, {}, request.context * 8 + i};
    }
    LossyPair& first = *pairs[0];
    ASSERT_TRUE(first.end(1).post_receive(first.now(), first.handle(1), request).ok());
  }

  /// Sub-connections run at speeds of their own until nothing is open.
  bool run() {
    for (int idle = 0; idle < 1000;) {
      const std::uint32_t sub = random_.below(split.sub_connections());
      LossyPair& pair = *pairs[sub];
      const int turns = static_cast<int>(random_.below(40));
      bool has_moved = false;
      for (int i = 0; i < turns; ++i) {
        has_moved |= pair.step(pair.now() + 1'000'000'000);
      }
      has_moved |= take(sub);
      idle = has_moved ? 0 : idle + 1;
      const auto is_open = [](const Whole& it) { return it.open != 0; };
      if (std::none_of(sent.begin(), sent.end(), is_open) &&
          std::none_of(received.begin(), received.end(), is_open)) {
        return true;
      }
    }
    return false;
  }

  struct Whole {
    int open = 0;  ///< Parts.
    Outcome outcome = Outcome::kOk;
    std::array<Bytes, kReceivePartsMax> bytes{};
  };
  SplitLayout split;
  std::vector<std::unique_ptr<LossyPair>> pairs;
  std::vector<Whole> sent;
  std::vector<Whole> received;
  std::uint64_t asked = 0;  ///< Of the sources.

 private:
  class Source : public SplitReceiveSource {
   public:
    Source(SubConnections& sub_connections, std::uint32_t sub)
        : sub_connections_(sub_connections), sub_(sub) {}
    bool find(std::uint32_t slot, SplitReceive& out) const override {
      ++sub_connections_.asked;
      const auto it = sub_connections_.receives_.find(slot);
      if (it != sub_connections_.receives_.end()) {
        out = sub_connections_.split.other_part(it->second, sub_);
        out.slot = slot;
      }
      return it != sub_connections_.receives_.end();
    }

   private:
    SubConnections& sub_connections_;
    std::uint32_t sub_;
  };

  void post(std::uint32_t sub, const SendRequest& part) {
    LossyPair& pair = *pairs[sub];
    ASSERT_TRUE(pair.end(0).post_send(pair.now(), pair.handle(0), part).ok());
  }

  bool take(std::uint32_t sub) {
    const auto before = seen_[sub];
    std::vector<Event>& of_sender = pairs[sub]->events(0);
    while (seen_[sub].first < of_sender.size()) {
      const Event event = of_sender[seen_[sub].first++];
      Whole& whole = sent[event.context];
      if (event.kind == EventKind::kSendMatched) {
        whole.open += static_cast<int>(split.sub_connections()) - 1;
        for (std::uint32_t other = 1; other < split.sub_connections(); ++other) {
          post(other, split.other_part(sends_[event.context], other, event.slot));
        }
        continue;
      }
      EXPECT_EQ(event.kind, EventKind::kSendDone);
      --whole.open;
      whole.outcome = std::max(whole.outcome, event.outcome);
      whole.bytes[0] += event.part_bytes[0];
    }
    std::vector<Event>& of_receiver = pairs[sub]->events(1);
    while (seen_[sub].second < of_receiver.size()) {
      const Event& event = of_receiver[seen_[sub].second++];
      EXPECT_EQ(event.kind, EventKind::kReceiveDone);
      const std::size_t first = sub == 0 ? 0 : event.context % 8;
      Whole& whole = received[sub == 0 ? event.context : event.context / 8];
      --whole.open;
      whole.outcome = std::max(whole.outcome, event.outcome);
      for (std::size_t i = 0; i < event.part_count; ++i) {
        whole.bytes[first + i] += event.part_bytes[i];
        const bool is_split = sub == 0 && split.is_split(event.part_bytes[i]);
        whole.open += is_split ? static_cast<int>(split.sub_connections()) - 1 : 0;
      }
    }
    return before != seen_[sub];
  }

  Random random_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<SendRequest> sends_;
  std::map<std::uint64_t, SplitReceive> receives_;
  std::uint64_t next_slot_ = ConnectionOptions().first_number;
  /// Events of each end of each sub-connection.
  std::vector<std::pair<std::size_t, std::size_t>> seen_;
};

void break_network(SubConnections& sub_connections) {
  for (const auto& pair : sub_connections.pairs) {
    pair->faults.loss = 30;
    pair->faults.delay = 100;
    pair->faults.duplicate = 20;
    pair->faults.corrupt = 5;
  }
}

TEST(sub_connections, any_size_arrives_whole_whatever_the_network_does) {
  for (std::uint32_t count = 1; count <= 8; ++count) {
    for (const Bytes bytes : sizes_around(SubConnections::kUnit, 9)) {
      SubConnections sub_connections(count, bytes + count);
      break_network(sub_connections);
      const auto data = pattern(bytes, bytes);
      const Bytes spare = bytes % 3 * 20'000;
      std::vector<std::byte> into(bytes + spare + 10, std::byte{9});
      sub_connections.receive({{.tag = 5, .data = into.data(), .capacity_bytes = bytes + spare}});
      sub_connections.send(5, data);
      ASSERT_TRUE(sub_connections.run()) << count << " sub-connections, " << bytes;
      EXPECT_EQ(Outcome::kOk, sub_connections.sent[0].outcome);
      EXPECT_EQ(Outcome::kOk, sub_connections.received[0].outcome);
      EXPECT_EQ(bytes, sub_connections.sent[0].bytes[0]);
      EXPECT_EQ(bytes, sub_connections.received[0].bytes[0]);
      ASSERT_TRUE(std::equal(data.begin(), data.end(), into.begin())) << count << " " << bytes;
      EXPECT_EQ(
          std::vector<std::byte>(spare + 10, std::byte{9}),
          std::vector<std::byte>(into.end() - static_cast<std::ptrdiff_t>(spare) - 10, into.end()));
    }
  }
}

TEST(sub_connections, tags_and_groups_in_any_order) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    SubConnections sub_connections(2 + random.below(7), seed);
    break_network(sub_connections);
    constexpr std::size_t kMessages = 24;
    constexpr Tag kTags = 4;
    // The n-th send of a tag meets the n-th part of it, whatever is between them.
    std::array<std::vector<std::vector<std::byte>>, kTags> data;
    std::array<std::vector<std::vector<std::byte>>, kTags> into;
    std::vector<std::vector<std::byte>> buffers;
    for (std::size_t i = 0; i < kMessages; ++i) {
      const Bytes near = random.below(5) * SubConnections::kUnit + random.below(3);
      const Bytes bytes = random.below(2) == 0 ? random.below(80'000) : near;
      const Tag tag = random.below(kTags);
      data[tag].push_back(pattern(bytes, seed * 100 + i));
      into[tag].emplace_back(bytes + random.below(2) * random.below(30'000));
    }
    std::array<std::size_t, kTags> next_sent{};
    std::array<std::size_t, kTags> next_received{};
    const auto some_tag = [&](const std::array<std::size_t, kTags>& next) {
      Tag tag = random.below(kTags);
      while (next[tag] == data[tag].size()) {
        tag = (tag + 1) % kTags;
      }
      return tag;
    };
    std::vector<std::vector<std::pair<Tag, std::size_t>>> groups;
    for (std::size_t sends = 0, parts = 0; sends < kMessages || parts < kMessages;) {
      if (sends < kMessages && (parts == kMessages || random.below(2) == 0)) {
        const Tag tag = some_tag(next_sent);
        sub_connections.send(tag, data[tag][next_sent[tag]++]);
        ++sends;
        continue;
      }
      std::vector<ReceivePart> group;
      groups.emplace_back();
      for (std::uint32_t left = 1 + random.below(8); left > 0 && parts < kMessages; --left) {
        const Tag tag = some_tag(next_received);
        std::vector<std::byte>& buffer = into[tag][next_received[tag]];
        groups.back().emplace_back(tag, next_received[tag]++);
        group.push_back({.tag = tag, .data = buffer.data(), .capacity_bytes = buffer.size()});
        ++parts;
      }
      sub_connections.receive(group);
    }
    ASSERT_TRUE(sub_connections.run()) << seed;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      EXPECT_EQ(sub_connections.received[i].outcome, Outcome::kOk);
      for (std::size_t j = 0; j < groups[i].size(); ++j) {
        const auto [tag, at] = groups[i][j];
        ASSERT_EQ(sub_connections.received[i].bytes[j], data[tag][at].size()) << seed;
        ASSERT_TRUE(std::equal(data[tag][at].begin(), data[tag][at].end(), into[tag][at].begin()))
            << seed;
      }
    }
  }
}

TEST(sub_connections, a_message_that_is_too_long_is_refused_by_sub_connection_0) {
  SubConnections sub_connections(4, 1);
  const auto small = pattern(100, 1);
  const auto large = pattern(200'000, 2);
  std::vector<std::byte> into_small(100);
  std::vector<std::byte> into_large(199'999, std::byte{3});
  sub_connections.receive(
      {{.tag = 1, .data = into_small.data(), .capacity_bytes = 100},
       {.tag = 2, .data = into_large.data(), .capacity_bytes = into_large.size()}});
  sub_connections.send(2, large);
  sub_connections.send(1, small);
  ASSERT_TRUE(sub_connections.run());
  EXPECT_EQ(Outcome::kTruncated, sub_connections.sent[0].outcome);
  EXPECT_EQ(Outcome::kOk, sub_connections.sent[1].outcome);
  EXPECT_EQ(Outcome::kTruncated, sub_connections.received[0].outcome);
  EXPECT_EQ(100U, sub_connections.received[0].bytes[0]);
  EXPECT_EQ(small, into_small);
  EXPECT_EQ(into_large, std::vector<std::byte>(199'999, std::byte{3}));
  EXPECT_EQ(sub_connections.asked, 0U);
}

TEST(sub_connections, a_short_message_is_nothing_to_the_others) {
  SubConnections sub_connections(4, 1);
  const auto data = pattern(SubConnections::kUnit - 1, 1);
  std::vector<std::byte> into(100'000);
  sub_connections.receive({{.tag = 1, .data = into.data(), .capacity_bytes = into.size()}});
  sub_connections.send(1, data);
  ASSERT_TRUE(sub_connections.run());
  for (std::size_t sub = 1; sub < 4; ++sub) {
    EXPECT_EQ(sub_connections.pairs[sub]->packets, 0U);
  }
  EXPECT_EQ(sub_connections.asked, 0U);
}

TEST(split, a_peer_with_other_units_is_refused_not_misread) {
  LossyPair pair;
  const auto data = pattern(60'000, 1);
  std::vector<std::byte> into(60'000);
  ReceiveRequest receive;
  receive.parts[0] = SplitLayout(2, 10'000).first_part(
      ReceivePart{.tag = 1, .data = into.data(), .capacity_bytes = into.size()});
  ASSERT_TRUE(pair.end(1).post_receive(pair.now(), pair.handle(1), receive).ok());
  const SendRequest send = SplitLayout(2, 30'000).first_part(
      SendRequest{.tag = 1, .data = data.data(), .bytes = data.size()});
  ASSERT_TRUE(pair.end(0).post_send(pair.now(), pair.handle(0), send).ok());
  EXPECT_FALSE(pair.run_until_events(2, 1, pair.now() + 100'000'000));
  EXPECT_GT(pair.counters(1).malformed_dropped, 0U);
}

}  // namespace
}  // namespace tutti::transport
