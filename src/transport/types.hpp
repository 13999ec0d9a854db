// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The words of the transport core: time, identities, limits and options, and the values that
// cross its border. Not its behaviour: that is endpoint.hpp. Times are integer nanoseconds since
// any fixed moment of one host's choice; sizes are bytes; an unset time is kNever.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "base/units.hpp"

struct tutti_transport_policy;

namespace tutti::transport {

class TraceSink;
class SplitReceiveSource;

using TimeNs = std::uint64_t;
inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

/// Index of one of a connection's paths, from 0. A wire maps it to what its network hashes (a
/// source port, a queue pair, an entropy value). 12 bits on the wire.
using PathId = std::uint16_t;
inline constexpr PathId kNoPath = 0xffff;
inline constexpr std::uint32_t kPathsMax = 4096;
inline constexpr std::uint32_t kRailsMax = 16;
inline constexpr TimeNs kBaseRttNsMax = 1'000'000'000;
inline constexpr std::uint32_t kChunksMax = 16384;  ///< Not acknowledged, of one connection.

/// What matches a send with a receive. Chosen by the caller; each value is its own order.
using Tag = std::uint32_t;

inline constexpr std::size_t kHeaderBytesMax = 96;     ///< Of one packet, without the wire's own.
inline constexpr std::size_t kReceivePartsMax = 8;     ///< What NCCL groups into one receive.
inline constexpr Bytes kMessageBytesMax = 1ULL << 40;  ///< 1 TiB: offsets take 6 bytes.

/// Names a connection of one endpoint. A handle that outlived its connection is recognised.
struct ConnectionHandle {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  ///< 0: no connection.
  friend bool operator==(const ConnectionHandle&, const ConnectionHandle&) = default;
};

/// A shared secret of 128 bits.
struct Key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

/// What the network below one connection can do; equal at both ends.
struct WireCapabilities {
  /// Payload bytes of a full packet of ours: what one acknowledgement and one control decision is
  /// about. 4 KiB to 64 KiB in practice.
  std::uint32_t chunk_bytes = 4096;
  /// Payload bytes of what the network forwards. A chunk longer than this is lost with any part.
  std::uint32_t mtu_bytes = 4096;
  std::uint32_t paths = 1;  ///< 1 to kPathsMax.
  /// NICs (ports) over which the paths are striped: path p leaves by rail p % rails.
  std::uint32_t rails = 1;
  std::uint32_t ps_per_byte = 20;  ///< Time that a byte takes on one rail: 20 is 400 Gb/s.
  /// Round trip of a full chunk and its acknowledgement on idle links.
  TimeNs base_rtt_ns = 12'000;
  /// Nobody knows the network inside (slower links, more hops): a longer round trip that no chunk
  /// undercuts is the idle one.
  bool base_rtt_is_guess = false;
  bool reorders_within_path = false;  ///< Per-packet adaptive routing: no same-path rule.
  bool trims = false;                 ///< A switch cuts the payload where it would drop a packet.
  bool marks_ecn = true;              ///< Marks reach handle_datagram.
  /// A NIC reads payloads after the wire has taken the packet (wire::Arrivals::sent).
  bool sends_complete_late = false;
  /// Receives of so many bytes and more are worth a window (wire::Wire::open_window). 0: none are.
  Bytes window_bytes_min = 0;
};

/// What bounds an endpoint's memory. All of it is allocated by the constructor and connect().
struct EndpointLimits {
  std::uint32_t connections = 64;
};

enum class EchoMode : std::uint8_t {
  kDense,   ///< An echo (path, mark, stamp) of each chunk, several in one packet.
  kSparse,  ///< One echo for ack_bytes of data, as Ultra Ethernet does.
};

struct AcknowledgementOptions {
  EchoMode echoes = EchoMode::kDense;
  std::uint32_t ack_bytes = 16 * 1024;  ///< Received bytes that make an ACK due.
  TimeNs ack_delay_ns = 1'000;          ///< After the first unacknowledged chunk an ACK is due.
  /// How long a packet may wait to be piggybacked on another one to the peer (poll_piggyback): the
  /// acknowledgement of a short message whose sender does not wait, and adverts while the peer
  /// knows of enough receives. 0: nothing waits.
  TimeNs lazy_ns = 0;
};

/// The plugin's own values: net/channel_setup.cpp.
struct LossOptions {
  bool same_path = true;  ///< The same-path rule; wire.reorders_within_path switches it off.
  bool rack = true;       ///< RFC 8985's time-ordered detection.
  bool tail_probe = true;
  /// Hosts that are late by themselves (threads that wait for a processor) are not losses.
  TimeNs tail_probe_ns_min = 0;
  TimeNs rto_ns_min = 0;  ///< 0: max(4 * base_rtt, 15 us + 6 * BDP on the wire).
  /// Of backing off. Where round trips take longer, their own timeout is the bound.
  TimeNs rto_ns_max = 100'000'000;
  /// Idle time after which a peer is declared dead (the plugin's: TUTTI_NET_TIMEOUT). One that
  /// answers and takes no data (a black hole for long packets, paths that come and go) has four
  /// times as long.
  TimeNs give_up_ns = 3'000'000'000;
};

struct CreditOptions {
  /// May be sent before the first grant. 0: nothing (for known incast).
  Bytes speculative_bytes = kBytesMax;  ///< kBytesMax: 1.5 times the bandwidth-delay product.
  std::uint32_t grant_bytes = 16 * 1024;
};

/// What both sides exchanged before (bootstrap, a handle, a test): there is no handshake.
struct ConnectionOptions {
  std::uint32_t local_id = 0;   ///< In the header of what arrives here; unique in the endpoint.
  std::uint32_t remote_id = 0;  ///< In the header of what leaves.
  /// Of each end, never used twice with the same ids, by no process: packets of an end that was
  /// there before, whether its process restarted or opened the connection again, do not
  /// authenticate.
  std::uint64_t local_incarnation = 0;
  std::uint64_t remote_incarnation = 0;
  Key key;                    ///< Per job; each direction of each connection derives its own.
  bool authenticates = true;  ///< Off: the tag is 0 and not looked at; both ends agree.
  bool authenticates_payload = false;  ///< The tag covers the payload too.
  std::uint64_t peer = 0;              ///< The caller's name for the other side, in Transmission.
  WireCapabilities wire;

