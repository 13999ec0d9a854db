// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/counters.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace tutti::engine {

Counter& Counters::plan(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return plans_[name];
}

Counter& Counters::fallback(const std::string& text, bool* is_new) {
  const std::lock_guard lock(mutex_);
  const auto [entry, inserted] = fallbacks_.try_emplace(text);
  *is_new = inserted && insert_kind(text);
  return entry->second;
}

bool Counters::is_first(const std::string& text) {
  const std::lock_guard lock(mutex_);
  return insert_kind(text);
}

bool Counters::insert_kind(std::string text) {
  std::erase_if(text, [](char letter) { return letter >= '0' && letter <= '9'; });
  return kinds_.insert(std::move(text)).second;
}

std::string Counters::json() const {
  const std::lock_guard lock(mutex_);
  nlohmann::json plans = nlohmann::json::object();
  for (const auto& [name, count] : plans_) {
    plans[name] = count.load();
  }
  nlohmann::json fallbacks = nlohmann::json::array();
  for (const auto& [text, count] : fallbacks_) {
    fallbacks.push_back({{"text", text}, {"count", count.load()}});
  }
  return nlohmann::json{{"communicators", communicators.load()},
                        {"plans", plans},
                        {"fallbacks", fallbacks},
                        {"agreements", agreements.load()},
                        {"staged_bytes", staged_bytes.load()},
                        {"misfits", misfits.load()}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tutti::engine
