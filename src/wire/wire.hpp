// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The seam between the transport and what moves its packets. A wire decides nothing: it takes
// Transmissions, gives Arrivals, and says what it can do. One thread at a time, the same one that
// drives the Endpoint. tests/support/wire_contract.hpp is the contract, run against every
// implementation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
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

/// Who gets what arrives, says where payload belongs, and hears what has left.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// Where the payload of the packet with this header belongs, or null: anywhere, and the Arrival
  /// carries it. Asked again for each piece; a piece may be written there until the next call.
  virtual std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes) = 0;
  /// A packet, or (Arrival::trimmed) the header of a partial chunk, if the wire can tell.
  virtual void arrived(const transport::Arrival& arrival) = 0;
  /// Of a wire that completes sends late: it reads the payload of the packet with this cookie no
  /// more. Once for each packet with a payload that it has taken, in any order, also where sending
  /// has failed.
  virtual void sent(std::uint64_t cookie) { (void)cookie; }
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

/// What is found out of the way to a peer and back (Wire::reach).
struct Reach {
  bool is_known = true;   ///< Datagrams arrive there and here, and how long they may be is found.
  bool is_tried = false;  ///< Asked often, and nothing answered. The peer may not be there yet.
  bool is_heard = true;   ///< Datagrams of the peer arrive here.
  bool is_too_small = false;  ///< Short datagrams arrive, and none that are long enough to use.
  std::string silent;         ///< Rails without an answer where others have one; empty: none.
};

/// Whose datagrams to and from a peer those are, for messages.
struct Ends {
  std::string senders;    ///< "10.0.0.1 (UDP ports 40001 to 40064)"
  std::string receiver;   ///< "10.0.0.1:40000": where the peer sends to.
  std::string peer;       ///< "10.0.0.2:41000": where we send to.
  std::string peer_host;  ///< "10.0.0.2"
};

/// Memory of a GPU. The CPU neither reads nor writes it.
struct DeviceMemory {
  std::span<std::byte> span;
  int device = 0;            ///< DeviceCopies::device_of()
  int descriptor = -1;       ///< Of a dma-buf, the caller's, who may close it afterwards; -1: none.
  std::uint64_t offset = 0;  ///< Of the span in the dma-buf, bytes.
};

class Wire {
 public:
  /// Afterwards it reads and writes no payload.
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

  /// Memory that many payloads will lie in, so that a NIC reaches it by itself. Other payloads are
  /// sent and received all the same. Keys are the wire's business: it finds them by the address of
  /// a payload. Errors: the system does not let so much be pinned (kUnavailable).
  virtual Status register_memory(std::span<std::byte> memory) {
    (void)memory;
    return {};
  }
  /// The same for memory of a GPU, which carries payloads only if it is registered: others are
  /// lost. Errors: this wire or its NIC does not reach it, and what would help (kInvalidArgument,
  /// kUnavailable).
  virtual Status register_device_memory(const DeviceMemory& memory) {
    (void)memory;
    return no_device_memory();
  }
  static Status no_device_memory() {
    return {ErrorCode::kInvalidArgument,
            "memory of a GPU cannot be registered: this network reads and writes host memory only"};
  }
  /// As often as it was registered; no send or receive of its bytes is under way then.
  virtual void deregister_memory(std::span<std::byte> memory) { (void)memory; }
  virtual bool is_registered(std::span<const std::byte> memory) const {
    (void)memory;
    return false;
  }
  /// Whether payloads that have come are still on their way into this memory of a GPU: it copies
  /// them by itself, and Arrivals::arrived() is called afterwards.
  virtual bool is_copying_into(std::span<const std::byte> memory) const {
    (void)memory;
    return false;
  }
  /// Lets the GPU see all that peers have written into its memory up to now (Transmission::remote):
  /// what a NIC has written may still be on its way when its header is here. 0: it sees it. Errors:
  /// there is no room, try again later (kTimeout); the NIC cannot.
  virtual Result<std::uint64_t> start_flush(std::span<const std::byte> memory) {
    (void)memory;
    return std::uint64_t{0};
  }
  virtual Result<bool> has_flushed(std::uint64_t flush) {
    (void)flush;
    return true;
  }

