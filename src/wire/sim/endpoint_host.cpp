// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/sim/endpoint_host.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/random.hpp"

namespace tutti::wire::sim {
namespace {

using simulate::HostWork;
using simulate::Operation;
using simulate::OperationKind;
using simulate::SimPacket;
using simulate::TimePs;
using simulate::Turn;
using transport::TimeNs;

TimeNs to_ns(TimePs now_ps) { return now_ps / simulate::kPsPerNs; }

/// The content of all messages of one source, destination and tag.
std::byte content_byte(std::uint32_t src, std::uint32_t dst, std::uint32_t tag, std::size_t at) {
  const std::uint64_t stream = std::uint64_t{src} << 40 ^ std::uint64_t{dst} << 20 ^ tag;
  return static_cast<std::byte>(draw(stream, 0, at / 8) >> (at % 8 * 8));
}

}  // namespace

std::vector<EndpointHost::Peer> EndpointHost::peers_of(const HostWork& work) {
  std::vector<Peer> peers;
  for (const Operation& op : work.ops) {
    if (op.kind != OperationKind::kWait && !op.is_local) {
      peers.push_back({.host = op.peer,
                       .sends = op.kind == OperationKind::kSend,
                       .receives = op.kind == OperationKind::kReceive,
                       .connection = {},
                       .receive_queue = {},
                       .send_queue = {}});
    }
  }
  std::sort(peers.begin(), peers.end(),
            [](const Peer& a, const Peer& b) { return a.host < b.host; });
  std::size_t kept = 0;
  for (const Peer& peer : peers) {
    if (kept == 0 || peers[kept - 1].host != peer.host) {
      peers[kept++] = peer;
    } else {
      peers[kept - 1].sends |= peer.sends;
      peers[kept - 1].receives |= peer.receives;
    }
  }
  peers.resize(kept);
  peers.shrink_to_fit();
  return peers;
}

Result<std::unique_ptr<EndpointHost>> EndpointHost::make(const HostWork& work,
                                                         const EndpointHostOptions& options,
                                                         SlotExchange* exchange) {
  transport::EndpointLimits limits;
  limits.connections =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(peers_of(work).size()));
  std::unique_ptr<EndpointHost> host(new EndpointHost(work, options, limits, exchange));
  TUTTI_RETURN_IF_ERROR(host->connect());
  return host;
}

EndpointHost::EndpointHost(const HostWork& work, const EndpointHostOptions& options,
                           const transport::EndpointLimits& limits, SlotExchange* exchange)
    : WorkHost(work),
      options_(options),
      exchange_(exchange),
      endpoint_(limits, options.connection.wire.ps_per_byte, options.trace),
      peers_(peers_of(work)) {
  if (!options_.carries_bytes) {
    return;
  }
  for (const Operation& op : work.ops) {
    std::vector<std::byte>& content = content_.emplace_back(op.bytes);
    for (std::size_t at = 0; op.kind == OperationKind::kSend && at < content.size(); ++at) {
      content[at] = content_byte(options_.host, op.peer, op.tag, at);
    }
  }
}

// A connection per pair of hosts, whatever goes over it. Its two ids are the hosts' own numbers.
Status EndpointHost::connect() {
  for (Peer& peer : peers_) {
    transport::ConnectionOptions options = options_.connection;
    options.local_id = peer.host + 1;
    options.remote_id = options_.host + 1;
    options.local_incarnation = 1;
    options.remote_incarnation = 1;
    options.peer = peer.host;
    options.sends = peer.sends;
    options.receives = peer.receives;
    options.seed = draw(options_.seed, std::uint64_t{options_.host} << 32 | peer.host, 1);
    TUTTI_ASSIGN_OR_RETURN(peer.connection, endpoint_.connect(0, options));
  }
  return {};
}

EndpointHost::Peer& EndpointHost::peer(std::uint32_t host) {
  return *std::lower_bound(peers_.begin(), peers_.end(), host,
                           [](const Peer& one, std::uint32_t wanted) { return one.host < wanted; });
}

