// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/baseline/go_back_n.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/random.hpp"

namespace tutti::simulate {
namespace {

// The two high bits of a packet's payload say what it is, the rest counts the connection's packets.
enum class Kind : std::uint32_t { kData = 0, kAck = 1, kRefusal = 2, kNotification = 3 };
constexpr int kKindShift = 30;
constexpr std::uint32_t kPacketMask = (1U << kKindShift) - 1;

// DCQCN's published settings, its increase scaled from 40 Gb/s to the line rate of today.
constexpr TimePs kNotificationGapPs = 50 * kPsPerUs;
constexpr TimePs kIncreaseGapPs = 55 * kPsPerUs;
constexpr std::uint32_t kAlphaGainShift = 4;
constexpr std::uint32_t kFastRounds = 5;
constexpr std::uint64_t kIncreaseDivisor = 200;
constexpr std::uint64_t kRateDivisorMin = 1000;
constexpr std::uint32_t kAckEveryPackets = 4;

std::uint32_t packed(Kind kind, std::uint32_t packet) {
  return static_cast<std::uint32_t>(kind) << kKindShift | packet;
}

template <class Connections, class End>
GoBackNConnection* find(const Connections& connections, End end, std::uint32_t host) {
  const auto found =
      std::lower_bound(connections.begin(), connections.end(), host,
                       [&](const GoBackNConnection* a, std::uint32_t b) { return a->*end < b; });
  CHECK(found != connections.end() && (*found)->*end == host,
        "no connection with host " + std::to_string(host));
  return *found;
}

}  // namespace

GoBackNHost::GoBackNHost(HostWork work, const GoBackNOptions& options,
                         std::vector<GoBackNConnection*> outgoing,
                         std::vector<GoBackNConnection*> incoming)
    : WorkHost(std::move(work)),
      options_(options),
      outgoing_(std::move(outgoing)),
      incoming_(std::move(incoming)) {
  for (GoBackNConnection* connection : outgoing_) {
    connection->rate_mbit = options_.mbit_per_s;
    connection->target_mbit = options_.mbit_per_s;
  }
}

void GoBackNHost::post(TimePs now_ps) {
  std::uint32_t index = 0;
  while (progress_.next(now_ps, &index)) {
    const Operation& op = progress_.op(index);
    if (op.kind == OperationKind::kReceive) {
      GoBackNConnection* connection = find(incoming_, &GoBackNConnection::src, op.peer);
      connection->waiting_receives.push_back(index);
      match(now_ps, connection);
      continue;
    }
    GoBackNConnection* connection = find(outgoing_, &GoBackNConnection::dst, op.peer);
    const std::uint32_t before =
        connection->posted == 0 ? 0 : connection->messages[connection->posted - 1].end_packet;
    const std::uint64_t packets =
        std::max<std::uint64_t>(1, (op.bytes + options_.packet_bytes - 1) / options_.packet_bytes);
    CHECK(before + packets < kPacketMask, std::to_string(packets) + " packets");
    connection->messages[connection->posted++] = {
        .op = index,
        .tag = op.tag,
        .bytes = op.bytes,
        .end_packet = before + static_cast<std::uint32_t>(packets)};
    if (connection->acked == connection->next) {
      connection->progress_ps = now_ps;
    }
  }
}

void GoBackNHost::on_packet(TimePs now_ps, const SimPacket& packet) {
  const auto kind = static_cast<Kind>(packet.payload >> kKindShift);
  const std::uint32_t number = packet.payload & kPacketMask;
  if (kind == Kind::kData) {
    on_data(now_ps, packet);
  } else {
    GoBackNConnection* connection = find(outgoing_, &GoBackNConnection::dst, packet.src);
    if (kind == Kind::kNotification) {
      on_notification(now_ps, connection);
    } else {
      on_ack(now_ps, connection, number);
      if (kind == Kind::kRefusal && number == connection->acked) {
        connection->next = connection->acked;
      }
    }
  }
  post(now_ps);
  set_timer(now_ps);
}

void GoBackNHost::on_data(TimePs now_ps, const SimPacket& packet) {
  GoBackNConnection* connection = find(incoming_, &GoBackNConnection::src, packet.src);
  const std::uint32_t number = packet.payload & kPacketMask;
  if (options_.rate_control && (packet.flags & packet_flags::kEcn) != 0 &&
      now_ps >= connection->notified_ps + kNotificationGapPs) {
    connection->notified_ps = now_ps;
    answer(*connection, packed(Kind::kNotification, 0));
  }
  if (number != connection->expected || (packet.flags & packet_flags::kTrimmed) != 0) {
    // What is old is acknowledged anew, a hole is reported once.
    if (number < connection->expected) {
      answer(*connection, packed(Kind::kAck, connection->expected));
    } else if (!connection->refused) {
      connection->refused = true;
      answer(*connection, packed(Kind::kRefusal, connection->expected));
    }
    return;
  }
  connection->refused = false;
  ++connection->expected;
  counters_.bytes_received += packet.bytes - options_.header_bytes;
  const bool ends = connection->messages[connection->received].end_packet == connection->expected;
  if (ends) {
    connection->waiting_messages.push_back(connection->received++);
    match(now_ps, connection);
  }
  if (ends || connection->expected % kAckEveryPackets == 0) {
    answer(*connection, packed(Kind::kAck, connection->expected));
  }
}

// Messages and receives of equal tags meet in their order.
void GoBackNHost::match(TimePs now_ps, GoBackNConnection* connection) {
  auto& messages = connection->waiting_messages;
  auto& receives = connection->waiting_receives;
  for (auto message = messages.begin(); message != messages.end();) {
    const auto receive = std::find_if(receives.begin(), receives.end(), [&](std::uint32_t op) {
      return progress_.op(op).tag == connection->messages[*message].tag;
    });
    if (receive == receives.end()) {
      ++message;
      continue;
    }
    progress_.complete(now_ps, *receive);
    receives.erase(receive);
    message = messages.erase(message);
  }
}

void GoBackNHost::on_ack(TimePs now_ps, GoBackNConnection* connection, std::uint32_t packet) {
  if (packet <= connection->acked) {
    return;
  }
  connection->acked = packet;
  connection->next = std::max(connection->next, packet);
  connection->progress_ps = now_ps;
  while (connection->completed < connection->posted &&
         connection->messages[connection->completed].end_packet <= packet) {
    progress_.complete(now_ps, connection->messages[connection->completed++].op);
  }
}

void GoBackNHost::on_notification(TimePs now_ps, GoBackNConnection* connection) {
  connection->target_mbit = connection->rate_mbit;
  connection->rate_mbit =
      std::max(options_.mbit_per_s / kRateDivisorMin,
               connection->rate_mbit - (connection->rate_mbit * connection->alpha_q16 >> 17));
  connection->alpha_q16 += (65536 - connection->alpha_q16) >> kAlphaGainShift;
  connection->rounds = 0;
  connection->increase_ps = now_ps + kIncreaseGapPs;
}

void GoBackNHost::increase(TimePs now_ps, GoBackNConnection* connection) {
  connection->alpha_q16 -= connection->alpha_q16 >> kAlphaGainShift;
  if (++connection->rounds > kFastRounds) {
    connection->target_mbit = std::min(
        options_.mbit_per_s, connection->target_mbit + options_.mbit_per_s / kIncreaseDivisor);
  }
  connection->rate_mbit = (connection->rate_mbit + connection->target_mbit + 1) / 2;
  connection->increase_ps =
      connection->rate_mbit == options_.mbit_per_s ? kNever : now_ps + kIncreaseGapPs;
}

void GoBackNHost::answer(const GoBackNConnection& connection, std::uint32_t payload) {
  ++counters_.acks_sent;
  answers_.push_back({.payload = payload,
                      .bytes = options_.header_bytes,
                      .flow = connection.path,
                      .dst = connection.src,
                      .entropy = connection.path,
                      .priority = Priority::kControl});
}

void GoBackNHost::on_timer(TimePs now_ps) {
  progress_.on_time(now_ps);
  for (GoBackNConnection* connection : outgoing_) {
    if (connection->increase_ps <= now_ps) {
      increase(now_ps, connection);
    }
    if (connection->acked < connection->next &&
        now_ps >= connection->progress_ps + options_.timeout_ps) {
      connection->next = connection->acked;
      connection->progress_ps = now_ps;
      ++counters_.timeouts;
    }
  }
  post(now_ps);
  set_timer(now_ps);
}

bool GoBackNHost::pull(TimePs now_ps, Turn turn, SimPacket* packet) {
  if (!answers_.empty()) {
    *packet = answers_.front();
    answers_.pop_front();
    return true;
  }
  const bool found = turn == Turn::kFree && next_data(now_ps, packet);
  set_timer(now_ps);
  return found;
}

bool GoBackNHost::next_data(TimePs now_ps, SimPacket* packet) {
  for (std::size_t tried = 0; tried < outgoing_.size(); ++tried) {
    GoBackNConnection& connection = *outgoing_[turn_];
    turn_ = turn_ + 1 == outgoing_.size() ? 0 : turn_ + 1;
    const std::uint32_t end =
        connection.posted == 0 ? 0 : connection.messages[connection.posted - 1].end_packet;
    if (connection.next >= end || connection.next - connection.acked >= options_.window_packets ||
        now_ps < connection.not_before_ps) {
      continue;
    }
    std::uint32_t at = connection.completed;
    while (connection.messages[at].end_packet <= connection.next) {
      ++at;
    }
    const GoBackNMessage& message = connection.messages[at];
    const std::uint64_t left =
        std::uint64_t{message.end_packet - connection.next} * options_.packet_bytes;
    const std::uint64_t packets = std::max<std::uint64_t>(
        1, (message.bytes + options_.packet_bytes - 1) / options_.packet_bytes);
    // The last packet of a message is what the others leave.
    const std::uint64_t tail = message.bytes - (packets - 1) * options_.packet_bytes;
    const auto bytes =
        static_cast<std::uint32_t>(left == options_.packet_bytes ? tail : options_.packet_bytes);
    *packet = {.payload = packed(Kind::kData, connection.next),
               .bytes = bytes + options_.header_bytes,
               .flow = connection.path,
               .dst = connection.dst,
               .entropy = connection.path};
    if (connection.acked == connection.next) {
      connection.progress_ps = now_ps;
    }
    ++counters_.packets_sent;
    counters_.retransmissions += connection.next < connection.sent_max ? 1 : 0;
    ++connection.next;
    connection.sent_max = std::max(connection.sent_max, connection.next);
    connection.not_before_ps =
        now_ps + serialisation_ps(packet->bytes, ps_per_byte_q16(connection.rate_mbit));
    return true;
  }
  return false;
}

// Early is harmless: on_timer looks at everything.
void GoBackNHost::set_timer(TimePs now_ps) {
  timer_ps_ = progress_.next_time_ps();
  for (const GoBackNConnection* connection : outgoing_) {
    timer_ps_ = std::min(timer_ps_, connection->increase_ps);
    if (connection->acked < connection->next) {
      timer_ps_ = std::min(timer_ps_, connection->progress_ps + options_.timeout_ps);
    }
    if (connection->not_before_ps > now_ps) {
      timer_ps_ = std::min(timer_ps_, connection->not_before_ps);
    }
  }
}

GoBackNHosts go_back_n_hosts(const Workload& workload, const GoBackNOptions& options) {
  GoBackNHosts all;
  std::map<std::pair<std::uint32_t, std::uint32_t>, GoBackNConnection*> connections;
  const auto hosts = static_cast<std::uint32_t>(workload.hosts.size());
  std::vector<std::vector<GoBackNConnection*>> outgoing(hosts);
  std::vector<std::vector<GoBackNConnection*>> incoming(hosts);
  const auto connect = [&](std::uint32_t src, std::uint32_t dst) {
    GoBackNConnection*& connection = connections[{src, dst}];
    if (connection == nullptr) {
      all.connections.push_back(std::make_unique<GoBackNConnection>());
      connection = all.connections.back().get();
      connection->src = src;
      connection->dst = dst;
      connection->path =
          static_cast<std::uint16_t>(draw(options.seed, std::uint64_t{src} << 32 | dst, 0) >> 48);
    }
    return connection;
  };
  for (std::uint32_t host = 0; host < hosts; ++host) {
    for (const Operation& op : workload.hosts[host].ops) {
      if (op.is_local) {
        continue;
      }
      if (op.kind == OperationKind::kSend) {
        connect(host, op.peer)->messages.emplace_back();
      } else if (op.kind == OperationKind::kReceive) {
        connect(op.peer, host);
      }
    }
  }
  // The map's order is by source, then destination.
  for (const auto& [ends, connection] : connections) {
    outgoing[ends.first].push_back(connection);
    incoming[ends.second].push_back(connection);
  }
  for (std::uint32_t host = 0; host < hosts; ++host) {
    all.hosts.push_back(std::make_unique<GoBackNHost>(
        workload.hosts[host], options, std::move(outgoing[host]), std::move(incoming[host])));
  }
  return all;
}

}  // namespace tutti::simulate
