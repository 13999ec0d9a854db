// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What RDMA NICs do in hardware, for comparison: one path per pair of hosts, packets accepted in
// order alone, a hole sent again with everything behind it (go-back-N), a window of packets; with
// `rate_control` the rate control of DCQCN (Zhu et al., SIGCOMM 2015): a congestion notification
// at most each 50 us, alpha and the five rounds of fast recovery, no hyper increase. On a lossless
// network (SimNetworkOptions::lossless) nothing is ever sent again. All integers: rates in Mbit/s,
// alpha in 1/65536.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "simulate/work_host.hpp"

namespace tutti::simulate {

/// Packets that one host may send in a run: their numbers share 32 bits with the packet's kind.
inline constexpr std::uint64_t kGoBackNPacketsMax = (1ULL << 30) - 2;

struct GoBackNOptions {
  std::uint64_t seed = 1;
  std::uint32_t packet_bytes = 4096;  ///< Payload.
  std::uint32_t header_bytes = 64;
  std::uint32_t window_packets = 0;  ///< Per connection.
  TimePs timeout_ps = 0;             ///< Without progress everything is sent again.
  bool rate_control = false;
  std::uint64_t mbit_per_s = 400'000;  ///< Line rate.
};

/// One message on its way; filled in by the sender before its first packet leaves.
struct GoBackNMessage {
  std::uint32_t op = 0;  ///< The sender's.
  std::uint32_t tag = 0;
  std::uint64_t bytes = 0;
  std::uint32_t end_packet = 0;  ///< One past its last, of the connection's packets.
};

/// Both ends of one direction between two hosts. `messages` has a place for each from the begin:
/// the receiver looks at a place after a packet of it came, and so after it was written.
struct GoBackNConnection {
  std::uint32_t src = 0;
  std::uint32_t dst = 0;
  std::uint16_t path = 0;
  std::vector<GoBackNMessage> messages;

  // Sender.
  std::uint32_t posted = 0;     ///< Messages.
  std::uint32_t completed = 0;  ///< Messages.
  std::uint32_t acked = 0;      ///< Packets; [acked, next) are under way.
  std::uint32_t next = 0;       ///< Packet to send.
  std::uint32_t sent_max = 0;   ///< One past the highest ever sent.
  TimePs progress_ps = 0;       ///< Last acknowledgement of something new, or first packet.
  TimePs not_before_ps = 0;     ///< Pacing.
  std::uint64_t rate_mbit = 0;  ///< DCQCN's current and target rates.
  std::uint64_t target_mbit = 0;
  std::uint32_t alpha_q16 = 65536;
  std::uint32_t rounds = 0;     ///< Of increase since the last decrease.
  TimePs increase_ps = kNever;  ///< Next increase; kNever: at line rate.

  // Receiver.
  std::uint32_t expected = 0;                  ///< Packet.
  std::uint32_t received = 0;                  ///< Messages.
  bool refused = false;                        ///< This hole was reported.
  TimePs notified_ps = 0;                      ///< Last congestion notification.
  std::deque<std::uint32_t> waiting_messages;  ///< Complete, no receive yet.
  std::deque<std::uint32_t> waiting_receives;  ///< Operations of the receiver.
};

class GoBackNHost : public WorkHost {
 public:
  /// `connections`: all, by (src, dst); those that this host is an end of come in the two lists.
  GoBackNHost(HostWork work, const GoBackNOptions& options,
              std::vector<GoBackNConnection*> outgoing, std::vector<GoBackNConnection*> incoming);

  void on_packet(TimePs now_ps, const SimPacket& packet) override;
  void on_timer(TimePs now_ps) override;
  TimePs next_timer_ps() override { return std::min(timer_ps_, progress_.next_time_ps()); }
  bool pull(TimePs now_ps, Turn turn, SimPacket* packet) override;
  void on_lost(const SimPacket&) override {}
  HostCounters counters() const override { return counters_; }

 private:
  void post(TimePs now_ps);
  void on_data(TimePs now_ps, const SimPacket& packet);
  void on_ack(TimePs now_ps, GoBackNConnection* connection, std::uint32_t packet);
  void on_notification(TimePs now_ps, GoBackNConnection* connection);
  void increase(TimePs now_ps, GoBackNConnection* connection);
  void match(TimePs now_ps, GoBackNConnection* connection);
  void answer(const GoBackNConnection& connection, std::uint32_t payload);
  bool next_data(TimePs now_ps, SimPacket* packet);
  void set_timer(TimePs now_ps);

  GoBackNOptions options_;
  std::vector<GoBackNConnection*> outgoing_;  ///< By destination.
  std::vector<GoBackNConnection*> incoming_;  ///< By source.
  std::deque<SimPacket> answers_;
  std::size_t turn_ = 0;  ///< Round robin over outgoing_.
  TimePs timer_ps_ = 0;
  HostCounters counters_;
};

/// All hosts of a workload with their connections, which the caller keeps.
struct GoBackNHosts {
  std::vector<std::unique_ptr<GoBackNConnection>> connections;
  std::vector<std::unique_ptr<GoBackNHost>> hosts;
};
GoBackNHosts go_back_n_hosts(const Workload& workload, const GoBackNOptions& options);

}  // namespace tutti::simulate
