// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a listener's handle says: where it listens, its key, and who it is, so that every error of
// one who cannot reach it names it. The caller's bootstrap carries it; what comes may be anything.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "transport/types.hpp"
#include "wire/udp/socket_address.hpp"

namespace tutti::net {

/// What a peer needs to connect to a listener; the caller's bootstrap distributes it.
struct Handle {
  static constexpr std::size_t kBytes = 104;  ///< Of NCCL's 128; the rest is the plugin's.
  std::array<std::byte, kBytes> bytes{};
};

struct HandleContent {
  wire::udp::SocketAddress address;
  transport::Key key;
  std::uint64_t device = 0;  ///< Handshake::device of the listener.
  std::uint32_t process = 0;
  std::string host;  ///< As far as there is room.

  /// "host1, process 4711, at 10.0.0.1:4242"
  std::string who() const;
};

Handle to_handle(const HandleContent& content);

/// `family`: AF_INET or AF_INET6, of this side. Errors: not a handle of Tutti, or one
/// of another version (kUnsupported); of another family (kInvalidArgument). They name the peer as
/// far as it is known.
Result<HandleContent> from_handle(const Handle& handle, int family);

}  // namespace tutti::net
