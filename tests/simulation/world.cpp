// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/world.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "simulation/check_delivery.hpp"
#include "simulation/check_flow.hpp"
#include "simulation/check_liveness.hpp"
#include "simulation/check_terminal.hpp"

namespace tutti::transport::simulation {
namespace {

constexpr TimeNs kRetryNsMin = 100'000;  // An application whose post was refused tries again.
constexpr TimeNs kRetryNsMax = 20'000'000;
constexpr std::uint32_t kInstantStepsMax = 10'000;
constexpr Bytes kSuccessorBytesMax = 50'000;

std::vector<std::byte> pattern(Bytes bytes, std::uint64_t key) {
  std::vector<std::byte> data(bytes);
  Random random(key);
  for (std::size_t i = 0; i < data.size(); i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(data.data() + i, &word, std::min<std::size_t>(8, data.size() - i));
  }
  return data;
}

}  // namespace

TimeNs World::Clock::local(TimeNs now) const {
  const TimeNs step = now >= knobs.clock_step_at_ns ? knobs.clock_step_ns : 0;
  const auto drift = static_cast<std::int64_t>(now) / 1'000'000 * knobs.clock_drift_ppm;
  return 1'000'000'000 + knobs.clock_offset_ns - step + now + static_cast<TimeNs>(drift);
}

TimeNs World::Clock::global(TimeNs local_ns, TimeNs now) const {
  TimeNs at = now;
  while (local(at) < local_ns) {
    at += local_ns - local(at);
  }
  return at;
}

World::World(const Knobs& knobs, bool is_verbose)
    : knobs_(knobs), is_verbose_(is_verbose), random_(knobs.seed ^ 0x5eed5eed5eed5eedULL) {
  for (const HostKnobs& it : knobs_.hosts) {
    Host host;
    host.index = static_cast<std::uint32_t>(hosts_.size());
    host.clock.knobs = it;
    for (const ConnectionKnobs& connection : knobs_.connections) {
      if (connection.hosts[0] == host.index || connection.hosts[1] == host.index) {
        host.egress_ps_per_byte =
            std::max(host.egress_ps_per_byte, connection.options.wire.ps_per_byte);
      }
    }
    host.next_stall_ns = it.stall_every_ns == 0 ? kNever : it.stall_every_ns;
    hosts_.push_back(std::move(host));
  }
  for (Host& host : hosts_) {
    host.endpoint =
        std::make_unique<Endpoint>(EndpointLimits{24}, host.egress_ps_per_byte, nullptr);
    if (host.clock.knobs.crash_ns != kNever) {
      push(host.clock.knobs.crash_ns, Kind::kCrash, host.index);
    }
  }
  push(knobs_.heal_ns, Kind::kHeal, 0);
  for (const ConnectionKnobs& it : knobs_.connections) {
    open(it, it.successors, nullptr, -1);
  }
}

World::~World() = default;

void World::push(TimeNs time_ns, Kind kind, std::uint32_t index) {
  entries_.push({time_ns, order_++, kind, index});
}

void World::wake(Host& host, TimeNs time_ns) {
  if (host.endpoint && time_ns < host.wake_ns) {
    host.wake_ns = time_ns;
    push(time_ns, Kind::kHost, host.index);
  }
}

void World::note(TimeNs time_ns, std::uint64_t what) {
  result_.trace_hash = (result_.trace_hash ^ time_ns) * 0x9e3779b97f4a7c15ULL;
  result_.trace_hash =
      (result_.trace_hash ^ (result_.trace_hash >> 29) ^ what) * 0xd6e8feb86659fd93ULL;
}

void World::say(const std::string& text) {
  if (is_verbose_) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(now_), text.c_str());
  }
}

RunResult World::run() {
  while (!entries_.empty()) {
    const Entry entry = entries_.top();
    entries_.pop();
    now_ = entry.time_ns;
    handle(entry);
    if (is_healed_) {
      check_liveness();
    }
  }
  for (const auto& it : connections_) {
    check_terminal::at_end(it->record);
    check_delivery::at_end(it->record);
  }
  return result_;
}

