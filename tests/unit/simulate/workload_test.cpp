// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/workload.hpp"

#include <gtest/gtest.h>

namespace tutti::simulate {
namespace {

TEST(progress, next__gives_what_has_nothing_before_it_once) {
  HostWork work;
  const auto first = work.add({.kind = OperationKind::kSend, .peer = 1});
  const auto second = work.add({.kind = OperationKind::kReceive, .peer = 1});
  const auto third = work.add({.kind = OperationKind::kSend, .peer = 2});
  work.after = {{first, third}, {second, third}};
  Progress progress(work);
  std::uint32_t index = 99;
  ASSERT_TRUE(progress.next(0, &index));
  EXPECT_EQ(first, index);
  ASSERT_TRUE(progress.next(0, &index));
  EXPECT_EQ(second, index);
  EXPECT_FALSE(progress.next(0, &index));
  progress.complete(50, second);
  EXPECT_FALSE(progress.next(50, &index));
  progress.complete(70, first);
  ASSERT_TRUE(progress.next(80, &index));
  EXPECT_EQ(third, index);
  EXPECT_FALSE(progress.done());
  progress.complete(90, third);
  EXPECT_TRUE(progress.done());
  EXPECT_EQ(0U, progress.start_ps(first));
  EXPECT_EQ(70U, progress.end_ps(first));
  EXPECT_EQ(70U, progress.start_ps(third));
  EXPECT_EQ(90U, progress.end_ps(third));
}

TEST(progress, on_time__waits_end_by_themselves_one_after_the_other) {
  HostWork work;
  const auto wait = work.add({.kind = OperationKind::kWait, .wait_ps = 100});
  const auto longer = work.add({.kind = OperationKind::kWait, .wait_ps = 30});
  const auto send = work.add({.kind = OperationKind::kSend, .peer = 1});
  work.after = {{wait, longer}, {longer, send}};
  Progress progress(work);
  EXPECT_EQ(100U, progress.next_time_ps());
  progress.on_time(99);
  EXPECT_EQ(kNever, progress.end_ps(wait));
  progress.on_time(100);
  EXPECT_EQ(100U, progress.end_ps(wait));
  EXPECT_EQ(130U, progress.next_time_ps());
  // Late: the times are those at which it was due.
  std::uint32_t index = 99;
  ASSERT_TRUE(progress.next(500, &index));
  EXPECT_EQ(send, index);
  EXPECT_EQ(130U, progress.start_ps(send));
  EXPECT_EQ(kNever, progress.next_time_ps());
}

TEST(progress, begins__a_chain_begins_in_its_order_and_not_before_its_last_link) {
  // a irequires b irequires c requires d; the list has them the other way round.
  HostWork work;
  const auto a = work.add({.kind = OperationKind::kSend, .peer = 1});
  const auto b = work.add({.kind = OperationKind::kSend, .peer = 1});
  const auto c = work.add({.kind = OperationKind::kSend, .peer = 1});
  const auto d = work.add({.kind = OperationKind::kWait, .wait_ps = 100});
  work.begins = {{b, a}, {c, b}};
  work.after = {{d, c}};
  Progress progress(work);
  std::uint32_t index = 99;
  EXPECT_FALSE(progress.next(99, &index)) << index;
  for (const auto expected : {c, b, a}) {
    ASSERT_TRUE(progress.next(100, &index));
    EXPECT_EQ(expected, index);
    EXPECT_EQ(100U, progress.start_ps(index));
  }
  EXPECT_FALSE(progress.next(100, &index));
  progress.complete(150, a);  // None of them waits for another's end.
  progress.complete(160, b);
  progress.complete(170, c);
  EXPECT_TRUE(progress.done());
}

TEST(progress, begins__a_long_chain_needs_no_stack) {
  constexpr std::uint32_t kLength = 1'000'000;
  HostWork work;
  for (std::uint32_t i = 0; i < kLength; ++i) {
    work.add({.kind = OperationKind::kReceive, .peer = 1});
    if (i > 0) {
      work.begins.emplace_back(i, i - 1);
    }
  }
  Progress progress(work);
  std::uint32_t index = 0;
  for (std::uint32_t i = kLength; i > 0; --i) {
    ASSERT_TRUE(progress.next(0, &index));
    ASSERT_EQ(i - 1, index);
  }
}

TEST(progress, complete_at__local_operations_end_when_they_are_told_to) {
  HostWork work;
  const auto send =
      work.add({.kind = OperationKind::kSend, .peer = 1, .wait_ps = 7, .is_local = true});
  const auto first = work.add({.kind = OperationKind::kReceive, .peer = 1, .is_local = true});
  const auto late = work.add({.kind = OperationKind::kReceive, .peer = 1, .is_local = true});
  work.after = {{first, late}};
  Progress progress(work);
  std::uint32_t index = 99;
  EXPECT_FALSE(progress.next(0, &index)) << "nothing goes over the network";
  ASSERT_EQ(1U, progress.local_sends().size());
  EXPECT_EQ(send, progress.local_sends()[0].index);
  progress.complete_at(50, late);  // It came before its receive began.
  progress.complete_at(40, send);
  progress.complete_at(60, first);
  progress.on_time(45);
  EXPECT_EQ(40U, progress.end_ps(send));
  EXPECT_EQ(kNever, progress.end_ps(first));
  progress.on_time(100);
  EXPECT_EQ(60U, progress.end_ps(first));
  EXPECT_EQ(60U, progress.end_ps(late));
  EXPECT_TRUE(progress.done());
}

}  // namespace
}  // namespace tutti::simulate
