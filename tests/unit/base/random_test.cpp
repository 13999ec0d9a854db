// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tutti {
namespace {

// The author's own splitmix64.c from the state 1234567.
TEST(random, next__is_the_published_sequence) {
  Random random(1234567);
  for (const std::uint64_t expected :
       {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL,
        4593380528125082431ULL, 16408922859458223821ULL}) {
    EXPECT_EQ(expected, random.next());
  }
}

// Recorded traces hang on these values.
TEST(random, draw__is_a_function_of_its_three_arguments) {
  static_assert(draw(1, 2, 3) == mix64(mix64(1 + 3 * kGolden64) + 4 * kGolden64));
  EXPECT_EQ(draw(1, 2, 3), draw(1, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(2, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 3, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 2, 4));
  EXPECT_EQ(0U, mix64(0));
}

TEST(random, below__covers_its_range_evenly) {
  EXPECT_EQ(0U, below(0, 7));
  EXPECT_EQ(6U, below(UINT32_MAX, 7));
  EXPECT_EQ(0U, below(UINT32_MAX, 1));
  std::array<int, 7> found{};
  Random random(5);
  for (int i = 0; i < 70'000; ++i) {
    ++found.at(random.below(7));
  }
  for (const int count : found) {
    EXPECT_NEAR(10'000, count, 500);
  }
}

}  // namespace
}  // namespace tutti