void World::handle(const Entry& entry) {
  switch (entry.kind) {
    case Kind::kArrival: {
      const Flying& packet = packets_[entry.index];
      const EndRecord& to = connections_[packet.connection]->record.ends[1 - packet.from];
      Host& host = hosts_[to.host];
      if (!host.endpoint) {
        release(entry.index);
        return;
      }
      host.inbox.push_back({entry.index, host.clock.local(now_)});
      const TimeNs batch = host.clock.knobs.batch_ns;
      wake(host, (now_ + batch - 1) / batch * batch);
      return;
    }
    case Kind::kHost: {
      Host& host = hosts_[entry.index];
      if (host.wake_ns != entry.time_ns || !host.endpoint) {
        return;  // Woken before.
      }
      host.wake_ns = kNever;
      step(host);
      for (std::size_t i = 0; i < connections_.size(); ++i) {
        follow(*connections_[i]);
      }
      return;
    }
    case Kind::kCrash:
      crash(hosts_[entry.index]);
      return;
    case Kind::kRestart:
      restart(hosts_[entry.index]);
      return;
    case Kind::kHeal:
      say("heal");
      is_healed_ = true;
      result_.healed_ns = now_;
      for (auto& it : connections_) {
        it->network->heal();
      }
      for (Host& host : hosts_) {
        wake(host, now_);
      }
      return;
  }
}

void World::open(const ConnectionKnobs& knobs, std::uint32_t successors,
                 const ConnectionRecord* predecessor, int restarted_end) {
  auto made = std::make_unique<Connection>();
  ConnectionRecord& record = made->record;
  record.index = static_cast<std::uint32_t>(connections_.size());
  record.knobs = knobs;
  record.successors = successors;
  record.opened_ns = now_;
  record.silent_ns = std::min(knobs.faults[0].blackout_ns, knobs.faults[1].blackout_ns);
  made->network = std::make_unique<Network>(record.knobs, random_.next());
  if (is_healed_) {
    made->network->heal();
  }
  ConnectionOptions options = knobs.options;
  options.local_id = predecessor != nullptr ? predecessor->ends[0].options.local_id : next_id_++;
  options.remote_id = predecessor != nullptr ? predecessor->ends[1].options.local_id : next_id_++;
  // The survivor of a crash still has its old end, under the old id.
  if (restarted_end == 0) {
    options.remote_id = next_id_++;
  } else if (restarted_end == 1) {
    options.local_id = next_id_++;
  }
  options.local_incarnation = next_incarnation_++;
  options.remote_incarnation = next_incarnation_++;
  options.key = {knobs_.seed, 77};
  for (int end = 0; end < 2; ++end) {
    EndRecord& it = record.ends[end];
    it.host = knobs.hosts[end];
    it.options = options;
    it.options.peer = record.index * 2ULL + static_cast<std::uint64_t>(1 - end);
    Host& host = hosts_[it.host];
    const TimeNs local_ns = host.clock.local(now_);
    auto handle = host.endpoint->connect(local_ns, it.options);
    if (!handle.ok()) {
      fail("connect", handle.status().message());
    }
    it.handle = *handle;
    it.is_open = true;
    made->numbers[end].start(record, end);
    std::swap(options.local_id, options.remote_id);
    std::swap(options.local_incarnation, options.remote_incarnation);
    std::swap(options.sends, options.receives);
    options.seed += 1;
    const PlanKnobs& plan = record.knobs.plans[end];
    it.sends.reserve(plan.sends.size());
    it.receives.reserve(plan.receives.size());
    wake(host, now_);
  }
  say("open connection " + std::to_string(record.index));
  connections_.push_back(std::move(made));
}

// A connection of the same ids after one that is over, while its packets may still be in the air.
void World::follow(Connection& connection) {
  ConnectionRecord& record = connection.record;
  if (record.has_followed || record.successors == 0 || !record.is_over() || record.is_hopeless() ||
      record.ends[0].has_crashed || record.ends[1].has_crashed ||
      !hosts_[record.ends[0].host].endpoint || !hosts_[record.ends[1].host].endpoint) {
    return;
  }
  record.has_followed = true;
  ConnectionKnobs knobs = record.knobs;
  knobs.abort_ns = kNever;
  knobs.close_ns = kNever;
  draw_plans(random_, knobs, kSuccessorBytesMax);
  open(knobs, record.successors - 1, &record, -1);
}

