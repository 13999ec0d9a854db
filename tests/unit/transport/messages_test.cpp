// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// outgoing, incoming, flight, trace.
#include <gtest/gtest.h>

#include <map>

#include "transport/flight.hpp"
#include "transport/incoming.hpp"
#include "transport/outgoing.hpp"
#include "transport/random.hpp"
#include "transport/trace.hpp"

namespace tutti::transport {
namespace {

TEST(outgoing, match__the_nth_send_of_a_tag_gets_the_nth_receive) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    constexpr std::uint64_t kFirst = (1ULL << 32) - 10;
    OutgoingTable table(32, 32, kFirst);
    Random random(seed);
    const auto advert_of = [seed](std::uint64_t number) {
      return Advert{static_cast<Tag>(Random(seed ^ number << 8).below(4)), 100};
    };
    std::map<Tag, std::vector<std::uint64_t>> sends;
    std::map<Tag, std::vector<std::uint32_t>> adverts;
    for (int i = 0; i < 60; ++i) {
      const Tag tag = random.below(4);
      if (random.below(2) == 0 && !table.is_full()) {
        sends[tag].push_back(static_cast<std::uint64_t>(i));
        table.post({tag, nullptr, 10, static_cast<std::uint64_t>(i)});
      } else {
        const std::uint64_t number = table.known_adverts();
        table.on_advert(number, advert_of(number));
        EXPECT_FALSE(table.on_advert(number, advert_of(number)));  // Repeated, or no room.
        const std::uint64_t early = table.known_adverts() + 1;
        EXPECT_FALSE(table.on_advert(early, advert_of(early)));
      }
    }
    for (std::uint64_t n = kFirst; n != table.known_adverts(); ++n) {
      adverts[advert_of(n).tag].push_back(static_cast<std::uint32_t>(n));
    }
    std::map<std::uint64_t, std::uint32_t> matched;
    while (table.cutting() != IndexList::kNone) {
      const std::uint32_t index = table.cutting();
      matched[table.at(index).context] = table.at(index).slot;
      EXPECT_TRUE(table.cut(index, 100).is_last);
      EXPECT_TRUE(table.on_acknowledged(index));
      Event event;
      ASSERT_TRUE(table.take_finished(event));
      EXPECT_EQ(Outcome::kOk, event.outcome);
    }
    std::size_t pairs = 0;
    for (const auto& [tag, contexts] : sends) {
      for (std::size_t i = 0; i < std::min(contexts.size(), adverts[tag].size()); ++i, ++pairs) {
        EXPECT_EQ(adverts[tag][i], matched.at(contexts[i]));
      }
    }
    EXPECT_EQ(pairs, matched.size());
    EXPECT_EQ(0U, table.backlog_bytes());
    EXPECT_FALSE(table.has_matched());
  }
}

TEST(outgoing, on_advert__no_more_than_agreed) {
  OutgoingTable table(4, 4, 1);
  for (std::uint64_t number = 1; number <= 4; ++number) {
    EXPECT_TRUE(table.on_advert(number, {9, 1}));
  }
  EXPECT_FALSE(table.on_advert(5, {9, 1}));
  table.post({9, nullptr, 1, 0});
  EXPECT_TRUE(table.on_advert(5, {9, 1}));
}

// Packets of several paths overtake each other: what came early counts when the gap is filled.
TEST(outgoing, on_advert__early_ones_wait_for_those_before_them) {
  for (std::uint64_t first : {std::uint64_t{1}, std::uint64_t{4}}) {
    OutgoingTable table(8, 8, first);
    for (const std::uint64_t late : {3U, 2U, 5U, 2U}) {
      EXPECT_FALSE(table.on_advert(first + late, {static_cast<Tag>(late), 100}));
      EXPECT_EQ(first, table.known_adverts());
    }
    EXPECT_FALSE(table.on_advert(first + 8, {8, 100}));  // Beyond what was agreed.
    EXPECT_TRUE(table.on_advert(first, {0, 100}));
    EXPECT_EQ(first + 1, table.known_adverts());
    EXPECT_TRUE(table.on_advert(first + 1, {1, 100}));
    EXPECT_EQ(first + 4, table.known_adverts());
    EXPECT_FALSE(table.on_advert(first + 3, {3, 100}));  // Repeated.
    EXPECT_TRUE(table.on_advert(first + 4, {4, 100}));
    EXPECT_EQ(first + 6, table.known_adverts());
    for (const Tag tag : {5U, 0U, 3U, 2U}) {
      table.post({tag, nullptr, 1, 0});
      EXPECT_EQ(static_cast<std::uint32_t>(first + tag), table.at(table.cutting()).slot);
      table.cut(table.cutting(), 1);
    }
    EXPECT_TRUE(table.on_advert(first + 6, {6, 100}));
  }
}

