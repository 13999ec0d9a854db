// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Buffers of eager sends: small messages that are copied, so that their callers need not wait for
// the peer's acknowledgement. An eager send completes once it is known which receive it goes into;
// the copy stays until the peer has acknowledged it. It does not complete earlier: a message
// without a receive would have to outlive its channel, and nobody would hear that it is too long
// for its receive. Used under the engine's lock; memory is taken by the first copy.
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

class EagerBuffers {
 public:
  static constexpr Bytes kBytesMax = 1024;  ///< Of one buffer.
  static constexpr std::uint32_t kCount = 32;

  std::uint32_t used() const { return used_; }
  bool is_full() const { return used_ == kCount; }
  /// Acknowledgements may come late: there is room for more sends meanwhile.
  bool has_plenty() const { return used_ < kCount / 2; }

  /// Copies the bytes into a free buffer; not to be called if is_full(). `request`: the send.
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
  /// The send that has not completed yet, which does now. Null: it has.
  Request* release(std::uint32_t copy) { return std::exchange(requests_[copy], nullptr); }
  void give_back(std::uint32_t copy) { free_[--used_] = copy; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::array<Request*, kCount> requests_{};
  std::array<std::uint32_t, kCount> free_{};  ///< From used_ on.
  std::uint32_t used_ = 0;
};

}  // namespace tutti::net
