// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The simplest protocol that moves bytes, for tests of the network: a fixed window of packets, each
// answered by a 64-byte acknowledgement, trimmed ones by a refusal that has them sent again; a
// fresh path for each packet. Nothing detects loss.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "simulate/host.hpp"
#include "simulate/network.hpp"

namespace tutti::simulate {

class WindowHost : public Host {
 public:
  struct Flow {
    std::uint32_t dst = 0;
    std::uint32_t packets = 0;
    std::uint32_t window = 0;
    std::uint32_t packet_bytes = 4160;
    std::uint16_t paths = 256;
  };

  void start(const Flow& flow) { flow_ = flow; }

  void on_packet(TimePs now_ps, const SimPacket& packet) override {
    last_arrival_ps = now_ps;
    if (packet.payload == kAck || packet.payload == kRefusal) {
      --in_flight_;
      if (packet.payload == kRefusal) {
        --sent_;
      } else {
        ++acknowledged;
        done_ps = now_ps;
      }
      return;
    }
    arrivals.push_back(packet);
    marked += (packet.flags & packet_flags::kEcn) != 0 ? 1 : 0;
    const bool trimmed = (packet.flags & packet_flags::kTrimmed) != 0;
    trims += trimmed ? 1 : 0;
    answers_.push_back({.payload = trimmed ? kRefusal : kAck,
                        .bytes = 64,
                        .flow = packet.flow,
                        .dst = packet.src,
                        .entropy = packet.entropy,
                        .priority = Priority::kControl});
    if (!keep_arrivals) {
      arrivals.clear();
    }
  }
  void on_timer(TimePs) override { timer_ps = kNever; }
  TimePs next_timer_ps() override { return timer_ps; }
  bool pull(TimePs now_ps, Turn turn, SimPacket* packet) override {
    if (!answers_.empty()) {
      *packet = answers_.front();
      answers_.pop_front();
      return true;
    }
    if (turn != Turn::kFree || now_ps < begin_ps || sent_ >= flow_.packets ||
        in_flight_ >= flow_.window) {
      return false;
    }
    *packet = {.bytes = flow_.packet_bytes,
               .flow = flow_id,
               .dst = flow_.dst,
               .entropy = static_cast<std::uint16_t>(transmissions % flow_.paths)};
    ++sent_;
    ++in_flight_;
    ++transmissions;
    return true;
  }
  void on_lost(const SimPacket&) override { ++lost; }

  static constexpr std::uint32_t kAck = 1;
  static constexpr std::uint32_t kRefusal = 2;

  std::uint32_t flow_id = 0;
  TimePs begin_ps = 0;  ///< With timer_ps: nothing is sent before.
  TimePs timer_ps = kNever;
  bool keep_arrivals = true;
  std::vector<SimPacket> arrivals;
  TimePs last_arrival_ps = 0;
  TimePs done_ps = 0;
  std::uint32_t acknowledged = 0;
  std::uint32_t transmissions = 0;
  std::uint32_t marked = 0;
  std::uint32_t trims = 0;
  std::uint32_t lost = 0;

 private:
  Flow flow_;
  std::deque<SimPacket> answers_;
  std::uint32_t sent_ = 0;
  std::uint32_t in_flight_ = 0;
};

/// A network with such a host behind each NIC.
struct WindowNetwork {
  WindowNetwork(const FabricShape& shape, const SimNetworkOptions& options)
      : fabric(shape), hosts(shape.hosts) {
    std::vector<Host*> pointers;
    for (std::uint32_t i = 0; i < shape.hosts; ++i) {
      hosts[i].flow_id = i;
      pointers.push_back(&hosts[i]);
    }
    network = std::make_unique<SimNetwork>(fabric, options, pointers);
  }

  Fabric fabric;
  std::vector<WindowHost> hosts;
  std::unique_ptr<SimNetwork> network;
};

}  // namespace tutti::simulate