void World::crash(Host& host) {
  say("crash of host " + std::to_string(host.index));
  host.endpoint.reset();
  for (const Received& received : host.inbox) {
    release(received.packet);
  }
  host.inbox.clear();
  host.wake_ns = kNever;
  host.stalled_until_ns = 0;
  for (auto& it : connections_) {
    for (EndRecord& end : it->record.ends) {
      if (end.host == host.index && !end.is_done) {
        end.has_crashed = true;
      }
    }
  }
  push(now_ + host.clock.knobs.restart_after_ns, Kind::kRestart, host.index);
}

void World::restart(Host& host) {
  say("restart of host " + std::to_string(host.index));
  host.endpoint = std::make_unique<Endpoint>(EndpointLimits{24}, host.egress_ps_per_byte, nullptr);
  host.started_ns = now_;
  host.granted_bytes = 0;
  const std::size_t count = connections_.size();
  for (std::size_t i = 0; i < count; ++i) {
    ConnectionRecord& record = connections_[i]->record;
    for (int end = 0; end < 2; ++end) {
      if (!record.ends[end].has_crashed || record.has_followed || record.is_hopeless()) {
        continue;
      }
      record.has_followed = true;
      ConnectionKnobs knobs = record.knobs;
      knobs.abort_ns = kNever;
      knobs.close_ns = kNever;
      draw_plans(random_, knobs, kSuccessorBytesMax);
      open(knobs, 0, &record, end);
    }
  }
}

std::uint32_t World::allocate() {
  if (free_packets_.empty()) {
    packets_.emplace_back();
    return static_cast<std::uint32_t>(packets_.size() - 1);
  }
  const std::uint32_t packet = free_packets_.back();
  free_packets_.pop_back();
  return packet;
}

void World::release(std::uint32_t packet) { free_packets_.push_back(packet); }

void World::step(Host& host) {
  if (now_ >= host.next_stall_ns) {
    host.stalled_until_ns = now_ + 1 + random_.next() % host.clock.knobs.stall_ns_max;
    host.next_stall_ns = host.stalled_until_ns + host.clock.knobs.stall_every_ns;
  }
  if (now_ < host.stalled_until_ns) {
    wake(host, host.stalled_until_ns);
    return;
  }
  host.instant_steps = host.instant_ns == now_ ? host.instant_steps + 1 : 0;
  host.instant_ns = now_;
  if (host.instant_steps > kInstantStepsMax) {
    fail("livelock", "host " + std::to_string(host.index) + " has always something due now");
  }
  ++host.steps;
  const TimeNs local_ns = host.clock.local(now_);
  const TimeNs grain = host.clock.knobs.timer_grain_ns;
  take_arrivals(host, local_ns);
  if (host.endpoint->next_deadline() <= local_ns / grain * grain) {
    host.endpoint->handle_timeout(local_ns);
  }
  take_events(host);
  for (auto& it : connections_) {
    for (int end = 0; end < 2; ++end) {
      if (it->record.ends[end].host == host.index && it->record.ends[end].is_open) {
        act(*it, end);
      }
    }
  }
  take_events(host);
  transmit(host, local_ns);
  take_events(host);
  check_host(host);

  const TimeNs deadline = host.endpoint->next_deadline();
  if (deadline != kNever) {
    const TimeNs seen = (deadline + grain - 1) / grain * grain;
    wake(host, std::max(host.clock.global(seen, now_), now_ + (deadline <= local_ns ? 1 : 0)));
  }
  for (const auto& it : connections_) {
    for (int end = 0; end < 2; ++end) {
      if (it->record.ends[end].host == host.index && it->record.ends[end].is_open) {
        wake(host, std::max(it->applications[end].next_ns, now_));
      }
    }
  }
}

