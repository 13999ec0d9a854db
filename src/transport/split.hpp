// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One message over several connections (lanes) to the same peer, each on an engine (endpoint,
// thread) of its own: connection splitting (Zhou and others, "An Extensible Software Transport
// Layer for GPU Networking", section 4). Units of the message go to the lanes in turn, so that the
// receiver knows where they belong before it knows how long the message is. Each lane has paths,
// window and loss recovery of its own. Pure arithmetic: the caller posts the parts and puts their
// events together.
//
//   receive   on lane 0 alone, which tells the peer the whole capacity; the others find it by its
//             number when data comes (guest.hpp)
//   send      on lane 0; once that is matched (kSendMatched), a message that is_split() on all
//             others with the slot of the match, even where their part is empty
//
// Tags, order, and what is too long are so lane 0's business alone, and a message of less than a
// unit is no other lane's. The receiver learns which it was from the bytes of lane 0's part: less
// than a unit if and only if the message is.
#pragma once

#include <cstdint>

#include "transport/guest.hpp"
#include "transport/types.hpp"

namespace tutti::transport {

class Split {
 public:
  /// `lanes` is not 0. `unit_bytes`: equal at both ends, not 0.
  Split(std::uint32_t lanes, Bytes unit_bytes) : lanes_(lanes), unit_bytes_(unit_bytes) {}

  std::uint32_t lanes() const { return lanes_; }

  /// Of a message, of a receive's capacity, or of lane 0's part of a message: all the same.
  bool is_split(Bytes bytes) const { return lanes_ > 1 && bytes >= unit_bytes_; }

  /// Bytes of a message that go to a lane.
  Bytes part_bytes(Bytes message_bytes, std::uint32_t lane) const;

  /// What to post on lane 0. A message that is not split stays as it is.
  SendRequest first_part(const SendRequest& whole) const;
  ReceivePart first_part(const ReceivePart& whole) const;

  /// What to post on another lane of a message that is split.
  SendRequest other_part(const SendRequest& whole, std::uint32_t lane, std::uint64_t slot) const;
  /// What another lane finds; the capacity is the whole one.
  GuestPart other_part(const GuestPart& whole, std::uint32_t lane) const;

 private:
  Stride stride() const { return {unit_bytes_, unit_bytes_ * lanes_}; }

  std::uint32_t lanes_;
  Bytes unit_bytes_;
};

}  // namespace tutti::transport
