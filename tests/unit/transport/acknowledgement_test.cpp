// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/acknowledgement.hpp"

#include <gtest/gtest.h>

#include <set>

#include "transport/random.hpp"
#include "transport/serial.hpp"

namespace tutti::transport {
namespace {

using Kind = Acknowledger::Kind;

Acknowledger::Arrived chunk_of(std::uint64_t number, std::uint32_t bytes = 4096) {
  return {number,
          bytes,
          static_cast<PathId>(number % 7),
          static_cast<std::uint32_t>(number * 3),
          0,
          false,
          false,
          0};
}

TEST(acknowledgement, on_chunk__told_bits_are_those_of_a_set) {
  for (std::uint64_t first : {1ULL, 64ULL, (1ULL << 32) - 70, 12'345ULL}) {
    Acknowledger ack({}, 256, first);
    Random random(first);
    std::set<std::uint64_t> here;
    std::uint64_t cumulative = first;
    for (int step = 0; step < 5000; ++step) {
      const std::uint64_t number = cumulative + random.below(300);
      const Kind kind = ack.classify(number);
      if (number - cumulative >= 256) {
        ASSERT_EQ(Kind::kOutside, kind);
        continue;
      }
      ASSERT_EQ(here.count(number) != 0 ? Kind::kDuplicate : Kind::kNew, kind) << number;
      if (random.below(3) == 0) {
        ack.on_chunk(step, kind, chunk_of(number));
        here.insert(number);
      } else {  // Closes the hole more often than not.
        const Kind of_hole = ack.classify(cumulative);
        ASSERT_EQ(Kind::kNew, of_hole);
        ack.on_chunk(step, of_hole, chunk_of(cumulative));
        here.insert(cumulative);
      }
      while (here.count(cumulative) != 0) {
        ++cumulative;
      }
      ASSERT_EQ(cumulative, ack.cumulative());
      EXPECT_EQ(Kind::kDuplicate, ack.classify(cumulative - 1));
      AckHeader header;
      ack.fill(step, header);
      ASSERT_EQ(static_cast<std::uint32_t>(cumulative), header.cumulative);
      ASSERT_EQ(here.size() * 4096, header.received_bytes);
      const std::uint64_t base = expand(header.sack_base, cumulative);
      ASSERT_EQ(0U, base % 64);
      for (std::uint64_t bit = 0; bit < 64; ++bit) {
        const bool is_here = base + bit < cumulative || here.count(base + bit) != 0;
        ASSERT_EQ(is_here, (header.sack_bitmap >> bit & 1) != 0) << base + bit;
      }
      const auto beyond =
          static_cast<std::size_t>(std::distance(here.lower_bound(cumulative), here.end()));
      ASSERT_EQ(beyond, header.out_of_order);
    }
  }
}

TEST(acknowledgement, fill__each_word_is_told_in_turn) {
  Acknowledger ack({}, 1024, 0);
  for (std::uint64_t number : {70ULL, 200ULL, 639ULL}) {
    ack.on_chunk(0, Kind::kNew, chunk_of(number));
  }
  std::set<std::uint32_t> bases;
  for (int i = 0; i < 10; ++i) {
    AckHeader header;
    ack.fill(0, header);
    bases.insert(header.sack_base);
  }
  EXPECT_EQ(10U, bases.size());
  EXPECT_EQ(576U, *bases.rbegin());
}

TEST(acknowledgement, dense__every_chunk_is_echoed_once) {
  Acknowledger ack({}, 256, 1);
  std::set<std::uint64_t> echoed;
  std::size_t packets = 0;
  for (std::uint64_t number = 1; number <= 100; ++number) {
    ack.on_chunk(number * 100, Kind::kNew, chunk_of(number));
    while (ack.due_ns() == 0) {
      AckHeader header;
      ack.fill(number * 100, header);
      ++packets;
      for (std::size_t i = 0; i < header.echo_count; ++i) {
        const Echo& echo = header.echoes[i];
        const std::uint64_t of =
            ack.cumulative() + static_cast<std::uint64_t>(std::int64_t{echo.chunk_delta});
        EXPECT_TRUE(echoed.insert(of).second);
        EXPECT_EQ(of % 7, echo.path);
        EXPECT_EQ(of * 3, echo.stamp);
        EXPECT_EQ((number - of) * 100 / 8, echo.turnaround);
      }
    }
  }
  // The first at once, then one for 16 KiB; the rest waits for the delay.
  EXPECT_EQ(1U + 24U, packets);
  EXPECT_EQ(1U + 96U, echoed.size());
  EXPECT_EQ(98U * 100U + 1000U, ack.due_ns());
}

TEST(acknowledgement, sparse__one_echo_for_16_KiB_and_one_for_a_mark) {
  AcknowledgementOptions options;
  options.echoes = EchoMode::kSparse;
  Acknowledger ack(options, 256, 1);
  AckHeader header;
  ack.on_chunk(0, Kind::kNew, chunk_of(1));
  ASSERT_EQ(0U, ack.due_ns());
  ack.fill(0, header);
  std::size_t echoes = 0;
  for (std::uint64_t number = 2; number <= 17; ++number) {
    ack.on_chunk(0, Kind::kNew, chunk_of(number));
    if (ack.due_ns() == 0) {
      ack.fill(0, header);
      echoes += header.echo_count;
    }
  }
  EXPECT_EQ(4U, echoes);
  Acknowledger::Arrived marked = chunk_of(18);
  marked.echo_flags = kEchoEcn;
  ack.on_chunk(0, Kind::kNew, marked);
  ASSERT_EQ(0U, ack.due_ns());
  ack.fill(0, header);
  ASSERT_EQ(1, header.echo_count);
  EXPECT_EQ(kEchoEcn, header.echoes[0].flags);
}

TEST(acknowledgement, lazy__a_short_message_in_order_waits) {
  AcknowledgementOptions options;
  options.lazy_ns = 20'000;
  Acknowledger ack(options, 256, 1);
  AckHeader header;
  ack.on_chunk(0, Kind::kNew, chunk_of(1));
  ack.fill(0, header);
  const auto lazy_chunk = [](std::uint64_t number) {
    Acknowledger::Arrived arrived = chunk_of(number, 8);
    arrived.may_wait = true;
    return arrived;
  };
  ack.on_chunk(100, Kind::kNew, lazy_chunk(2));
  EXPECT_EQ(20'100U, ack.due_ns());
  ack.on_chunk(200, Kind::kNew, lazy_chunk(3));
  EXPECT_EQ(20'100U, ack.due_ns());
  // What may not wait, waits as long as ever.
  ack.on_chunk(300, Kind::kNew, chunk_of(4));
  EXPECT_EQ(300U + options.ack_delay_ns, ack.due_ns());
  ack.on_chunk(400, Kind::kNew, lazy_chunk(5));
  EXPECT_EQ(0U, ack.due_ns()) << "four echoes fill a packet";
  ack.fill(1'000, header);
  EXPECT_EQ(kNever, ack.due_ns());
  ASSERT_EQ(4, header.echo_count);
  EXPECT_EQ(900U / kTurnaroundUnitNs, header.echoes[0].turnaround);
  // A mark, a hole, what closes it and a duplicate are told at once.
  Acknowledger::Arrived marked = lazy_chunk(6);
  marked.echo_flags = kEchoEcn;
  ack.on_chunk(1'100, Kind::kNew, marked);
  EXPECT_EQ(0U, ack.due_ns());
  ack.fill(1'100, header);
  ack.on_chunk(1'200, Kind::kNew, lazy_chunk(8));
  EXPECT_EQ(0U, ack.due_ns());
  ack.fill(1'200, header);
  ack.on_chunk(1'300, Kind::kNew, lazy_chunk(7));
  EXPECT_EQ(0U, ack.due_ns());
  ack.fill(1'300, header);
  ack.on_chunk(1'400, Kind::kDuplicate, lazy_chunk(7));
  EXPECT_EQ(0U, ack.due_ns());
}

TEST(acknowledgement, turnaround__begins_when_the_host_took_the_chunk_in) {
  Acknowledger ack({}, 256, 1);
  AckHeader header;
  std::uint64_t number = 1;
  for (const TimeNs waited_ns : {TimeNs{0}, TimeNs{200'000}, TimeNs{3'000'000'000}}) {
    Acknowledger::Arrived arrived = chunk_of(number++);
    arrived.waited_ns = waited_ns;
    arrived.ask = true;
    ack.on_chunk(1'000'000, Kind::kNew, arrived);
    ack.fill(1'000'800, header);
    ASSERT_EQ(1, header.echo_count);
    EXPECT_EQ(to_turnaround(waited_ns + 800), header.echoes[0].turnaround);
    EXPECT_EQ(waited_ns > 1'000'000'000, header.echoes[0].turnaround == kTurnaroundUnknown);
  }
  // How long we may wait with it begins when we hear of the chunk.
  Acknowledger::Arrived late = chunk_of(number);
  late.waited_ns = 200'000;
  ack.on_chunk(2'000'000, Kind::kNew, late);
  EXPECT_EQ(2'000'000U + AcknowledgementOptions{}.ack_delay_ns, ack.due_ns());
}

TEST(acknowledgement, due__at_once_for_what_the_sender_waits_for) {
  Acknowledger ack({}, 256, 1);
  AckHeader header;
  ack.on_chunk(0, Kind::kNew, chunk_of(1));
  ack.fill(0, header);
  EXPECT_EQ(kNever, ack.due_ns());
  ack.on_chunk(50, Kind::kNew, chunk_of(2));
  EXPECT_EQ(1050U, ack.due_ns());
  ack.on_chunk(60, Kind::kDuplicate, chunk_of(1));
  EXPECT_EQ(0U, ack.due_ns());
  ack.fill(70, header);
  EXPECT_EQ(kEchoDuplicate, header.echoes[1].flags);
  Acknowledger::Arrived trimmed = chunk_of(3);
  trimmed.echo_flags = kEchoTrimmed;
  ack.on_chunk(80, Kind::kNew, trimmed);
  EXPECT_EQ(0U, ack.due_ns());
  EXPECT_EQ(Kind::kNew, ack.classify(3));  // Only its header came.
  ack.fill(90, header);
  Acknowledger::Arrived asked = chunk_of(3);
  asked.ask = true;
  ack.on_chunk(100, Kind::kNew, asked);
  EXPECT_EQ(0U, ack.due_ns());
}

TEST(acknowledgement, hole__has_the_age_of_the_first_one) {
  Acknowledger ack({}, 256, 1);
  EXPECT_EQ(kNever, ack.hole_since_ns());
  ack.on_chunk(10, Kind::kNew, chunk_of(2));
  ack.on_chunk(20, Kind::kNew, chunk_of(4));
  EXPECT_EQ(10U, ack.hole_since_ns());
  ack.on_chunk(30, Kind::kNew, chunk_of(1));
  EXPECT_EQ(30U, ack.hole_since_ns());
  ack.on_chunk(40, Kind::kNew, chunk_of(3));
  EXPECT_EQ(kNever, ack.hole_since_ns());
}

}  // namespace
}  // namespace tutti::transport