/// A changed packet that now names another connection, one without tags: there the checksum of the
/// wire is all that finds it.
bool World::is_unguarded(const Host& host, const Flying& packet) const {
  std::uint32_t id = 0;
  decode_connection({packet.out.header.data(), packet.out.header_bytes}, id);
  return std::ranges::any_of(connections_, [&](const auto& it) {
    return std::ranges::any_of(it->record.ends, [&](const EndRecord& end) {
      return end.host == host.index && end.options.local_id == id && !end.options.authenticates;
    });
  });
}

void World::take_arrivals(Host& host, TimeNs local_ns) {
  while (!host.inbox.empty()) {
    const auto [index, received_ns] = host.inbox.front();
    host.inbox.pop_front();
    const Flying& packet = packets_[index];
    Connection& connection = *connections_[packet.connection];
    Arrival arrival;
    arrival.header = {packet.out.header.data(), packet.out.header_bytes};
    arrival.payload = packet.trimmed ? std::span<const std::byte>() : packet.payload;
    arrival.payload_bytes = packet.trimmed ? 0 : packet.out.payload_bytes;
    arrival.rail = packet.out.rail;
    arrival.received_ns = host.clock.knobs.has_stamps ? received_ns : kNever;
    arrival.ecn = packet.ecn;
    arrival.trimmed = packet.trimmed;
    if (!packet.is_changed) {
      connection.numbers[1 - packet.from].on_handed(packet);
    }
    if (packet.is_changed && is_unguarded(host, packet)) {
      release(index);
      continue;
    }
    host.endpoint->handle_datagram(local_ns, arrival);
    const EndRecord& here = connection.record.ends[1 - packet.from];
    const ConnectionCounters* counters = host.endpoint->counters(here.handle);
    if (counters != nullptr && !here.is_done && !here.has_crashed) {
      connection.numbers[1 - packet.from].check_replays(*counters);
    }
    release(index);
  }
}

void World::take_events(Host& host) {
  Event event;
  while (host.endpoint->poll_event(&event)) {
    Connection* connection = nullptr;
    int end = 0;
    for (auto& it : connections_) {
      for (int e = 0; e < 2; ++e) {
        const EndRecord& record = it->record.ends[e];
        if (record.host == host.index && !record.has_crashed && record.handle == event.connection) {
          connection = it.get();
          end = e;
        }
      }
    }
    if (connection == nullptr) {
      fail("one_event", "an event of a connection that is not there");
    }
    if (event.kind == EventKind::kSendMatched) {
      check_terminal::on_match_event(connection->record, end, event);
      connection->record.ends[end].sends[event.context].slot = event.slot;
      continue;
    }
    note(now_, static_cast<std::uint64_t>(event.kind) << 40 ^ event.context << 8 ^
                   static_cast<std::uint64_t>(event.outcome) ^ std::uint64_t{host.index} << 48);
    say(name_of(connection->record, end) + ": " +
        (event.kind == EventKind::kSendDone      ? "send "
         : event.kind == EventKind::kReceiveDone ? "receive "
                                                 : "connection ") +
        std::to_string(event.context) + ' ' + to_string(event.outcome));
    ConnectionRecord& record = connection->record;
    EndRecord& here = record.ends[end];
    Application& application = connection->applications[end];
    switch (event.kind) {
      case EventKind::kSendDone: {
        check_terminal::on_send_event(record, end, event);
        SendRecord& send = here.sends[event.context];
        send.is_done = true;
        send.outcome = event.outcome;
        ++here.sends_done;
        check_delivery::on_send_done(record, end, send);
        std::fill(send.data.begin(), send.data.end(), std::byte{0x3c});
        break;
      }
      case EventKind::kReceiveDone: {
        check_terminal::on_receive_event(record, end, event);
        ReceiveRecord& receive = here.receives[event.context];
        receive.is_done = true;
        receive.outcome = event.outcome;
        for (std::size_t part = 0; part < receive.parts.size(); ++part) {
          receive.parts[part].bytes = event.part_bytes[part];
        }
        ++here.receives_done;
        check_delivery::on_receive_done(record, end, receive);
        break;
      }
      case EventKind::kSendMatched:
        break;
      case EventKind::kConnectionDone:
        check_terminal::on_connection_event(record, end, event);
        here.is_done = true;
        here.done_ns = now_;
        here.outcome = event.outcome;
        result_.ended_ns = now_;
        if (const ConnectionCounters* counters = host.endpoint->counters(event.connection)) {
          check_flow::at_end(record, end, *counters);
          result_.retransmissions += counters->retransmissions;
          result_.timeouts += counters->timeouts;
        }
        break;
    }
    application.send_ns = std::min(application.send_ns, now_);
    application.receive_ns = std::min(application.receive_ns, now_);
    application.retry_ns = kRetryNsMin;
    if (!here.is_done && is_served(record)) {
      // Either end may be the one that closes.
      wake(hosts_[record.ends[0].host], now_);
      wake(hosts_[record.ends[1].host], now_);
    }
  }
}