// Of one connection and kind nothing overtakes what waits; nothing else waits for it.
void EndpointHost::post(TimePs now_ps) {
  std::uint32_t index = 0;
  while (progress_.next(now_ps, &index)) {
    const Operation& op = progress_.op(index);
    Peer& to = peer(op.peer);
    Waiting& waiting = op.kind == OperationKind::kSend ? to.send_queue : to.receive_queue;
    if (!waiting.list.empty() || !post_one(to_ns(now_ps), to, index)) {
      waiting.list.push_back(index);
    }
  }
}

void EndpointHost::post_waiting(TimeNs now, Peer& peer) {
  for (Waiting* waiting : {&peer.receive_queue, &peer.send_queue}) {
    std::vector<std::uint32_t>& list = waiting->list;
    while (waiting->posted < list.size() && post_one(now, peer, list[waiting->posted])) {
      ++waiting->posted;
    }
    if (waiting->posted == list.size()) {
      list.clear();
      waiting->posted = 0;
    }
  }
}

bool EndpointHost::post_one(TimeNs now, const Peer& peer, std::uint32_t index) {
  const Operation& op = progress_.op(index);
  Status status;
  if (op.kind == OperationKind::kSend) {
    status = endpoint_.post_send(now, peer.connection,
                                 {.tag = op.tag,
                                  .data = options_.carries_bytes ? content_[index].data() : nullptr,
                                  .bytes = op.bytes,
                                  .context = index});
  } else {
    transport::ReceiveRequest request;
    request.parts[0] = {.tag = op.tag,
                        .data = options_.carries_bytes ? content_[index].data() : nullptr,
                        .capacity_bytes = op.bytes};
    request.context = index;
    status = endpoint_.post_receive(now, peer.connection, request);
  }
  if (status.code() == ErrorCode::kTimeout) {
    return false;
  }
  failed_ += status.ok() ? 0 : 1;
  return true;
}

void EndpointHost::take_events(TimePs now_ps) {
  transport::Event event;
  while (endpoint_.poll_event(&event)) {
    if (event.kind == transport::EventKind::kConnectionDone) {
      continue;
    }
    const auto index = static_cast<std::uint32_t>(event.context);
    post_waiting(to_ns(now_ps), peer(progress_.op(index).peer));
    if (event.outcome != transport::Outcome::kOk) {
      ++failed_;
      continue;
    }
    if (event.kind == transport::EventKind::kReceiveDone && options_.carries_bytes) {
      check_content(index);
    }
    progress_.complete(now_ps, index);
  }
  post(now_ps);
}

void EndpointHost::check_content(std::uint32_t index) {
  const Operation& op = progress_.op(index);
  const std::vector<std::byte>& content = content_[index];
  for (std::size_t at = 0; at < content.size(); ++at) {
    wrong_bytes_ += content[at] != content_byte(op.peer, options_.host, op.tag, at) ? 1 : 0;
  }
}

void EndpointHost::on_packet(TimePs now_ps, const SimPacket& packet) {
  if (options_.nap_ps == 0) {
    take(now_ps, now_ps, packet);
  } else {
    inbox_.push_back({now_ps, packet});
  }
}

TimePs EndpointHost::wakes_ps(TimePs received_ps) const {
  return (received_ps / options_.nap_ps + 1) * options_.nap_ps;
}

void EndpointHost::take(TimePs now_ps, TimePs received_ps, const SimPacket& packet) {
  Slot& slot = exchange_->at(packet);
  const bool trimmed = (packet.flags & simulate::packet_flags::kTrimmed) != 0;
  const bool last_hop = (packet.flags & simulate::packet_flags::kTrimmedLast) != 0;
  ++slot.arrived;
  slot.ecn = slot.ecn || (packet.flags & simulate::packet_flags::kEcn) != 0;
  const bool complete = slot.arrived + slot.died == packet.fragments;
  if (trimmed) {
    if (!slot.trimmed) {
      slot.trimmed = true;
      deliver(now_ps, received_ps, &slot, true, last_hop);
    }
  } else if (complete && slot.died == 0 && !slot.trimmed) {
    deliver(now_ps, received_ps, &slot, false, false);
  }
  if (complete) {
    exchange_->release(options_.host, packet);
  }
}

