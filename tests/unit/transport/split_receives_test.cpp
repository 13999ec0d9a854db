// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/split_receives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lossy_pair.hpp"

namespace tutti::transport {
namespace {

using testing::LossyPair;
using testing::pattern;

class Map : public SplitReceiveSource {
 public:
  bool find(std::uint32_t slot, SplitReceive& out) const override {
    for (const auto& [number, part] : parts) {
      if (static_cast<std::uint32_t>(number) == slot) {
        out = part;
        out.slot = number;
        return true;
      }
    }
    return false;
  }
  std::map<std::uint64_t, SplitReceive> parts;
};

DataHeader header(std::uint32_t slot, Bytes offset, std::uint32_t bytes) {
  DataHeader data;
  data.slot = slot;
  data.offset = offset;
  data.payload_bytes = bytes;
  return data;
}

class SplitReceives : public ::testing::Test {
 protected:
  SplitReceives() : into(100), bytes(pattern(100, 1)) {
    source.parts[5] = {into.data(), into.size(), {}, 77};
  }
  bool give(std::uint32_t slot, Bytes offset, std::uint32_t count, std::uint8_t flags = 0) {
    return table.on_data(header(slot, offset, count), flags, {bytes.data() + offset, count});
  }
  std::vector<std::byte> into;
  std::vector<std::byte> bytes;
  Map source;
  SplitReceiveTable table{source, 4};
};

TEST_F(SplitReceives, on_data__any_order_and_one_event) {
  EXPECT_TRUE(give(5, 60, 40, kFlagEnd));
  EXPECT_EQ(table.open(), 1U);
  Event event;
  EXPECT_FALSE(table.take_finished(event));
  EXPECT_TRUE(give(5, 0, 60));
  EXPECT_EQ(table.open(), 0U);
  ASSERT_TRUE(table.take_finished(event));
  EXPECT_EQ(event.kind, EventKind::kReceiveDone);
  EXPECT_EQ(event.outcome, Outcome::kOk);
  EXPECT_EQ(event.context, 77U);
  EXPECT_EQ(event.part_count, 1);
  EXPECT_EQ(event.part_bytes[0], 100U);
  EXPECT_EQ(into, bytes);
  EXPECT_FALSE(table.take_finished(event));
}

TEST_F(SplitReceives, on_data__no_bytes_are_a_part_too) {
  EXPECT_TRUE(give(5, 0, 0, kFlagEnd));
  Event event;
  ASSERT_TRUE(table.take_finished(event));
  EXPECT_EQ(event.part_bytes[0], 0U);
}

TEST_F(SplitReceives, on_data__refuses_what_is_not_there_or_outside) {
  EXPECT_FALSE(give(6, 0, 10));
  EXPECT_FALSE(table.on_data(header(5, 90, 11), 0, bytes));
  EXPECT_FALSE(give(5, 0, 10, kFlagEnd | kFlagCancelled));
  EXPECT_FALSE(give(5, 0, 0, kFlagEnd | kFlagTruncated));
  EXPECT_TRUE(give(5, 0, 50, kFlagEnd));
  // Complete: nothing more belongs to it, though the other sub-connections may not be done.
  EXPECT_FALSE(give(5, 0, 10));
  EXPECT_EQ(table.place(header(5, 0, 10)), nullptr);
}

TEST_F(SplitReceives, on_data__behind_the_end_is_refused) {
  EXPECT_TRUE(give(5, 40, 10, kFlagEnd));
  EXPECT_FALSE(give(5, 50, 10));
  EXPECT_FALSE(give(5, 60, 10, kFlagEnd));
  EXPECT_TRUE(give(5, 0, 40));
}

TEST_F(SplitReceives, place__also_of_what_has_not_begun) {
  EXPECT_EQ(table.place(header(5, 30, 10)), into.data() + 30);
  EXPECT_EQ(table.place(header(5, 95, 10)), nullptr);
  EXPECT_EQ(table.place(header(6, 0, 10)), nullptr);
  EXPECT_EQ(table.open(), 0U);
}

TEST_F(SplitReceives, place__keeps_to_the_units) {
  source.parts[6] = {into.data(), 50, {10, 20}, 1};
  EXPECT_EQ(table.place(header(6, 15, 5)), into.data() + 25);
  EXPECT_EQ(table.place(header(6, 15, 6)), nullptr);
  EXPECT_FALSE(give(6, 15, 6));
}

TEST_F(SplitReceives, on_data__a_place_is_taken_again_when_its_event_is) {
  EXPECT_TRUE(give(5, 0, 10, kFlagEnd));
  source.parts[9] = {into.data(), 100, {}, 88};
  EXPECT_FALSE(give(9, 0, 10, kFlagEnd));  // 5 and 9 share one in a table of four.
  Event event;
  ASSERT_TRUE(table.take_finished(event));
  EXPECT_TRUE(give(9, 0, 10, kFlagEnd));
  ASSERT_TRUE(table.take_finished(event));
  EXPECT_EQ(event.context, 88U);
}

TEST_F(SplitReceives, expect__of_what_has_ended_is_nothing) {
  table.expect(6);
  EXPECT_EQ(table.open(), 0U);
  table.expect(5);
  table.expect(5);
  EXPECT_EQ(table.open(), 1U);
  EXPECT_TRUE(give(5, 0, 100, kFlagEnd));
  Event event;
  ASSERT_TRUE(table.take_finished(event));
  table.expect(5);
  EXPECT_EQ(table.open(), 0U);
}

TEST_F(SplitReceives, on_data__what_its_source_does_not_know_any_more_is_left_alone) {
  EXPECT_TRUE(give(5, 0, 10));
  EXPECT_EQ(table.open(), 1U);
  source.parts.clear();
  EXPECT_EQ(table.place(header(5, 10, 10)), nullptr);
  EXPECT_FALSE(give(5, 10, 90, kFlagEnd));
  EXPECT_TRUE(
      std::all_of(into.begin() + 10, into.end(), [](auto it) { return it == std::byte{}; }));
  EXPECT_EQ(table.open(), 0U);
  Event event;
  EXPECT_FALSE(table.take_finished(event));
}

TEST_F(SplitReceives, on_data__what_is_gone_does_not_keep_its_place) {
  EXPECT_TRUE(give(5, 0, 10));
  source.parts = {{9, {into.data(), into.size(), {}, 88}}};  // 5 and 9 share one.
  EXPECT_TRUE(give(9, 0, 100, kFlagEnd));
  EXPECT_EQ(table.open(), 0U);
  Event event;
  ASSERT_TRUE(table.take_finished(event));
  EXPECT_EQ(event.context, 88U);
}

TEST_F(SplitReceives, end_all__without_an_event_but_for_what_was_complete) {
  source.parts[6] = {into.data(), 100, {}, 1};
  EXPECT_TRUE(give(5, 0, 10, kFlagEnd));
  EXPECT_TRUE(give(6, 0, 10));
  table.end_all();
  EXPECT_EQ(table.open(), 0U);
  Event event;
  ASSERT_TRUE(table.take_finished(event));
  EXPECT_EQ(event.context, 77U);
  EXPECT_FALSE(table.take_finished(event));
  EXPECT_FALSE(give(6, 10, 10));
}

TEST(split_receives, numbers_wrap_on_the_wire) {
  Map source;
  std::vector<std::byte> into(10);
  constexpr std::uint64_t kSlot = (1ULL << 32) + 3;
  source.parts[kSlot] = {into.data(), into.size(), {}, 1};
  SplitReceiveTable table(source, 16);
  EXPECT_EQ(table.place(header(3, 0, 10)), into.data());
}

TEST(split_receives, only_few_of_many_receives_are_split) {
  // The numbers count all receives: those of short messages, which never come here, as well.
  Map source;
  std::vector<std::byte> into(10);
  const auto bytes = pattern(10, 1);
  SplitReceiveTable table(source, 16);
  for (const std::uint64_t slot : {1ULL, (1ULL << 31) + 9, (5ULL << 32) + 1}) {
    source.parts = {{slot, {into.data(), into.size(), {}, slot}}};
    const DataHeader data = header(static_cast<std::uint32_t>(slot), 0, 10);
    EXPECT_EQ(table.place(data), into.data());
    ASSERT_TRUE(table.on_data(data, kFlagEnd, bytes)) << slot;
    EXPECT_FALSE(table.on_data(data, kFlagEnd, bytes)) << slot;
    Event event;
    ASSERT_TRUE(table.take_finished(event));
    EXPECT_EQ(event.context, slot);
  }
}

/// A connection that waits for split receives' data alone.
class WaitingPair : public ::testing::Test {
 protected:
  WaitingPair() : into(100'000) {
    source.parts[1] = {into.data(), into.size(), {}, 3};
    ConnectionOptions options;
    options.split_receives = &source;
    pair = std::make_unique<LossyPair>(options);
  }
  Status send(std::vector<std::byte>& data, std::uint64_t slot) {
    SendRequest request{.data = data.data(), .bytes = data.size(), .context = 4, .slot = slot};
    return pair->end(0).post_send(pair->now(), pair->handle(0), request);
  }
  Map source;
  std::vector<std::byte> into;
  std::unique_ptr<LossyPair> pair;
};

TEST_F(WaitingPair, a_send_that_names_its_receive_needs_no_advert) {
  auto data = pattern(100'000, 7);
  ASSERT_TRUE(send(data, 1).ok());
  ASSERT_TRUE(pair->run_until_events(1, 1));
  EXPECT_EQ(pair->events(0)[0].kind, EventKind::kSendDone);
  EXPECT_EQ(pair->events(1)[0].context, 3U);
  EXPECT_EQ(pair->events(1)[0].part_bytes[0], 100'000U);
  EXPECT_EQ(data, into);
}

TEST_F(WaitingPair, post_receive__is_refused) {
  ReceiveRequest request;
  EXPECT_EQ(pair->end(1).post_receive(pair->now(), pair->handle(1), request).code(),
            ErrorCode::kInvalidArgument);
}

TEST_F(WaitingPair, expect__a_silent_peer_is_given_up) {
  pair->drop = [](const LossyPair::Delivered&) { return true; };
  // Nothing is waited for: nothing happens.
  EXPECT_FALSE(pair->run_until_events(0, 1));
  ASSERT_TRUE(pair->end(1).expect(pair->now(), pair->handle(1), 1).ok());
  ASSERT_TRUE(pair->run_until_events(0, 1));
  EXPECT_EQ(pair->events(1)[0].kind, EventKind::kConnectionDone);
  EXPECT_EQ(pair->events(1)[0].outcome, Outcome::kUnreachable);
}

TEST_F(WaitingPair, a_message_that_breaks_off_is_given_up) {
  std::uint64_t left = 5;
  pair->drop = [&left](const LossyPair::Delivered&) { return left == 0 || --left == 0; };
  auto data = pattern(100'000, 7);
  ASSERT_TRUE(send(data, 1).ok());
  ASSERT_TRUE(pair->run_until_events(2, 1));
  EXPECT_EQ(pair->events(1)[0].outcome, Outcome::kUnreachable);
}

TEST(split_receives, look__what_is_waited_for_or_has_begun_and_is_not_gone) {
  Map source;
  source.parts[1] = {nullptr, 100, {}, 3};
  source.parts[2] = {nullptr, 100, {}, 4};
  SplitReceiveTable table(source, 4);
  EXPECT_EQ(1'000U, table.look(1'000, 0));
  table.expect(1);
  EXPECT_EQ(2'000U, table.look(2'000, 0));
  EXPECT_EQ(2'500U, table.look(3'000, 2'500));  // Others came meanwhile.
  ASSERT_TRUE(table.on_data(header(2, 0, 10), 0, {}));
  EXPECT_EQ(4'000U, table.look(4'000, 4'000));
  EXPECT_EQ(4'000U, table.look(5'000, 5'000));  // One that has begun goes on.
  source.parts.clear();
  EXPECT_EQ(6'000U, table.look(6'000, 0));
  EXPECT_EQ(0U, table.open());
}

TEST_F(WaitingPair, expect__a_peer_that_answers_and_sends_nothing_is_given_up) {
  pair->run(100'000'000'000);
  ASSERT_TRUE(pair->end(1).expect(pair->now(), pair->handle(1), 1).ok());
  const TimeNs begun = pair->now();
  ASSERT_TRUE(pair->run_until_events(0, 1, begun + 60'000'000'000));
  EXPECT_EQ(pair->events(1)[0].outcome, Outcome::kUnreachable);
  EXPECT_GE(pair->now() - begun, 4 * pair->options(1).loss.give_up_ns);
}

TEST(split_receives, expect__is_for_connections_with_split_receives) {
  LossyPair pair;
  EXPECT_EQ(pair.end(1).expect(pair.now(), pair.handle(1), 1).code(), ErrorCode::kUnavailable);
}

TEST(matches, told_before_the_end_and_only_if_asked_for) {
  LossyPair pair;
  auto data = pattern(100, 1);
  std::vector<std::byte> into(100);
  for (const bool tells : {false, true}) {
    SendRequest request{
        .tag = 3, .data = data.data(), .bytes = 100, .context = 4, .tells_match = tells};
    ASSERT_TRUE(pair.end(0).post_send(pair.now(), pair.handle(0), request).ok());
    pair.receive(1, 3, into);
  }
  ASSERT_TRUE(pair.run_until_events(3, 2));
  std::vector<EventKind> kinds;
  for (const Event& event : pair.events(0)) {
    kinds.push_back(event.kind);
    EXPECT_EQ(event.context, 4U);
    if (event.kind == EventKind::kSendMatched) {
      EXPECT_EQ(event.slot, 2U);  // The second of those that were posted.
    }
  }
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), EventKind::kSendMatched), 1);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), EventKind::kSendDone), 2);
  EXPECT_EQ(kinds.back(), EventKind::kSendDone);
}

TEST(matches, not_told_of_what_is_too_long) {
  LossyPair pair;
  auto data = pattern(100, 1);
  std::vector<std::byte> into(100);
  SendRequest request{
      .tag = 3, .data = data.data(), .bytes = 100, .whole_bytes = 101, .tells_match = true};
  ASSERT_TRUE(pair.end(0).post_send(pair.now(), pair.handle(0), request).ok());
  pair.receive(1, 3, into);
  ASSERT_TRUE(pair.run_until_events(1, 1));
  EXPECT_EQ(pair.events(0)[0].kind, EventKind::kSendDone);
  EXPECT_EQ(pair.events(0)[0].outcome, Outcome::kTruncated);
  EXPECT_EQ(pair.events(1)[0].outcome, Outcome::kTruncated);
}

}  // namespace
}  // namespace tutti::transport
