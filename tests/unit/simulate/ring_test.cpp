// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/ring.hpp"

#include <gtest/gtest.h>

namespace tutti::simulate {
namespace {

TEST(ring, publish__shows_what_was_sent_before_it) {
  Ring ring;
  ring.push({.payload = 7});
  ring.push({.payload = 8});
  ring.mark_sent();
  EXPECT_FALSE(ring.has_arrivals());
  ring.publish();
  EXPECT_TRUE(ring.has_arrivals());
  EXPECT_EQ(7U, ring.at(ring.head()).payload);
  ring.pop();
  EXPECT_FALSE(ring.has_arrivals());
  EXPECT_EQ(1U, ring.queued());
  EXPECT_EQ(1U, ring.in_transit());
}

TEST(ring, push__growing_leaves_the_receiver_what_it_sees) {
  Ring ring;
  for (std::uint32_t i = 0; i < 10; ++i) {
    ring.push({.payload = i});
    ring.mark_sent();
  }
  ring.publish();
  for (std::uint32_t i = 10; i < 1000; ++i) {
    ring.push({.payload = i});
    ring.mark_sent();
  }
  for (std::uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(i, ring.at(ring.head()).payload);
    ring.pop();
  }
  EXPECT_FALSE(ring.has_arrivals());
  ring.publish();
  for (std::uint32_t i = 10; i < 1000; ++i) {
    ASSERT_TRUE(ring.has_arrivals());
    EXPECT_EQ(i, ring.at(ring.head()).payload);
    ring.pop();
  }
  EXPECT_EQ(0U, ring.in_transit());
}

}  // namespace
}  // namespace tutti::simulate
