// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/network.hpp"

#include <algorithm>

namespace tutti::transport::simulation {

Network::Network(const ConnectionKnobs& knobs, std::uint64_t seed)
    : knobs_(knobs),
      random_(seed),
      dead_from_{knobs.faults[0].blackout_ns, knobs.faults[1].blackout_ns} {
  for (auto& ways : ways_) {
    ways.resize(knobs.options.wire.paths);
  }
}

bool Network::is_core(std::uint32_t from, PathId path) const {
  const std::uint32_t paths = knobs_.options.wire.paths;
  return (path + paths - knobs_.core_path[from]) % paths < knobs_.core_paths;
}

TimeNs Network::opens_ns(std::uint32_t from, PathId path, TimeNs at_ns) const {
  TimeNs opens = at_ns;
  for (const PathFault& fault : knobs_.path_faults) {
    const bool is_hit = (fault.direction >> from & 1) != 0 && path >= fault.path_first &&
                        (path - fault.path_first) % fault.path_step == 0 &&
                        (path - fault.path_first) / fault.path_step < fault.path_count;
    if (!is_hit || at_ns < fault.from_ns || at_ns >= fault.until_ns ||
        (fault.period_ns != 0 &&
         (at_ns - fault.from_ns) % fault.period_ns >= fault.period_ns / 2)) {
      continue;
    }
    if (!fault.is_pause) {
      return kNever;
    }
    opens = std::max(opens, fault.until_ns);
  }
  return opens;
}

TimeNs Network::length_ns(std::uint32_t from, PathId path, TimeNs at_ns) const {
  const std::uint32_t route = at_ns >= knobs_.remap_ns ? path ^ 1U : path;
  std::uint64_t mixed = (route + 1) * 0x9e3779b97f4a7c15ULL + from;
  mixed ^= mixed >> 29;
  return knobs_.options.wire.base_rtt_ns / 2 + mixed % (knobs_.path_spread_ns + 1ULL);
}

bool Network::is_lost(const LinkFaults& faults, const Flying& packet, Way& way) {
  const auto type = std::to_integer<std::uint8_t>(packet.out.header[0]) & 15;
  const auto flags = std::to_integer<std::uint8_t>(packet.out.header[1]);
  const bool is_data = type == static_cast<int>(PacketType::kData);
  const bool is_again = is_data && (flags & kFlagRetransmission) != 0;
  // A chunk of several packets of the network is lost with any of them.
  const std::uint32_t mtu = knobs_.options.wire.mtu_bytes;
  const std::uint32_t pieces = std::clamp((packet.out.payload_bytes + mtu - 1) / mtu, 1U, 8U);
  bool is_lost = false;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    way.is_bad = way.is_bad ? !chance(faults.burst_leave) : chance(faults.burst_enter);
    is_lost = is_lost || chance(faults.loss) || (way.is_bad && chance(faults.burst_loss));
  }
  if (type == faults.lossy_type) {
    std::uint32_t& count = of_lossy_type_[packet.from];
    is_lost = is_lost || chance(faults.loss_of_type) ||
              (faults.loss_every != 0 && ++count % faults.loss_every == 0);
  }
  if (is_data && !is_again && (flags & kFlagEnd) != 0) {
    is_lost = is_lost || chance(faults.loss_of_ends);
  }
  return is_lost || (is_again && chance(faults.loss_of_retransmissions));
}

const std::vector<TimeNs>& Network::carry(TimeNs depart_ns, Flying& packet) {
  arrivals_.clear();
  const std::uint32_t from = packet.from;
  const PathId path = packet.out.path;
  if (depart_ns >= dead_from_[from]) {
    return arrivals_;
  }
  const bool is_sound = is_healed_ && is_core(from, path);
  static constexpr LinkFaults kNoFaults;
  const LinkFaults& faults = is_sound ? kNoFaults : knobs_.faults[from];
  Way& way = ways_[from][path];
  const TimeNs leaves = is_sound ? depart_ns : opens_ns(from, path, depart_ns);
  if (leaves == kNever || is_lost(faults, packet, way)) {
    return arrivals_;
  }
  packet.ecn = packet.out.ecn_capable && chance(faults.mark);
  if (packet.out.payload_bytes > 0 && !packet.out.is_control && chance(faults.trim)) {
    if (chance(faults.silent_trim)) {
      return arrivals_;
    }
    packet.trimmed = true;
    packet.payload.clear();
  }
  if (packet.out.payload_bytes > 0 && !packet.out.is_control && chance(faults.partial)) {
    packet.trimmed = true;
    packet.comes_whole = chance(faults.partial_late);
  }
  // A changed packet that the tag does not cover is dropped by the checksum of the wire.
  if (chance(faults.corrupt_header)) {
    if (!knobs_.options.authenticates) {
      return arrivals_;
    }
    const std::uint32_t bit = random_.below(packet.out.header_bytes * 8U);
    packet.out.header[bit / 8] ^= std::byte{1} << (bit % 8);
    packet.is_changed = true;
  }
  if (!packet.payload.empty() && chance(faults.corrupt_payload)) {
    if (!knobs_.options.authenticates_payload) {
      return arrivals_;
    }
    const std::uint32_t at = random_.below(static_cast<std::uint32_t>(packet.payload.size()));
    packet.payload[at] ^= std::byte{static_cast<std::uint8_t>(1 + random_.below(255))};
    packet.is_changed = true;
  }
  TimeNs arrival = leaves + length_ns(from, path, depart_ns);
  if (chance(faults.delay)) {
    arrival += random_.next() % faults.delay_ns_max;
  }
  if (chance(faults.reorder)) {
    arrival += random_.next() % faults.reorder_ns_max;
  } else {
    arrival = std::max(arrival, way.last_arrival_ns);
    way.last_arrival_ns = arrival;
  }
  arrivals_.push_back(arrival);
  if (packet.comes_whole) {
    arrivals_.push_back(arrival + 1 + random_.next() % knobs_.options.wire.base_rtt_ns);
  }
  if (chance(faults.duplicate)) {
    for (std::uint32_t copy = 0; copy < faults.duplicate_copies; ++copy) {
      arrivals_.push_back(arrival + 1 + random_.next() % faults.duplicate_ns_max);
    }
  }
  return arrivals_;
}

}  // namespace tutti::transport::simulation
