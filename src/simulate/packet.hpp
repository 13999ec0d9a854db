// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A packet as the network sees it: a plain record without the protocol's header, which its sender
// keeps under `payload`. Copied by value from one link's ring into the next.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simulate/time.hpp"

namespace tutti::simulate {

/// Two queues per port: control goes first, always.
enum class Priority : std::uint8_t { kData = 0, kControl = 1 };
inline constexpr std::uint32_t kPriorities = 2;

namespace packet_flags {
inline constexpr std::uint8_t kEcn = 1;          ///< A port marked it.
inline constexpr std::uint8_t kTrimmed = 2;      ///< A port cut it to its header.
inline constexpr std::uint8_t kTrimmedLast = 4;  ///< ... and that was the last port of its way.
inline constexpr std::uint8_t kLost = 8;         ///< Dies on the wire; never delivered.
inline constexpr std::uint8_t kPause = 16;       ///< A link's own frame: stop data on the reverse.
inline constexpr std::uint8_t kResume = 32;      ///< ... go on.
}  // namespace packet_flags

struct SimPacket {
  TimePs time_ps = 0;         ///< When its last bit arrives at the far end of its link.
  std::uint32_t payload = 0;  ///< The sender's own handle; opaque here.
  std::uint32_t bytes = 0;    ///< On the wire, header included.
  std::uint32_t flow = 0;     ///< With `entropy` what switches hash.
  std::uint32_t src = 0;      ///< Host.
  std::uint32_t dst = 0;      ///< Host.
  std::uint32_t ingress = 0;  ///< Link over which it came into the present switch.
  std::uint16_t entropy = 0;
  std::uint16_t fragment = 0;   ///< Of a chunk that the NIC cut: 0..fragments-1.
  std::uint16_t fragments = 1;  ///< How many the chunk was cut into.
  Priority priority = Priority::kData;
  std::uint8_t flags = 0;  ///< packet_flags.
};

static_assert(sizeof(SimPacket) == 40 && std::is_trivially_copyable_v<SimPacket>);

}  // namespace tutti::simulate
