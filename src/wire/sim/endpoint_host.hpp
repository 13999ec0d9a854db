// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The shipped transport behind a simulated NIC: Transmissions become packets, packets become
// Arrivals, picoseconds become nanoseconds. It decides nothing. Payload is counted, not copied,
// unless the run carries bytes: then each send has content that its receive checks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "simulate/work_host.hpp"
#include "transport/endpoint.hpp"
#include "wire/sim/slots.hpp"

namespace tutti::wire::sim {

/// The places of all hosts' packets, and those to give back when the window ends.
class SlotExchange {
 public:
  explicit SlotExchange(std::size_t hosts) : slots_(hosts), done_(hosts) {}

  Slots& of(std::uint32_t host) { return slots_[host]; }
  Slot& at(const simulate::SimPacket& packet) { return slots_[packet.src].at(packet.payload); }
  /// By the receiving host alone.
  void release(std::uint32_t receiver, const simulate::SimPacket& packet) {
    done_[receiver].push_back({packet.src, packet.payload});
  }
  /// Between windows.
  void settle() {
    for (std::vector<Done>& list : done_) {
      for (const Done& done : list) {
        slots_[done.src].give_back(done.index);
      }
      list.clear();
    }
  }

 private:
  struct Done {
    std::uint32_t src;
    std::uint32_t index;
  };
  std::vector<Slots> slots_;
  std::vector<std::vector<Done>> done_;  ///< By receiving host.
};

struct EndpointHostOptions {
  std::uint32_t host = 0;
  std::uint32_t header_bytes =
      64;  ///< On the wire, of each packet; a longer header counts in full.
  std::uint64_t seed = 1;
  bool carries_bytes = false;
  /// The host looks at what has come at multiples of it, as an engine whose thread sleeps. 0: it
  /// takes each packet in at once.
  simulate::TimePs nap_ps = 0;
  bool has_stamps = true;                 ///< Each packet says when it came, whatever the nap.
  transport::TraceSink* trace = nullptr;  ///< Outlives the host, or null.
  /// What all connections have in common.
  transport::ConnectionOptions connection;
};

class EndpointHost : public simulate::WorkHost {
 public:
  /// `exchange` outlives the host.
  static Result<std::unique_ptr<EndpointHost>> make(const simulate::HostWork& work,
                                                    const EndpointHostOptions& options,
                                                    SlotExchange* exchange);

  void on_packet(simulate::TimePs now_ps, const simulate::SimPacket& packet) override;
  void on_timer(simulate::TimePs now_ps) override;
  simulate::TimePs next_timer_ps() override;
  bool pull(simulate::TimePs now_ps, simulate::Turn turn, simulate::SimPacket* packet) override;
  void on_lost(const simulate::SimPacket& packet) override;
  simulate::HostCounters counters() const override;

  const transport::Endpoint& endpoint() const { return endpoint_; }
  /// Operations that the transport ended with an error.
  std::uint32_t failed() const { return failed_; }
  /// Received bytes that are not what was sent.
  std::uint64_t wrong_bytes() const { return wrong_bytes_; }

 private:
  /// Operations for which there was no room; those before `posted` have found it since.
  struct Waiting {
    std::vector<std::uint32_t> list;
    std::size_t posted = 0;
  };
  /// All that goes to or comes from one host.
  struct Peer {
    std::uint32_t host = 0;
    bool sends = false;
    bool receives = false;
    transport::ConnectionHandle connection;
    Waiting receive_queue;
    Waiting send_queue;
  };
  static std::vector<Peer> peers_of(const simulate::HostWork& work);

  EndpointHost(const simulate::HostWork& work, const EndpointHostOptions& options,
               const transport::EndpointLimits& limits, SlotExchange* exchange);

  Status connect();
  Peer& peer(std::uint32_t host);
  void post(simulate::TimePs now_ps);
  void post_waiting(transport::TimeNs now, Peer& peer);
  /// False: there is no room now.
  bool post_one(transport::TimeNs now, const Peer& peer, std::uint32_t index);
  void take_events(simulate::TimePs now_ps);
  void check_content(std::uint32_t index);
  void take(simulate::TimePs now_ps, simulate::TimePs received_ps,
            const simulate::SimPacket& packet);
  void deliver(simulate::TimePs now_ps, simulate::TimePs received_ps, Slot* slot, bool trimmed,
               bool last_hop);
  /// When the host wakes up for what came at that time.
  simulate::TimePs wakes_ps(simulate::TimePs received_ps) const;

  EndpointHostOptions options_;
  SlotExchange* exchange_;
  transport::Endpoint endpoint_;
  std::vector<Peer> peers_;  ///< By host; not all hosts, or memory goes by their square.
  std::vector<std::vector<std::byte>> content_;  ///< By operation, when bytes are carried.
  struct Received {
    simulate::TimePs time_ps = 0;
    simulate::SimPacket packet;
  };
  std::vector<Received> inbox_;  ///< What came while it sleeps.
  bool begun_ = false;           ///< The first operations are posted by the first timer, at 0.
  simulate::TimePs last_timer_ps_ = 0;
  std::uint32_t failed_ = 0;
  std::uint64_t wrong_bytes_ = 0;
};

}  // namespace tutti::wire::sim
