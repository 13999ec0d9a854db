// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A JSON text as a tree that remembers the line of each value and the order of each object's keys.
// Every JSON file that a user writes is read through it, so that every complaint can
// name its line. Syntax errors, duplicate keys, too deep a nesting and what is not text are errors
// here already.
#pragma once

#include <cstdint>
#include <functional>
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

/// What readers of a file complain about: "<file>:<line>: <path>: what is wrong"; `path` is the
/// value's place in the document, as in "rules[3].bytes.max".
class JsonReader {
 public:
  explicit JsonReader(const std::string& file) : file_(file) {}

 protected:
  /// What reads one value, at `path`.
  using Read = std::function<Status(const JsonValue& value, const std::string& path)>;
  /// A key, and what reads its value; none: it is passed over, and never suggested.
  struct Field {
    const char* key;
    Read read;
  };

  Status fail(int line, const std::string& path, const std::string& what) const;
  Status expect(const JsonValue& value, JsonValue::Kind kind, const std::string& path) const;
  /// `parent`: the path of the object; empty: the document.
  Status unknown_key(const JsonMember& member, const std::string& parent,
                     const std::vector<std::string>& keys) const;
  /// Reads each member of an object by its field, in the order of the text; other keys are errors.
  /// `path` is empty for the document.
  Status read_object(const JsonValue& value, const std::string& path,
                     const std::vector<Field>& fields) const;
  /// Fields of every file: the schema that this build reads, and a string for people.
  Field schema(const std::string& name) const;
  Field comment() const;
  static bool has(const JsonValue& object, const std::string& key);
  /// An error of an object at `path` without `key`: "missing; " and the remedy.
  Status require(const JsonValue& object, const std::string& path, const std::string& key,
                 const std::string& remedy) const;

  const std::string& file_;
};

}  // namespace tutti