void World::transmit(Host& host, TimeNs local_ns) {
  const TimeNs room_ns = host.clock.knobs.egress_room_ns;
  Transmission out;
  while (true) {
    const TimeNs busy_ns =
        *std::max_element(host.egress_free_ns.begin(), host.egress_free_ns.end());
    if (busy_ns > now_ + room_ns) {
      wake(host, busy_ns - room_ns);
      return;
    }
    if (!host.endpoint->poll_transmit(local_ns, &out)) {
      return;
    }
    launch(host, out);
    // Some hosts piggyback packets that may wait on those to the same peer.
    if (connections_[out.peer / 2]->record.knobs.piggybacks) {
      Transmission piggyback;
      while (host.endpoint->poll_piggyback(local_ns, out, &piggyback)) {
        launch(host, piggyback);
      }
    }
  }
}

void World::launch(Host& host, const Transmission& out) {
  ++result_.packets;
  Connection& connection = *connections_[out.peer / 2];
  const auto from = static_cast<std::uint8_t>(1 - out.peer % 2);
  const std::uint32_t index = allocate();
  Flying& packet = packets_[index];
  packet.out = out;
  packet.connection = connection.record.index;
  packet.from = from;
  packet.ecn = false;
  packet.trimmed = false;
  packet.comes_whole = false;
  packet.is_changed = false;
  packet.payload.clear();
  if (out.payload != nullptr) {
    packet.payload.assign(out.payload, out.payload + out.payload_bytes);
  }
  note(now_, digest(out.header.data(), out.header_bytes));
  const Bytes granted_before = connection.numbers[from].granted_bytes();
  connection.numbers[from].on_transmit(packet);
  const Bytes granted = connection.numbers[from].granted_bytes() - granted_before;
  host.granted_bytes += granted;
  if (granted > 0) {
    check_flow::on_grant(connection.record, from, host.granted_bytes, now_ - host.started_ns,
                         host.egress_ps_per_byte);
  }
  if (!out.is_control && !connection.record.ends[from].is_done) {
    const EndRecord& here = connection.record.ends[from];
    check_flow::on_data(connection.record, from, out, *host.endpoint->counters(here.handle),
                        host.endpoint->status(here.handle),
                        connection.numbers[1 - from].granted_bytes());
  }
  const WireCapabilities& wire = connection.record.knobs.options.wire;
  TimeNs& free_ns = host.egress_free_ns[out.rail];
  free_ns = std::max(free_ns, now_) +
            (out.payload_bytes + out.header_bytes) * std::uint64_t{wire.ps_per_byte} / 1000;
  const std::vector<TimeNs>& arrivals = connection.network->carry(free_ns, packet);
  if (is_verbose_) {
    Packet decoded;
    const bool is_packet = decode({out.header.data(), out.header_bytes}, decoded);
    const PacketType type = decoded.common.type;
    const bool has_value =
        is_packet && (type == PacketType::kCredit || type == PacketType::kRequest ||
                      type == PacketType::kAdvertAck);
    say(name_of(connection.record, from) + ": type " +
        std::to_string(is_packet ? static_cast<int>(decoded.common.type) : 0) + " number " +
        std::to_string(decoded.common.number) +
        (has_value ? " value " + std::to_string(decoded.number.value) : "") +
        (out.is_control ? ""
                        : " chunk " + std::to_string(decoded.data.chunk) + " slot " +
                              std::to_string(decoded.data.slot) + " bytes " +
                              std::to_string(out.payload_bytes)) +
        " path " + std::to_string(out.path) +
        (arrivals.empty() ? " lost" : " arrives " + std::to_string(arrivals[0])) +
        (packet.trimmed ? " trimmed" : "") + (packet.comes_whole ? " whole later" : "") +
        (packet.is_changed ? " changed" : ""));
  }
  if (arrivals.empty()) {
    release(index);
    return;
  }
  push(arrivals[0], Kind::kArrival, index);
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    const std::uint32_t copy = allocate();
    packets_[copy] = packets_[index];
    packets_[copy].trimmed = packets_[index].trimmed && !packets_[index].comes_whole;
    push(arrivals[i], Kind::kArrival, copy);
  }
}

