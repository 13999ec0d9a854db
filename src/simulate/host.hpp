// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What stands behind a NIC: a protocol. The network calls it, in the order of time; each call may
// touch this host's own state alone, since other hosts may be stepped by other threads meanwhile.
#pragma once

#include <cstdint>

#include "simulate/packet.hpp"
#include "simulate/time.hpp"

namespace tutti::simulate {

/// What a NIC can take now.
enum class Turn : std::uint8_t {
  kFree,     ///< Anything.
  kControl,  ///< Control: data is paused, or a chunk is being cut into packets.
};

class Host {
 public:
  virtual ~Host() = default;

  /// A packet's last bit has arrived; trimmed and marked ones say so in their flags.
  virtual void on_packet(TimePs now_ps, const SimPacket& packet) = 0;

  /// The time that next_timer_ps() gave has come.
  virtual void on_timer(TimePs now_ps) = 0;

  /// When on_timer() is wanted; kNever: not. A time that is over means now. Asked at the begin and
  /// after each of the other calls.
  virtual TimePs next_timer_ps() = 0;

  /// The NIC can send: fills in payload, bytes, flow, dst, entropy and priority, control before
  /// data; false: nothing to send, ask again after the next packet or timer.
  virtual bool pull(TimePs now_ps, Turn turn, SimPacket* packet) = 0;

  /// A packet of this host died in the network. Called between windows, for all hosts by one
  /// thread: this is the simulator's book-keeping, a real sender never learns it.
  virtual void on_lost(const SimPacket& packet) = 0;
};

}  // namespace tutti::simulate
