// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The bytes of short sends, so that their callers need not wait for the peer's acknowledgement: a
// send is done when it is known which receive it goes into, and the copy stays until the peer has
// it. Not before: a message that nobody has asked for would have to be kept beyond the end of its
// channel, and that it is too long for its receive would be said to nobody. Used under the engine's
// lock; memory is taken by the first copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "base/units.hpp"

namespace tutti::net {

struct Request;

class Copies {
 public:
  static constexpr Bytes kBytesMax = 1024;  ///< Of one.
  static constexpr std::uint32_t kCount = 32;

  std::uint32_t used() const { return used_; }
  bool is_full() const { return used_ == kCount; }
  /// Acknowledgements may be late: there is room for more meanwhile.
  bool has_plenty() const { return used_ < kCount / 2; }

  /// Not if it is full. `request`: who waits for it.
  std::uint32_t take(const std::byte* data, Bytes bytes, Request* request) {
    if (bytes_ == nullptr) {
      bytes_ = std::make_unique<std::byte[]>(kCount * kBytesMax);
      for (std::uint32_t i = 0; i < kCount; ++i) {
        free_[i] = i;
      }
    }
    const std::uint32_t copy = free_[used_++];
    requests_[copy] = request;
    if (bytes > 0 && data != nullptr) {
      std::memcpy(bytes_.get() + copy * kBytesMax, data, bytes);
    }
    return copy;
  }
  const std::byte* data(std::uint32_t copy) const { return bytes_.get() + copy * kBytesMax; }
  /// Who waits for it, from now on nobody. Null: nobody has.
  Request* release(std::uint32_t copy) { return std::exchange(requests_[copy], nullptr); }
  void give_back(std::uint32_t copy) { free_[--used_] = copy; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::array<Request*, kCount> requests_{};
  std::array<std::uint32_t, kCount> free_{};  ///< From used_ on.
  std::uint32_t used_ = 0;
};

}  // namespace tutti::net
