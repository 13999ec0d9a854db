// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One run: hosts with an endpoint and a bad clock each, connections with a bad network each, and
// the applications, in virtual time. Two phases: in the first all faults act and only the
// invariants are checked; then a core of each network heals for good, and all must end within a
// bound. Throws Violation. Virtual time in ns from 0.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "simulation/check_numbers.hpp"
#include "simulation/network.hpp"
#include "simulation/records.hpp"

namespace tutti::transport::simulation {

struct RunResult {
  std::uint64_t trace_hash = 0;  ///< Of (time, packet or event), in order.
  std::uint64_t packets = 0;
  TimeNs ended_ns = 0;  ///< When the last connection had ended.
  TimeNs healed_ns = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
};

class World {
 public:
  World(const Knobs& knobs, bool is_verbose);
  ~World();
  RunResult run();

 private:
  struct Clock {
    HostKnobs knobs;
    TimeNs local(TimeNs now) const;
    /// The first time at which local() is not before `local_ns`.
    TimeNs global(TimeNs local_ns, TimeNs now) const;
  };
  struct Received {
    std::uint32_t packet = 0;
    TimeNs local_ns = 0;
  };
  struct Host {
    std::uint32_t index = 0;
    Clock clock;
    std::unique_ptr<Endpoint> endpoint;  ///< Null: it has crashed.
    std::deque<Received> inbox;
    TimeNs wake_ns = kNever;
    TimeNs stalled_until_ns = 0;
    TimeNs next_stall_ns = kNever;
    TimeNs started_ns = 0;
    Bytes granted_bytes = 0;  ///< Credit, since then.
    std::array<TimeNs, kRailsMax> egress_free_ns{};
    std::uint32_t egress_ps_per_byte = 20;
    std::uint64_t steps = 0;
    TimeNs instant_ns = 0;            ///< The latest moment of a step,
    std::uint32_t instant_steps = 0;  ///< and how many steps it has taken.
  };
  /// What an end has still to do.
  struct Application {
    std::uint32_t next_send = 0;
    std::uint32_t next_receive = 0;
    std::uint32_t next_cancel = 0;
    TimeNs send_ns = 0;  ///< Not before.
    TimeNs receive_ns = 0;
    TimeNs retry_ns = 100'000;  ///< Until the next try of a post that was refused.
    TimeNs next_ns = 0;         ///< When it has something to do; kNever.
  };
  struct Connection {
    ConnectionRecord record;
    std::unique_ptr<Network> network;
    Application applications[2];
    CheckNumbers numbers[2];
  };
  enum class Kind : std::uint8_t { kArrival, kHost, kCrash, kRestart, kHeal };
  struct Entry {
    TimeNs time_ns;
    std::uint64_t order;
    Kind kind;
    std::uint32_t index;
    bool operator>(const Entry& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : order > other.order;
    }
  };

  void push(TimeNs time_ns, Kind kind, std::uint32_t index);
  void wake(Host& host, TimeNs time_ns);
  void handle(const Entry& entry);

  void open(const ConnectionKnobs& knobs, std::uint32_t successors,
            const ConnectionRecord* predecessor, int restarted_end);
  void follow(Connection& connection);
  void crash(Host& host);
  void restart(Host& host);

  void step(Host& host);
  bool is_unguarded(const Host& host, const Flying& packet) const;
  void take_arrivals(Host& host, TimeNs local_ns);
  void take_events(Host& host);
  void transmit(Host& host, TimeNs local_ns);
  void launch(Host& host, const Transmission& out);
  void act(Connection& connection, int end);
  void post_send(Connection& connection, int end);
  void post_receive(Connection& connection, int end);
  void cancel(Connection& connection, int end, const CancelKnobs& knobs);
  TimeNs finish_ns(const ConnectionRecord& record, int end) const;
  bool is_served(const ConnectionRecord& record) const;
  void check_host(Host& host);
  void check_liveness();
  void note(TimeNs time_ns, std::uint64_t what);
  void say(const std::string& text);

  std::uint32_t allocate();
  void release(std::uint32_t packet);

  Knobs knobs_;
  bool is_verbose_;
  Random random_;
  TimeNs now_ = 0;
  bool is_healed_ = false;
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> entries_;
  std::uint64_t order_ = 0;
  std::vector<Flying> packets_;
  std::vector<std::uint32_t> free_packets_;
  std::uint32_t next_id_ = 1;
  std::uint64_t next_incarnation_ = 1;
  RunResult result_;
};

}  // namespace tutti::transport::simulation
