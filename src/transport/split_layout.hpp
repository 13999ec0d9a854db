// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// How one message is laid out over several connections (sub-connections) to the same peer, each on
// an engine (endpoint, thread) of its own: connection splitting (Zhou and others, "An Extensible
// Software Transport Layer for GPU Networking", section 4). Units of the message go to the
// sub-connections in turn, so that the receiver knows where they belong before it knows how long
// the message is. Each sub-connection has paths, window and loss recovery of its own. Pure
// arithmetic: the caller posts the parts and puts their events together.
//
//   receive   posted on sub-connection 0 alone, which tells the peer the whole capacity; the
//             others find it by its number when data comes (split_receives.hpp)
//   send      posted on sub-connection 0; once it is matched (kSendMatched), a message that
//             is_split() is posted on all others with the slot of the match, even where their part
//             is empty
//
// So sub-connection 0 alone handles tags, order, and messages that are too long, and a message of
// less than a unit uses no other. The receiver learns from the bytes of sub-connection 0's part
// whether a message was split: the part is less than a unit if and only if the message is.
#pragma once

#include <cstdint>

#include "transport/split_receives.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

class SplitLayout {
 public:
  /// `sub_connections` is not 0. `unit_bytes`: equal at both ends, not 0.
  SplitLayout(std::uint32_t sub_connections, Bytes unit_bytes)
      : sub_connections_(sub_connections), unit_bytes_(unit_bytes) {}

  std::uint32_t sub_connections() const { return sub_connections_; }

  /// `bytes`: of a message, of a receive, or of sub-connection 0's part of a message; all agree.
  bool is_split(Bytes bytes) const { return sub_connections_ > 1 && bytes >= unit_bytes_; }

  /// Bytes of a message that go to a sub-connection.
  Bytes part_bytes(Bytes message_bytes, std::uint32_t sub) const;

  /// What to post on sub-connection 0. A message that is not split stays as it is.
  SendRequest first_part(const SendRequest& whole) const;
  ReceivePart first_part(const ReceivePart& whole) const;

  /// What to post on another sub-connection of a message that is split.
  SendRequest other_part(const SendRequest& whole, std::uint32_t sub, std::uint64_t slot) const;
  /// What another sub-connection finds; the capacity is the whole one.
  SplitReceive other_part(const SplitReceive& whole, std::uint32_t sub) const;

 private:
  Stride stride() const { return {unit_bytes_, unit_bytes_ * sub_connections_}; }

  std::uint32_t sub_connections_;
  Bytes unit_bytes_;
};

}  // namespace tutti::transport