TEST(outgoing, cut__pieces_add_up_and_end_once) {
  OutgoingTable table(4, 4, 1);
  table.post({1, nullptr, 10'000, 3});
  table.on_advert(1, {1, 10'000});
  EXPECT_EQ(10'000U, table.backlog_bytes());
  const std::uint32_t index = table.cutting();
  EXPECT_EQ(4096U, table.cut(index, 4096).bytes);
  const auto second = table.cut(index, 4096);
  EXPECT_EQ(4096U, second.offset);
  EXPECT_FALSE(second.is_last);
  EXPECT_FALSE(table.on_acknowledged(index));
  EXPECT_FALSE(table.on_acknowledged(index));  // All open ones, but not all of it.
  const auto last = table.cut(index, 4096);
  EXPECT_EQ(1808U, last.bytes);
  EXPECT_TRUE(last.is_last);
  EXPECT_EQ(IndexList::kNone, table.cutting());
  EXPECT_TRUE(table.on_acknowledged(index));
  EXPECT_EQ(1U, table.posted());
  Event event;
  ASSERT_TRUE(table.take_finished(event));
  EXPECT_EQ(10'000U, event.part_bytes[0]);
  EXPECT_EQ(0U, table.posted());
  EXPECT_FALSE(table.take_finished(event));
}

ReceiveRequest request_of(std::byte* data, Bytes bytes, std::uint64_t context) {
  ReceiveRequest request;
  request.parts[0] = {1, data, bytes};
  request.context = context;
  return request;
}

TEST(incoming, on_data__any_order_and_nothing_outside) {
  IncomingTable table(4, 1);
  std::array<std::byte, 100> into{};
  const std::array<std::byte, 60> payload = {std::byte{1}};
  table.post(request_of(into.data(), 100, 5));
  using Placed = IncomingTable::Placed;
  const auto first60 = std::span<const std::byte>(payload);
  EXPECT_EQ(Placed::kNo, table.on_data({1, 2, 0, 10, 0}, 0, {}));  // No such slot.
  EXPECT_EQ(Placed::kNo, table.on_data({1, 0, 0, 10, 0}, 0, {}));
  EXPECT_EQ(Placed::kNo, table.on_data({1, 1, 41, 60, 0}, 0, first60));  // Over the end.
  EXPECT_EQ(Placed::kNo, table.on_data({1, 1, 0, 50, 0}, 0, first60));   // Unlike its header.
  EXPECT_EQ(Placed::kYes, table.on_data({2, 1, 40, 50, 0}, kFlagEnd, first60.first(50)));
  EXPECT_EQ(Placed::kNo, table.on_data({3, 1, 80, 11, 0}, 0, {}));        // Beyond the end.
  EXPECT_EQ(Placed::kNo, table.on_data({3, 1, 0, 90, 0}, kFlagEnd, {}));  // A second end.
  EXPECT_EQ(Placed::kFinished, table.on_data({3, 1, 0, 40, 0}, 0, first60.first(40)));
  EXPECT_EQ(Placed::kNo, table.on_data({4, 1, 0, 1, 0}, 0, {}));  // It has ended.
  Event event;
  ASSERT_TRUE(table.take_finished(event));
  EXPECT_EQ(90U, event.part_bytes[0]);
  EXPECT_EQ(5U, event.context);
  EXPECT_EQ(std::byte{1}, into[40]);
  EXPECT_EQ(std::byte{1}, into[0]);
  EXPECT_FALSE(table.take_finished(event));
}

TEST(incoming, on_data__chunks_that_lie_on_each_other_are_no_message) {
  IncomingTable table(4, 1);
  table.post(request_of(nullptr, 100, 5));
  using Placed = IncomingTable::Placed;
  EXPECT_EQ(Placed::kYes, table.on_data({1, 1, 0, 60, 0}, 0, {}));
  EXPECT_EQ(Placed::kYes, table.on_data({2, 1, 20, 40, 0}, 0, {}));
  EXPECT_EQ(Placed::kNo, table.on_data({3, 1, 0, 1, 0}, 0, {}));
}

TEST(incoming, look__since_when_what_has_begun_waits) {
  IncomingTable table(4, 1);
  table.post(request_of(nullptr, 100, 5));
  table.post(request_of(nullptr, 100, 6));
  EXPECT_EQ(1'000U, table.look(1'000, 0));  // None has begun.
  (void)table.on_data({1, 2, 0, 10, 0}, 0, {});
  EXPECT_EQ(2'000U, table.look(2'000, 0));
  EXPECT_EQ(2'000U, table.look(3'000, 3'000));
  (void)table.on_data({2, 1, 0, 10, 0}, 0, {});
  EXPECT_EQ(2'000U, table.look(4'000, 4'000));
  (void)table.on_data({3, 2, 10, 10, 0}, 0, {});
  EXPECT_EQ(4'000U, table.look(5'000, 5'000));
  // Of one that is withdrawn any data says that the answer is still to come.
  ASSERT_TRUE(table.withdraw(table.find(5)));
  EXPECT_EQ(4'000U, table.look(6'000, 6'000));
  table.end_all(Outcome::kClosed);
  EXPECT_EQ(7'000U, table.look(7'000, 0));
}

TEST(incoming, post__room_comes_back_in_the_order_of_posting) {
  IncomingTable table(4, (1ULL << 32) - 2);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(table.has_room(1));
    table.post(request_of(nullptr, 10, i));
  }
  EXPECT_FALSE(table.has_room(1));
  const auto slot = [](std::uint64_t i) {
    return static_cast<std::uint32_t>((1ULL << 32) - 2 + i);
  };
  table.on_data({0, slot(1), 0, 0, 0}, kFlagEnd, {});
  EXPECT_FALSE(table.has_room(1));  // The oldest is still open.
  table.on_data({0, slot(0), 0, 0, 0}, kFlagEnd, {});
  EXPECT_FALSE(table.has_room(3));
  Event event;
  EXPECT_TRUE(table.take_finished(event));
  EXPECT_EQ(1U, event.context);
  EXPECT_TRUE(table.take_finished(event));
  EXPECT_TRUE(table.has_room(2));
}

TEST(incoming, fill__tells_in_packets_and_again) {
  IncomingTable table(16, 1);
  for (std::uint64_t i = 0; i < 8; ++i) {
    table.post(request_of(nullptr, 100 + i, i));
  }
  AdvertHeader header;
  ASSERT_TRUE(table.has_untold());
  table.fill(header);
  EXPECT_EQ(1U, header.first);
  EXPECT_EQ(6, header.count);
  EXPECT_EQ(105U, header.adverts[5].capacity_bytes);
  table.fill(header);
  EXPECT_EQ(7U, header.first);
  EXPECT_EQ(2, header.count);
  EXPECT_FALSE(table.has_untold());
  EXPECT_TRUE(table.on_known(4));
  EXPECT_FALSE(table.on_known(3));
  EXPECT_FALSE(table.on_known(100));
  table.tell_again();
  table.fill(header);
  EXPECT_EQ(4U, header.first);
  EXPECT_EQ(5, header.count);
  EXPECT_TRUE(table.on_known(9));
  EXPECT_FALSE(table.has_unknown());
}

TEST(flight, lists_and_sums__hold_under_any_order_of_events) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Flight flight(64, 8, (1ULL << 16) - 10);  // Positions wrap as well.
    Random random(seed);
    for (int step = 0; step < 3000; ++step) {
      const auto path = static_cast<PathId>(random.below(8));
      if (!flight.is_full() && random.below(3) == 0) {
        const std::uint64_t number = flight.add();
        flight.at(number).bytes = random.below(5000);
        flight.transmit(static_cast<TimeNs>(step), number, path);
        continue;
      }
      if (flight.next() == flight.base()) {
        continue;
      }
      const std::uint64_t number =
          flight.base() + random.below(static_cast<std::uint32_t>(flight.next() - flight.base()));
      switch (random.below(3)) {
        case 0:
          if (flight.is_in_flight(number)) {
            flight.lose(number);
          }
          break;
        case 1:
          if (flight.at(number).state != ChunkState::kAcknowledged) {
            flight.transmit(static_cast<TimeNs>(step), number, path);
          }
          break;
        default: {
          const bool was_open = flight.at(number).state != ChunkState::kAcknowledged;
          EXPECT_EQ(was_open, flight.acknowledge(number));
          std::uint64_t base = flight.base();
          while (base != flight.next() && flight.at(base).state == ChunkState::kAcknowledged) {
            ++base;
          }
          flight.advance(base);
        }
      }
      flight.check();
    }
  }
}

TEST(trace, trace_line__is_one_line_of_json) {
  TraceRecord record{5, 7, TraceKind::kSent, 3, 11, 4096, 1};
  EXPECT_EQ(R"({"time_ns":5,"connection":7,"event":"sent","path":3,"number":11,"bytes":4096,)"
            R"("detail":1})",
            trace_line(record));
  record.path = kNoPath;
  record.kind = TraceKind::kConnectionEnded;
  EXPECT_EQ(R"({"time_ns":5,"connection":7,"event":"connection_ended","number":11,"bytes":4096,)"
            R"("detail":1})",
            trace_line(record));
}

}  // namespace
}  // namespace tutti::transport
