// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/fnv1a.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr std::uint64_t hash_of(std::string_view bytes) {
  Fnv1a hash;
  hash.add_bytes(bytes);
  return hash.value();
}

TEST(fnv1a, add_bytes__gives_the_published_values) {
  static_assert(hash_of("") == 0xcbf29ce484222325ULL);
  static_assert(hash_of("a") == 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(0xcbf29ce484222325ULL, hash_of(""));
  EXPECT_EQ(0xaf63dc4c8601ec8cULL, hash_of("a"));
  EXPECT_EQ(0x85944171f73967e8ULL, hash_of("foobar"));
}

TEST(fnv1a, add_bytes__takes_bytes_above_127_as_unsigned) {
  Fnv1a word;
  word.add_word(0xff);
  EXPECT_EQ(word.value(), hash_of("\xff"));
}

TEST(fnv1a, add_number__is_its_eight_bytes_from_the_least_significant) {
  Fnv1a number;
  number.add_number(0x8182'8384'8586'8788ULL);
  EXPECT_EQ(number.value(), hash_of("\x88\x87\x86\x85\x84\x83\x82\x81"));
}

TEST(fnv1a, add_word__is_one_step) {
  Fnv1a hash;
  hash.add_word(0x1'0000'0061ULL);
  EXPECT_EQ((0xcbf29ce484222325ULL ^ 0x1'0000'0061ULL) * 0x100000001b3ULL, hash.value());
}

TEST(fnv1a, fnv1a__goes_on_from_a_value) {
  Fnv1a rest(hash_of("foo"));
  rest.add_bytes("bar");
  EXPECT_EQ(hash_of("foobar"), rest.value());
}

}  // namespace
}  // namespace tutti
