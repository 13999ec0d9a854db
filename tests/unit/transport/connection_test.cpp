// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Life and death of connections, over the lossy pair.
#include "transport/connection.hpp"

#include <gtest/gtest.h>

#include "lossy_pair.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

using Kinds = std::vector<std::pair<EventKind, Outcome>>;

Kinds kinds(const std::vector<Event>& events) {
  Kinds all;
  for (const Event& event : events) {
    all.emplace_back(event.kind, event.outcome);
  }
  return all;
}

PacketType type_of(const LossyPair::Delivered& packet) {
  return static_cast<PacketType>(std::to_integer<int>(packet.header[0]) & 15);
}

TEST(connection, post_receive__a_group_is_matched_by_tag) {
  LossyPair pair;
  const auto a = pattern(10'000, 1);
  const auto b = pattern(5, 2);
  const auto c = pattern(0, 3);
  std::vector<std::byte> into_a(20'000);
  std::vector<std::byte> into_b(5);
  std::vector<std::byte> into_c(9);
  ReceiveRequest request;
  request.part_count = 3;
  request.parts[0] = {1, into_a.data(), into_a.size()};
  request.parts[1] = {2, into_b.data(), into_b.size()};
  request.parts[2] = {3, into_c.data(), into_c.size()};
  request.context = 77;
  ASSERT_TRUE(pair.end(1).post_receive(pair.now(), pair.handle(1), request).ok());
  pair.send(0, 3, c, 3);
  pair.send(0, 2, b, 2);
  pair.run(1'000'000);
  EXPECT_EQ(0U, pair.events(1).size());
  pair.send(0, 1, a, 1);
  ASSERT_TRUE(pair.run_until_events(3, 1));
  const Event& event = pair.events(1)[0];
  EXPECT_EQ(77U, event.context);
  EXPECT_EQ(3, event.part_count);
  EXPECT_EQ(10'000U, event.part_bytes[0]);
  EXPECT_EQ(5U, event.part_bytes[1]);
  EXPECT_EQ(0U, event.part_bytes[2]);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), into_a.begin()));
  EXPECT_EQ(b, into_b);
}

TEST(connection, post_send__one_tag_keeps_its_order_whatever_the_other_does) {
  LossyPair pair;
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got(6, std::vector<std::byte>(1000));
  for (std::size_t i = 0; i < 6; ++i) {
    sent.push_back(pattern(1000, i));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    pair.send(0, 1, sent[i], i);
    pair.send(0, 2, sent[3 + i], 3 + i);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    pair.receive(1, 2, got[3 + i]);
  }
  ASSERT_TRUE(pair.run_until_events(3, 3));  // Those of tag 1 wait, and do not block these.
  for (std::size_t i = 0; i < 3; ++i) {
    pair.receive(1, 1, got[i]);
  }
  ASSERT_TRUE(pair.run_until_events(6, 6));
  EXPECT_EQ(sent, got);
}

TEST(connection, post_send__a_message_longer_than_its_receive_fails_on_both_sides) {
  LossyPair pair;
  const auto data = pattern(101, 1);
  std::vector<std::byte> small(100);
  const auto before = small;
  pair.receive(1, 1, small);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ((Kinds{{EventKind::kSendDone, Outcome::kTruncated}}), kinds(pair.events(0)));
  EXPECT_EQ((Kinds{{EventKind::kReceiveDone, Outcome::kTruncated}}), kinds(pair.events(1)));
  EXPECT_EQ(before, small);
}

TEST(connection, post__limits_hold_on_both_sides_of_them) {
  ConnectionOptions options;
  options.sends_max = 3;
  options.receive_parts_max = 4;
  LossyPair pair(options);
  const auto data = pattern(10, 1);
  std::vector<std::byte> into(10);
  for (int i = 0; i < 3; ++i) {
    pair.send(0, 1, data);
  }
  EXPECT_EQ(ErrorCode::kTimeout,
            pair.end(0).post_send(pair.now(), pair.handle(0), {1, data.data(), 10, 0}).code());
  for (int i = 0; i < 4; ++i) {
    pair.receive(1, 1, into);
  }
  ReceiveRequest request;
  request.parts[0] = {1, into.data(), 10};
  EXPECT_EQ(ErrorCode::kTimeout,
            pair.end(1).post_receive(pair.now(), pair.handle(1), request).code());
  ASSERT_TRUE(pair.run_until_events(3, 3));
  pair.send(0, 1, data);
  pair.receive(1, 1, into);
  ASSERT_TRUE(pair.run_until_events(4, 4));
  request.part_count = 9;
  EXPECT_EQ(ErrorCode::kInvalidArgument,
            pair.end(1).post_receive(pair.now(), pair.handle(1), request).code());
  EXPECT_EQ(ErrorCode::kInvalidArgument,
            pair.end(0)
                .post_send(pair.now(), pair.handle(0), {1, nullptr, kMessageBytesMax + 1, 0})
                .code());
}

