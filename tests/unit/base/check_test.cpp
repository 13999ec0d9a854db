// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/check.hpp"

#include <gtest/gtest.h>

namespace {

TEST(Check, check__true_goes_on) {
  int evaluated = 0;
  CHECK(++evaluated == 1, "never shown");
  EXPECT_EQ(evaluated, 1);
}

TEST(Check, check__false_aborts_with_place_and_values) {
  EXPECT_DEATH(CHECK(1 == 2, "left 1, right 2"),
               "check_test.cpp:[0-9]+: broken invariant: 1 == 2 \\(left 1, right 2\\)");
}

}  // namespace
