// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The seam between the transport and what moves its packets. A wire decides nothing: it takes
// Transmissions, gives Arrivals, and says what it can do. One thread at a time, the same one that
// drives the Endpoint. tests/unit/wire holds the contract, run against every implementation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"
#include "transport/types.hpp"

namespace tutti::wire {

/// What a peer needs to send to this wire: opaque bytes that its wire of the same kind understands.
struct WireAddress {
  std::array<std::byte, 192> bytes{};
  std::uint8_t length = 0;
  friend bool operator==(const WireAddress&, const WireAddress&) = default;
};

/// Who gets what arrives, and says where payload belongs.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// Where the payload of the packet with this header belongs, or null: anywhere, and the Arrival
  /// carries it. Asked again for each piece; a piece may be written there until the next call.
  virtual std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes) = 0;
  /// A packet, or (Arrival::trimmed) word of one that is torn, if the wire can tell.
  virtual void arrived(const transport::Arrival& arrival) = 0;
};

inline constexpr std::size_t kTogetherMax = 8;

struct WireCounters {
  std::uint64_t datagrams_sent = 0;
  std::uint64_t datagrams_received = 0;
  std::uint64_t calls_sent = 0;  ///< System calls.
  std::uint64_t calls_received = 0;
  std::uint64_t payload_bytes_placed = 0;  ///< Received where they belong.
  std::uint64_t payload_bytes_copied = 0;  ///< Received elsewhere and copied.
  std::uint64_t fragments_dropped = 0;     ///< Parts of a packet whose rest did not come.
  std::uint64_t malformed_dropped = 0;
  std::uint64_t refused = 0;  ///< By the kernel: no route, no memory.
};

class Wire {
 public:
  virtual ~Wire() = default;

  /// What connections over it may use: chunk size, MTU, paths, rails, speed, ECN.
  virtual transport::WireCapabilities capabilities() const = 0;
  virtual WireAddress address() const = 0;
  /// The name of a peer for Transmission::peer, until remove_peer() was called as often for it;
  /// what is sent to it then is lost. An address may have one name or several; those of different
  /// traffic classes have different ones. `traffic_class`: IPv4's TOS and IPv6's field of that
  /// name, of what is sent to it, as far as the wire has such; its two low bits are the wire's
  /// (ECN). Errors: not an address of this kind of wire (kInvalidArgument).
  virtual Result<std::uint64_t> add_peer(const WireAddress& address,
                                         std::uint8_t traffic_class) = 0;
  virtual void remove_peer(std::uint64_t peer) = 0;

  /// Hands one packet to the network. False: there is no room now, try the same one again later.
  /// A packet that the network refuses for good is lost, which the transport notices.
  virtual bool send(const transport::Transmission& transmission) = 0;
  /// Packets of up to kTogetherMax to one peer, in which at most the last has a path of its own
  /// to keep: where they fit they travel as one. How many of them, from the front, were taken.
  virtual std::size_t send_together(std::span<const transport::Transmission> packets) {
    std::size_t taken = 0;
    while (taken < packets.size() && send(packets[taken])) {
      ++taken;
    }
    return taken;
  }
  /// Takes in up to `packets_max` packets; how many there were, word of torn ones not counted.
  virtual std::size_t receive(Arrivals& arrivals, std::size_t packets_max) = 0;
  /// When it must be called again though nothing came (delayed packets, torn ones); kNever.
  virtual transport::TimeNs next_deadline() const { return transport::kNever; }

  /// To sleep on: readable when receive() has something to do. -1: none.
  virtual int file_descriptor() const = 0;
  virtual const WireCounters& counters() const = 0;
  /// One line for people: interface, offloads, what was not available and why.
  virtual std::string description() const = 0;
  /// What there is to say at its end beyond the counters: begins with ", ", or is empty.
  virtual std::string report() const { return {}; }
};

}  // namespace tutti::wire
