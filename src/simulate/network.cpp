// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/network.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/random.hpp"

namespace tutti::simulate {
namespace {

enum Rules : std::size_t { kNic, kSwitch, kLastHop };

}  // namespace

SimNetwork::SimNetwork(const Fabric& fabric, const SimNetworkOptions& options,
                       const std::vector<Host*>& hosts)
    : fabric_(fabric), options_(resolved(options, fabric)) {
  CHECK(hosts.size() == fabric.hosts(), std::to_string(hosts.size()) + " hosts");
  CHECK(options_.latency_ps > 0 && options_.rate() > 0, "a link without latency or rate");
  set_up_rules();
  ports_.resize(fabric.links());
  held_.resize(fabric.links());
  stopped_.resize(fabric.links());
  node_states_.resize(fabric.nodes());
  for (std::uint32_t link = 0; link < fabric.links(); ++link) {
    const Rules kind = fabric.from(link) < fabric.hosts() ? kNic
                       : fabric.is_last_hop(link)         ? kLastHop
                                                          : kSwitch;
    ports_[link].set_up(link, options_.rate(), &rules_[kind], held_.data());
  }
  for (std::uint32_t node = fabric.hosts(); node < fabric.nodes(); ++node) {
    salts_.push_back(draw(options_.seed, node, 0));
  }
  for (const LinkChange& change : options_.changes) {
    CHECK(change.link < fabric.links(), "link " + std::to_string(change.link));
    node_states_[fabric.from(change.link)].changes.push_back(change);
  }
  for (NodeState& state : node_states_) {
    std::stable_sort(state.changes.begin(), state.changes.end(),
                     [](const LinkChange& a, const LinkChange& b) { return a.at_ps < b.at_ps; });
  }
  for (Host* host : hosts) {
    host_states_.push_back({.host = host, .timer_ps = host->next_timer_ps(), .nic_ps = 0});
  }
}

void SimNetwork::set_up_rules() {
  PortRules nic{.seed = options_.seed,
                .latency_ps = options_.latency_ps,
                .header_bytes = options_.header_bytes,
                .bin_bytes = std::max(1U, options_.queue_bytes / 16)};
  PortRules inner = nic;
  inner.queue_bytes = options_.queue_bytes;
  inner.control_bytes = options_.control_bytes;
  inner.ecn_low_bytes = options_.ecn_low_bytes;
  inner.ecn_high_bytes = std::max(options_.ecn_high_bytes, options_.ecn_low_bytes + 1);
  inner.trim = options_.trim;
  inner.lossless = options_.lossless;
  PortRules last = inner;
  last.last_hop = true;
  last.loss = options_.loss;
  if (!options_.ecn_on_last_hop) {
    last.ecn_low_bytes = UINT32_MAX;
  }
  rules_ = {nic, inner, last};
}

TimePs SimNetwork::run(TimePs until_ps) {
  TimePs next = publish(0, nodes());
  while (next < until_ps) {
    begin_window(next);
    step(0, nodes());
    end_window();
    next = publish(0, nodes());
  }
  return next;
}

TimePs SimNetwork::publish(std::uint32_t first_node, std::uint32_t last_node) {
  TimePs next = kNever;
  const std::uint32_t end = fabric_.first_link(last_node);
  for (std::uint32_t link = fabric_.first_link(first_node); link < end; ++link) {
    Port& port = ports_[link];
    next = std::min(next, port.next_send_ps());
    for (const Priority priority : {Priority::kData, Priority::kControl}) {
      Ring& ring = port.ring(priority);
      ring.publish();
      if (ring.has_arrivals()) {
        next = std::min(next, ring.at(ring.head()).time_ps);
      }
    }
  }
  for (std::uint32_t host = first_node; host < std::min(last_node, fabric_.hosts()); ++host) {
    next = std::min({next, host_states_[host].timer_ps, host_states_[host].nic_ps});
  }
  return next;
}

void SimNetwork::begin_window(TimePs start_ps) {
  window_start_ps_ = std::max(start_ps, window_end_ps_);
  window_end_ps_ = window_start_ps_ + options_.latency_ps;
}

void SimNetwork::step(std::uint32_t first_node, std::uint32_t last_node) {
  ArrivalMerge arrivals;
  for (std::uint32_t node = first_node; node < last_node; ++node) {
    if (node < fabric_.hosts()) {
      step_host(node);
    } else {
      step_switch(node, &arrivals);
    }
  }
}

void SimNetwork::end_window() {
  for (NodeState& state : node_states_) {
    for (const SimPacket& packet : state.dead) {
      host_states_[packet.src].host->on_lost(packet);
    }
    state.dead.clear();
  }
}

void SimNetwork::wake(std::uint32_t host) {
  HostState& state = host_states_[host];
  state.timer_ps = std::max(window_end_ps_, state.host->next_timer_ps());
}

void SimNetwork::record(NodeState* state, std::uint32_t link, const SimPacket& packet) const {
  const std::uint64_t where = packet.time_ps * kGolden64 + link;
  const std::uint64_t what = std::uint64_t{packet.src} << 44 ^ std::uint64_t{packet.dst} << 24 ^
                             std::uint64_t{packet.flow} << 33 ^ std::uint64_t{packet.bytes} << 3 ^
                             std::uint64_t{packet.entropy} << 48 ^
                             std::uint64_t{packet.fragment} << 12 ^
                             std::uint64_t{packet.flags} << 56;
  state->trace += mix64(where ^ what);
  ++state->events;
}

// --- switches -----------------------------------------------------------------------------------

void SimNetwork::step_switch(std::uint32_t node, ArrivalMerge* arrivals) {
  NodeState& state = node_states_[node];
  const std::uint32_t first = fabric_.first_link(node);
  const std::uint32_t ports = fabric_.ports(node);
  arrivals->clear(window_start_ps_, window_end_ps_);
  for (std::uint32_t port = 0; port < ports; ++port) {
    Port& in = ports_[fabric_.reverse(first + port)];
    arrivals->add(port * kPriorities, in.ring(Priority::kData));
    arrivals->add(port * kPriorities + 1, in.ring(Priority::kControl));
  }
  for (const std::uint64_t key : arrivals->sorted()) {
    const std::uint32_t port = ArrivalMerge::source(key) / kPriorities;
    const std::uint32_t in_link = fabric_.reverse(first + port);
    Ring& ring =
        ports_[in_link].ring(static_cast<Priority>(ArrivalMerge::source(key) % kPriorities));
    const SimPacket& packet = ring.at(ring.head());
    const TimePs now = packet.time_ps;
    apply_changes(node, now);
    record(&state, in_link, packet);
    if (!taken_by_link(node, now, port, packet)) {
      forward(node, now, in_link, packet);
    }
    ring.pop();
  }
  apply_changes(node, window_end_ps_ - 1);
  for (std::uint32_t link = first; link < first + ports; ++link) {
    ports_[link].catch_up(window_end_ps_);
  }
  if (options_.lossless) {
    release_held(node);
  }
  state.died += state.dead.size();
}

void SimNetwork::forward(std::uint32_t node, TimePs now_ps, std::uint32_t in_link,
                         SimPacket packet) {
  const std::uint64_t salt = salts_[node - fabric_.hosts()];
  const std::uint64_t hash = mix64(salt ^ (std::uint64_t{packet.flow} << 16 | packet.entropy));
  const std::uint32_t out = fabric_.first_link(node) +
                            fabric_.route(node, packet.dst, static_cast<std::uint32_t>(hash >> 32));
  packet.ingress = in_link;
  if (options_.lossless && packet.priority == Priority::kData) {
    hold(node, now_ps, in_link, packet.bytes);
  }
  ports_[out].arrive(now_ps, packet, &node_states_[node].dead);
}

// Frames of the link itself and packets that died on it go no further.
bool SimNetwork::taken_by_link(std::uint32_t node, TimePs now_ps, std::uint32_t port,
                               const SimPacket& packet) {
  if ((packet.flags & (packet_flags::kPause | packet_flags::kResume)) != 0) {
    ports_[fabric_.first_link(node) + port].pause(now_ps,
                                                  (packet.flags & packet_flags::kPause) != 0);
    ++node_states_[node].delivered;
    return true;
  }
  if ((packet.flags & packet_flags::kLost) != 0) {
    node_states_[node].dead.push_back(packet);
    return true;
  }
  return false;
}

// Before a packet is counted all ports catch up, so that what they sent meanwhile is no longer
// counted; a sender is stopped as soon as it is over the line.
void SimNetwork::hold(std::uint32_t node, TimePs now_ps, std::uint32_t in_link,
                      std::uint32_t bytes) {
  const std::uint32_t first = fabric_.first_link(node);
  for (std::uint32_t link = first; link < first + fabric_.ports(node); ++link) {
    ports_[link].catch_up(now_ps);
  }
  held_[in_link] += bytes;
  if (held_[in_link] > options_.pause_bytes && stopped_[in_link] == 0) {
    send_pause(node, now_ps, in_link, true);
  }
}

void SimNetwork::release_held(std::uint32_t node) {
  const std::uint32_t first = fabric_.first_link(node);
  for (std::uint32_t link = first; link < first + fabric_.ports(node); ++link) {
    const std::uint32_t in_link = fabric_.reverse(link);
    if (stopped_[in_link] != 0 && held_[in_link] <= options_.resume_bytes) {
      send_pause(node, window_end_ps_, in_link, false);
    }
  }
}

void SimNetwork::send_pause(std::uint32_t node, TimePs now_ps, std::uint32_t in_link, bool stop) {
  stopped_[in_link] = stop ? 1 : 0;
  SimPacket frame{
      .bytes = options_.header_bytes, .ingress = kNoLink, .priority = Priority::kControl};
  frame.flags = stop ? packet_flags::kPause : packet_flags::kResume;
  ++node_states_[node].injected;
  ports_[fabric_.reverse(in_link)].arrive(now_ps, frame, &node_states_[node].dead);
}

void SimNetwork::apply_changes(std::uint32_t node, TimePs until_ps) {
  NodeState& state = node_states_[node];
  while (state.next_change < state.changes.size() &&
         state.changes[state.next_change].at_ps <= until_ps)
    [[unlikely]] {
      const LinkChange& change = state.changes[state.next_change++];
      ports_[change.link].set_rate(change.at_ps, ps_per_byte_q16(change.mbit_per_s));
    }
}

// --- hosts --------------------------------------------------------------------------------------

void SimNetwork::step_host(std::uint32_t node) {
  NodeState& state = node_states_[node];
  HostState& host = host_states_[node];
  const std::uint32_t out_link = fabric_.first_link(node);
  const std::uint32_t in_link = fabric_.reverse(out_link);
  Port& out = ports_[out_link];
  Ring* rings[] = {&ports_[in_link].ring(Priority::kData),
                   &ports_[in_link].ring(Priority::kControl)};
  const auto head_ps = [](const Ring& ring) {
    return ring.has_arrivals() ? ring.at(ring.head()).time_ps : kNever;
  };
  TimePs first[] = {head_ps(*rings[0]), head_ps(*rings[1])};
  for (;;) {
    const std::size_t priority = first[1] < first[0] ? 1 : 0;
    const TimePs now = std::min({first[priority], host.timer_ps, host.nic_ps});
    if (now >= window_end_ps_) {
      break;
    }
    apply_changes(node, now);
    if (now == first[priority]) {
      const SimPacket& packet = rings[priority]->at(rings[priority]->head());
      record(&state, in_link, packet);
      if (!taken_by_link(node, now, 0, packet)) {
        ++state.delivered;
        host.host->on_packet(now, packet);
      }
      rings[priority]->pop();
      first[priority] = head_ps(*rings[priority]);
    } else if (now == host.timer_ps) {
      host.host->on_timer(now);
    } else {
      nic_ready(node, now);
      host.timer_ps = std::max(now, host.host->next_timer_ps());
      continue;
    }
    host.timer_ps = std::max(now, host.host->next_timer_ps());
    host.nic_ps = std::max(now, out.free_ps());
  }
  state.died += state.dead.size();
}

void SimNetwork::nic_ready(std::uint32_t node, TimePs now_ps) {
  HostState& host = host_states_[node];
  Port& port = ports_[fabric_.first_link(node)];
  SimPacket packet;
  const Turn turn = port.paused() || host.chunk_bytes_left > 0 ? Turn::kControl : Turn::kFree;
  if (host.host->pull(now_ps, turn, &packet)) {
    packet.src = node;
    packet.ingress = kNoLink;
    const bool cut = options_.forwarding == Forwarding::kMtu &&
                     packet.priority == Priority::kData && packet.bytes > options_.packet_bytes();
    if (cut) {
      host.chunk = packet;
      host.chunk_bytes_left = packet.bytes - options_.header_bytes;
      host.chunk.fragments = static_cast<std::uint16_t>(
          (host.chunk_bytes_left + options_.mtu_bytes - 1) / options_.mtu_bytes);
      next_fragment(&host, &packet);
    }
  } else if (port.paused() || !next_fragment(&host, &packet)) {
    host.nic_ps = kNever;
    return;
  }
  send(node, now_ps, packet);
  host.nic_ps = port.free_ps();
}

bool SimNetwork::next_fragment(HostState* state, SimPacket* packet) const {
  if (state->chunk_bytes_left == 0) {
    return false;
  }
  const std::uint32_t bytes = std::min(state->chunk_bytes_left, options_.mtu_bytes);
  *packet = state->chunk;
  packet->bytes = bytes + options_.header_bytes;
  state->chunk_bytes_left -= bytes;
  ++state->chunk.fragment;
  return true;
}

void SimNetwork::send(std::uint32_t node, TimePs now_ps, SimPacket packet) {
  ++node_states_[node].injected;
  ports_[fabric_.first_link(node)].arrive(now_ps, packet, &node_states_[node].dead);
}

// --- what it came to ----------------------------------------------------------------------------

std::uint64_t SimNetwork::events() const {
  std::uint64_t sum = 0;
  for (const NodeState& state : node_states_) {
    sum += state.events;
  }
  return sum;
}

std::uint64_t SimNetwork::trace_hash() const {
  std::uint64_t sum = 0;
  for (const NodeState& state : node_states_) {
    sum += state.trace;
  }
  return mix64(sum);
}

std::int64_t SimNetwork::unaccounted() const {
  std::uint64_t sum = 0;
  for (const NodeState& state : node_states_) {
    sum += state.injected - state.delivered - state.died;
  }
  for (const Port& port : ports_) {
    sum -= port.in_transit();
  }
  return static_cast<std::int64_t>(sum);
}

}  // namespace tutti::simulate