void World::post_send(Connection& connection, int end) {
  EndRecord& here = connection.record.ends[end];
  Application& application = connection.applications[end];
  Host& host = hosts_[here.host];
  const PlanKnobs& plan = connection.record.knobs.plans[end];
  while (application.next_send < plan.sends.size() && application.send_ns <= now_) {
    const MessageKnobs& message = plan.sends[application.next_send];
    SendRecord send;
    send.tag = message.tag;
    send.data = pattern(message.bytes, random_.next());
    send.digest = digest(send.data.data(), send.data.size());
    send.tells_match = application.next_send % 2 == 1;
    SendRequest request{send.tag, send.data.data(), send.data.size(), application.next_send};
    request.tells_match = send.tells_match;
    request.is_patient = connection.record.knobs.is_patient;
    const Status status = host.endpoint->post_send(host.clock.local(now_), here.handle, request);
    if (!status.ok()) {
      application.send_ns = now_ + application.retry_ns;
      application.retry_ns = std::min(2 * application.retry_ns, kRetryNsMax);
      return;
    }
    here.sends.push_back(std::move(send));
    if (++application.next_send < plan.sends.size()) {
      application.send_ns = now_ + plan.sends[application.next_send].wait_ns;
    }
  }
}

void World::post_receive(Connection& connection, int end) {
  EndRecord& here = connection.record.ends[end];
  Application& application = connection.applications[end];
  Host& host = hosts_[here.host];
  const PlanKnobs& plan = connection.record.knobs.plans[end];
  const PlanKnobs& peer = connection.record.knobs.plans[1 - end];
  while (application.next_receive < plan.receives.size() && application.receive_ns <= now_) {
    const ReceiveKnobs& knobs = plan.receives[application.next_receive];
    ReceiveRecord receive;
    ReceiveRequest request;
    request.part_count = static_cast<std::uint8_t>(knobs.parts.size());
    request.context = application.next_receive;
    receive.parts.resize(knobs.parts.size());
    for (std::size_t i = 0; i < knobs.parts.size(); ++i) {
      PartRecord& part = receive.parts[i];
      part.tag = peer.sends[knobs.parts[i]].tag;
      part.capacity_bytes = knobs.capacities[i];
      part.memory.assign(knobs.capacities[i] + 2 * kGuardBytes, kUnwritten);
      request.parts[i] = {part.tag, part.data(), part.capacity_bytes};
    }
    if (!host.endpoint->post_receive(host.clock.local(now_), here.handle, request).ok()) {
      application.receive_ns = now_ + application.retry_ns;
      application.retry_ns = std::min(2 * application.retry_ns, kRetryNsMax);
      return;
    }
    here.receives.push_back(std::move(receive));
    if (++application.next_receive < plan.receives.size()) {
      application.receive_ns = now_ + plan.receives[application.next_receive].wait_ns;
    }
  }
}

