// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A split connection: the sub-connections of one channel, which connect to the same peer on
// different engines. Long messages are split over them (transport/split_layout.hpp). The state that
// the engines share is here and needs no lock: an engine that holds its own lock never waits for
// another engine's. Engines hand each other work through their inboxes.
//
// A sub-connection that does not end by an orderly close ends all of them; when one has closed in
// order, the others are closed. A request ends when the last sub-connection has: then none of them
// touches its buffer any more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "net/bootstrap/handshake.hpp"
#include "transport/split_layout.hpp"
#include "transport/types.hpp"

namespace tutti::net {

class Engine;
struct SubConnection;
struct Request;

/// The receives of a channel that may get a split message, by the number of their advert on
/// sub-connection 0. The other sub-connections find them here. Written by the channel's caller,
/// read by the engines.
class SharedReceives {
 public:
  /// Between the oldest that is open and the newest: as many as the transport takes on
  /// sub-connection 0.
  static constexpr std::size_t kCount = 256;

  /// False while the receive kCount numbers before is open.
  bool is_free(std::uint64_t slot) const { return at(slot).slot.load() == kNone; }
  /// To be called before the receive is posted.
  void open(std::uint64_t slot, const transport::SplitReceive& part);
  /// True: an engine has found it. It holds its own lock while it uses the receive; an engine that
  /// takes its lock later finds nothing.
  bool close(std::uint64_t slot);

  /// By the low 32 bits of its number.
  bool find(std::uint32_t slot, transport::SplitReceive& out) const;

 private:
  static constexpr std::uint64_t kNone = transport::kNoSlot;

  /// The peer names a receive only when it knows of it, so after open(), and of one that is not
  /// done. One that does otherwise finds nothing, or the whole of another: `slot` is looked at
  /// twice.
  struct Entry {
    std::atomic<std::uint64_t> slot = kNone;
    mutable std::atomic<bool> is_found = false;
    std::atomic<std::byte*> data = nullptr;
    std::atomic<Bytes> capacity_bytes = 0;
    std::atomic<std::uint64_t> context = 0;
  };

  const Entry& at(std::uint64_t slot) const { return entries_[slot % kCount]; }
  Entry& at(std::uint64_t slot) { return entries_[slot % kCount]; }

  std::array<Entry, kCount> entries_;
};

/// What the peer has said over the TCP connection of a channel.
enum class PeerState : std::uint8_t {
  kConnected,
  kClosed,  ///< It has sent its close message.
  kLeft,    ///< Same, and then ended the TCP connection.
  kGone,    ///< It has ended the TCP connection without a close message.
};
inline bool has_closed(PeerState peer) {
  return peer == PeerState::kClosed || peer == PeerState::kLeft;
}

struct SplitConnection {
  /// `all`: the engines of the sub-connections, in order, all different.
  SplitConnection(std::vector<Engine*> all, Bytes unit_bytes);

  /// One sub-connection's view of `receives`.
  class Source : public transport::SplitReceiveSource {
   public:
    Source(const SplitConnection& split, std::uint32_t sub) : split_(split), sub_(sub) {}
    bool find(std::uint32_t slot, transport::SplitReceive& out) const override;

   private:
    const SplitConnection& split_;
    std::uint32_t sub_;
  };

  /// The index of an engine's sub-connection.
  std::uint32_t index_of(const Engine* engine) const;
  bool have_all_ended() const { return ended.load() == engines.size(); }
  /// The outcome of requests that were open then.
  transport::Outcome why_ended() const {
    return has_failed ? outcome.load() : transport::Outcome::kClosed;
  }
  /// False: it had failed already.
  bool fail(transport::Outcome why, bool is_gone);

  const std::vector<Engine*> engines;
  const transport::SplitLayout layout;
  std::vector<Source> sources;
  SharedReceives receives;
  /// Null before the sub-connection is attached and once it is forgotten. Another engine may use
  /// one until the channel has detached sub-connection 0.
  std::array<std::atomic<SubConnection*>, kSubConnectionsMax> subs{};
  std::atomic<std::uint32_t> ended = 0;  ///< Sub-connections that have.
  std::atomic<PeerState> peer = PeerState::kConnected;
  std::atomic<bool> has_failed = false;  ///< The next two are written before.
  std::atomic<transport::Outcome> outcome = transport::Outcome::kOk;
  std::atomic<bool> is_peer_gone = false;
  std::atomic<bool> is_failing = false;      ///< An engine is about to write them.
  std::atomic<Request*> requests = nullptr;  ///< The channel's, once there are any.
  std::size_t request_count = 0;             ///< Written before.
};

}  // namespace tutti::net
