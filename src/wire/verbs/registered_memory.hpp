// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that a NIC reaches by itself, found by address: the host's, and that of GPUs. The same
// span may be registered several times: the NIC knows it once. Spans may overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "wire/verbs/driver_verbs.hpp"
#include "wire/wire.hpp"

namespace tutti::wire::verbs {

class RegisteredMemory {
 public:
  struct Region {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    Mr* mr = nullptr;
    int device = -1;          ///< DeviceMemory::device; -1: the host's.
    bool is_dma_buf = false;  ///< The library binds no memory windows to it.
    std::uint32_t users = 0;
  };

  /// `on_kept`: told why the NIC may still reach memory that was removed.
  RegisteredMemory(const Functions& verbs, Pd* pd,
                   std::function<void(const std::string& why)> on_kept)
      : verbs_(verbs), pd_(pd), on_kept_(std::move(on_kept)) {}
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  /// Before the first is added: they will have memory windows. A NIC without such refuses to
  /// register memory for them.
  void allow_windows() { access_ |= kMayBind; }

  /// Errors: the system does not let so much be pinned (kUnavailable).
  Status add(std::span<std::byte> memory);
  /// A GPU's, by its dma-buf or (nvidia-peermem) by its address. Errors: the NIC cannot, and what
  /// would help (kUnavailable).
  Status add(const DeviceMemory& memory);
  /// As often as it was added.
  void remove(std::span<std::byte> memory);
  /// What remove() would let the NIC forget; null: nothing yet.
  const Mr* last_use(std::span<std::byte> memory) const;

  /// Null: not all of it is registered.
  const Region* find_region(const std::byte* begin, std::size_t bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    return last_ != nullptr && contains(*last_, address, bytes) ? last_ : search(address, bytes);
  }
  Mr* find(const std::byte* begin, std::size_t bytes) const {
    const Region* const region = find_region(begin, bytes);
    return region == nullptr ? nullptr : region->mr;
  }
  std::size_t size() const { return regions_.size(); }

 private:
  /// By where it begins and how long it is.
  using Key = std::pair<std::uintptr_t, std::size_t>;

  template <class Register>
  Status add(std::span<std::byte> memory, Register register_it);
  void deregister(const Region& region);
  static bool contains(const Region& it, std::uintptr_t begin, std::size_t bytes) {
    return begin >= it.address && bytes <= it.bytes && begin - it.address <= it.bytes - bytes;
  }
  const Region* search(std::uintptr_t address, std::size_t bytes) const;

  const Functions& verbs_;
  Pd* pd_;
  std::function<void(const std::string& why)> on_kept_;
  int access_ = kLocalWrite;
  std::map<Key, Region> regions_;
  std::size_t longest_bytes_ = 0;         ///< Of all that have been there: bounds the search.
  mutable const Region* last_ = nullptr;  ///< Found last; most payloads follow each other.
};

}  // namespace tutti::wire::verbs
