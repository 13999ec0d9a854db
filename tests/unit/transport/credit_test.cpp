// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/credit.hpp"

#include <gtest/gtest.h>

#include "lossy_pair.hpp"
#include "transport/serial.hpp"

namespace tutti::transport {
namespace {

constexpr std::uint32_t kGrant = 16 * 1024;
constexpr std::uint64_t kUnits = kGrant / 256;

TEST(credit_sender, speculation__ends_with_the_first_news) {
  CreditSender sender(600'000, 900'000, 4096, 1);
  EXPECT_TRUE(sender.can_send());
  EXPECT_TRUE(sender.is_speculating());
  sender.on_sent(4096);
  EXPECT_EQ(600'000 - 4096, sender.credit_bytes());
  sender.on_heard();
  EXPECT_FALSE(sender.is_speculating());
  EXPECT_FALSE(sender.can_send());
  EXPECT_TRUE(sender.on_credit(1 + 16));
  EXPECT_EQ(4096, sender.credit_bytes());
  EXPECT_FALSE(sender.on_credit(1 + 16));  // Repeated.
  EXPECT_FALSE(sender.on_credit(1 + 8));   // Late.
  sender.on_sent(4097);
  EXPECT_FALSE(sender.can_send());
}

TEST(credit_sender, tell_target__asks_for_the_backlog_less_what_is_there) {
  const std::uint64_t first = (1ULL << 32) - 3;
  CreditSender sender(0, 100'000, 4096, first);
  EXPECT_FALSE(sender.can_send());
  EXPECT_EQ(static_cast<std::uint32_t>(first + 16), sender.tell_target(4096));
  EXPECT_EQ(static_cast<std::uint32_t>(first + 17), sender.tell_target(4097));
  EXPECT_EQ(static_cast<std::uint32_t>(first + 391), sender.tell_target(1'000'000));  // Window.
  EXPECT_EQ(static_cast<std::uint32_t>(first), sender.tell_target(0));
  EXPECT_TRUE(sender.on_credit(static_cast<std::uint32_t>(first + 20)));
  EXPECT_EQ(static_cast<std::uint32_t>(first + 20), sender.tell_target(4096));
}

TEST(credit_sender, is_untold__until_something_leaves_that_asks_for_as_much) {
  CreditSender sender(0, 100'000, 4096, 1);
  EXPECT_FALSE(sender.is_untold(0));
  EXPECT_TRUE(sender.is_untold(4096));
  sender.tell_target(4096);
  EXPECT_FALSE(sender.is_untold(4096));
  EXPECT_TRUE(sender.is_untold(8192));
  EXPECT_TRUE(sender.on_credit(1 + 16));
  sender.on_sent(4096);
  EXPECT_FALSE(sender.is_untold(0));
  EXPECT_TRUE(sender.is_untold(4096));  // What was granted is used up.
}

class Pacer : public ::testing::Test {
 protected:
  Pacer() : pacer(4, 20) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      pacer.add(i, 1, kGrant, 64 * 1024, 12'000);
    }
  }
  std::vector<std::uint32_t> grants(int count) {
    std::vector<std::uint32_t> all;
    for (int i = 0; i < count; ++i) {
      now = std::max(now, pacer.next_ns() == kNever ? now : pacer.next_ns());
      all.push_back(pacer.grant(now).connection);
    }
    return all;
  }
  CreditPacer pacer;
  TimeNs now = 1000;
};

using Order = std::vector<std::uint32_t>;
constexpr std::uint32_t kNobody = 0xffffffff;

TEST_F(Pacer, grant__active_in_turn_then_idle_up_to_a_window) {
  pacer.on_wanted(now, 0, 1 + 3 * kUnits, false);
  pacer.on_wanted(now, 1, 1 + kUnits, false);
  EXPECT_EQ(Order({0, 1, 0, 0}), grants(4));
  EXPECT_EQ(1 + 3 * kUnits, pacer.granted_units(0));
  // Both are idle now: a quantum each in turn, until a window went unasked.
  EXPECT_EQ(Order({1, 0, 1, 0, 1, 0, 1, 0, kNobody}), grants(9));
  EXPECT_EQ(1 + 7 * kUnits, pacer.granted_units(0));
  EXPECT_EQ(kNever, pacer.next_ns());
  pacer.on_wanted(now, 2, 1 + 1, false);
  EXPECT_EQ(Order({2}), grants(1));
  EXPECT_EQ(1U + 1U, pacer.granted_units(2));  // No more than asked.
}

TEST_F(Pacer, grant__the_losers_come_first) {
  pacer.on_wanted(now, 0, 1 + 10 * kUnits, false);
  pacer.on_wanted(now, 1, 1 + 10 * kUnits, false);
  pacer.on_wanted(now, 2, 1 + 2 * kUnits, true);
  EXPECT_EQ(Order({2, 0, 1, 2, 0, 1}), grants(6));
}

TEST_F(Pacer, grant__never_more_than_the_link_takes) {
  const TimeNs start = now;
  for (int round = 0; round < 100; ++round) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      pacer.on_wanted(now, i, 1 + 100'000, false);
    }
    grants(10);
  }
  const double link_ns = 1000.0 * kGrant * 20 / 1000;
  EXPECT_NEAR(link_ns / 0.99, static_cast<double>(pacer.next_ns() - start), 2);
  EXPECT_EQ(kNobody, pacer.grant(now).connection);
}

// A peer whose gap is never filled asks with each round trip.
TEST_F(Pacer, grant__one_that_retransmits_for_ever_does_not_starve_the_others) {
  std::uint32_t of_others = 0;
  for (int i = 0; i < 40; ++i) {
    pacer.on_wanted(now, 1, 1 + 100 * kUnits, false);
    pacer.on_wanted(now, 0, 1, true);
    of_others += grants(1)[0] == 1 ? 1 : 0;
  }
  EXPECT_EQ(10U, of_others);
}

TEST_F(Pacer, on_wanted__nobody_gets_more_than_two_windows_ahead) {
  pacer.on_wanted(0, 0, 1 + (1ULL << 30), false);
  EXPECT_EQ(1 + 2 * 64 * 1024 / 256, pacer.wanted_units(0));
  pacer.on_wanted(0, 1, 1 + 8 * kUnits, false);
  // Two windows are eight grants, as many as the honest one asks for.
  EXPECT_EQ((std::vector<std::uint32_t>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}),
            grants(16));
  EXPECT_EQ(pacer.wanted_units(0), pacer.granted_units(0));
  pacer.on_wanted(now, 1, 1 + 16 * kUnits, false);
  EXPECT_EQ((std::vector<std::uint32_t>{1, 1, 1, 1, 1, 1, 1, 1, 0, 1}), grants(10));
}

TEST_F(Pacer, on_wanted__a_window_of_a_part_of_a_unit_gets_one) {
  pacer.add(3, 1, 63, 63, 12'000);
  pacer.on_wanted(0, 3, 1 + 1, false);
  EXPECT_EQ(3U, pacer.grant(0).connection);
  EXPECT_EQ(1U + 1, pacer.granted_units(3));
}

TEST_F(Pacer, remove__from_the_middle_of_a_list) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    pacer.on_wanted(now, i, 1 + 100 * kUnits, false);
  }
  pacer.remove(1);
  EXPECT_EQ(Order({0, 2, 0, 2}), grants(4));
  EXPECT_FALSE(pacer.grants(1));
}

TEST_F(Pacer, rate__falls_with_marks_and_core_trims_and_comes_back) {
  EXPECT_EQ(1024U, pacer.rate());
  for (int i = 0; i < 2000; ++i, now += 100) {
    pacer.on_arrival(now, true, false, false);
  }
  const std::uint32_t marked = pacer.rate();
  EXPECT_LT(marked, 300U);
  for (int i = 0; i < 8000; ++i, now += 100) {
    pacer.on_arrival(now, false, false, false);
  }
  EXPECT_EQ(1024U, pacer.rate());
  for (int i = 0; i < 130; ++i, now += 100) {
    pacer.on_arrival(now, false, true, true);  // On our own link: credit's own business.
  }
  EXPECT_EQ(1024U, pacer.rate());
  for (int i = 0; i < 130; ++i, now += 100) {
    pacer.on_arrival(now, false, i % 2 == 0, false);
  }
  EXPECT_LT(pacer.rate(), 750U);
}

// Without speculation every byte is asked for; requests and grants may be lost.
TEST(credit, transfer__empty_messages_need_no_credit) {
  ConnectionOptions options;
  options.controller = "rccc";
  options.credit.speculative_bytes = 0;
  testing::LossyPair pair(options);
  std::vector<std::byte> none;
  for (int i = 0; i < 3; ++i) {
    pair.receive(1, 1, none);
    pair.send(0, 1, none);
  }
  EXPECT_TRUE(pair.run_until_events(3, 3, 1'000'000'000));
}

TEST(credit, request__a_lost_grant_is_told_again) {
  ConnectionOptions options;
  options.controller = "rccc";
  options.credit.speculative_bytes = 0;
  testing::LossyPair pair(options);
  // All grants that follow the first request: nothing more is wanted of the receiver then.
  const TimeNs lost_until_ns = pair.now() + 10'000'000;
  pair.drop = [&](const testing::LossyPair::Delivered& packet) {
    const auto type = static_cast<PacketType>(std::to_integer<int>(packet.header[0]) & 15);
    return type == PacketType::kCredit && pair.now() < lost_until_ns;
  };
  const auto data = testing::pattern(4096, 1);
  std::vector<std::byte> into(4096);
  pair.receive(1, 1, into);
  pair.send(0, 1, data);
  EXPECT_TRUE(pair.run_until_events(1, 1, 1'000'000'000));
  EXPECT_EQ(data, into);
}

TEST(credit, transfer__completes_when_control_is_lost) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ConnectionOptions options;
    options.controller = "rccc";
    options.credit.speculative_bytes = seed % 2 == 0 ? 0 : kBytesMax;
    options.wire.paths = 8;
    options.first_number = (1ULL << 32) - 40;
    testing::LossyPair pair(options, seed);
    Random random(seed);
    pair.drop = [&](const testing::LossyPair::Delivered& packet) {
      const auto type = static_cast<PacketType>(std::to_integer<int>(packet.header[0]) & 15);
      const bool is_credit = type == PacketType::kCredit || type == PacketType::kRequest;
      return random.below(100) < (is_credit ? 50 : 5);
    };
    const auto data = testing::pattern(2'000'000, seed);
    std::vector<std::byte> into(2'000'000);
    for (int i = 0; i < 3; ++i) {
      pair.receive(1, 1, into);
      pair.send(0, 1, data);
    }
    ASSERT_TRUE(pair.run_until_events(3, 3)) << seed;
    EXPECT_TRUE(data == into);
    EXPECT_LT(pair.now(), 300'000'000U);
  }
}

// The receiver paces: a sender with credit never outruns the link, but for its first window.
// What is in the air asked for nothing more, for there was nothing more to send.
TEST(credit, request__of_a_message_behind_one_that_is_in_the_air_does_not_wait) {
  ConnectionOptions options;
  options.receives = false;
  options.wire.paths = 8;
  options.wire.base_rtt_ns = 100'000;
  options.controller = "rccc";
  options.credit.speculative_bytes = 0;
  testing::LossyPair pair(options);
  // Another sender wants all that it can get: nothing is granted that is not asked for.
  ConnectionOptions other = pair.options(1);
  other.local_id = 99;
  other.remote_id = 98;
  other.authenticates = false;
  ASSERT_TRUE(pair.end(1).connect(pair.now(), other).ok());
  std::uint32_t number = 1;
  std::uint32_t wanted = 1;
  const auto ask = [&] {
    CommonHeader common;
    common.type = PacketType::kRequest;
    common.connection = other.local_id;
    common.number = number++;
    HeaderBytes bytes;
    const std::size_t count = encode_number(common, wanted += 50'000, bytes);
    Arrival arrival;
    arrival.header = {bytes.data(), count};
    pair.end(1).handle_datagram(pair.now(), arrival);
  };
  const auto data = testing::pattern(40'960, 1);
  std::vector<std::byte> into(data.size());
  pair.receive(1, 1, into, 1);
  pair.receive(1, 1, into, 2);
  pair.run(1'000'000);
  std::array<TimeNs, 2> took_ns{};
  for (std::size_t i = 0; i < 2; ++i) {
    ask();
    const TimeNs posted_ns = pair.now();
    pair.send(0, 1, data, i);
    ASSERT_TRUE(pair.run_until_events(0, i + 1, pair.now() + 50'000'000));
    took_ns[i] = pair.now() - posted_ns;
    EXPECT_EQ(i, pair.events(0).size());  // The acknowledgement is still on its way.
  }
  EXPECT_LT(took_ns[0], 200'000U);
  EXPECT_LT(took_ns[1], 200'000U);
}

TEST(credit, transfer__takes_about_the_time_of_the_link) {
  ConnectionOptions options;
  options.controller = "rccc";
  options.wire.paths = 8;
  options.credit.speculative_bytes = 0;
  options.receives = false;
  testing::LossyPair pair(options);
  const auto data = testing::pattern(10'000'000, 1);
  std::vector<std::byte> into(10'000'000);
  pair.receive(1, 1, into);
  const TimeNs start = pair.now();
  pair.send(0, 1, data);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  const TimeNs link_ns = 10'000'000ULL * 20 / 1000 * 100 / 99;
  EXPECT_GT(pair.now() - start, link_ns);
  EXPECT_LT(pair.now() - start, link_ns + 60'000);
  EXPECT_EQ(0U, pair.counters(0).retransmissions);
}

}  // namespace
}  // namespace tutti::transport
