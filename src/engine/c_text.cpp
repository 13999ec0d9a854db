// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/c_text.hpp"

#include <cstdlib>
#include <cstring>

namespace tutti::engine {

using nlohmann::json;

char* document(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) {
    std::memcpy(copy, text.c_str(), text.size() + 1);
  }
  return copy;
}

char* document(const json& value) {
  return document(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

namespace {

template <class T, class Parse>
bool parse_field(const json& query, const char* key, Parse parse, T* out, std::string* error) {
  if (!query.contains(key) || query[key].is_null()) {
    return true;
  }
  const std::string text =
      query[key].is_string() ? query[key].get<std::string>() : query[key].dump();
  auto parsed = parse(text);
  if (!parsed) {
    *error = std::string(key) + ": unknown value '" + text + "'";
    return false;
  }
  *out = *parsed;
  return true;
}

}  // namespace

std::string read_shape(const json& query, select::Shape* shape) {
  if (!query.is_object()) {
    return "the query is not a JSON object";
  }
  std::string error;
  Bytes bytes = 0;
  const bool ok =
      parse_field(query, "collective", select::parse_collective, &shape->collective, &error) &&
      parse_field(query, "memory", select::parse_memory, &shape->memory, &error) &&
      parse_field(query, "op", select::parse_reduce_op, &shape->op, &error) &&
      parse_field(query, "type", select::parse_data_type, &shape->type, &error) &&
      parse_field(query, "order", select::parse_order, &shape->order, &error) &&
      parse_field(query, "bytes", parse_bytes, &bytes, &error);
  if (!ok) {
    return error;
  }
  if (query.contains("bytes") && !query["bytes"].is_null()) {
    shape->bytes = bytes;
  }
  if (!select::is_reduction(shape->collective)) {
    shape->type = select::DataType::kByte;
    shape->op = select::ReduceOp::kNone;
  }
  return "";
}

}  // namespace tutti::engine
