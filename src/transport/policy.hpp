// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One connection's use of a transport policy (include/tutti/transport_policy.h): owns its state and
// asks a hook only if there is one. The object that the hooks lie in outlives it.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "transport/types.hpp"
#include "tutti/transport_policy.h"

namespace tutti::transport {

class Policy {
 public:
  /// `table` may be null: no hooks. A table of an older header is shorter: it has no later hooks.
  explicit Policy(const tutti_transport_policy* table) : has_table_(table != nullptr) {
    if (has_table_) {
      const std::size_t whole = table->size_bytes / sizeof(void*) * sizeof(void*);
      std::memcpy(&table_, table, std::min(whole, sizeof table_));
    }
  }
  ~Policy() {
    if (is_open_ && table_.close != nullptr) {
      table_.close(state_);
    }
  }
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  void open(const tutti_transport_view& view) {
    is_open_ = has_table_;
    if (is_open_ && table_.open != nullptr) {
      state_ = table_.open(&view);
    }
  }

  explicit operator bool() const { return has_table_; }
  const tutti_transport_policy& hooks() const { return table_; }
  void* state() const { return state_; }

 private:
  tutti_transport_policy table_{};
  bool has_table_;
  void* state_ = nullptr;
  bool is_open_ = false;
};

/// Why a table cannot be used: another version, or smaller than any of this one; empty: it can.
std::string policy_fault(const tutti_transport_policy& table);

}  // namespace tutti::transport