void EndpointHost::deliver(TimePs now_ps, TimePs received_ps, Slot* slot, bool trimmed,
                           bool last_hop) {
  const transport::Transmission& sent = slot->transmission;
  transport::Arrival arrival;
  arrival.header = {sent.header.data(), sent.header_bytes};
  if (sent.payload != nullptr && !trimmed) {
    arrival.payload = {sent.payload, sent.payload_bytes};
  }
  arrival.payload_bytes = sent.payload_bytes;
  arrival.rail = sent.rail;
  arrival.received_ns = options_.has_stamps ? to_ns(received_ps) : transport::kNever;
  arrival.ecn = slot->ecn;
  arrival.trimmed = trimmed;
  arrival.last_hop_trim = last_hop;
  endpoint_.handle_datagram(to_ns(now_ps), arrival);
  take_events(now_ps);
}

void EndpointHost::on_timer(TimePs now_ps) {
  begun_ = true;
  last_timer_ps_ = now_ps;
  progress_.on_time(now_ps);
  // All of it, or none.
  if (!inbox_.empty() && wakes_ps(inbox_.front().time_ps) <= now_ps) {
    for (const Received& received : std::exchange(inbox_, {})) {
      take(now_ps, received.time_ps, received.packet);
    }
  }
  if (endpoint_.next_deadline() <= to_ns(now_ps)) {
    endpoint_.handle_timeout(to_ns(now_ps));
  }
  take_events(now_ps);
}

TimePs EndpointHost::next_timer_ps() {
  if (!begun_) {
    return 0;
  }
  TimePs next = simulate::kNever;
  const TimeNs deadline = endpoint_.next_deadline();
  if (deadline != transport::kNever) {
    next = deadline * simulate::kPsPerNs;
  }
  next = std::min(next, progress_.next_time_ps());
  if (!inbox_.empty()) {
    next = std::min(next, wakes_ps(inbox_.front().time_ps));
  }
  // A deadline that is over and stays so may not stop time.
  return next <= last_timer_ps_ ? last_timer_ps_ + simulate::kPsPerNs : next;
}

// Data is asked for only when it can leave, so that its time stamp and its window are of that
// moment; control does not wait for it.
bool EndpointHost::pull(TimePs now_ps, Turn turn, SimPacket* packet) {
  Slots& slots = exchange_->of(options_.host);
  const std::uint32_t index = slots.take();
  Slot& slot = slots.at(index);
  transport::Transmission& sent = slot.transmission;
  const TimeNs now = to_ns(now_ps);
  if (!(turn == Turn::kFree ? endpoint_.poll_transmit(now, &sent)
                            : endpoint_.poll_control(now, &sent))) {
    slots.give_back(index);
    return false;
  }
  slot.arrived = 0;
  slot.died = 0;
  slot.ecn = false;
  slot.trimmed = false;
  packet->payload = index;
  packet->bytes =
      sent.payload_bytes + std::max<std::uint32_t>(options_.header_bytes, sent.header_bytes);
  packet->dst = static_cast<std::uint32_t>(sent.peer);
  packet->flow = options_.host;
  packet->entropy = sent.path;
  packet->priority = sent.is_control ? simulate::Priority::kControl : simulate::Priority::kData;
  return true;
}

void EndpointHost::on_lost(const SimPacket& packet) {
  Slots& slots = exchange_->of(options_.host);
  Slot& slot = slots.at(packet.payload);
  ++slot.died;
  if (slot.arrived + slot.died == packet.fragments) {
    slots.give_back(packet.payload);
  }
}

simulate::HostCounters EndpointHost::counters() const {
  simulate::HostCounters sum;
  for (const Peer& peer : peers_) {
    const transport::ConnectionCounters* one = endpoint_.counters(peer.connection);
    if (one != nullptr) {
      sum.packets_sent += one->chunks_sent;
      sum.retransmissions += one->retransmissions;
      sum.spurious += one->spurious_retransmissions;
      sum.timeouts += one->timeouts;
      sum.acks_sent += one->acks_sent;
      sum.bytes_received += one->bytes_received;
    }
  }
  return sum;
}

}  // namespace tutti::wire::sim
