// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One engine of one set of NICs: its connections, and who of them may send next. Not a socket, a
// clock or a thread. The caller drives it, with a `now` that it read once:
//
//   a datagram came          handle_datagram(now, arrival)
//   now >= next_deadline()   handle_timeout(now)
//   the application          post_send, post_receive, cancel, close, abort
//   after any of these       poll_transmit(now, &t) while the wire has room and it returns true,
//                            poll_event(&e) until it returns false, then next_deadline() again
//
// poll_transmit also changes next_deadline(). A `now` that steps back counts as the newest one.
// Nothing here allocates but the constructor and connect(). One thread at a time.
#pragma once

#include <memory>

#include "base/result.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

class Endpoint {
 public:
  /// `trace` outlives the endpoint, or is null. `ps_per_byte`: of the slowest link to this host,
  /// which the credit of all connections together fills to 99 %.
  explicit Endpoint(const EndpointLimits& limits, std::uint32_t ps_per_byte = 20,
                    TraceSink* trace = nullptr);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Errors: an unknown controller or spray name, a value out of range, an id in use
  /// (kInvalidArgument); the table of connections is full (kUnavailable).
  Result<ConnectionHandle> connect(TimeNs now, const ConnectionOptions& options);

  /// Errors: the handle is void or closing (kUnavailable); too long (kInvalidArgument); sends_max
  /// are posted: poll the events, then try again (kTimeout). After an error there is no event;
  /// otherwise there is exactly one, and one of the match if it was asked for and there is one.
  Status post_send(TimeNs now, ConnectionHandle connection, const SendRequest& request);
  Status post_receive(TimeNs now, ConnectionHandle connection, const ReceiveRequest& request);

  /// Of a connection with split receives: data of this receive is expected, so a silent peer is
  /// declared dead. A receive that the source does not know any more is none. Errors: the
  /// handle is void, or the connection has none (kUnavailable).
  Status expect(TimeNs now, ConnectionHandle connection, std::uint64_t slot);

  /// Asks for an early end of the newest send or receive of this context that has none yet: its
  /// event comes in any case, and says whether the request was carried out or cancelled. Buffers
  /// stay in use until then. Errors: no such request (kInvalidArgument).
  Status cancel_send(TimeNs now, ConnectionHandle connection, std::uint64_t context);
  Status cancel_receive(TimeNs now, ConnectionHandle connection, std::uint64_t context);

  /// Finishes the sends that the peer has a receive for, then ends both sides. Unmatched sends
  /// and all receives end as kClosed. Nothing more can be posted. When both sides close at about
  /// the same time, a send that has not arrived by then ends as kClosed, too.
  Status close(TimeNs now, ConnectionHandle connection);
  /// Ends this side at once and tells the peer once.
  Status abort(TimeNs now, ConnectionHandle connection);

  /// Where the payload of a packet that has not been taken in yet belongs: the wire may write it
  /// there and leave Arrival::payload empty. Null: it is not wanted, not known to be genuine, or
  /// has to be checked first. Void after any other call of this object.
  std::byte* place(std::span<const std::byte> header, std::uint32_t payload_bytes);

  /// Never fails: invalid packets are counted and dropped.
  void handle_datagram(TimeNs now, const Arrival& arrival);
  void handle_timeout(TimeNs now);
  /// Earliest time at which handle_timeout has something to do; kNever.
  TimeNs next_deadline() const;

  /// Fills `out` with one packet and returns true, or there is none now.
  bool poll_transmit(TimeNs now, Transmission* out);
  /// The same for control packets alone: while data may not leave (a paused NIC).
  bool poll_control(TimeNs now, Transmission* out);
  /// The same for data alone: when a send must leave before control packets.
  bool poll_data(TimeNs now, Transmission* out);
  /// A control packet that may wait (AcknowledgementOptions::lazy_ns), to the peer of `with`, which
  /// is leaving: it is piggybacked on it. A caller that never asks sends each when its time comes.
  bool poll_piggyback(TimeNs now, const Transmission& with, Transmission* out);
  bool poll_event(Event* out);

  /// The handle may be of a connection that ended a little while ago. Null: void.
  const ConnectionCounters* counters(ConnectionHandle connection) const;
  ConnectionStatus status(ConnectionHandle connection) const;
  PathCounters path_counters(ConnectionHandle connection, PathId path) const;
  const EndpointCounters& counters() const;

  /// Aborts the process if the redundant parts of the state disagree. Slow; for tests.
  void check_invariants() const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tutti::transport
