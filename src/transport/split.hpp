// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One message over several connections to the same peer, each on an engine (endpoint, thread) of
// its own: connection splitting (Zhou and others, "An Extensible Software Transport Layer for GPU
// Networking", section 4). Units of the message go to the engines in turn, so that the receiver
// knows where they belong before it knows how long the message is. Each engine has paths, window
// and loss recovery of its own. Pure arithmetic: the caller posts the parts and hands their events
// in, under a lock of its own if the engines are threads. A message that is shorter than a unit
// travels on the first engine; the others send its empty end.
//
// Each engine pairs the n-th send of a tag with the n-th receive by itself, so the engines must be
// given the same messages in the same order: a part that is refused (kTimeout) is posted later,
// before any other on that engine, and split messages are not cancelled one by one. Abort all the
// connections in place of that.
#pragma once

#include <cstdint>

#include "transport/types.hpp"

namespace tutti::transport {

class Split {
 public:
  static constexpr Bytes kUnitBytes = 256 * 1024;

  /// `engines` is not 0. `unit_bytes`: equal at both ends, not less than a chunk.
  explicit Split(std::uint32_t engines, Bytes unit_bytes = kUnitBytes)
      : engines_(engines), unit_bytes_(unit_bytes) {}

  std::uint32_t engines() const { return engines_; }

  /// What to post on the connection of `engine`, 0 to engines - 1, on each one in the same order.
  SendRequest part_of(const SendRequest& whole, std::uint32_t engine) const;
  /// Its capacities say how long a message may be; of one that is too long, some units may have
  /// arrived.
  ReceiveRequest part_of(const ReceiveRequest& whole, std::uint32_t engine) const;

  /// Bytes of a message that go to an engine.
  Bytes part_bytes(Bytes message_bytes, std::uint32_t engine) const;

 private:
  std::uint32_t engines_;
  Bytes unit_bytes_;
};

/// Puts the events of one message's parts together.
class SplitJoin {
 public:
  explicit SplitJoin(std::uint32_t engines) : open_(engines) {}

  /// The event of one part. True: it was the last one, and `whole` is the event of the message: its
  /// bytes, and the worst that befell a part.
  bool on_event(const Event& part, Event& whole);

 private:
  std::uint32_t open_;
  bool has_event_ = false;
  Event whole_;
};

}  // namespace tutti::transport
