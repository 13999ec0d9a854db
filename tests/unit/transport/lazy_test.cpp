// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What may wait for company (AcknowledgementOptions::lazy_ns): that it does, how many packets that
// saves, and that neither losses nor round trips are taken for something else by it.
#include <gtest/gtest.h>

#include <functional>

#include "lossy_pair.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

constexpr TimeNs kLazyNs = 20'000;

ConnectionOptions lazy_options(TimeNs lazy_ns = kLazyNs) {
  ConnectionOptions options;
  options.acknowledgement.lazy_ns = lazy_ns;
  return options;
}

PacketType type_of(const LossyPair::Delivered& packet) {
  return static_cast<PacketType>(std::to_integer<int>(packet.header[0]) & 15);
}

/// Counts packets by type; lets all through.
std::function<bool(const LossyPair::Delivered&)> count(std::array<std::uint64_t, 16>& counts) {
  return [&counts](const LossyPair::Delivered& packet) {
    ++counts[static_cast<std::size_t>(type_of(packet))];
    return false;
  };
}
std::uint64_t of(const std::array<std::uint64_t, 16>& counts, PacketType type) {
  return counts[static_cast<std::size_t>(type)];
}

void send_patiently(LossyPair& pair, int from, const std::vector<std::byte>& data) {
  SendRequest request{0, data.data(), data.size(), 0};
  request.is_patient = true;
  const Status status = pair.end(from).post_send(pair.now(), pair.handle(from), request);
  EXPECT_TRUE(status.ok()) << status.message();
}

/// `count` messages of 8 bytes, as soon as the peer knows the receives, of which there are 16.
void stream(LossyPair& pair, std::size_t count) {
  const auto data = pattern(8, 1);
  std::vector<std::byte> into(8);
  std::size_t posted = 0;
  for (; posted < 16; ++posted) {
    pair.receive(1, 0, into);
  }
  std::size_t sent = 0;
  while (pair.events(1).size() < count) {
    while (sent < count && sent < pair.events(0).size() + 64) {
      send_patiently(pair, 0, data);
      ++sent;
    }
    for (; posted < std::min(count, pair.events(1).size() + 16); ++posted) {
      pair.receive(1, 0, into);
    }
    ASSERT_TRUE(pair.step(kNever - 1));
  }
  ASSERT_TRUE(pair.run_until_events(count, count));
}

TEST(lazy, stream__one_acknowledgement_for_several_messages) {
  constexpr std::size_t kCount = 400;
  LossyPair pair(lazy_options());
  std::array<std::uint64_t, 16> counts{};
  pair.drop = count(counts);
  stream(pair, kCount);
  EXPECT_EQ(kCount, of(counts, PacketType::kData));
  EXPECT_LE(of(counts, PacketType::kAck), kCount / 4 + 4);
  EXPECT_LE(of(counts, PacketType::kAdvert), kCount / 4);
  EXPECT_LE(of(counts, PacketType::kAdvertAck), 2U);
  EXPECT_EQ(0U, pair.counters(0).timeouts + pair.counters(0).tail_probes);
}