  /// As make_controller() takes them; with "+rccc", or rccc (= eqds) alone, the receiver grants
  /// credit, and both ends agree on that. Empty: nscc.
  std::string controller = "nscc";
  /// oblivious, two_choices, bitmap, reps, mixed. Empty: mixed.
  std::string spray = "mixed";
  /// Groups of paths, each with its own window and share of the paths. 1: one global window; a few:
  /// connection splitting; as many as paths: a window per path.
  std::uint32_t window_groups = 1;
  Bytes window_bytes_max = 0;  ///< 0: 1.5 times the bandwidth-delay product.
  /// Controllers that would pace below a chunk (swift) do not go below this. Where hosts and not
  /// the network are what is late, less than two chunks is no answer. 0: their own floor.
  Bytes window_bytes_min = 0;
  std::uint32_t cubic_time_scale = 1;  ///< 0: such that K is about 50 round trips; see cubic.hpp.
  Bytes single_path_bytes = 0;         ///< Messages up to this long stay on one path.

  AcknowledgementOptions acknowledgement;
  LossOptions loss;
  CreditOptions credit;

  bool sends = true;     ///< false: no send will be posted here; saves the sender's memory.
  bool receives = true;  ///< false: no receive will be posted here.
  /// Receives are posted on another connection, and told of there: what arrives here names them.
  /// See split_receives.hpp. Not asked any more once the connection has ended. Null: they are
  /// posted here.
  const SplitReceiveSource* split_receives = nullptr;
  std::uint32_t sends_max = 256;  ///< Posted and not yet reported.
  /// Same, each tag of a group; equal at both ends. Rounded up to a power of two, and counted from
  /// the oldest open one.
  std::uint32_t receive_parts_max = 256;
  std::uint32_t chunks_max = 0;  ///< Reordering window, equal at both ends; 0: 4 BDP.

