// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The handshake of a channel over TCP, before its first packet, and what its two ends agree on.
// Each end sends one Handshake of fixed length for each sub-connection that it has an engine for,
// one after the other; the smaller number counts. The key comes with the listener's handle, through
// the caller's bootstrap; the Handshake only proves that its sender has the key.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/result.hpp"
#include "transport/types.hpp"
#include "wire/wire.hpp"

namespace tutti::net {

inline constexpr std::uint16_t kProtocolVersion = 10;  ///< Of all that follows, too.
inline constexpr std::size_t kHandshakeBytes = 768;
inline constexpr std::uint32_t kSubConnectionsMax = 8;  ///< Of a channel.
inline constexpr std::size_t kTextBytes = 64;
inline constexpr std::size_t kRefusalBytes = 320;  ///< Two hosts' names, their values, the remedy.
using HandshakeBytes = std::array<std::byte, kHandshakeBytes>;

/// "host1, process 4711"
std::string who_is(const std::string& host, std::uint32_t process);

/// Writes a text that crosses the network: cut to the field, with a terminating zero.
template <std::size_t size>
void put_text(const std::string& text, char (&out)[size]) {
  std::copy_n(text.data(), std::min(text.size(), size - 1), out);
}

/// Reads such a text. It is printed later, so control characters become '?'.
template <std::size_t size>
std::string get_text(const char (&in)[size]) {
  std::string text(in, strnlen(in, size));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

struct Handshake {
  /// Not empty: why the acceptor refuses; only host and process count then.
  std::string refusal;
  std::string host;
  std::uint32_t process = 0;
  std::string wire;  ///< "udp"
  wire::WireAddress address;
  std::uint64_t device = 0;  ///< Random, of all engines of a device of this process.
  transport::WireCapabilities capabilities;
  std::string controller;
  std::uint8_t traffic_class = 0;  ///< Of the channel, both ways; the connecting side's counts.
  bool authenticates = true;
  std::uint32_t id = 0;  ///< Of the connection at this end.
  std::uint64_t incarnation = 0;
  std::uint32_t sub_connections = 1;  ///< Number of handshakes that this end sends.
  Bytes window_bytes = 0;  ///< Most that a receiving socket holds of one peer; 0: enough.

  std::string who() const { return who_is(host, process); }
};

/// Texts are cut to kTextBytes, a refusal to kRefusalBytes.
HandshakeBytes encode(const Handshake& handshake, const transport::Key& key);

/// Computes and writes the proof of the key.
void seal(HandshakeBytes& bytes, const transport::Key& key);

/// Errors: not a Handshake (kInvalidArgument), of another version (kUnsupported), proof of another
/// key (kUnavailable).
Result<Handshake> decode(std::span<const std::byte> bytes, const transport::Key& key);

/// What a connection between the two uses: the smaller chunks and MTU, the fewer paths. Errors:
/// what may not differ and does, with both values and who has which; a wire that can do nothing
/// (kInvalidArgument).
Result<transport::ConnectionOptions> agree(const Handshake& mine, const Handshake& theirs,
                                           const transport::Key& key);

/// What may differ between the ends and does, with both values, as a log text; empty: nothing.
std::string differences(const Handshake& mine, const Handshake& theirs);

/// Reduces paths, windows and link speed to one sub-connection's share, so that all of them
/// together load the network as one connection would.
void take_share(transport::ConnectionOptions& options, std::uint32_t sub_connections);

/// Unit of a split message in bytes, equal at both ends: whole chunks, and large enough that
/// handing a unit to another engine costs less than copying it.
Bytes unit_bytes_of(const transport::ConnectionOptions& options);

}  // namespace tutti::net
