// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A JSON text as a tree that remembers the line of each value and the order of each object's keys.
// Every JSON file that a user writes is read through it, so that every complaint can
// name its line. Syntax errors, duplicate keys, too deep a nesting and what is not text are errors
// here already.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti {

struct JsonMember;

struct JsonValue {
  enum class Kind : std::uint8_t {
    kNull,
    kBool,
    kUnsigned,
    kOtherNumber,
    kString,
    kArray,
    kObject
  };

  Kind kind = Kind::kNull;
  int line = 0;                     ///< 1-based; of an array or object: where it begins.
  bool boolean = false;             ///< kBool
  std::uint64_t number = 0;         ///< kUnsigned; negative numbers and fractions are kOtherNumber.
  std::string text;                 ///< kString
  std::vector<JsonValue> items;     ///< kArray
  std::vector<JsonMember> members;  ///< kObject, in the order of the text.
};

struct JsonMember {
  std::string key;
  int line = 0;  ///< Of the key.
  JsonValue value;
};

/// Limits of what is read; beyond them a file is refused with words, not with an exhausted machine.
inline constexpr std::size_t kJsonBytesMax = 4 << 20;
inline constexpr int kJsonDepthMax = 32;

/// Errors: "<file>:<line>: what is wrong; remedy". No exception leaves.
Result<JsonValue> parse_json(const std::string& text, const std::string& file);

/// The text of a regular file of at most kJsonBytesMax bytes. Errors name the file.
Result<std::string> read_json_file(const std::string& file);

/// "a string", "an object", for messages.
const char* kind_name(JsonValue::Kind kind);

}  // namespace tutti
