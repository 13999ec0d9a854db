// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Packets whose fragments come one by one: the kernel did not join them, or the network mixed or
// lost some. A packet that is not complete when its place is needed is dropped, which the transport
// sees as a loss; until then it does no harm, for no later one has its number (frame.hpp). Not the
// common case, in which all fragments come in one system call: udp_wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "wire/udp/frame.hpp"

namespace tutti::wire::udp {

class Assembly {
 public:
  /// Up to `packets` incomplete ones. All memory is allocated here.
  explicit Assembly(std::uint32_t packets)
      : open_(packets), memory_(new std::byte[std::size_t{packets} * kContentBytesMax]) {}

  /// A whole packet's content, valid until the next call; empty: more is missing, or the fragment
  /// makes no sense with those before. `source` names the sender's address and port. `ecn` becomes
  /// true if any fragment was marked.
  std::span<const std::byte> add(std::uint64_t source, const Prefix& prefix,
                                 std::span<const std::byte> content, bool& ecn);

  /// Fragments that were given up.
  std::uint64_t dropped() const { return dropped_; }

 private:
  struct Open {
    std::uint64_t source = 0;
    std::uint64_t here = 0;         ///< Bit i: fragment i.
    Prefix prefix;                  ///< Of any; index without meaning.
    std::uint32_t whole_bytes = 0;  ///< Of the fragments but the last; 0: not known yet.
    bool ecn = false;
    bool in_use = false;
  };
  std::byte* memory(std::size_t index) { return memory_.get() + index * kContentBytesMax; }

  std::vector<Open> open_;
  std::unique_ptr<std::byte[]> memory_;  ///< Not written before it is used: pages come with need.
  std::size_t oldest_ = 0;               ///< Whose place is taken next.
  std::uint64_t dropped_ = 0;
};

}  // namespace tutti::wire::udp
