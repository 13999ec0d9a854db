// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "base/json_document.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/message.hpp"

namespace tutti {
namespace {

/// Which line the parser has reached. The character read last does not count yet: a number ends
/// only when the character behind it, often a line break, has been read.
struct LineCount {
  int line = 1;
  bool break_read = false;

  void read(char c) {
    line += break_read ? 1 : 0;
    break_read = c == '\n';
  }
};

/// Walks over the text for nlohmann's parser and counts lines on the way.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, LineCount* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    count_->read(*at_++);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  LineCount* count_;
};

/// nlohmann's words without its error number and its own idea of the place.
std::string words_of(const std::string& what) {
  std::size_t column = what.find("column ");
  std::size_t colon = what.find(": ", column == std::string::npos ? 0 : column);
  std::string words = colon == std::string::npos ? what : what.substr(colon + 2);
  constexpr std::size_t kLongest = 200;
  std::string result;
  for (char c : words.substr(0, kLongest)) {
    result += c >= ' ' && c <= '~' ? c : '?';
  }
  return result;
}

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const std::string& file, const LineCount* count) : file_(file), count_(count) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override {
    JsonValue result;
    result.kind = JsonValue::Kind::kBool;
    result.boolean = value;
    return add(std::move(result));
  }
  bool number_integer(number_integer_t) override { return other_number(); }
  bool number_unsigned(number_unsigned_t value) override {
    JsonValue result;
    result.kind = JsonValue::Kind::kUnsigned;
    result.number = value;
    return add(std::move(result));
  }
  bool number_float(number_float_t, const string_t&) override { return other_number(); }
  bool string(string_t& value) override {
    JsonValue result;
    result.kind = JsonValue::Kind::kString;
    result.text = std::move(value);
    return add(std::move(result));
  }
  bool binary(binary_t&) override { return fail("binary data; JSON text is expected"); }

  bool start_object(std::size_t) override { return open(JsonValue::Kind::kObject); }
  bool start_array(std::size_t) override { return open(JsonValue::Kind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second) {
      return fail("the key " + in_quotes(name) + " stands twice in one object; remove one of them");
    }
    level.value.members.push_back({std::move(name), count_->line, {}});
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    return fail("not valid JSON: " + words_of(e.what()));
  }

  /// After a successful parse.
  JsonValue take_root() { return std::move(root_); }
  const Status& status() const { return status_; }

 private:
  /// An array or object that is still open.
  struct Level {
    JsonValue value;
    std::unordered_set<std::string> keys;
  };

  bool fail(const std::string& what) {
    status_ =
        Status(ErrorCode::kInvalidConfig, file_ + ":" + std::to_string(count_->line) + ": " + what);
    return false;
  }

  bool other_number() {
    JsonValue result;
    result.kind = JsonValue::Kind::kOtherNumber;
    return add(std::move(result));
  }

  bool open(JsonValue::Kind kind) {
    if (levels_.size() >= kJsonDepthMax) {
      return fail("nested more than " + std::to_string(kJsonDepthMax) + " deep");
    }
    Level level;
    level.value.kind = kind;
    level.value.line = count_->line;
    levels_.push_back(std::move(level));
    return true;
  }

  bool close() {
    JsonValue value = std::move(levels_.back().value);
    levels_.pop_back();
    place(std::move(value));
    return true;
  }

  bool add(JsonValue value) {
    value.line = count_->line;
    place(std::move(value));
    return true;
  }

  void place(JsonValue value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (JsonValue& parent = levels_.back().value; parent.kind == JsonValue::Kind::kArray) {
      parent.items.push_back(std::move(value));
    } else {
      parent.members.back().value = std::move(value);
    }
  }

  const std::string& file_;
  const LineCount* count_;
  std::vector<Level> levels_;
  JsonValue root_;
  Status status_;
};

Status file_error(const std::string& file, const std::string& what) {
  return {ErrorCode::kInvalidConfig, file + ": " + what};
}

}  // namespace

