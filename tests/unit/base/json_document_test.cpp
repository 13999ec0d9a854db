// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/json_document.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace tutti {
namespace {

std::string error_of(const std::string& text) {
  Result<JsonValue> value = parse_json(text, "f");
  EXPECT_FALSE(value.ok());
  return value.ok() ? "" : value.status().message();
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

TEST(JsonDocument, parse_json__every_kind) {
  Result<JsonValue> root = parse_json(R"([null, true, 7, -7, 0.5, "text", [], {}])", "f");
  ASSERT_TRUE(root.ok()) << root.status().message();
  ASSERT_EQ(root->items.size(), 8U);
  using Kind = JsonValue::Kind;
  const Kind expected[] = {Kind::kNull,        Kind::kBool,   Kind::kUnsigned, Kind::kOtherNumber,
                           Kind::kOtherNumber, Kind::kString, Kind::kArray,    Kind::kObject};
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(root->items[i].kind, expected[i]) << i;
  }
  EXPECT_TRUE(root->items[1].boolean);
  EXPECT_EQ(root->items[2].number, 7U);
  EXPECT_EQ(root->items[5].text, "text");
}

TEST(JsonDocument, parse_json__keys_keep_their_order) {
  Result<JsonValue> root = parse_json(R"({"z": 1, "a": 2, "m": 3})", "f");
  ASSERT_TRUE(root.ok());
  std::string keys;
  for (const JsonMember& member : root->members) {
    keys += member.key;
  }
  EXPECT_EQ(keys, "zam");
}

TEST(JsonDocument, parse_json__lines_of_keys_and_values) {
  Result<JsonValue> root = parse_json("{\n\"a\": 1\n,\n\"b\":\n[2,\n3\n]\n}\n", "f");
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->line, 1);
  EXPECT_EQ(root->members[0].line, 2);
  EXPECT_EQ(root->members[0].value.line, 2);
  EXPECT_EQ(root->members[1].line, 4);
  EXPECT_EQ(root->members[1].value.line, 5);
  EXPECT_EQ(root->members[1].value.items[0].line, 5);
  EXPECT_EQ(root->members[1].value.items[1].line, 6);
}

TEST(JsonDocument, parse_json__syntax_errors_name_the_line) {
  EXPECT_EQ(error_of("{\n\"a\": 1,\n}").rfind("f:3: not valid JSON: ", 0), 0U);
  EXPECT_EQ(error_of("{").rfind("f:1: not valid JSON: ", 0), 0U);
  EXPECT_EQ(error_of("{} {}").rfind("f:1: not valid JSON: ", 0), 0U);
  EXPECT_EQ(error_of("\n\n\"\xff\"").rfind("f:3: not valid JSON: ", 0), 0U);
  EXPECT_EQ(error_of("[1e999]").rfind("f:1: not valid JSON: ", 0), 0U);
}

TEST(JsonDocument, parse_json__messages_are_printable) {
  for (char c : error_of("{\"\x01\xc3\"")) {
    EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST(JsonDocument, parse_json__duplicate_key) {
  EXPECT_EQ(error_of("{\"a\": 1,\n\"b\": 2,\n\"a\": 3}"),
            "f:3: the key 'a' stands twice in one object; remove one of them");
}

TEST(JsonDocument, parse_json__equal_keys_in_different_objects) {
  EXPECT_TRUE(parse_json(R"({"a": {"a": 1}, "b": {"a": 2}})", "f").ok());
}

TEST(JsonDocument, parse_json__depth_on_both_sides_of_the_limit) {
  EXPECT_TRUE(parse_json(nested(kJsonDepthMax), "f").ok());
  EXPECT_EQ(error_of(nested(kJsonDepthMax + 1)), "f:1: nested more than 32 deep");
  EXPECT_EQ(error_of(std::string(1 << 20, '[')), "f:1: nested more than 32 deep");
}

TEST(JsonDocument, parse_json__size_on_both_sides_of_the_limit) {
  std::string text = "[]" + std::string(kJsonBytesMax - 2, ' ');
  EXPECT_TRUE(parse_json(text, "f").ok());
  EXPECT_EQ(error_of(text + " "), "f: longer than the limit of 4 MiB; is it the right file?");
}

TEST(JsonDocument, parse_json__empty_and_binary) {
  EXPECT_EQ(error_of(""), "f: empty; a JSON object is expected");
  EXPECT_EQ(error_of(" \r\n\t"), "f: empty; a JSON object is expected");
  EXPECT_EQ(error_of(std::string("{\0}", 3)), "f: not text; is it the right file?");
}

TEST(JsonDocument, read_json_file__whole_text) {
  std::string file = testing::TempDir() + "tutti_json_" + std::to_string(getpid());
  std::string text(100000, 'x');
  std::ofstream(file) << text;
  Result<std::string> got = read_json_file(file);
  unlink(file.c_str());
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(*got, text);
}

TEST(JsonDocument, read_json_file__not_a_regular_file) {
  EXPECT_EQ(read_json_file("/").status().message(), "/: not a regular file");
  std::string fifo = testing::TempDir() + "tutti_fifo_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::string message = read_json_file(fifo).status().message();
  unlink(fifo.c_str());
  EXPECT_EQ(message, fifo + ": not a regular file");
}

TEST(JsonDocument, kind_name__words) {
  EXPECT_STREQ(kind_name(JsonValue::Kind::kObject), "an object");
  EXPECT_STREQ(kind_name(JsonValue::Kind::kOtherNumber), "a number");
}

class NumberReader : public JsonReader {
 public:
  using JsonReader::JsonReader;

  /// "ok" or the error of a document with a number "size" and whatever "note".
  std::string read(const std::string& text) {
    const JsonValue root = *parse_json(text, "f");
    const auto size = [&](const JsonValue& value, const std::string& path) {
      return expect(value, JsonValue::Kind::kUnsigned, path);
    };
    Status status = read_object(root, "", {schema("s/1"), comment(), {"size", size}, {"note", {}}});
    if (status.ok()) {
      status = require(root, "", "size", "add \"size\": 1");
    }
    return status.ok() ? "ok" : status.message();
  }
};

TEST(JsonReader, read_object__each_member_by_its_field) {
  const std::string file = "f";
  NumberReader reader(file);
  EXPECT_EQ("ok", reader.read(R"({"note": [], "size": 1, "schema": "s/1", "comment": "c"})"));
  EXPECT_EQ("f:1: document: an object is expected, not a list", reader.read("[]"));
  EXPECT_EQ("f:1: size: a number is expected, not a string", reader.read(R"({"size": "1"})"));
  EXPECT_EQ("f:1: schema: this build reads 's/1', not 's/2'", reader.read(R"({"schema": "s/2"})"));
  EXPECT_EQ("f:1: comment: a string is expected, not a number", reader.read(R"({"comment": 1})"));
  EXPECT_EQ("f:1: unknown key 'sice'; did you mean 'size'?", reader.read(R"({"sice": 1})"));
  EXPECT_EQ("f:1: unknown key 'x'; there are schema, comment, size", reader.read(R"({"x": 1})"));
}

TEST(JsonReader, require__says_what_to_add) {
  const std::string file = "f";
  EXPECT_EQ("f:1: size: missing; add \"size\": 1", NumberReader(file).read("{}"));
}

}  // namespace
}  // namespace tutti
