// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that a NIC reaches by itself, found by address. The same span may be registered several
// times: the NIC knows it once. Spans may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "wire/verbs/driver_verbs.hpp"

namespace tutti::wire::verbs {

class RegisteredMemory {
 public:
  RegisteredMemory(const Functions& verbs, Pd* pd) : verbs_(verbs), pd_(pd) {}
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  /// Errors: the system does not let so much be pinned (kUnavailable).
  Status add(std::span<std::byte> memory);
  /// As often as it was added.
  void remove(std::span<std::byte> memory);

  /// Null: not all of it is registered.
  Mr* find(const std::byte* begin, std::size_t bytes) const;
  std::size_t size() const { return regions_.size(); }

 private:
  struct Region {
    Mr* mr = nullptr;
    std::uint32_t users = 0;
  };
  /// By where it begins and how long it is.
  using Key = std::pair<std::uintptr_t, std::size_t>;

  const Functions& verbs_;
  Pd* pd_;
  std::map<Key, Region> regions_;
  std::size_t longest_bytes_ = 0;  ///< Of all that have been there: bounds the search.
  mutable Mr* last_ = nullptr;     ///< Found last; most payloads follow each other.
};

}  // namespace tutti::wire::verbs
