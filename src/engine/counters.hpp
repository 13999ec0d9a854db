// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What this process did: calls per plan, fall-backs with their reasons, agreements, staged bytes.
// Thread-safe; a counter's address stays valid for the life of the process, so the call path
// keeps a pointer and never looks a name up.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace tutti::engine {

using Counter = std::atomic<std::uint64_t>;

class Counters {
 public:
  Counter& plan(const std::string& name);
  /// `is_new` tells whether no such text was seen before (report it once): texts of communicators
  /// of several sizes differ in their numbers only.
  Counter& fallback(const std::string& text, bool* is_new);
  /// Whether a warning is the first of its kind, in the same sense.
  bool is_first(const std::string& text);

  Counter communicators{0};
  Counter agreements{0};
  Counter staged_bytes{0};
  Counter misfits{0};  ///< Calls whose local buffers did not fit the agreed memory mode.

  /// The document of tutti_counters_json.
  std::string json() const;

 private:
  bool insert_kind(std::string text);

  mutable std::mutex mutex_;
  std::map<std::string, Counter> plans_;
  std::map<std::string, Counter> fallbacks_;
  std::set<std::string> kinds_;  ///< What was reported, without numbers.
};

}  // namespace tutti::engine