  /// Opens registered memory to writes of peers (Transmission::remote), for one receive. 0: not
  /// this memory, or not this wire. After the receive it is closed, and not used again before it
  /// has closed: until then a peer may write there, also one that is believed dead.
  virtual std::uint64_t open_window(std::span<std::byte> memory) {
    (void)memory;
    return 0;
  }
  /// False: ask again. True: `remote` is what peers need to know; key 0: the NIC has refused.
  virtual bool has_opened(std::uint64_t window, transport::RemoteMemory* remote) {
    (void)window;
    *remote = {};
    return true;
  }
  virtual void close_window(std::uint64_t window) { (void)window; }
  /// Asked after close_window(). True: nobody writes there any more, and the number is void.
  virtual bool has_closed(std::uint64_t window) {
    (void)window;
    return true;
  }

  /// Hands one packet to the network. False: there is no room now, try the same one again later.
  /// A packet that the network refuses for good is lost, which the transport notices. When it
  /// returns, the payload has been read; or (WireCapabilities::sends_complete_late) it stays
  /// untouched until receive() says that it has, which it does soon, whether the peer is alive or
  /// not.
  virtual bool send(const transport::Transmission& transmission) = 0;
  /// Packets of up to kTogetherMax to one peer, in which at most the last has a path of its own
  /// to keep: where they fit, one datagram carries them. How many, from the front, were taken.
  virtual std::size_t send_together(std::span<const transport::Transmission> packets) {
    std::size_t taken = 0;
    while (taken < packets.size() && send(packets[taken])) {
      ++taken;
    }
    return taken;
  }
  /// Takes in up to `packets_max` packets; how many there were, partial chunks not counted. Tells
  /// of all that has been sent.
  virtual std::size_t receive(Arrivals& arrivals, std::size_t packets_max) = 0;
  /// Asks after the ways to its peers, when that is due; called every now and then, and at
  /// next_deadline().
  virtual void handle_timeout(transport::TimeNs now) { (void)now; }
  virtual Reach reach(std::uint64_t peer) const {
    (void)peer;
    return {};
  }
  virtual Ends ends(std::uint64_t peer) const {
    (void)peer;
    return {};
  }
  /// When it must be called again though nothing came (delayed or partial packets, probes); kNever.
  virtual transport::TimeNs next_deadline() const { return transport::kNever; }

  /// To sleep on: readable when receive() has something to do, of some wires once after each arm().
  /// -1: none, the wire is polled.
  virtual int file_descriptor() const = 0;
  /// Before a sleep on it, by the one thread that sleeps. When receive() must be called though the
  /// descriptor tells of nothing; `now`: at once, something has come; kNever.
  virtual transport::TimeNs arm(transport::TimeNs /*now*/) { return transport::kNever; }
  virtual const WireCounters& counters() const = 0;
  /// One line for people: interface, offloads, what was not available and why.
  virtual std::string description() const = 0;
  /// What there is to say at its end beyond the counters: begins with ", ", or is empty.
  virtual std::string report() const { return {}; }
};

/// `add` for all of `places`, wires or what hands on to them, or for none.
template <class Places, class Add>
Status add_to_all(const Places& places, std::span<std::byte> memory, Add add) {
  for (auto place = std::begin(places); place != std::end(places); ++place) {
    const Status status = add(**place);
    if (!status.ok()) {
      while (place != std::begin(places)) {
        (*--place)->deregister_memory(memory);
      }
      return status;
    }
  }
  return {};
}
template <class Places>
Status register_with_all(const Places& places, std::span<std::byte> memory) {
  return add_to_all(places, memory, [&](auto& place) { return place.register_memory(memory); });
}
template <class Places>
Status register_with_all(const Places& places, const DeviceMemory& memory) {
  return add_to_all(places, memory.span,
                    [&](auto& place) { return place.register_device_memory(memory); });
}

}  // namespace tutti::wire