TEST(lazy, stream__the_round_trip_is_that_of_the_network) {
  LossyPair pair(lazy_options());
  stream(pair, 200);
  const ConnectionStatus status = pair.end(0).status(pair.handle(0));
  const TimeNs base_ns = pair.options(0).wire.base_rtt_ns;
  EXPECT_GE(status.fabric_ns_min, base_ns);
  EXPECT_LT(status.fabric_ns, base_ns + 1'000);
  EXPECT_GT(status.srtt_ns, status.fabric_ns + 1'000) << "what waits is waited for";
}

/// Both ends post four receives ahead and answer each message with another one.
void ping_pong(LossyPair& pair, std::size_t rounds) {
  const auto data = pattern(8, 1);
  std::vector<std::byte> into(8);
  std::array<std::size_t, 2> received{};
  std::array<std::size_t, 2> seen{};
  for (int i = 0; i < 4; ++i) {
    pair.receive(0, 0, into);
    pair.receive(1, 0, into);
  }
  send_patiently(pair, 0, data);
  while (received[0] < rounds) {
    ASSERT_TRUE(pair.step(kNever - 1));
    for (std::size_t end = 0; end < 2; ++end) {
      for (const auto& events = pair.events(static_cast<int>(end)); seen[end] < events.size();) {
        if (events[seen[end]++].kind != EventKind::kReceiveDone) {
          continue;
        }
        ++received[end];
        pair.receive(static_cast<int>(end), 0, into);
        if (end == 1 || received[0] < rounds) {
          send_patiently(pair, static_cast<int>(end), data);
        }
      }
    }
  }
}

TEST(lazy, ping_pong__a_message_is_a_datagram) {
  constexpr std::size_t kRounds = 200;
  LossyPair pair(lazy_options());
  pair.piggybacks = true;
  ping_pong(pair, kRounds);
  // The first adverts, their acknowledgement and the first acknowledgements are on their own.
  EXPECT_LE(pair.datagrams, 2 * kRounds + 8);
  EXPECT_EQ(0U, pair.counters(0).timeouts + pair.counters(0).tail_probes);
  EXPECT_EQ(0U, pair.counters(1).timeouts + pair.counters(1).tail_probes);
}

TEST(lazy, ping_pong__without_it_a_message_is_several) {
  constexpr std::size_t kRounds = 200;
  LossyPair pair(lazy_options(0));
  pair.piggybacks = true;
  ping_pong(pair, kRounds);
  EXPECT_GE(pair.datagrams, 4 * kRounds);
}

/// Time from the post of a send of `bytes` to its end. The peer has acknowledged something before.
TimeNs time_to_end(bool is_patient, std::size_t bytes = 8,
                   const std::function<void(LossyPair&)>& trouble = {}) {
  LossyPair pair(lazy_options());
  const auto first = pattern(8, 1);
  const auto data = pattern(bytes, 2);
  std::vector<std::byte> into(bytes);
  std::vector<std::byte> into_first(8);
  pair.receive(1, 0, into_first);
  pair.receive(1, 0, into);
  pair.send(0, 0, first);
  EXPECT_TRUE(pair.run_until_events(1, 1));
  pair.run(1'000'000);
  if (trouble) {
    trouble(pair);
  }
  const TimeNs begin_ns = pair.now();
  if (is_patient) {
    send_patiently(pair, 0, data);
  } else {
    pair.send(0, 0, data);
  }
  EXPECT_TRUE(pair.run_until_events(2, 2));
  EXPECT_EQ(data, into);
  return pair.now() - begin_ns;
}

TEST(lazy, send__who_waits_is_answered_at_once) {
  const TimeNs base_ns = WireCapabilities().base_rtt_ns;
  EXPECT_LT(time_to_end(/*is_patient=*/false), base_ns + 1'000);
  EXPECT_GE(time_to_end(/*is_patient=*/true), base_ns + kLazyNs);
  EXPECT_LT(time_to_end(/*is_patient=*/true), base_ns + kLazyNs + 1'000);
}

TEST(lazy, send__without_laziness_patience_is_not_looked_at) {
  LossyPair pair(lazy_options(0));
  const auto data = pattern(8, 1);
  std::vector<std::byte> into(8);
  pair.receive(1, 0, into);
  pair.receive(1, 0, into);
  send_patiently(pair, 0, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  pair.run(1'000'000);
  const TimeNs begin_ns = pair.now();
  send_patiently(pair, 0, data);
  ASSERT_TRUE(pair.run_until_events(2, 2));
  EXPECT_LT(pair.now() - begin_ns, pair.options(0).wire.base_rtt_ns + 100);
}

TEST(lazy, send__marks_and_losses_are_told_at_once) {
  const TimeNs base_ns = WireCapabilities().base_rtt_ns;
  EXPECT_LT(time_to_end(true, 8, [](LossyPair& pair) { pair.faults.mark = 1000; }),
            base_ns + 1'000);
  // What is sent again, here by a tail probe, asks for its acknowledgement.
  bool has_dropped = false;
  const TimeNs lost_ns = time_to_end(true, 8, [&](LossyPair& pair) {
    pair.drop = [&](const LossyPair::Delivered& packet) {
      return type_of(packet) == PacketType::kData && !std::exchange(has_dropped, true);
    };
  });
  EXPECT_TRUE(has_dropped);
  EXPECT_LT(lost_ns, 2 * base_ns + kLazyNs + base_ns + 2'000);
}

/// Three receives are open and one message is through and acknowledged.
bool carry_the_first_of_three(LossyPair& pair, const std::vector<std::byte>& data,
                              std::vector<std::byte>& into) {
  for (int i = 0; i < 3; ++i) {
    pair.receive(1, 0, into);
  }
  pair.send(0, 0, data);
  const bool came = pair.run_until_events(1, 1);
  pair.run(1'000'000);
  return came;
}

TEST(lazy, send__one_that_waits_is_not_forgotten_behind_one_that_does_not) {
  LossyPair pair(lazy_options());
  const auto data = pattern(8, 1);
  std::vector<std::byte> into(8);
  ASSERT_TRUE(carry_the_first_of_three(pair, data, into));
  const TimeNs begin_ns = pair.now();
  pair.send(0, 0, data);
  send_patiently(pair, 0, data);
  ASSERT_TRUE(pair.run_until_events(3, 3));
  EXPECT_LT(pair.now() - begin_ns, pair.options(0).wire.base_rtt_ns + 1'000);
}

TEST(lazy, receive__an_advert_waits_only_while_the_peer_knows_of_enough) {
  LossyPair pair(lazy_options());
  std::array<std::uint64_t, 16> counts{};
  pair.drop = count(counts);
  std::vector<std::byte> into(8);
  pair.receive(1, 0, into);
  pair.receive(1, 0, into);
  pair.run(1);
  EXPECT_EQ(1U, of(counts, PacketType::kAdvert));
  const TimeNs begin_ns = pair.now();
  pair.receive(1, 0, into);
  pair.run(kLazyNs - 2);
  EXPECT_EQ(1U, of(counts, PacketType::kAdvert));
  pair.run(2);
  EXPECT_EQ(2U, of(counts, PacketType::kAdvert));
  // Two of the three are used up: the fourth is told of at once.
  pair.run(1'000'000);
  const auto data = pattern(8, 1);
  send_patiently(pair, 0, data);
  send_patiently(pair, 0, data);
  ASSERT_TRUE(pair.run_until_events(0, 2));
  pair.receive(1, 0, into);
  pair.run(1);
  EXPECT_EQ(3U, of(counts, PacketType::kAdvert));
  EXPECT_GT(pair.now(), begin_ns);
}

TEST(lazy, receive__a_withdrawal_does_not_wait) {
  LossyPair pair(lazy_options());
  std::vector<std::byte> into(8);
  for (std::uint64_t i = 0; i < 4; ++i) {
    pair.receive(1, 0, into, i);
  }
  pair.run(1'000'000);
  const TimeNs begin_ns = pair.now();
  ASSERT_TRUE(pair.end(1).cancel_receive(pair.now(), pair.handle(1), 3).ok());
  ASSERT_TRUE(pair.run_until_events(0, 1));
  EXPECT_EQ(Outcome::kCancelled, pair.events(1)[0].outcome);
  EXPECT_LT(pair.now() - begin_ns, pair.options(0).wire.base_rtt_ns + 1'000);
}

TEST(lazy, advert_ack__a_lost_advert_and_a_lost_answer_are_repeated) {
  LossyPair pair(lazy_options());
  std::array<std::uint64_t, 16> counts{};
  pair.drop = [&](const LossyPair::Delivered& packet) {
    const auto type = static_cast<std::size_t>(type_of(packet));
    ++counts[type];
    return (type_of(packet) == PacketType::kAdvert || type_of(packet) == PacketType::kAdvertAck) &&
           counts[type] == 1;
  };
  std::vector<std::byte> into(8);
  pair.receive(1, 0, into);
  pair.run(20'000'000);
  // The first advert was lost, the second one's answer too, the third one's came.
  EXPECT_EQ(3U, of(counts, PacketType::kAdvert));
  EXPECT_EQ(2U, of(counts, PacketType::kAdvertAck));
}

TEST(lazy, close__what_waits_leaves_first) {
  LossyPair pair(lazy_options());
  const auto data = pattern(8, 1);
  std::vector<std::byte> into(8);
  ASSERT_TRUE(carry_the_first_of_three(pair, data, into));
  send_patiently(pair, 0, data);
  ASSERT_TRUE(pair.run_until_events(1, 2));
  const TimeNs begin_ns = pair.now();
  ASSERT_TRUE(pair.end(1).close(pair.now(), pair.handle(1)).ok());
  ASSERT_TRUE(pair.run_until_events(2, 2));
  EXPECT_EQ(EventKind::kSendDone, pair.events(0)[1].kind);
  EXPECT_EQ(Outcome::kOk, pair.events(0)[1].outcome);
  EXPECT_LT(pair.now() - begin_ns, pair.options(0).wire.base_rtt_ns);
}

TEST(lazy, poll_piggyback__belongs_to_the_peer_that_is_asked_for) {
  Endpoint sender({4});
  Endpoint receiver({4});
  const TimeNs now = 1'000'000;
  std::array<ConnectionHandle, 2> at;
  for (std::uint32_t i = 0; i < 2; ++i) {
    ConnectionOptions options = lazy_options();
    options.local_id = 10 + i;
    options.remote_id = 20 + i;
    options.peer = 7 + i;
    ASSERT_TRUE(sender.connect(now, options).ok());
    const auto made = receiver.connect(now, LossyPair::mirrored(options));
    ASSERT_TRUE(made.ok());
    at[i] = *made;
  }
  Transmission out;
  for (int i = 0; i < 3; ++i) {
    ReceiveRequest request;
    ASSERT_TRUE(receiver.post_receive(now, at[1], request).ok());
    while (receiver.poll_transmit(now, &out)) {
    }
  }
  // The third one waits. Who goes to another peer does not take it along.
  Transmission leaving;
  leaving.peer = 7;
  EXPECT_FALSE(receiver.poll_piggyback(now, leaving, &out));
  leaving.peer = 8;
  EXPECT_TRUE(receiver.poll_piggyback(now, leaving, &out));
  EXPECT_EQ(8U, out.peer);
  EXPECT_TRUE(out.is_control);
  EXPECT_FALSE(receiver.poll_piggyback(now, leaving, &out));
}

TEST(lazy, poll_piggyback__data_takes_something_along_now_and_then) {
  LossyPair pair(lazy_options());
  const auto data = pattern(8, 1);
  std::vector<std::byte> into(8);
  for (int i = 0; i < 8; ++i) {
    pair.receive(1, 0, into);
  }
  send_patiently(pair, 0, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  pair.run(1'000'000);
  Transmission leaving;
  leaving.is_control = false;
  Transmission out;
  // After a pause at once, then for three messages.
  std::vector<bool> was_piggybacked;
  for (std::size_t i = 0; i < 7; ++i) {
    send_patiently(pair, 0, data);
    ASSERT_TRUE(pair.run_until_events(0, i + 2));
    was_piggybacked.push_back(pair.end(1).poll_piggyback(pair.now(), leaving, &out));
  }
  EXPECT_EQ((std::vector<bool>{true, false, false, true, false, false, true}), was_piggybacked);
}

TEST(lazy, options__a_second_is_the_most) {
  Endpoint endpoint({1});
  ConnectionOptions options = lazy_options(1'000'000'001);
  options.local_id = 1;
  EXPECT_EQ(ErrorCode::kInvalidArgument, endpoint.connect(0, options).status().code());
}

}  // namespace
}  // namespace tutti::transport