  /// The first of each kind of number; equal at both ends. Tests begin close to the wrap.
  std::uint64_t first_number = 1;
  std::uint64_t seed = 1;  ///< Of the path choices.
  /// Hooks that override parts of the transport (include/tutti/transport_policy.h), or null.
  const tutti_transport_policy* policy = nullptr;
};

/// A buffer in pieces: units of unit_bytes that begin stride_bytes apart. The peer's buffer has the
/// same units, for no chunk may cross them. 0: in one piece. See split_layout.hpp.
struct Stride {
  Bytes unit_bytes = 0;
  Bytes stride_bytes = 0;

  /// Where byte `offset` of the message lies.
  Bytes at(Bytes offset) const {
    return unit_bytes == 0 ? offset : offset / unit_bytes * stride_bytes + offset % unit_bytes;
  }
  /// Bytes from there that lie in one piece.
  Bytes run_bytes(Bytes offset) const {
    return unit_bytes == 0 ? kBytesMax : unit_bytes - offset % unit_bytes;
  }
};

inline constexpr std::uint64_t kNoSlot = ~0ULL;

/// Memory of the peer that a NIC writes into by itself (wire::Wire::open_window).
struct RemoteMemory {
  std::uint64_t address = 0;  ///< Of its first byte, as the peer's NIC counts.
  std::uint32_t key = 0;      ///< 0: there is none.
  friend bool operator==(const RemoteMemory&, const RemoteMemory&) = default;
};

struct SendRequest {
  Tag tag = 0;
  const std::byte* data = nullptr;  ///< Stays valid until the event. Null: bytes without content.
  Bytes bytes = 0;                  ///< 0 to kMessageBytesMax.
  std::uint64_t context = 0;        ///< Comes back in the event.
  Stride stride = {};
  /// Not 0: length of the message that these bytes are a part of; the receive must hold it.
  Bytes whole_bytes = 0;
  bool tells_match = false;  ///< An event of its own says which receive it goes into.
  /// Nobody waits for its end: the acknowledgement may be late (lazy_ns).
  bool is_patient = false;
  /// The receive it goes into, known from another connection; then the tag says nothing.
  std::uint64_t slot = kNoSlot;
};

struct ReceivePart {
  Tag tag = 0;
  std::byte* data = nullptr;  ///< Null: bytes are counted and dropped (a simulation).
  Bytes capacity_bytes = 0;
  Stride stride = {};
  Bytes whole_bytes = 0;     ///< Not 0: what the peer is told in place of the capacity.
  RemoteMemory remote = {};  ///< `data`, as the peer may write into it; only without a stride.
};

/// Ends when each part has its message.
struct ReceiveRequest {
  std::array<ReceivePart, kReceivePartsMax> parts{};
  std::uint8_t part_count = 1;
  std::uint64_t context = 0;
};

/// What came in from the network.
struct Arrival {
  std::span<const std::byte> header;
  std::span<const std::byte> payload = {};  ///< Empty: the wire placed it, or has none.
  std::uint32_t payload_bytes = 0;          ///< That belong to the packet, there or not.
  std::uint8_t rail = 0;
  /// When the host took it in, by the clock of `now`; kNever, or later than it: just now.
  TimeNs received_ns = kNever;
  bool ecn = false;  ///< Congestion experienced.
  /// The payload is not here: a switch cut it off, or (of a wire that does not trim) part of it was
  /// lost on the way.
  bool trimmed = false;
  bool last_hop_trim = false;  ///< A switch cut it off on the link to this host.

