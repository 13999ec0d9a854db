// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/builder.hpp"

#include <gtest/gtest.h>

namespace tutti::schedule {
namespace {

using Numbers = std::vector<std::uint32_t>;

Region output(std::uint64_t offset, std::uint64_t count) {
  return {Buffer::kOutput, offset, count};
}

Numbers waits_for(const Program& program, std::size_t step) {
  const auto found = program.dependencies_of(program.steps[step]);
  return {found.begin(), found.end()};
}

TEST(builder, add__reads_wait_for_the_writers_of_what_they_read) {
  Builder builder;
  builder.recv(1, output(0, 4));
  builder.recv(2, output(4, 4));
  builder.send(3, output(2, 4));
  builder.send(3, output(0, 2));
  const Program program = std::move(builder).finish();
  EXPECT_EQ(Numbers{}, waits_for(program, 0));
  EXPECT_EQ(Numbers{}, waits_for(program, 1));
  EXPECT_EQ((Numbers{0, 1}), waits_for(program, 2));
  EXPECT_EQ(Numbers{0}, waits_for(program, 3));
}

TEST(builder, add__writes_wait_for_readers_and_writers) {
  Builder builder;
  builder.send(1, output(0, 4));
  builder.recv(2, output(2, 4));
  builder.recv(3, output(5, 2));
  const Program program = std::move(builder).finish();
  EXPECT_EQ(Numbers{0}, waits_for(program, 1));
  EXPECT_EQ(Numbers{1}, waits_for(program, 2));
}

TEST(builder, add__two_reads_overlap_and_so_do_other_buffers) {
  Builder builder;
  builder.recv(1, output(0, 4));
  builder.send(2, output(0, 4));
  builder.send(3, output(0, 4));
  builder.recv(4, {Buffer::kScratch, 0, 4});
  const Program program = std::move(builder).finish();
  EXPECT_EQ(Numbers{0}, waits_for(program, 1));
  EXPECT_EQ(Numbers{0}, waits_for(program, 2));
  EXPECT_EQ(Numbers{}, waits_for(program, 3));
}

TEST(builder, reduce__waits_for_both_sides) {
  Builder builder;
  const Region scratch = builder.scratch(4);
  builder.recv(1, scratch);
  builder.recv(2, output(0, 4));
  builder.reduce(scratch, output(0, 4));
  builder.send(1, output(0, 4));
  const Program program = std::move(builder).finish();
  EXPECT_EQ((Numbers{0, 1}), waits_for(program, 2));
  EXPECT_EQ(Numbers{2}, waits_for(program, 3));
  EXPECT_EQ(4U, program.scratch_count);
}

TEST(builder, tags__number_messages_of_a_pair_and_direction) {
  Builder builder;
  builder.send(1, output(0, 1));
  builder.recv(1, output(1, 1));
  builder.send(2, output(0, 1));
  builder.send(1, output(0, 1));
  builder.send(1, output(0, 0));  // Empty: no message, no number.
  builder.send(1, output(0, 1));
  const Program program = std::move(builder).finish();
  ASSERT_EQ(5U, program.steps.size());
  EXPECT_EQ(0U, program.steps[1].tag);
  EXPECT_EQ(0U, program.steps[2].tag);
  EXPECT_EQ(1U, program.steps[3].tag);
  EXPECT_EQ(2U, program.steps[4].tag);
}

TEST(builder, fence__orders_what_no_data_does) {
  Builder builder;
  builder.send_token(1);
  builder.recv_token(2);
  builder.fence();
  builder.fence();  // Two in a row are one.
  builder.send_token(3);
  builder.fence();
  builder.recv_token(4);
  const Program program = std::move(builder).finish();
  EXPECT_EQ((Numbers{0, 1}), waits_for(program, 2));
  EXPECT_EQ(Numbers{2}, waits_for(program, 3));
}

TEST(builder, copy__onto_itself_is_no_step) {
  Builder builder;
  builder.copy(output(3, 2), output(3, 2));
  EXPECT_TRUE(std::move(builder).finish().steps.empty());
}

}  // namespace
}  // namespace tutti::schedule
