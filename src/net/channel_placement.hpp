// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which engines of a device the channels are on. When a channel is made nobody knows what it will
// carry, and a channel stays where it is. So what is likely to be busy at the same time is kept
// apart: the channels to one peer (a ring has all of its sends to one), and the two directions (a
// ring has both at once). It does not help to share all channels out in turn: NCCL takes some of a
// ring's from its trees, made earlier, among others that carry next to nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace tutti::net {

/// Thread-safe.
class Placement {
 public:
  /// `engines`: how many there are, not 0.
  explicit Placement(std::size_t engines) : engines_(engines) {}

  /// The engines of the next channel, all different, one for each of `sub_connections` and at most
  /// as many as there are. `peer`: Handshake::device of the other end, so one of its processes, and
  /// of several devices there one.
  ///
  /// The channels of one direction to a peer are on all engines in turn. Sends begin in the first
  /// half of the engines and receives in the second; within a half, each new peer begins one later
  /// than the one before. Channels of several communicators with a peer count together, and so do
  /// those that were closed. Who only sends, one channel to each of many peers, uses half.
  std::vector<std::size_t> next(std::uint64_t peer, bool sends, std::size_t sub_connections);

 private:
  struct Peer {
    std::size_t first;         ///< Peers before it.
    std::size_t channels = 0;  ///< So far; those that were closed count.
  };
  using Peers = std::unordered_map<std::uint64_t, Peer>;

  std::size_t engines_;
  std::mutex mutex_;
  // They grow by some fifty bytes with each process that has the key and has been heard of.
  Peers sends_to_;
  Peers receives_from_;
};

}  // namespace tutti::net
