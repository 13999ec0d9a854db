// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the parts of the UDP wire (udp_wire.hpp) share: options of sockets, header sizes.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/units.hpp"

namespace tutti::wire::udp {

// Headers of older C libraries lack them; the values are the kernel's.
inline constexpr int kUdpSegment = 103;
inline constexpr int kUdpGro = 104;
inline constexpr int kSoBindToIfindex = 62;

inline constexpr std::size_t kIpv4Bytes = 20 + 8;
inline constexpr std::size_t kIpv6Bytes = 40 + 8;
inline constexpr std::size_t kDatagramBytesMax = 65507;  ///< Of IPv4; IPv6 takes a little more.
inline constexpr std::uint32_t kDataHeaderBytes = 48;
inline constexpr int kEct0 = 2;
inline constexpr int kEcnMask = 3;
inline constexpr Bytes kBufferBytesMax =
    INT_MAX / 2;  ///< That a socket takes, before it is doubled.

inline std::string errno_text() { return std::strerror(errno); }

template <class T>
bool set_option(int socket, int level, int name, T value) {
  return setsockopt(socket, level, name, &value, sizeof value) == 0;
}

/// The socket's buffer becomes as large as the system allows; its size. What is asked for, and what
/// is said where it is not given: udp_wire.cpp.
inline Bytes grow_buffer(int socket, int forced, int plain, Bytes bytes) {
  const auto wanted = static_cast<int>(std::min(bytes, kBufferBytesMax));
  if (!set_option(socket, SOL_SOCKET, forced, wanted)) {
    set_option(socket, SOL_SOCKET, plain, wanted);
  }
  int got = 0;
  socklen_t length = sizeof got;
  getsockopt(socket, SOL_SOCKET, plain, &got, &length);
  return static_cast<Bytes>(std::max(got, 0));
}

}  // namespace tutti::wire::udp