  /// How long it has lain in this host.
  TimeNs waited_ns(TimeNs now) const { return now - std::min(now, received_ns); }
};

/// What goes out to the network.
struct Transmission {
  std::array<std::byte, kHeaderBytesMax> header;
  std::uint8_t header_bytes = 0;
  const std::byte* payload = nullptr;  ///< The sender's own buffer; null: without content.
  std::uint32_t payload_bytes = 0;
  /// Where the payload belongs in the peer's memory, if that is known: a NIC may write it there.
  RemoteMemory remote = {};
  std::uint64_t peer = 0;  ///< ConnectionOptions::peer.
  PathId path = 0;
  std::uint8_t rail = 0;
  bool is_control = false;      ///< Goes before data where there are priorities.
  bool is_speculative = false;  ///< Sent without credit: dropped or trimmed first.
  bool ecn_capable = true;
  std::uint64_t cookie = 0;  ///< Of the wire's caller, for wire::Arrivals::sent.
};

enum class EventKind : std::uint8_t {
  kSendDone,
  kReceiveDone,
  kConnectionDone,  ///< The last event of a connection; its handle is void now.
  kSendMatched,     ///< Before its kSendDone, of a send that asked for it and is not too long.
};

enum class Outcome : std::uint8_t {
  kOk,           ///< Of a connection: closed in order by either side.
  kCancelled,    ///< By cancel().
  kTruncated,    ///< The message is longer than the receive; nothing was delivered.
  kClosed,       ///< The connection was closed before.
  kAborted,      ///< By abort() on this side.
  kReset,        ///< By abort() on the other side, or it has given us up.
  kUnreachable,  ///< Nothing arrived for LossOptions::give_up_ns.
};

const char* to_string(Outcome outcome);

struct Event {
  EventKind kind = EventKind::kSendDone;
  Outcome outcome = Outcome::kOk;
  std::uint8_t part_count = 0;  ///< Of a receive.
  ConnectionHandle connection;
  std::uint64_t context = 0;
  std::array<Bytes, kReceivePartsMax> part_bytes{};  ///< Received; [0] of a send: its bytes.
  std::uint64_t slot = kNoSlot;                      ///< Of a match.
};

/// Since the connection began.
struct ConnectionCounters {
  std::uint64_t chunks_sent = 0;  ///< Retransmissions included.
  Bytes bytes_sent = 0;
  std::uint64_t chunks_received = 0;  ///< New ones.
  Bytes bytes_received = 0;
  std::uint64_t acks_sent = 0;
  std::uint64_t acks_received = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t spurious_retransmissions = 0;  ///< The receiver had the chunk already.
  std::uint64_t nacks = 0;  ///< Chunks that came trimmed or in part, as the sender learned.
  std::uint64_t lost_same_path = 0;
  std::uint64_t lost_rack = 0;
  std::uint64_t lost_timeout = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t tail_probes = 0;
  std::uint64_t marks = 0;   ///< Echoes with a congestion mark.
  std::uint64_t undone = 0;  ///< Window decreases taken back.
  std::uint64_t path_deaths = 0;
  std::uint64_t rail_deaths = 0;
  std::uint64_t duplicates_received = 0;
  std::uint64_t trims_received = 0;
  std::uint64_t replays_dropped = 0;
  std::uint64_t forgeries_dropped = 0;  ///< The tag did not fit.
  std::uint64_t malformed_dropped = 0;  ///< Authentic, but invalid or outside the window.
};

/// A connection's condition now.
struct ConnectionStatus {
  Bytes window_bytes = 0;         ///< Sum over the groups.
  Bytes inflight_bytes = 0;       ///< Less what the receiver has by its own count.
  Bytes backlog_bytes = 0;        ///< Matched and not yet sent once.
  TimeNs srtt_ns = 0;             ///< Round trip with the time that hosts take, smoothed.
  TimeNs rtt_ns_min = kNever;     ///< Same, the least.
  TimeNs fabric_ns = 0;           ///< Round trip without it, smoothed.
  TimeNs fabric_ns_min = kNever;  ///< Same, the least.
  TimeNs rto_ns = 0;
  std::uint32_t paths_alive = 0;
  bool is_in_recovery = false;
};

enum class PathState : std::uint8_t { kGood, kSuspect, kDead };

struct PathCounters {
  std::uint64_t chunks_sent = 0;
  std::uint64_t losses = 0;
  std::uint64_t marks = 0;
  TimeNs rtt_ns = 0;  ///< Smoothed, of the fabric alone; 0: no sample yet.
  Bytes inflight_bytes = 0;
  PathState state = PathState::kGood;
};

/// Packets that belong to no connection.
struct EndpointCounters {
  std::uint64_t malformed_dropped = 0;
  std::uint64_t strays_dropped = 0;  ///< For a connection that is not here.
};

}  // namespace tutti::transport
