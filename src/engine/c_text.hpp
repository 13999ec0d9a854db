// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// JSON in and out of the C API: documents that the caller frees, and queries about a call.
#pragma once

#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "select/shape.hpp"

namespace tutti::engine {

/// Memory of malloc, for tutti_free; null when there is none.
char* document(const std::string& text);
char* document(const nlohmann::json& value);

/// Runs `body`; nothing it throws crosses the C boundary. Null: no memory, not even for an error.
template <class Body>
char* guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    try {
      return document(nlohmann::json{{"error", error.what()}});
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
}

/// The call of a query: "collective", "bytes", "memory", "op", "type", "order", each may be left
/// out. Returns what is wrong, empty when nothing is.
std::string read_shape(const nlohmann::json& query, select::Shape* shape);

}  // namespace tutti::engine
