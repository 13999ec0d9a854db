// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/units.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Units, parse_bytes__numbers_and_suffixes) {
  struct Case {
    const char* text;
    Bytes bytes;
  };
  for (const Case& c :
       {Case{"0", 0}, Case{"1", 1}, Case{"1b", 1}, Case{"8K", 8192}, Case{"8k", 8192},
        Case{"8KB", 8192}, Case{"8KiB", 8192}, Case{"2M", 2 << 20}, Case{"3G", Bytes{3} << 30},
        Case{"1T", Bytes{1} << 40}, Case{"18446744073709551615", kBytesMax}, Case{"inf", kBytesMax},
        Case{"INF", kBytesMax}}) {
    Result<Bytes> parsed = parse_bytes(c.text);
    ASSERT_TRUE(parsed.ok()) << c.text;
    EXPECT_EQ(*parsed, c.bytes) << c.text;
  }
}

TEST(Units, parse_bytes__refuses_what_is_no_size) {
  for (const char* text : {"", " ", "K", "-1", "+1", "1.5K", "1 K", "8KK", "8X", "8Kb2", "0x10",
                           "infinite", "8\xff"}) {
    Result<Bytes> parsed = parse_bytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), ErrorCode::kInvalidConfig) << text;
  }
}

TEST(Units, parse_bytes__limit_of_64_bits) {
  EXPECT_EQ(*parse_bytes("16777215T"), Bytes{16777215} << 40);
  EXPECT_FALSE(parse_bytes("16777216T").ok());
  EXPECT_FALSE(parse_bytes("18446744073709551616").ok());
}

TEST(Units, format_bytes__largest_whole_unit) {
  EXPECT_EQ(format_bytes(0), "0");
  EXPECT_EQ(format_bytes(100), "100");
  EXPECT_EQ(format_bytes(1024), "1K");
  EXPECT_EQ(format_bytes(1025), "1025");
  EXPECT_EQ(format_bytes(65536), "64K");
  EXPECT_EQ(format_bytes(Bytes{1} << 40), "1T");
  EXPECT_EQ(format_bytes(Bytes{1} << 50), "1024T");
  EXPECT_EQ(format_bytes(kBytesMax), "inf");
}

TEST(Units, format_bytes__parses_back) {
  for (int shift = 0; shift < 64; ++shift) {
    for (Bytes delta : {Bytes{0}, Bytes{1}, ~Bytes{0}}) {
      Bytes bytes = (Bytes{1} << shift) + delta;
      EXPECT_EQ(*parse_bytes(format_bytes(bytes)), bytes);
    }
  }
}

TEST(Units, edit_distance__known_values) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2);
  EXPECT_EQ(edit_distance("TUTTI_DEVCE", "TUTTI_DEVICE"), 1);
}

TEST(Units, edit_distance__symmetric) {
  EXPECT_EQ(edit_distance("allreduce", "reduce"), edit_distance("reduce", "allreduce"));
}

}  // namespace
}  // namespace tutti
