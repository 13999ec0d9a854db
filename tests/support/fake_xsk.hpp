// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The kernels of two hosts, each with one AF_XDP socket and one UDP socket, and the link between
// them, in memory and in virtual time: what XdpWire has of the system (XdpKernel). A kernel's rings
// are in copy mode (it sends in the calls that wake it) or in zero copy (a driver sends by itself,
// until it wants to be woken). What goes wrong is drawn from a seed.
//
// It checks what a kernel relies on, and throws std::logic_error: each frame has one owner, what is
// pushed lies in a frame and is a well-formed datagram, no ring holds more than it has entries,
// nobody writes a frame that is being sent. Frames that are given back are overwritten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/types.hpp"
#include "wire/xdp/xdp_wire.hpp"

namespace tutti::testing {

/// What goes wrong from now on. Each is a chance.
struct FakeXskFaults {
  double loss = 0;       ///< Of a frame on the link.
  double duplicate = 0;  ///< Of a frame to arrive once more, up to 1 ms later.
  double hold = 0;       ///< Of a frame to arrive up to 0.2 ms later than its turn.
  double corrupt = 0;    ///< Of a frame to have a wrong byte.
  double mark = 0;       ///< Of a frame to be marked (ECN).
  double fail = 0;       ///< Of a call that wakes the kernel to answer an error, for a while.
  double stop = 0;       ///< Of a driver to do nothing for a while, at each step.
  double refuse = 0;     ///< Of the UDP socket to be full for a while, at each datagram.
  double forget = 0;     ///< Of a MAC address to be unknown or stale when it is asked for.
};

struct FakeXskOptions {
  bool is_zero_copy = false;
  bool wants_wakes_always = false;    ///< Of zero copy: also while the driver goes on by itself.
  std::uint32_t driver_frames = 64;   ///< Of zero copy: what the driver takes from the fill ring.
  std::uint32_t budget = 32;          ///< Frames sent by a call, or by a driver in a step.
  std::uint32_t unfinished_max = 64;  ///< Frames on the way to the NIC, not completed.
  transport::TimeNs completion_ns = 0;
  bool knows_mac = false;        ///< Of the neighbour, from the beginning.
  transport::TimeNs arp_ns = 0;  ///< Until the neighbour has answered.
  std::uint32_t receive_frames = 256;
  std::uint32_t send_frames = 256;
  int mtu_bytes = 1500;
  /// Flows, of eight, that RSS puts on another queue: the UDP socket gets them.
  std::uint32_t flows_elsewhere = 0;
};

class FakeXskNetwork {
 public:
  struct Options {
    FakeXskOptions ends[2];
    transport::TimeNs latency_ns = 2'000;
    transport::TimeNs frame_ns = 100;  ///< That a frame takes on the link.
  };

  FakeXskNetwork(std::uint64_t seed, const Options& options);
  ~FakeXskNetwork();

  /// For XdpWire::open(); the wire does not outlive this.
  wire::xdp::XdpKernel kernel(int end);
  /// An end's address, for XdpOptions::local.
  static wire::udp::SocketAddress address(int end);

  void set_faults(const FakeXskFaults& faults);
  /// Nothing arrives anywhere.
  void cut(bool is_cut);
  /// What the kernels and the link do until `now`.
  void step(transport::TimeNs now);
  /// Whether a process that sleeps on the sockets wakes.
  bool is_readable(int end) const;
  /// Whether the process has frames to give back, or the kernel some that it sends when it is
  /// woken.
  bool waits(int end) const;
  /// No frame to receive into is the process's, none is being sent.
  bool is_settled();
  /// What has happened at an end, for people.
  std::string report(int end) const;

 private:
  struct State;
  class Host;
  std::unique_ptr<State> state_;
};

}  // namespace tutti::testing
