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
#include <string>

namespace tutti::engine {

using Counter = std::atomic<std::uint64_t>;

class Counters {
 public:
  Counter& plan(const std::string& name);
  /// `is_new` tells whether this text was never seen before (report it once).
  Counter& fallback(const std::string& text, bool* is_new);

  Counter communicators{0};
  Counter agreements{0};
  Counter staged_bytes{0};
  Counter misfits{0};  ///< Calls whose local buffers did not fit the agreed memory mode.

  /// The document of tutti_counters_json.
  std::string json() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Counter> plans_;
  std::map<std::string, Counter> fallbacks_;
};

}  // namespace tutti::engine