Result<JsonValue> parse_json(const std::string& text, const std::string& file) {
  if (text.size() > kJsonBytesMax) {
    return file_error(file, "longer than the limit of " + std::to_string(kJsonBytesMax >> 20) +
                                " MiB; is it the right file?");
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return file_error(file, "empty; a JSON object is expected");
  }
  if (text.find('\0') != std::string::npos) {
    return file_error(file, "not text; is it the right file?");
  }
  LineCount count;
  Builder builder(file, &count);
  try {
    CountingIterator begin(text.data(), &count);
    CountingIterator end(text.data() + text.size(), &count);
    if (!nlohmann::json::sax_parse(begin, end, &builder)) {
      return builder.status();
    }
  } catch (const std::exception& e) {
    return file_error(file, std::string("cannot be parsed: ") + words_of(e.what()));
  }
  return builder.take_root();
}

Result<std::string> read_json_file(const std::string& file) {
  // Non-blocking, so that a FIFO without a writer is refused below and not waited for.
  int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return file_error(file, std::string("cannot be opened: ") + std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return file_error(file, "not a regular file");
  }
  std::string text;
  char buffer[16384];
  ssize_t got = 0;
  // One byte over the limit is enough for parse_json to refuse it.
  while (text.size() <= kJsonBytesMax) {
    got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      break;
    }
    text.append(buffer, static_cast<std::size_t>(got));
  }
  int error = errno;
  close(fd);
  if (got < 0) {
    return file_error(file, std::string("cannot be read: ") + std::strerror(error));
  }
  return text;
}

const char* kind_name(JsonValue::Kind kind) {
  switch (kind) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return "true or false";
    case JsonValue::Kind::kUnsigned:
    case JsonValue::Kind::kOtherNumber:
      return "a number";
    case JsonValue::Kind::kString:
      return "a string";
    case JsonValue::Kind::kArray:
      return "a list";
    case JsonValue::Kind::kObject:
      return "an object";
  }
  return "?";
}

Status JsonReader::fail(int line, const std::string& path, const std::string& what) const {
  return {ErrorCode::kInvalidConfig,
          file_ + ":" + std::to_string(line) + ": " + path + ": " + what};
}

Status JsonReader::expect(const JsonValue& value, JsonValue::Kind kind,
                          const std::string& path) const {
  return value.kind == kind
             ? Status()
             : fail(value.line, path,
                    std::string(kind_name(kind)) + " is expected, not " + kind_name(value.kind));
}

JsonReader::Field JsonReader::schema(const std::string& name) const {
  return {"schema", [this, name](const JsonValue& value, const std::string& path) -> Status {
            TUTTI_RETURN_IF_ERROR(expect(value, JsonValue::Kind::kString, path));
            return value.text == name
                       ? Status()
                       : fail(value.line, path,
                              "this build reads '" + name + "', not " + in_quotes(value.text));
          }};
}

JsonReader::Field JsonReader::comment() const {
  return {"comment", [this](const JsonValue& value, const std::string& path) {
            return expect(value, JsonValue::Kind::kString, path);
          }};
}

Status JsonReader::unknown_key(const JsonMember& member, const std::string& parent,
                               const std::vector<std::string>& keys) const {
  return {ErrorCode::kInvalidConfig, file_ + ":" + std::to_string(member.line) + ": " +
                                         (parent.empty() ? "" : parent + ": ") + "unknown key " +
                                         in_quotes(member.key) + did_you_mean(member.key, keys)};
}

Status JsonReader::read_object(const JsonValue& value, const std::string& path,
                               const std::vector<Field>& fields) const {
  TUTTI_RETURN_IF_ERROR(expect(value, JsonValue::Kind::kObject, path.empty() ? "document" : path));
  for (const JsonMember& member : value.members) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& one) { return member.key == one.key; });
    if (field == fields.end()) {
      std::vector<std::string> keys;
      for (const Field& one : fields) {
        if (one.read) {
          keys.emplace_back(one.key);
        }
      }
      return unknown_key(member, path, keys);
    }
    if (field->read) {
      TUTTI_RETURN_IF_ERROR(
          field->read(member.value, path.empty() ? member.key : path + "." + member.key));
    }
  }
  return {};
}

bool JsonReader::has(const JsonValue& object, const std::string& key) {
  return std::any_of(object.members.begin(), object.members.end(),
                     [&](const JsonMember& member) { return member.key == key; });
}

Status JsonReader::require(const JsonValue& object, const std::string& path, const std::string& key,
                           const std::string& remedy) const {
  return has(object, key)
             ? Status()
             : fail(object.line, path.empty() ? key : path + "." + key, "missing; " + remedy);
}

}  // namespace tutti