void World::cancel(Connection& connection, int end, const CancelKnobs& knobs) {
  EndRecord& here = connection.record.ends[end];
  Endpoint& endpoint = *hosts_[here.host].endpoint;
  const TimeNs local_ns = hosts_[here.host].clock.local(now_);
  const std::size_t posted = knobs.is_send ? here.sends.size() : here.receives.size();
  const std::size_t index = knobs.index == CancelKnobs::kNewest ? posted - 1 : knobs.index;
  if (index >= posted) {
    return;
  }
  if (knobs.is_send) {
    here.sends[index].is_cancelled |= endpoint.cancel_send(local_ns, here.handle, index).ok();
  } else {
    here.receives[index].is_cancelled |= endpoint.cancel_receive(local_ns, here.handle, index).ok();
  }
}

bool World::is_served(const ConnectionRecord& record) const {
  for (int end = 0; end < 2; ++end) {
    const EndRecord& here = record.ends[end];
    const PlanKnobs& plan = record.knobs.plans[end];
    if (here.sends_done != plan.sends.size() || here.receives_done != plan.receives.size()) {
      return false;
    }
  }
  return true;
}

// When this end closes: the plan is done; or, where that may never be (cancellations, a peer that
// is gone), some time after the network healed.
TimeNs World::finish_ns(const ConnectionRecord& record, int end) const {
  const EndRecord& here = record.ends[end];
  const auto closer = static_cast<int>(record.knobs.closer);
  if (here.has_closed) {
    return kNever;
  }
  if (closer == end && is_served(record)) {
    return now_;
  }
  const bool is_alone =
      record.is_hopeless() || record.ends[1 - end].has_crashed || record.ends[1 - end].is_done;
  if (is_alone || (record.knobs.has_cancels() && closer == end)) {
    return std::max(knobs_.heal_ns, record.opened_ns) + kSettleNs;
  }
  return kNever;
}

void World::act(Connection& connection, int end) {
  ConnectionRecord& record = connection.record;
  EndRecord& here = record.ends[end];
  Application& application = connection.applications[end];
  application.next_ns = kNever;
  if (here.is_done || here.has_crashed) {
    return;
  }
  Host& host = hosts_[here.host];
  const TimeNs local_ns = host.clock.local(now_);
  const bool is_closer = static_cast<int>(record.knobs.closer) == end;
  if (is_closer && record.knobs.abort_ns <= now_) {
    say(name_of(record, end) + ": abort");
    here.has_aborted = true;
    static_cast<void>(host.endpoint->abort(local_ns, here.handle));
    return;
  }
  const bool closes_now = (is_closer && record.knobs.close_ns <= now_ && !here.has_closed) ||
                          finish_ns(record, end) <= now_;
  if (closes_now) {
    say(name_of(record, end) + ": close");
    here.has_closed = true;
    static_cast<void>(host.endpoint->close(local_ns, here.handle));
  }
  if (here.has_closed) {
    application.next_ns = is_closer ? record.knobs.abort_ns : kNever;
    return;
  }
  post_receive(connection, end);
  post_send(connection, end);
  const PlanKnobs& plan = record.knobs.plans[end];
  while (application.next_cancel < plan.cancels.size() &&
         record.opened_ns + plan.cancels[application.next_cancel].at_ns <= now_) {
    cancel(connection, end, plan.cancels[application.next_cancel++]);
  }
  if (application.next_send < plan.sends.size()) {
    application.next_ns = application.send_ns;
  }
  if (application.next_receive < plan.receives.size()) {
    application.next_ns = std::min(application.next_ns, application.receive_ns);
  }
  if (application.next_cancel < plan.cancels.size()) {
    application.next_ns = std::min(application.next_ns,
                                   record.opened_ns + plan.cancels[application.next_cancel].at_ns);
  }
  if (is_closer) {
    application.next_ns =
        std::min({application.next_ns, record.knobs.abort_ns, record.knobs.close_ns});
  }
  application.next_ns = std::min(application.next_ns, finish_ns(record, end));
}

void World::check_host(Host& host) {
  // The check walks all that is in the air.
  constexpr std::uint64_t kEvery = 16;
  if (host.steps % kEvery == 0) {
    host.endpoint->check_invariants();
  }
}

void World::check_liveness() {
  for (const auto& it : connections_) {
    check_liveness::on_time(it->record, now_, knobs_.heal_ns);
  }
}

}  // namespace tutti::transport::simulation
