// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The whole network, advanced in windows as long as a link's latency. Queues, marks, trims and
// drops are port.hpp's. What arrives at a node within a window was sent before it, so within a
// window nodes do not depend on each other: each is taken through the window on its own, its
// arrivals in the order of (time, port). There is no global event list; a node's state and a
// microsecond of its packets stay in the cache; nodes may be stepped by any number of threads, with
// the same result (conservative windows: Chandy, Misra, Bryant; the driver with threads is outside
// this room).
//
//   TimePs next = network.publish(0, n);
//   while (next < until) { begin_window(next); step(0, n); end_window(); next = publish(0, n); }
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "simulate/arrivals.hpp"
#include "simulate/fabric.hpp"
#include "simulate/host.hpp"
#include "simulate/options.hpp"
#include "simulate/port.hpp"

namespace tutti::simulate {

class SimNetwork {
 public:
  /// One entry in `hosts` per host of the fabric; all outlive the network.
  SimNetwork(const Fabric& fabric, const SimNetworkOptions& options,
             const std::vector<Host*>& hosts);

  /// Without threads: until nothing is left to happen before `until_ps`. Returns the time of what
  /// would happen next.
  TimePs run(TimePs until_ps);

  // For a driver with threads: publish() and step() on disjoint ranges of nodes at the same time,
  // a barrier after each; begin_window() and end_window() by one thread.
  /// The time of the earliest event of these nodes.
  TimePs publish(std::uint32_t first_node, std::uint32_t last_node);
  void begin_window(TimePs start_ps);
  void step(std::uint32_t first_node, std::uint32_t last_node);
  void end_window();

  /// Between windows: a host's next timer has changed by something outside the network.
  void wake(std::uint32_t host);
  /// Nothing can happen before.
  TimePs window_end_ps() const { return window_end_ps_; }

  const Fabric& fabric() const { return fabric_; }
  const SimNetworkOptions& options() const { return options_; }
  std::uint32_t nodes() const { return fabric_.nodes(); }
  const PortCounters& counters(std::uint32_t link) const { return ports_[link].counters(); }

  /// Arrivals at nodes so far: the events of this simulator.
  std::uint64_t events() const;
  /// Of all arrivals: (time, link, packet). Equal runs have equal hashes.
  std::uint64_t trace_hash() const;
  /// All that was ever put on a link minus what arrived, died or still waits: 0.
  std::int64_t unaccounted() const;

 private:
  /// What one node alone writes; a cache line of its own.
  struct alignas(64) NodeState {
    std::uint64_t events = 0;
    std::uint64_t trace = 0;
    std::uint64_t delivered = 0;  ///< Host: packets given to it. Switch: pause frames used up.
    std::uint64_t injected = 0;   ///< Host: packets taken from it. Switch: pause frames made.
    std::uint64_t died = 0;
    std::uint32_t next_change = 0;
    std::vector<LinkChange> changes;  ///< Of the node's out-links, by time.
    std::vector<SimPacket> dead;      ///< In this window.
  };

  struct HostState {
    Host* host = nullptr;
    TimePs timer_ps = kNever;
    TimePs nic_ps = kNever;  ///< When the NIC asks for the next packet.
    SimPacket chunk{};       ///< Being cut.
    std::uint32_t chunk_bytes_left = 0;
  };

  void set_up_rules();
  void step_switch(std::uint32_t node, ArrivalMerge* arrivals);
  void step_host(std::uint32_t node);
  void nic_ready(std::uint32_t node, TimePs now_ps);
  bool next_fragment(HostState* state, SimPacket* packet) const;
  void send(std::uint32_t node, TimePs now_ps, SimPacket packet);
  void forward(std::uint32_t node, TimePs now_ps, std::uint32_t in_link, SimPacket packet);
  bool taken_by_link(std::uint32_t node, TimePs now_ps, std::uint32_t port,
                     const SimPacket& packet);
  void hold(std::uint32_t node, TimePs now_ps, std::uint32_t in_link, std::uint32_t bytes);
  void release_held(std::uint32_t node);
  void send_pause(std::uint32_t node, TimePs now_ps, std::uint32_t in_link, bool stop);
  void apply_changes(std::uint32_t node, TimePs until_ps);
  void record(NodeState* state, std::uint32_t link, const SimPacket& packet) const;

  const Fabric& fabric_;
  SimNetworkOptions options_;
  std::array<PortRules, 3> rules_;
  std::vector<Port> ports_;  ///< By link.
  std::vector<NodeState> node_states_;
  std::vector<HostState> host_states_;
  std::vector<std::uint64_t> salts_;  ///< By switch.
  /// Lossless: by link, what its receiving switch holds of it, and whether it told the sender to
  /// stop. Written by that switch alone.
  std::vector<std::uint32_t> held_;
  std::vector<std::uint8_t> stopped_;
  TimePs window_start_ps_ = 0;
  TimePs window_end_ps_ = 0;
};

}  // namespace tutti::simulate