TEST(connection, close__matched_sends_finish_and_both_sides_end_once) {
  for (std::uint32_t loss : {0U, 200U}) {
    LossyPair pair({}, 5);
    pair.faults.loss = loss;
    const auto data = pattern(300'000, 1);
    std::vector<std::byte> into(300'000);
    std::vector<std::byte> never(10);
    pair.receive(1, 1, into, 1);
    pair.receive(1, 9, never, 9);
    pair.receive(0, 9, never, 8);
    pair.send(0, 1, data, 2);
    pair.send(0, 5, data, 5);
    pair.run(20'000'000);
    ASSERT_TRUE(pair.end(0).close(pair.now(), pair.handle(0)).ok());
    EXPECT_EQ(ErrorCode::kUnavailable, pair.end(0).close(pair.now(), pair.handle(0)).code());
    EXPECT_EQ(ErrorCode::kUnavailable,
              pair.end(0).post_send(pair.now(), pair.handle(0), {1, nullptr, 1, 0}).code());
    ASSERT_TRUE(pair.run_until_events(4, 3));
    pair.run(10'000'000'000);
    EXPECT_EQ((Kinds{{EventKind::kSendDone, Outcome::kOk},
                     {EventKind::kSendDone, Outcome::kClosed},
                     {EventKind::kReceiveDone, Outcome::kClosed},
                     {EventKind::kConnectionDone, Outcome::kOk}}),
              kinds(pair.events(0)));
    EXPECT_EQ((Kinds{{EventKind::kReceiveDone, Outcome::kOk},
                     {EventKind::kReceiveDone, Outcome::kClosed},
                     {EventKind::kConnectionDone, Outcome::kOk}}),
              kinds(pair.events(1)));
    EXPECT_EQ(data, into);
    EXPECT_EQ(nullptr, pair.end(0).counters(pair.handle(0)));
    EXPECT_EQ(kNever, pair.end(0).next_deadline());
    EXPECT_EQ(kNever, pair.end(1).next_deadline());
  }
}

TEST(connection, close__both_at_once) {
  LossyPair pair;
  ASSERT_TRUE(pair.end(0).close(pair.now(), pair.handle(0)).ok());
  ASSERT_TRUE(pair.end(1).close(pair.now(), pair.handle(1)).ok());
  ASSERT_TRUE(pair.run_until_events(1, 1));
  pair.run(10'000'000'000);
  EXPECT_EQ((Kinds{{EventKind::kConnectionDone, Outcome::kOk}}), kinds(pair.events(0)));
  EXPECT_EQ((Kinds{{EventKind::kConnectionDone, Outcome::kOk}}), kinds(pair.events(1)));
}

// Each side's receives ended with its close, so the data that still comes cannot be delivered: that
// must not keep both waiting for each other.
TEST(connection, close__both_at_once_with_matched_sends_both_ways) {
  for (const std::uint32_t loss : {0U, 300U}) {
    LossyPair pair({}, 3);
    pair.faults.loss = loss;
    constexpr Bytes kBytes = 1ULL << 34;
    for (int i = 0; i < 2; ++i) {
      ReceiveRequest receive;
      receive.parts[0] = {1, nullptr, kBytes};
      ASSERT_TRUE(pair.end(i).post_receive(pair.now(), pair.handle(i), receive).ok());
      ASSERT_TRUE(pair.end(i).post_send(pair.now(), pair.handle(i), {1, nullptr, kBytes, 0}).ok());
    }
    while (pair.counters(0).chunks_sent == 0 || pair.counters(1).chunks_sent == 0) {
      pair.run(10'000);
    }
    ASSERT_TRUE(pair.events(0).empty() && pair.events(1).empty());
    ASSERT_TRUE(pair.end(0).close(pair.now(), pair.handle(0)).ok());
    ASSERT_TRUE(pair.end(1).close(pair.now(), pair.handle(1)).ok());
    ASSERT_TRUE(pair.run_until_events(3, 3, pair.now() + 100'000'000)) << loss;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ((Kinds{{EventKind::kReceiveDone, Outcome::kClosed},
                       {EventKind::kSendDone, Outcome::kClosed},
                       {EventKind::kConnectionDone, Outcome::kOk}}),
                kinds(pair.events(i)))
          << loss;
    }
  }
}

// What has arrived and only lacks its acknowledgement is no victim of the other side's close.
TEST(connection, close__both_at_once_spares_what_was_delivered) {
  LossyPair pair;
  bool is_closed = false;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    return packet.to == 0 && type_of(packet) == PacketType::kAck && !is_closed;
  };
  const auto data = pattern(1000, 1);
  std::vector<std::byte> into(data.size());
  ReceiveRequest endless;
  endless.parts[0] = {2, nullptr, 1ULL << 34};
  ASSERT_TRUE(pair.end(0).post_receive(pair.now(), pair.handle(0), endless).ok());
  ASSERT_TRUE(pair.end(1).post_send(pair.now(), pair.handle(1), {2, nullptr, 1ULL << 34, 0}).ok());
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  while (pair.events(1).empty()) {
    ASSERT_TRUE(pair.step(pair.now() + 1'000'000));
  }
  ASSERT_EQ(Outcome::kOk, pair.events(1)[0].outcome);
  ASSERT_TRUE(pair.events(0).empty()) << "not acknowledged yet";
  is_closed = true;
  ASSERT_TRUE(pair.end(0).close(pair.now(), pair.handle(0)).ok());
  ASSERT_TRUE(pair.end(1).close(pair.now(), pair.handle(1)).ok());
  ASSERT_TRUE(pair.run_until_events(3, 3, pair.now() + 1'000'000'000));
  EXPECT_EQ((Kinds{{EventKind::kReceiveDone, Outcome::kClosed},
                   {EventKind::kSendDone, Outcome::kOk},
                   {EventKind::kConnectionDone, Outcome::kOk}}),
            kinds(pair.events(0)));
}

// An end that drains takes no data, for as long as its own sends need.
TEST(connection, close__of_a_long_send_outlasts_the_patience_of_the_other_sender) {
  ConnectionOptions options;
  options.loss.give_up_ns = 1'000'000;
  LossyPair pair(options);
  pair.checks_invariants = false;
  constexpr Bytes kLong = 500'000'000;  // 10 ms of the link.
  for (int i = 0; i < 2; ++i) {
    ReceiveRequest receive;
    receive.parts[0] = {1, nullptr, kLong};
    ASSERT_TRUE(pair.end(i).post_receive(pair.now(), pair.handle(i), receive).ok());
  }
  ASSERT_TRUE(pair.end(0).post_send(pair.now(), pair.handle(0), {1, nullptr, kLong, 0}).ok());
  ASSERT_TRUE(pair.end(1).post_send(pair.now(), pair.handle(1), {1, nullptr, kLong, 0}).ok());
  pair.run(100'000);
  ASSERT_TRUE(pair.end(0).close(pair.now(), pair.handle(0)).ok());
  ASSERT_TRUE(pair.run_until_events(3, 3, pair.now() + 1'000'000'000));
  EXPECT_EQ((Kinds{{EventKind::kReceiveDone, Outcome::kClosed},
                   {EventKind::kSendDone, Outcome::kOk},
                   {EventKind::kConnectionDone, Outcome::kOk}}),
            kinds(pair.events(0)));
}

// Adverts of several packets overtake each other on paths of unlike length: none may wait for the
// timer that repeats them.
TEST(connection, adverts__that_overtake_each_other_need_no_timer) {
  ConnectionOptions options;
  options.wire.paths = 16;
  options.receive_parts_max = 256;
  LossyPair pair(options);
  pair.faults.delay = 500;
  pair.faults.delay_ns_max = 10'000;
  const TimeNs start = pair.now();
  std::vector<std::byte> none;
  for (std::uint64_t i = 0; i < 200; ++i) {
    pair.receive(1, 1, none, i);
    pair.send(0, 1, none, i);
  }
  ASSERT_TRUE(pair.run_until_events(200, 200, start + 1'000'000'000));
  EXPECT_LT(pair.now() - start, 80'000U) << "the timer waits 100 us";
}

TEST(connection, abort__ends_here_at_once_and_there_by_a_reset) {
  LossyPair pair;
  const auto data = pattern(3'000'000, 1);
  std::vector<std::byte> into(3'000'000);
  pair.receive(1, 1, into, 1);
  pair.send(0, 1, data, 2);
  pair.run(30'000);
  ASSERT_TRUE(pair.end(1).abort(pair.now(), pair.handle(1)).ok());
  EXPECT_EQ(ErrorCode::kUnavailable, pair.end(1).abort(pair.now(), pair.handle(1)).code());
  ASSERT_TRUE(pair.run_until_events(2, 2));
  pair.run(10'000'000'000);
  EXPECT_EQ((Kinds{{EventKind::kSendDone, Outcome::kReset},
                   {EventKind::kConnectionDone, Outcome::kReset}}),
            kinds(pair.events(0)));
  EXPECT_EQ((Kinds{{EventKind::kReceiveDone, Outcome::kAborted},
                   {EventKind::kConnectionDone, Outcome::kAborted}}),
            kinds(pair.events(1)));
}

TEST(connection, abort__a_lost_reset_is_repeated_for_who_goes_on) {
  LossyPair pair;
  const auto data = pattern(3'000'000, 1);
  std::vector<std::byte> into(3'000'000);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  pair.run(30'000);
  int resets = 0;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    return type_of(packet) == PacketType::kReset && resets++ == 0;
  };
  ASSERT_TRUE(pair.end(1).abort(pair.now(), pair.handle(1)).ok());
  ASSERT_TRUE(pair.run_until_events(2, 2, pair.now() + 5'000'000));
  EXPECT_EQ(Outcome::kReset, pair.events(0)[1].outcome);
}

TEST(connection, cancel_send__unmatched_at_once_matched_at_its_cut) {
  LossyPair pair;
  const auto data = pattern(5'000'000, 1);
  std::vector<std::byte> into(5'000'000);
  pair.send(0, 1, data, 1);
  ASSERT_TRUE(pair.end(0).cancel_send(pair.now(), pair.handle(0), 1).ok());
  ASSERT_TRUE(pair.run_until_events(1, 0));
  EXPECT_EQ(Outcome::kCancelled, pair.events(0)[0].outcome);
  EXPECT_EQ(ErrorCode::kInvalidArgument,
            pair.end(0).cancel_send(pair.now(), pair.handle(0), 1).code());

  pair.faults.loss = 50;
  pair.receive(1, 1, into, 7);
  pair.send(0, 1, data, 2);
  pair.run(50'000);
  ASSERT_TRUE(pair.end(0).cancel_send(pair.now(), pair.handle(0), 2).ok());
  ASSERT_TRUE(pair.run_until_events(2, 1));
  EXPECT_EQ(Outcome::kCancelled, pair.events(0)[1].outcome);
  EXPECT_EQ(Outcome::kCancelled, pair.events(1)[0].outcome);
  EXPECT_GT(pair.events(1)[0].part_bytes[0], 0U);
  EXPECT_LT(pair.events(1)[0].part_bytes[0], 5'000'000U);

  const auto more = pattern(100, 3);  // The tag goes on as before.
  pair.receive(1, 1, into, 8);
  pair.send(0, 1, more, 3);
  ASSERT_TRUE(pair.run_until_events(3, 2));
  EXPECT_EQ(Outcome::kOk, pair.events(1)[1].outcome);
  EXPECT_TRUE(std::equal(more.begin(), more.end(), into.begin()));
}

TEST(connection, cancel_receive__the_sender_decides_and_order_is_kept) {
  for (std::uint32_t loss : {0U, 300U}) {
    LossyPair pair({}, 3);
    pair.faults.loss = loss;
    std::vector<std::byte> first(100);
    std::vector<std::byte> second(100);
    pair.receive(1, 1, first, 1);
    pair.receive(1, 1, second, 2);
    pair.run(100'000'000);
    ASSERT_TRUE(pair.end(1).cancel_receive(pair.now(), pair.handle(1), 1).ok());
    ASSERT_TRUE(pair.run_until_events(0, 1));
    EXPECT_EQ(Outcome::kCancelled, pair.events(1)[0].outcome);
    EXPECT_EQ(1U, pair.events(1)[0].context);
    EXPECT_EQ(0U, pair.events(0).size());
    const auto data = pattern(100, 1);
    pair.send(0, 1, data, 5);
    ASSERT_TRUE(pair.run_until_events(1, 2));
    EXPECT_EQ(Outcome::kOk, pair.events(1)[1].outcome);
    EXPECT_EQ(data, second);
  }
}

// Nothing is posted at the end that answers; what it has in the air is the answer alone.
TEST(connection, cancel_receive__who_answers_gives_a_dead_peer_up) {
  ConnectionOptions options;
  options.receives = false;
  options.loss.give_up_ns = 1'000'000'000;
  LossyPair pair(options);
  std::vector<std::byte> into(100);
  pair.receive(1, 1, into, 7);
  pair.run(5'000'000);
  ASSERT_TRUE(pair.end(1).cancel_receive(pair.now(), pair.handle(1), 7).ok());
  bool is_gone = false;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    const bool is_withdrawal = packet.to == 0 && !is_gone;
    is_gone = true;
    return !is_withdrawal;
  };
  const TimeNs silent_ns = pair.now();
  ASSERT_TRUE(pair.run_until_events(1, 0));
  EXPECT_EQ((Kinds{{EventKind::kConnectionDone, Outcome::kUnreachable}}), kinds(pair.events(0)));
  EXPECT_LE(pair.now() - silent_ns, 1'300'000'000U);
}

TEST(connection, cancel_receive__too_late_is_no_harm) {
  LossyPair pair;
  const auto data = pattern(2'000'000, 1);
  std::vector<std::byte> into(2'000'000);
  pair.receive(1, 1, into, 1);
  pair.send(0, 1, data);
  pair.run(20'000);
  ASSERT_TRUE(pair.end(1).cancel_receive(pair.now(), pair.handle(1), 1).ok());
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(Outcome::kOk, pair.events(1)[0].outcome);
  EXPECT_EQ(data, into);
}

TEST(connection, peer__a_dead_one_is_an_error_within_the_time_on_either_side) {
  for (int waiting = 0; waiting < 2; ++waiting) {
    ConnectionOptions options;
    options.loss.give_up_ns = 1'000'000'000;
    LossyPair pair(options);
    const auto data = pattern(2'000'000, 1);
    std::vector<std::byte> into(2'000'000);
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    pair.run(30'000);
    pair.drop = [](const LossyPair::Delivered&) { return true; };
    const TimeNs died = pair.now();
    const std::size_t wanted = 2;
    ASSERT_TRUE(pair.run_until_events(waiting == 0 ? wanted : 0, waiting == 1 ? wanted : 0));
    EXPECT_EQ(Outcome::kUnreachable, pair.events(waiting)[0].outcome);
    EXPECT_EQ(EventKind::kConnectionDone, pair.events(waiting)[1].kind);
    EXPECT_EQ(Outcome::kUnreachable, pair.events(waiting)[1].outcome);
    EXPECT_GE(pair.now() - died, 900'000'000U);
    EXPECT_LE(pair.now() - died, 1'300'000'000U);
    pair.run(10'000'000'000);
    EXPECT_EQ(2U, pair.events(waiting).size());
  }
}

TEST(connection, peer__a_silent_but_living_one_may_take_its_time) {
  ConnectionOptions options;
  options.loss.give_up_ns = 1'000'000'000;
  LossyPair pair(options);
  std::vector<std::byte> into(100);
  pair.receive(1, 1, into);
  pair.run(20'000'000'000);
  EXPECT_EQ(0U, pair.events(1).size());
  const auto data = pattern(100, 1);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(1, 1, pair.now() + 1'000'000));
  EXPECT_EQ(data, into);
}

// An end that only waits never learns which of its paths are dead, and its peer hashes the same
// path numbers to other links: here half of them are dead each way.
TEST(connection, peer__that_few_paths_reach_is_found_by_more_and_more_pings) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ConnectionOptions options;
    options.receives = false;
    options.wire.paths = 64;
    options.window_groups = 8;
    options.loss.give_up_ns = 3'000'000'000;
    options.seed = seed;
    LossyPair pair(options, seed);
    pair.drop = [&](const LossyPair::Delivered& packet) {
      Random link(packet.path * 1'000'003ULL + static_cast<std::uint64_t>(packet.to) * 7919 +
                  seed * 104'729);
      return link.below(8) < 4;
    };
    std::vector<std::byte> into(100);
    pair.receive(1, 1, into);
    pair.run(600'000'000'000);
    EXPECT_EQ(0U, pair.events(1).size()) << seed;
  }
}

TEST(connection, peer__that_answers_is_asked_once_and_one_that_does_not_more_and_more) {
  ConnectionOptions options;
  options.receives = false;
  options.wire.paths = 16;
  options.loss.give_up_ns = 8'000'000'000;
  LossyPair pair(options);
  std::map<TimeNs, int> asked;  // How often at which time.
  bool is_silent = false;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    if (packet.to == 0 && type_of(packet) == PacketType::kPing) {
      ++asked[pair.now()];
    }
    return is_silent;
  };
  std::vector<std::byte> into(100);
  pair.receive(1, 1, into);
  pair.run(20'500'000'000);
  EXPECT_LE(asked.size(), 20U);
  for (const auto& [time_ns, count] : asked) {
    EXPECT_EQ(1, count) << time_ns;
  }
  asked.clear();
  is_silent = true;
  const TimeNs silent_ns = pair.now();
  ASSERT_TRUE(pair.run_until_events(0, 1));
  EXPECT_EQ(Outcome::kUnreachable, pair.events(1)[0].outcome);
  EXPECT_GE(pair.now() - silent_ns, 7'000'000'000U);
  EXPECT_LE(pair.now() - silent_ns, 9'000'000'000U);
  std::vector<int> counts;
  for (const auto& [time_ns, count] : asked) {
    counts.push_back(count);
  }
  EXPECT_EQ((std::vector<int>{1, 1, 2, 4, 8, 16, 16}), counts);
}

TEST(connection, peer__that_answers_and_takes_no_data_is_an_error_within_the_time) {
  ConnectionOptions options;
  options.loss.give_up_ns = 1'000'000'000;
  LossyPair pair(options);
  // A black hole for long packets: all but data passes.
  pair.drop = [](const LossyPair::Delivered& packet) {
    return type_of(packet) == PacketType::kData;
  };
  const auto data = pattern(100'000, 1);
  std::vector<std::byte> into(data.size());
  pair.receive(1, 1, into);
  const TimeNs posted = pair.now();
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(2, 0));
  EXPECT_EQ(Outcome::kUnreachable, pair.events(0)[0].outcome);
  EXPECT_LE(pair.now() - posted, 4'300'000'000U);
}

/// One end gives up after four seconds; the other bears with everything and answers all pings.
class Misbehaving : public ::testing::Test {
 protected:
  void make(int patient, ConnectionOptions options = {}) {
    options.loss.give_up_ns = 1'000'000'000;
    pair = std::make_unique<LossyPair>(options, 1, nullptr, patient);
  }
  static std::function<bool(const LossyPair::Delivered&)> drops(PacketType type) {
    return [type](const LossyPair::Delivered& packet) { return type_of(packet) == type; };
  }
  /// The end `at` gives up, and not before its time.
  void expect_end(int at, std::size_t events) {
    const TimeNs begun = pair->now();
    ASSERT_TRUE(pair->run_until_events(at == 0 ? events : 0, at == 1 ? events : 0));
    EXPECT_EQ(EventKind::kConnectionDone, pair->events(at).back().kind);
    EXPECT_EQ(Outcome::kUnreachable, pair->events(at).back().outcome);
    EXPECT_GE(pair->now() - begun, 3'900'000'000U);
    EXPECT_LE(pair->now() - begun, 4'400'000'000U);
  }
  std::unique_ptr<LossyPair> pair;
};

TEST_F(Misbehaving, a_message_that_has_begun_and_does_not_go_on) {
  make(0);
  const auto data = pattern(2'000'000, 1);
  std::vector<std::byte> into(data.size());
  pair->receive(1, 1, into);
  pair->send(0, 1, data);
  pair->run(30'000);
  ASSERT_GT(pair->counters(1).chunks_received, 0U);
  pair->drop = drops(PacketType::kData);
  ASSERT_NO_FATAL_FAILURE(expect_end(1, 2));
  EXPECT_EQ(Outcome::kUnreachable, pair->events(1)[0].outcome);
}

// What comes for others is no excuse: a message is sent from its first byte to its last.
TEST_F(Misbehaving, a_message_that_has_begun_and_does_not_go_on_while_others_do) {
  ConnectionOptions options;
  options.authenticates = false;
  make(0, options);
  pair->drop = [](const LossyPair::Delivered& packet) { return packet.to == 1; };
  const auto forge = [&](std::uint32_t number, std::uint32_t slot, std::uint32_t bytes) {
    CommonHeader common;
    common.type = PacketType::kData;
    common.flags = slot == 1 ? 0 : kFlagEnd;
    common.connection = pair->options(1).local_id;
    common.number = number;
    LossyPair::Delivered packet;
    packet.header_bytes = encode_data(common, {number, slot, 0, bytes, 0}, packet.header);
    packet.payload.resize(bytes);
    packet.payload_bytes = bytes;
    packet.to = 1;
    pair->deliver(packet);
  };
  std::vector<std::byte> into(100);
  pair->receive(1, 1, into);
  const TimeNs begun = pair->now();
  auto& events = pair->events(1);
  std::uint32_t done = 0;
  for (; done < 50 && (events.empty() || events.back().outcome == Outcome::kOk); ++done) {
    forge(2 * done + 1, done == 0 ? 1 : done + 1, 10);
    pair->receive(1, 2, into);
    pair->run(200'000'000);
  }
  ASSERT_GE(events.size(), 15U);
  EXPECT_EQ(Outcome::kOk, events[14].outcome);
  EXPECT_EQ(Outcome::kUnreachable, events.back().outcome);
  EXPECT_LE(pair->now() - begun, 4'600'000'000U);
}

TEST_F(Misbehaving, a_receive_that_is_withdrawn_is_not_answered) {
  make(0);
  std::vector<std::byte> into(100);
  pair->receive(1, 1, into, 5);
  pair->run(2'000'000'000);
  ASSERT_TRUE(pair->end(1).cancel_receive(pair->now(), pair->handle(1), 5).ok());
  pair->drop = drops(PacketType::kData);
  ASSERT_NO_FATAL_FAILURE(expect_end(1, 2));
}

TEST_F(Misbehaving, adverts_are_not_answered) {
  make(0);
  std::vector<std::byte> into(100);
  pair->drop = drops(PacketType::kAdvert);
  pair->receive(1, 1, into);
  ASSERT_NO_FATAL_FAILURE(expect_end(1, 2));
}

TEST_F(Misbehaving, credit_is_not_given) {
  ConnectionOptions options;
  options.controller = "rccc";
  options.credit.speculative_bytes = 0;
  make(1, options);
  const auto data = pattern(100'000, 1);
  std::vector<std::byte> into(data.size());
  pair->drop = drops(PacketType::kCredit);
  pair->receive(1, 1, into);
  pair->send(0, 1, data);
  ASSERT_NO_FATAL_FAILURE(expect_end(0, 2));
}

TEST_F(Misbehaving, a_close_is_not_answered) {
  make(1);
  pair->drop = drops(PacketType::kClose);
  ASSERT_TRUE(pair->end(0).close(pair->now(), pair->handle(0)).ok());
  ASSERT_NO_FATAL_FAILURE(expect_end(0, 1));
}

TEST_F(Misbehaving, who_closes_does_not_come_to_an_end) {
  make(1);
  constexpr Bytes kLong = 500'000'000;
  for (int i = 0; i < 2; ++i) {
    ReceiveRequest receive;
    receive.parts[0] = {1, nullptr, kLong};
    ASSERT_TRUE(pair->end(i).post_receive(pair->now(), pair->handle(i), receive).ok());
  }
  pair->checks_invariants = false;
  ASSERT_TRUE(pair->end(0).post_send(pair->now(), pair->handle(0), {1, nullptr, kLong, 0}).ok());
  ASSERT_TRUE(pair->end(1).post_send(pair->now(), pair->handle(1), {1, nullptr, kLong, 0}).ok());
  pair->run(100'000);
  ASSERT_TRUE(pair->end(1).close(pair->now(), pair->handle(1)).ok());
  pair->run(100'000);
  pair->drop = drops(PacketType::kData);
  ASSERT_NO_FATAL_FAILURE(expect_end(0, 3));
}

// None of this is the peer's fault: it has nothing to send, or one chunk now and then.
TEST_F(Misbehaving, programs_that_take_their_time_do_not) {
  make(-1);
  std::vector<std::byte> into(100);
  ReceiveRequest group;
  group.part_count = 2;
  for (std::size_t i = 0; i < 2; ++i) {
    group.parts[i] = {static_cast<Tag>(i), into.data() + 50 * i, 50};
  }
  ASSERT_TRUE(pair->end(1).post_receive(pair->now(), pair->handle(1), group).ok());
  const auto data = pattern(50, 1);
  pair->send(0, 0, data);
  pair->send(0, 9, data);  // Nobody asks for it.
  pair->run(20'000'000'000);
  EXPECT_EQ((Kinds{{EventKind::kSendDone, Outcome::kOk}}), kinds(pair->events(0)));
  EXPECT_EQ(0U, pair->events(1).size());
  pair->send(0, 1, data);
  ASSERT_TRUE(pair->run_until_events(2, 1, pair->now() + 1'000'000));

  // A network that lets one chunk through in three seconds, each way of it.
  TimeNs next = pair->now();
  pair->drop = [&](const LossyPair::Delivered& packet) {
    const bool is_data = type_of(packet) == PacketType::kData;
    const bool passes = !is_data || pair->now() >= next;
    next = is_data && passes ? pair->now() + 3'000'000'000 : next;
    return !passes;
  };
  const auto chunks = pattern(5 * 4096, 2);
  std::vector<std::byte> into_chunks(chunks.size());
  pair->receive(1, 3, into_chunks);
  pair->send(0, 3, chunks);
  ASSERT_TRUE(pair->run_until_events(3, 2));
  EXPECT_EQ(Outcome::kOk, pair->events(1)[1].outcome);
  EXPECT_EQ(chunks, into_chunks);
}

// Always something in the air, and never a byte of it.
TEST_F(Misbehaving, a_stream_of_empty_messages_does_not) {
  ConnectionOptions options;
  options.wire.base_rtt_ns = 200'000'000;
  make(-1, options);
  std::vector<std::byte> none;
  for (int i = 0; i < 100; ++i) {
    pair->receive(1, 1, none);
    pair->send(0, 1, none);
    pair->run(60'000'000);
  }
  pair->run(1'000'000'000);
  EXPECT_EQ(100U, pair->events(0).size());
  EXPECT_EQ(Outcome::kOk, pair->events(0).back().outcome);
}

TEST(connection, peer__idle_for_long_then_dead_counts_from_the_call) {
  ConnectionOptions options;
  options.loss.give_up_ns = 1'000'000'000;
  LossyPair pair(options);
  pair.run(20'000'000'000);
  pair.drop = [](const LossyPair::Delivered&) { return true; };
  const auto data = pattern(100, 1);
  const TimeNs posted = pair.now();
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(2, 0));
  EXPECT_EQ(Outcome::kUnreachable, pair.events(0)[0].outcome);
  EXPECT_GE(pair.now() - posted, 1'000'000'000U);
  EXPECT_LE(pair.now() - posted, 1'300'000'000U);
}

TEST(connection, arrival__replays_forgeries_and_other_incarnations_do_nothing) {
  LossyPair pair;
  std::vector<LossyPair::Delivered> seen;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    seen.push_back(packet);
    return false;
  };
  const auto data = pattern(50'000, 1);
  std::vector<std::byte> into(50'000);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  const ConnectionCounters before = pair.counters(1);
  const ConnectionCounters sender_before = pair.counters(0);
  for (const auto& packet : seen) {
    pair.deliver(packet);
  }
  EXPECT_EQ(seen.size(), pair.counters(1).replays_dropped - before.replays_dropped +
                             pair.counters(0).replays_dropped - sender_before.replays_dropped);
  EXPECT_EQ(before.chunks_received, pair.counters(1).chunks_received);

  // The receiver's process restarts: the same ids, another incarnation.
  ConnectionOptions again = pair.options(1);
  ASSERT_TRUE(pair.end(1).abort(pair.now(), pair.handle(1)).ok());
  pair.drop = {};
  pair.run(1'000'000);
  again.local_incarnation = 99;
  const auto handle = pair.end(1).connect(pair.now(), again);
  ASSERT_TRUE(handle.ok()) << handle.status().message();
  std::size_t to_receiver = 0;
  for (const auto& packet : seen) {
    if (packet.to == 1) {
      pair.deliver(packet);
      ++to_receiver;
    }
  }
  EXPECT_EQ(to_receiver, pair.end(1).counters(*handle)->forgeries_dropped);
  EXPECT_EQ(0U, pair.end(1).counters(*handle)->chunks_received);
}

TEST(connection, arrival__each_flipped_bit_of_each_packet_is_found) {
  LossyPair pair;
  std::vector<LossyPair::Delivered> seen;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    seen.push_back(packet);
    return true;
  };
  std::vector<std::byte> into(10);
  pair.receive(1, 1, into);
  pair.run(1);
  ASSERT_FALSE(seen.empty());
  LossyPair::Delivered packet = seen[0];
  for (std::size_t bit = 0; bit < packet.header_bytes * 8; ++bit) {
    packet.header[bit / 8] ^= std::byte{1} << (bit % 8);
    pair.deliver(packet);
    packet.header[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  const ConnectionCounters& counters = pair.counters(0);
  EXPECT_EQ(packet.header_bytes * 8, counters.forgeries_dropped + counters.malformed_dropped +
                                         pair.end(0).counters().strays_dropped);
  EXPECT_EQ(32U, pair.end(0).counters().strays_dropped);  // Bits of the connection's id.
  pair.deliver(packet);
  EXPECT_EQ(packet.header_bytes * 8, counters.forgeries_dropped + counters.malformed_dropped +
                                         pair.end(0).counters().strays_dropped);
}

TEST(connection, payload__its_tag_finds_a_flipped_byte) {
  ConnectionOptions options;
  options.authenticates_payload = true;
  LossyPair pair(options);
  bool flipped = false;
  const auto data = pattern(100'000, 1);
  std::vector<std::byte> into(100'000);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  for (TimeNs i = 0; i < 200 && !flipped; ++i) {
    pair.run(100);
    for (auto& [time, packet] : pair.in_air()) {
      if (!packet.payload.empty() && !flipped) {
        packet.payload[17] ^= std::byte{1};
        flipped = true;
      }
    }
  }
  ASSERT_TRUE(flipped);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(1U, pair.counters(1).forgeries_dropped);
  EXPECT_EQ(data, into);
}

TEST(connection, paths__a_dead_one_carries_probes_only_and_comes_back) {
  ConnectionOptions options;
  options.wire.paths = 8;
  options.receives = false;
  LossyPair pair(options);
  pair.drop = [](const LossyPair::Delivered& packet) { return packet.path == 3; };
  const auto data = pattern(8'000'000, 1);
  std::vector<std::byte> into(8'000'000);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(data, into);
  EXPECT_EQ(PathState::kDead, pair.end(0).path_counters(pair.handle(0), 3).state);
  EXPECT_EQ(1U, pair.counters(0).path_deaths);
  EXPECT_EQ(7U, pair.end(0).status(pair.handle(0)).paths_alive);
  const std::uint64_t sent_before = pair.end(0).path_counters(pair.handle(0), 3).chunks_sent;
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(2, 2));
  EXPECT_EQ(sent_before, pair.end(0).path_counters(pair.handle(0), 3).chunks_sent);
  pair.drop = {};
  pair.run(2'000'000'000);
  EXPECT_EQ(PathState::kGood, pair.end(0).path_counters(pair.handle(0), 3).state);
  EXPECT_EQ(8U, pair.end(0).status(pair.handle(0)).paths_alive);
}

TEST(connection, paths__a_rail_that_fails_is_given_up_as_one) {
  ConnectionOptions options;
  options.wire.paths = 32;
  options.wire.rails = 2;
  options.receives = false;
  LossyPair pair(options);
  pair.drop = [](const LossyPair::Delivered& packet) { return packet.rail == 1; };
  const auto data = pattern(20'000'000, 1);
  std::vector<std::byte> into(20'000'000);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(data, into);
  EXPECT_EQ(1U, pair.counters(0).rail_deaths);
  EXPECT_EQ(16U, pair.end(0).status(pair.handle(0)).paths_alive);
  pair.drop = {};
  pair.run(3'000'000'000);
  EXPECT_EQ(32U, pair.end(0).status(pair.handle(0)).paths_alive);
}

TEST(connection, adverts__of_as_many_packets_as_paths_pass_a_dead_path) {
  ConnectionOptions options;
  options.wire.paths = 4;
  options.sends = false;
  LossyPair pair(options);
  pair.drop = [](const LossyPair::Delivered& packet) { return packet.path == 1; };
  std::vector<std::byte> none;
  for (std::uint64_t i = 0; i < 24; ++i) {  // Four packets of adverts.
    pair.receive(0, 1, none, i);
    pair.send(1, 1, none, i);
  }
  EXPECT_TRUE(pair.run_until_events(24, 24, 5'000'000'000));
}

// Requests and grants that meet a living path only now and then must meet it often enough: each
// round of control packets takes every path once.
TEST(connection, control__each_path_gets_its_share) {
  ConnectionOptions options;
  options.wire.paths = 16;
  LossyPair pair(options);
  std::map<PathId, int> packets;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    ++packets[packet.path];
    return packet.to == 1;  // Adverts are repeated without an end.
  };
  std::vector<std::byte> none;
  pair.receive(0, 1, none);
  pair.run(2'900'000'000);
  int least = 1'000'000;
  int most = 0;
  for (PathId path = 0; path < 16; ++path) {
    least = std::min(least, packets[path]);
    most = std::max(most, packets[path]);
  }
  EXPECT_GT(least, 0);
  EXPECT_LE(most - least, 3);
}

// Answers on fewer than all paths: the receiver sends no data and cannot know which of them live.
TEST(connection, acknowledgements__that_get_lost_are_repeated_on_several_paths) {
  ConnectionOptions options;
  options.wire.paths = 8;
  options.receives = false;
  options.sends_max = 1;
  LossyPair pair(options);
  pair.drop = [](const LossyPair::Delivered& packet) {
    return packet.path != (packet.to == 1 ? 2 : 5);  // One path each way, and not the same.
  };
  const TimeNs start = pair.now();
  std::vector<std::byte> none;
  for (std::size_t i = 1; i <= 50; ++i) {
    pair.receive(1, 1, none);
    pair.send(0, 1, none);
    ASSERT_TRUE(pair.run_until_events(i, i, start + 20'000'000'000)) << i;
  }
}

TEST(connection, window_groups__one_whose_paths_are_all_dead_is_left) {
  for (const std::uint32_t groups : {2U, 4U, 16U}) {
    ConnectionOptions options;
    options.wire.paths = 32;
    options.window_groups = groups;
    options.receives = false;
    LossyPair pair(options);
    // Only the last group's paths work, so that the others look emptier.
    const std::uint32_t first = 32 - 32 / groups;
    pair.drop = [first](const LossyPair::Delivered& packet) {
      return packet.to == 1 && packet.path < first;
    };
    const auto data = pattern(100'000, 1);
    std::vector<std::byte> into(100'000);
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    ASSERT_TRUE(pair.run_until_events(1, 1)) << groups;
    EXPECT_EQ(Outcome::kOk, pair.events(0)[0].outcome) << groups;
    EXPECT_EQ(data, into) << groups;
  }
}

// A rail of which one path works must not be trusted as a whole when that one answers: the dead
// majority would take it down again. And few chunks must see every group.
TEST(connection, paths__one_living_path_of_each_rail_is_found_and_kept) {
  ConnectionOptions options;
  options.wire.paths = 16;
  options.wire.rails = 4;
  options.window_groups = 4;
  LossyPair pair(options);
  pair.drop = [](const LossyPair::Delivered& packet) { return packet.path < 12; };
  const auto data = pattern(1386, 1);
  std::vector<std::byte> into[3];
  for (auto& each : into) {
    each.resize(data.size());
    pair.receive(1, 1, each);
    pair.send(0, 1, data);
  }
  ASSERT_TRUE(pair.run_until_events(3, 3, 5'000'000'000));
  EXPECT_EQ(data, into[2]);
}

// A policy in place of the window says when, not where: all groups carry their share.
TEST(connection, window_groups__a_window_per_path_leaves_a_path_that_died) {
  ConnectionOptions options;
  options.wire.paths = 4;
  options.window_groups = 4;
  options.receives = false;
  LossyPair pair(options);
  std::uint64_t on_dead = 0;
  bool is_dead = false;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    const bool is_gone = is_dead && packet.path == 3;
    on_dead += is_gone && packet.payload_bytes > 0 ? 1 : 0;
    return is_gone;
  };
  const auto data = pattern(20'000'000, 1);
  std::vector<std::byte> into(data.size());
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  pair.run(100'000);
  is_dead = true;
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(data, into);
  EXPECT_GT(on_dead, 0U);
  EXPECT_LT(on_dead, 60U) << "its window and some probes";
}

TEST(connection, window_groups__a_policy_that_always_sends_uses_them_all) {
  tutti_transport_policy policy{};
  policy.version = TUTTI_TRANSPORT_POLICY_VERSION;
  policy.size_bytes = sizeof(policy);
  policy.may_send = [](void*, const tutti_transport_view*, std::uint32_t) -> std::uint64_t {
    return 0;
  };
  ConnectionOptions options;
  options.wire.paths = 16;
  options.window_groups = 4;
  options.window_bytes_max = 16'384;
  options.policy = &policy;
  LossyPair pair(options);
  std::map<int, int> groups;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    groups[packet.path / 4] += packet.payload_bytes > 0 ? 1 : 0;
    return false;
  };
  ASSERT_TRUE(pair.carry(400'000));
  for (int group = 0; group < 4; ++group) {
    EXPECT_NEAR(98 / 4, groups[group], 3) << group;
  }
}

TEST(connection, window_groups__each_is_paced_for_itself) {
  for (const std::uint32_t groups : {1U, 2U, 8U}) {
    ConnectionOptions options;
    options.receives = false;
    options.wire.paths = 64;
    options.wire.base_rtt_ns = 100'000;
    options.wire.ps_per_byte = 800;
    options.window_groups = groups;
    options.controller = "timely";
    LossyPair pair(options);
    const auto data = pattern(25'000'000, 1);
    std::vector<std::byte> into(data.size());
    pair.receive(1, 1, into);
    pair.send(0, 1, data);
    pair.run(4'000'000);
    const Bytes before = pair.counters(1).bytes_received;
    pair.run(10'000'000);
    const Bytes received = pair.counters(1).bytes_received - before;
    EXPECT_GT(received, 11'875'000U) << groups;  // 95 % of the link.
    EXPECT_LT(received, 13'125'000U) << groups;
  }
}

/// 64 paths, 100 Gb/s, a round trip of 100 us; one message without content that does not end.
class Windows {
 public:
  Windows(const std::string& controller, std::uint32_t groups, std::uint32_t paths = 64,
          Bytes window_bytes_max = 0)
      : pair(options_of(controller, groups, paths, window_bytes_max), 3) {
    pair.checks_invariants = false;
    ReceiveRequest request;
    request.parts[0].capacity_bytes = kMessageBytesMax;
    EXPECT_TRUE(pair.end(1).post_receive(pair.now(), pair.handle(1), request).ok());
    EXPECT_TRUE(
        pair.end(0).post_send(pair.now(), pair.handle(0), {0, nullptr, kMessageBytesMax, 0}).ok());
  }
  static ConnectionOptions options_of(const std::string& controller, std::uint32_t groups,
                                      std::uint32_t paths, Bytes window_bytes_max) {
    ConnectionOptions options;
    options.receives = false;
    options.wire.paths = paths;
    options.wire.base_rtt_ns = 100'000;
    options.wire.ps_per_byte = 80;
    options.controller = controller;
    options.window_groups = groups;
    options.window_bytes_max = window_bytes_max;
    options.spray = "oblivious";
    return options;
  }
  Bytes bytes() { return pair.end(0).status(pair.handle(0)).window_bytes; }
  Bytes least_for(TimeNs time_ns) {
    Bytes least = bytes();
    for (const TimeNs until = pair.now() + time_ns; pair.now() < until && pair.step(until);) {
      least = std::min(least, bytes());
    }
    return least;
  }

  LossyPair pair;
};

// A third of what one round trip sends is lost, on all paths.
TEST(connection, window_groups__an_overload_of_all_paths_is_told_to_each) {
  for (const char* controller : {"cubic", "dctcp", "swift"}) {
    std::array<double, 2> kept{};
    for (const std::size_t many : {0U, 1U}) {
      Windows windows(controller, many != 0 ? 8 : 1);
      windows.pair.run(800'000);
      const TimeNs until = windows.pair.now() + 100'000;
      int chunks = 0;
      windows.pair.drop = [&](const LossyPair::Delivered& packet) {
        return packet.payload_bytes > 0 && windows.pair.now() < until && ++chunks % 3 == 0;
      };
      const auto before = static_cast<double>(windows.bytes());
      kept[many] = static_cast<double>(windows.least_for(1'500'000)) / before;
    }
    EXPECT_LT(kept[0], 0.75) << controller;
    EXPECT_NEAR(kept[0], kept[1], 0.1) << controller;
  }
}

// What a path loses that loses everything is no overload, and hides none on another path.
TEST(connection, window_groups__a_path_that_fails_hides_no_overload) {
  for (const std::uint64_t which : {2U, 3U, 4U, 5U}) {
    Windows windows("dctcp", 1, 8, 16 * 4096);
    windows.pair.run(800'000);
    std::uint64_t lost = 0;
    TimeNs lost_ns = kNever;
    bool is_done = false;
    Bytes before = 0;
    windows.pair.drop = [&](const LossyPair::Delivered& packet) {
      if (packet.payload_bytes > 0 && packet.path == 0) {
        lost_ns = ++lost == which ? windows.pair.now() : lost_ns;
        return true;
      }
      if (packet.payload_bytes == 0 || is_done || lost_ns == kNever ||
          windows.pair.now() < lost_ns + 80'000) {
        return false;
      }
      is_done = true;  // Before the loss on path 0 is known, and to be known after it.
      before = windows.bytes();
      return true;
    };
    while (!is_done && windows.pair.step(20'000'000)) {
    }
    ASSERT_TRUE(is_done);
    EXPECT_LT(windows.pair.now(), lost_ns + 110'000) << which;
    EXPECT_LT(windows.least_for(300'000), before * 3 / 4) << which;
  }
}

// Marks have made the windows small since losses were told of last. Chunks that are late then are
// taken for lost, and what that took back is not what there was before the marks.
TEST(connection, window_groups__only_what_an_episode_took_is_given_back) {
  Windows windows("dctcp", 8);
  LossyPair& pair = windows.pair;
  pair.run(300'000);
  int chunks = 0;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    return packet.payload_bytes > 0 && ++chunks % 60 == 0;
  };
  pair.run(1'000'000);
  pair.drop = nullptr;
  pair.faults.mark = 1000;
  pair.run(3'000'000);
  pair.faults.delay = 20;
  pair.faults.delay_ns_max = 600'000;
  const std::uint64_t undone = pair.counters(0).undone;
  const Bytes before = windows.bytes();
  EXPECT_LT(before, 8U * 8192);
  Bytes most = before;
  for (const TimeNs until = pair.now() + 3'000'000; pair.step(until);) {
    most = std::max(most, windows.bytes());
  }
  EXPECT_GT(pair.counters(0).undone, undone);
  EXPECT_LT(most, 2 * before);
}

TEST(connection, paths__of_which_each_works_one_way_only) {
  ConnectionOptions options;
  options.wire.paths = 2;
  options.receives = false;
  LossyPair pair(options);
  pair.drop = [](const LossyPair::Delivered& packet) { return packet.path == packet.to; };
  const auto data = pattern(100'000, 1);
  std::vector<std::byte> into(100'000);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(Outcome::kOk, pair.events(0)[0].outcome);
  EXPECT_EQ(data, into);
}

// Far more messages than tables hold, slots and numbers reused many times.
TEST(connection, messages__of_one_byte_65536_in_order_under_loss) {
  constexpr std::size_t kMessages = 65'536;
  ConnectionOptions options;
  options.first_number = UINT32_MAX - 30'000;
  options.receives = false;
  LossyPair pair(options);
  pair.checks_invariants = false;
  pair.faults.loss = 10;
  pair.faults.duplicate = 10;
  std::vector<std::byte> data(kMessages);
  std::vector<std::byte> into(kMessages);
  for (std::size_t i = 0; i < kMessages; ++i) {
    data[i] = static_cast<std::byte>(i * 31 >> 3);
  }
  std::size_t sends = 0;
  std::size_t receives = 0;
  while (pair.events(0).size() < kMessages || pair.events(1).size() < kMessages) {
    for (; sends < kMessages && sends < pair.events(0).size() + 200; ++sends) {
      ASSERT_TRUE(
          pair.end(0).post_send(pair.now(), pair.handle(0), {1, &data[sends], 1, sends}).ok());
    }
    for (; receives < kMessages && receives < pair.events(1).size() + 200; ++receives) {
      ReceiveRequest request;
      request.parts[0] = {1, &into[receives], 1};
      request.context = receives;
      if (!pair.end(1).post_receive(pair.now(), pair.handle(1), request).ok()) {
        break;  // Slots come back in the order of posting.
      }
    }
    ASSERT_TRUE(pair.step(pair.now() + 1'000'000'000));
  }
  EXPECT_EQ(data, into);
}

TEST(connection, message__of_a_gibibyte_under_loss) {
  constexpr Bytes kBytes = (1ULL << 30) + 1;
  ConnectionOptions options;
  options.wire.chunk_bytes = 65'536;
  options.wire.mtu_bytes = 65'536;
  options.wire.paths = 64;
  options.receives = false;
  LossyPair pair(options);
  pair.checks_invariants = false;
  pair.faults.loss = 10;
  ReceiveRequest request;
  request.parts[0] = {1, nullptr, kBytes};
  ASSERT_TRUE(pair.end(1).post_receive(pair.now(), pair.handle(1), request).ok());
  ASSERT_TRUE(pair.end(0).post_send(pair.now(), pair.handle(0), {1, nullptr, kBytes, 0}).ok());
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(kBytes, pair.events(1)[0].part_bytes[0]);
  EXPECT_EQ(kBytes, pair.counters(1).bytes_received);
  // The paths have a rate of their own each; with loss the transfer takes a few times the idle
  // time.
  EXPECT_LT(pair.now(), 500'000'000U);
}

TEST(connection, status__a_void_handle_has_nothing) {
  LossyPair pair;
  EXPECT_EQ(nullptr, pair.end(0).counters({}));
  EXPECT_EQ(nullptr, pair.end(0).counters({3, 1}));
  EXPECT_EQ(ErrorCode::kUnavailable, pair.end(0).close(pair.now(), {}).code());
  EXPECT_EQ(0U, pair.end(0).status({}).window_bytes);
}

TEST(connection, connect__refuses_what_cannot_work) {
  Endpoint end({2});
  const auto code = [&](auto&& change) {
    ConnectionOptions options;
    options.local_id = 1;
    change(options);
    return end.connect(0, options).status().code();
  };
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.controller = "bbr"; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.spray = "both"; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.wire.paths = 0; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.wire.paths = 4097; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.wire.rails = 2; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.wire.ps_per_byte = 0; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.window_groups = 2; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.chunks_max = 16385; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.loss.give_up_ns = 999'999; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto& o) { o.loss.rto_ns_max = kNever; }));
  const auto refuses = [&](auto change) { EXPECT_EQ(ErrorCode::kInvalidArgument, code(change)); };
  refuses([](auto& o) { o.loss.tail_probe_ns_min = kNever; });
  refuses([](auto& o) { o.loss.tail_probe_ns_min = 3'600'000'000'001; });
  refuses([](auto& o) { o.acknowledgement.ack_delay_ns = kNever; });
  refuses([](auto& o) { o.acknowledgement.ack_delay_ns = 3'600'000'000'001; });
  refuses([](auto& o) { o.window_bytes_max = kBytesMax; });
  refuses([](auto& o) { o.window_bytes_max = (64ULL << 30) + 1; });
  refuses([](auto& o) { o.window_bytes_min = (64ULL << 30) + 1; });
  refuses([](auto& o) { o.receive_parts_max = (1U << 24) + 1; });
  refuses([](auto& o) { o.sends_max = (1U << 24) + 1; });
  refuses([](auto& o) { o.wire.chunk_bytes = o.wire.mtu_bytes = 16 << 20; });
  EXPECT_EQ(ErrorCode::kOk, code([](auto& o) { o.wire.paths = 4096; }));
  EXPECT_EQ(ErrorCode::kInvalidArgument, code([](auto&) {}));  // The id is in use.
  EXPECT_EQ(ErrorCode::kOk, code([](auto& o) { o.local_id = 2; }));
  EXPECT_EQ(ErrorCode::kUnavailable, code([](auto& o) { o.local_id = 3; }));
}

TEST(connection, connect__takes_what_just_works) {
  Endpoint end({16});
  std::uint32_t id = 0;
  const auto takes = [&](auto change) {
    ConnectionOptions options;
    options.local_id = ++id;
    change(options);
    const auto made = end.connect(0, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
  };
  for (const char* controller : {"nscc", "swift+rccc", "cubic", "dctcp", "timely"}) {
    takes([&](auto& o) {
      o.controller = controller;
      o.window_bytes_max = 64ULL << 30;
      o.wire.chunk_bytes = 16 << 20;
      o.wire.mtu_bytes = (16 << 20) - 1;
    });
    takes([&](auto& o) {
      o.controller = controller;
      o.wire.base_rtt_ns = 1'000'000'000;
      o.wire.ps_per_byte = 1;
      o.wire.paths = o.wire.rails = 16;
    });
  }
  takes([](auto& o) { o.loss.tail_probe_ns_min = 3'600'000'000'000; });
  takes([](auto& o) { o.acknowledgement.ack_delay_ns = 3'600'000'000'000; });
  takes([](auto& o) { o.wire.chunk_bytes = 16 << 20; });
}

TEST(connection, small_messages__stay_on_one_path) {
  ConnectionOptions options;
  options.wire.paths = 64;
  options.single_path_bytes = 64 * 1024;
  LossyPair pair(options);
  std::map<PathId, int> used;
  pair.drop = [&](const LossyPair::Delivered& packet) {
    used[packet.path] += packet.payload_bytes > 0 ? 1 : 0;
    return false;
  };
  const auto data = pattern(64 * 1024, 1);
  std::vector<std::byte> into(64 * 1024);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(1, std::count_if(used.begin(), used.end(), [](auto& it) { return it.second > 0; }));
}

TEST(connection, time__a_step_back_counts_as_the_newest) {
  LossyPair pair;
  const auto data = pattern(1'000'000, 1);
  std::vector<std::byte> into(1'000'000);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  pair.run(50'000);
  pair.end(0).handle_timeout(0);
  pair.end(1).handle_timeout(5);
  Transmission out;
  EXPECT_FALSE(pair.end(0).poll_transmit(1, &out));
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(data, into);
  EXPECT_EQ(0U, pair.counters(0).retransmissions);
}

}  // namespace
}  // namespace tutti::transport
