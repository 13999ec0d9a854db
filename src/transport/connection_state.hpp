// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The states of a connection, and the table of all transitions between them. An event that has no
// row in a state is ignored there, or refused if it is a call. What each state does on entry:
// Connection::advance. Not here: what the peer has closed, which a state of ours does not depend
// on; the states of requests (outgoing.hpp, incoming.hpp); what a channel adds, whose peer is a
// process that may end (SubConnection::State, PeerState in net/engine.hpp).
//
//   open --close--> draining --drained--> closing --close ack--> ended --> reported --> forgotten
//     |                |                    |                      ^
//     +----------------+--------------------+-- close, reset, -----+
//                                               abort, silence
//
// An ended one to which no late peer can come is expired, and forgotten as soon as its event is
// taken.
#pragma once

#include <array>
#include <cstdint>

#include "transport/types.hpp"

namespace tutti::transport {

/// In the order of a connection's life.
enum class ConnectionState : std::uint8_t {
  kOpen,
  kDraining,   ///< Closed here: takes no requests, and matched sends go on.
  kClosing,    ///< The peer is told until it answers.
  kEnded,      ///< All requests have ended. The connection's own event is still to be taken.
  kExpired,    ///< Same, and its place is free once that is taken.
  kReported,   ///< The event has been taken; a late peer gets an answer.
  kForgotten,  ///< Its place is free.
};
inline constexpr std::size_t kConnectionStates = 7;

enum class ConnectionEvent : std::uint8_t {
  kClose,          ///< Connection::close().
  kAbort,          ///< Connection::abort().
  kDrained,        ///< No matched send is unacknowledged.
  kPeerClose,      ///< The peer's sends are finished.
  kPeerCloseAck,   ///< The peer has ended as well.
  kPeerReset,      ///< The peer has aborted.
  kBothDraining,   ///< The peer waits for an acknowledgement that a closed side does not give.
  kPeerSilent,     ///< LossOptions::give_up_ns, or kStuckGiveUps times that without progress.
  kEventTaken,     ///< EventKind::kConnectionDone was.
  kLingerElapsed,  ///< give_up_ns after the end.
};
inline constexpr std::size_t kConnectionEvents = 10;

/// The packet that tells the peer.
enum class EndPacket : std::uint8_t { kNone = 0, kCloseAck = 1, kReset = 2, kClose = 4 };

struct ConnectionTransition {
  ConnectionState from;
  ConnectionEvent event;
  ConnectionState to;
  EndPacket tells = EndPacket::kNone;
  Outcome outcome = Outcome::kOk;  ///< Of the connection, where `to` is kEnded.
};

inline constexpr auto kConnectionTransitions = [] {
  using enum ConnectionState;
  using enum ConnectionEvent;
  using Row = ConnectionTransition;
  return std::array{
      Row{kOpen, kClose, kDraining},
      Row{kOpen, kAbort, kEnded, EndPacket::kReset, Outcome::kAborted},
      Row{kOpen, kPeerClose, kEnded, EndPacket::kCloseAck},
      Row{kOpen, kPeerReset, kEnded, EndPacket::kNone, Outcome::kReset},
      Row{kOpen, kPeerSilent, kEnded, EndPacket::kNone, Outcome::kUnreachable},

      Row{kDraining, kDrained, kClosing, EndPacket::kClose},
      Row{kDraining, kAbort, kEnded, EndPacket::kReset, Outcome::kAborted},
      Row{kDraining, kPeerClose, kEnded, EndPacket::kCloseAck},
      Row{kDraining, kPeerReset, kEnded, EndPacket::kNone, Outcome::kReset},
      Row{kDraining, kBothDraining, kEnded, EndPacket::kClose},
      Row{kDraining, kPeerSilent, kEnded, EndPacket::kNone, Outcome::kUnreachable},

      Row{kClosing, kAbort, kEnded, EndPacket::kReset, Outcome::kAborted},
      Row{kClosing, kPeerClose, kEnded, EndPacket::kCloseAck},
      Row{kClosing, kPeerCloseAck, kEnded},
      Row{kClosing, kPeerReset, kEnded, EndPacket::kNone, Outcome::kReset},
      Row{kClosing, kPeerSilent, kEnded, EndPacket::kNone, Outcome::kUnreachable},

      Row{kEnded, kEventTaken, kReported},
      Row{kEnded, kLingerElapsed, kExpired},
      Row{kExpired, kEventTaken, kForgotten},
      Row{kReported, kLingerElapsed, kForgotten},
  };
}();

/// By state and event; null: the event changes nothing in this state. Not in the function below:
/// there it would be made anew at each call, twice for every chunk.
inline constexpr auto kTransitionOf = [] {
  std::array<std::array<const ConnectionTransition*, kConnectionEvents>, kConnectionStates> rows{};
  for (const ConnectionTransition& it : kConnectionTransitions) {
    rows[static_cast<std::size_t>(it.from)][static_cast<std::size_t>(it.event)] = &it;
  }
  return rows;
}();

constexpr const ConnectionTransition* find_transition(ConnectionState from, ConnectionEvent event) {
  return kTransitionOf[static_cast<std::size_t>(from)][static_cast<std::size_t>(event)];
}

}  // namespace tutti::transport
