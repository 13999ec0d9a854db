// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/announcement.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"

namespace tutti::wire::verbs {
namespace {

Announcement example(std::size_t count) {
  Announcement it;
  it.from = 0x0123'4567'89ab'cdef;
  it.to = 0xfedc'ba98'7654'3210;
  it.traffic_class = 0xa4;
  it.has_heard = true;
  it.paths = 256;
  it.first = 100;
  for (std::uint32_t i = 0; i < count; ++i) {
    it.announced.push_back({0xffff'fff0 + i, 0xff'fff0 + i, i % 2 == 0});
  }
  return it;
}

TEST(announcement, decode__gives_what_was_encoded) {
  for (const std::size_t count : {0, 1, 15}) {
    Announcement it = example(count);
    it.is_complete = count == 1;
    std::vector<std::byte> bytes;
    encode(it, &bytes);
    EXPECT_EQ(kAnnouncementHeadBytes + count * kAnnouncedPathBytes, bytes.size());
    Announcement got;
    ASSERT_TRUE(decode(bytes, &got));
    EXPECT_EQ(it, got);
  }
}

TEST(announcement, decode__refuses_other_lengths) {
  std::vector<std::byte> bytes;
  encode(example(3), &bytes);
  Announcement got;
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode(std::span(bytes).first(length), &got)) << length;
  }
  bytes.push_back({});
  EXPECT_FALSE(decode(bytes, &got));
}

TEST(announcement, decode__refuses_paths_beyond_those_that_there_are) {
  Announcement it = example(3);
  it.paths = 102;
  std::vector<std::byte> bytes;
  encode(it, &bytes);
  Announcement got;
  EXPECT_FALSE(decode(bytes, &got));
}

TEST(announcement, decode__noise_is_refused_or_reads_back) {
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes;
    encode(example(random.next() % 4), &bytes);
    bytes[random.next() % bytes.size()] = static_cast<std::byte>(random.next());
    Announcement got;
    if (decode(bytes, &got)) {
      std::vector<std::byte> again;
      encode(got, &again);
      EXPECT_EQ(bytes, again);
    }
  }
}

}  // namespace
}  // namespace tutti::wire::verbs
