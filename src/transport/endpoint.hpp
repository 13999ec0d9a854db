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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "transport/credit.hpp"
#include "transport/round_robin.hpp"
#include "transport/timing_wheel.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

class Connection;

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
  TimeNs next_deadline() const { return wheel_.next(); }

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
  const EndpointCounters& counters() const { return counters_; }

  /// Aborts the process if the redundant parts of the state disagree. Slow; for tests.
  void check_invariants() const;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct Slot {
    std::unique_ptr<Connection> connection;
    std::uint32_t generation = 0;
    std::uint32_t piggyback = kNone;  ///< Index in piggybacks_.
  };

  /// The connection, or null for a void handle.
  Connection* at(ConnectionHandle handle) const;
  template <class Call>
  Status apply(TimeNs now, ConnectionHandle handle, Call&& call);
  TimeNs clamp(TimeNs now);
  /// After anything that may have changed what the connection needs.
  void settle(TimeNs now, std::uint32_t index);
  inline void note_needs(TimeNs now, std::uint32_t index, Connection& connection);
  void set_piggyback(std::uint32_t index, bool is_pending);
  void grant(TimeNs now);
  std::uint32_t free_slot();
  /// Frees a connection that only waits for a late peer.
  bool retire(std::uint32_t index);
  void forget(std::uint32_t index);
  // Local id to index: open addressing with linear probing, never more than half full.
  std::size_t home(std::uint32_t id) const { return (id * 0x9e3779b1U) & (ids_.size() - 1); }
  std::uint32_t find(std::uint32_t id) const;
  void insert(std::uint32_t id, std::uint32_t index);
  void erase(std::uint32_t id);

  CreditPacer pacer_;  ///< Outlives the connections, which take leave of it.
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> ids_;
  TimingWheel wheel_;  ///< One item for each connection, one more for the pacer.
  IndexQueue controls_;
  RoundRobin data_;
  IndexQueue events_;
  std::vector<std::uint32_t> piggybacks_;  ///< Connections with one, in any order.
  TraceSink* trace_;
  TimeNs now_ = 0;
  EndpointCounters counters_;
};

}  // namespace tutti::transport
