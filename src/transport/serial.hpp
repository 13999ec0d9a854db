// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Numbers that are 64 bits in memory and 32 bits (or fewer) on the wire. The full number is the one
// closest to a number the reader knows, as in RFC 1982 and QUIC: right while the two are less than
// 2^31 apart, which every window here guarantees.
#pragma once

#include <cstdint>

namespace tutti::transport {

/// The number with these low 32 bits that is closest to `known`; never below 0.
inline std::uint64_t expand(std::uint32_t low, std::uint64_t known) {
  const auto distance = static_cast<std::int32_t>(low - static_cast<std::uint32_t>(known));
  if (distance < 0 && known < static_cast<std::uint64_t>(-static_cast<std::int64_t>(distance))) {
    return low;
  }
  return known + static_cast<std::uint64_t>(static_cast<std::int64_t>(distance));
}

}  // namespace tutti::transport
