// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/swarm.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <sstream>

namespace tutti::transport::simulation {
namespace {

constexpr TimeNs kUs = 1'000;
constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kSecond = 1'000'000'000;

class Draw {
 public:
  explicit Draw(Random& random) : random_(random) {}

  bool chance(std::uint32_t in_1000) { return random_.below(1000) < in_1000; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + random_.next() % (high - low + 1);
  }
  std::uint32_t between32(std::uint32_t low, std::uint32_t high) {
    return low + random_.below(high - low + 1);
  }
  /// Each order of magnitude is as likely as the next.
  std::uint64_t magnitude(std::uint64_t low, std::uint64_t high) {
    std::uint64_t top = low;
    const std::uint32_t doublings = 64 - static_cast<std::uint32_t>(__builtin_clzll(high / low));
    top <<= random_.below(doublings + 1);
    return std::min(high, between(low, std::max(low, top)));
  }
  std::uint32_t permille(std::uint32_t high) {
    return static_cast<std::uint32_t>(magnitude(1, high));
  }
  template <class T, std::size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[random_.below(static_cast<std::uint32_t>(N))];
  }

 private:
  Random& random_;
};

Bytes draw_size(Draw& draw, Bytes chunk_bytes, Bytes left) {
  switch (draw.between32(0, 7)) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return std::min<Bytes>(left, chunk_bytes * draw.between(1, 8));
    case 3:
      return std::min<Bytes>(left, chunk_bytes * draw.between(1, 8) + draw.between(1, 9));
    case 4:
      return std::min<Bytes>(left, draw.magnitude(1, left + 1));
    default:
      return std::min<Bytes>(left, draw.between(1, 3 * chunk_bytes));
  }
}

LinkFaults draw_faults(Draw& draw, const ConnectionOptions& options) {
  LinkFaults it;
  if (draw.chance(400)) {
    it.loss = draw.permille(500);
  }
  if (draw.chance(200)) {
    it.burst_enter = draw.permille(50);
    it.burst_leave = draw.between32(20, 500);
    it.burst_loss = draw.between32(300, 1000);
  }
  if (draw.chance(300)) {
    // Each type, and more often those whose loss is harder to notice.
    it.lossy_type = draw.chance(500) ? static_cast<std::uint8_t>(draw.between32(1, 11))
                                     : draw.one_of(std::array<std::uint8_t, 4>{2, 3, 4, 5});
    (draw.chance(500) ? it.loss_of_type : it.loss_every) = draw.between32(2, 900);
    it.loss_every = std::min(it.loss_every, 20U);
  }
  if (draw.chance(150)) {
    it.loss_of_ends = draw.between32(300, 1000);
  }
  if (draw.chance(150)) {
    it.loss_of_retransmissions = draw.between32(100, 700);
  }
  if (draw.chance(300)) {
    it.duplicate = draw.permille(300);
    it.duplicate_copies = draw.between32(1, 5);
    it.duplicate_ns_max = draw.magnitude(kUs, 300 * kSecond);
  }
  if (draw.chance(250)) {
    it.delay = draw.permille(300);
    it.delay_ns_max = draw.magnitude(10 * kUs, 200 * kMs);
  }
  if (draw.chance(250)) {
    it.reorder = draw.permille(500);
    it.reorder_ns_max = draw.magnitude(kUs, 500 * kUs);
  }
  if (draw.chance(200)) {
    it.corrupt_header = draw.permille(100);
  }
  if (draw.chance(200)) {
    it.corrupt_payload = draw.permille(100);
  }
  if (options.wire.trims && draw.chance(700)) {
    it.trim = draw.permille(300);
    it.silent_trim = draw.chance(300) ? draw.permille(500) : 0;
  }
  if (draw.chance(400)) {
    it.mark = draw.chance(200) ? 1000 : draw.permille(700);
  }
  return it;
}

PathFault draw_path_fault(Draw& draw, const WireCapabilities& wire, TimeNs heal_ns) {
  PathFault it;
  it.direction = static_cast<std::uint8_t>(draw.between32(1, 3));
  it.path_first = draw.between32(0, wire.paths - 1);
  switch (draw.between32(0, 3)) {
    case 0:
      break;  // One path.
    case 1:   // A rail.
      it.path_first = draw.between32(0, wire.rails - 1);
      it.path_step = wire.rails;
      it.path_count = wire.paths;
      break;
    case 2:  // All, one way or both.
      it.path_first = 0;
      it.path_count = wire.paths;
      break;
    default:
      it.path_count = draw.between32(1, wire.paths);
  }
  it.is_pause = draw.chance(300);
  it.from_ns = draw.between(0, heal_ns);
  it.until_ns = it.is_pause
                    ? it.from_ns + draw.magnitude(10 * kUs, 50 * kMs)
                    : (draw.chance(500) ? kNever : it.from_ns + draw.magnitude(kUs, heal_ns));
  if (draw.chance(300)) {
    // About the retransmission timeout, which is 10 base round trips and doubles.
    it.period_ns = 10 * wire.base_rtt_ns << draw.between32(0, 3);
  }
  return it;
}

ConnectionOptions draw_options(Draw& draw) {
  ConnectionOptions it;
  it.wire.chunk_bytes = draw.chance(200) ? draw.between32(1, 9000) : 256U << draw.between32(0, 6);
  it.wire.mtu_bytes = std::max(1U, it.wire.chunk_bytes >> (draw.chance(300) ? 2 : 0));
  it.wire.paths = 1U << draw.between32(0, 6);
  it.wire.rails = std::min(it.wire.paths, 1U << (draw.chance(500) ? 0 : draw.between32(1, 2)));
  it.wire.ps_per_byte = draw.one_of(std::array{20U, 80U, 800U});
  it.wire.base_rtt_ns = draw.one_of(std::array{TimeNs{12'000}, TimeNs{30'000}, TimeNs{200'000}});
  it.wire.reorders_within_path = draw.chance(200);
  it.wire.trims = draw.chance(300);
  it.wire.marks_ecn = draw.chance(700);
  it.authenticates = draw.chance(800);
  it.authenticates_payload = it.authenticates && !it.wire.trims && draw.chance(400);
  it.controller = draw.one_of(
      std::array<const char*, 12>{"nscc", "swift", "cubic", "dctcp", "timely", "fixed", "rccc",
                                  "nscc+rccc", "rccc", "swift+rccc", "eqds", "nscc+rccc"});
  it.spray = draw.one_of(
      std::array<const char*, 5>{"oblivious", "two_choices", "bitmap", "reps", "mixed"});
  it.window_groups = draw.chance(700) ? 1 : 1U << draw.between32(0, 6);
  it.window_groups = std::min(it.window_groups, it.wire.paths);
  it.window_bytes_max = draw.chance(600) ? 0 : it.wire.chunk_bytes * draw.magnitude(1, 64);
  it.single_path_bytes = draw.chance(300) ? draw.between(1, 4 * it.wire.chunk_bytes) : 0;
  it.acknowledgement.echoes = draw.chance(600) ? EchoMode::kDense : EchoMode::kSparse;
  it.acknowledgement.ack_bytes = static_cast<std::uint32_t>(draw.magnitude(1024, 65536));
  it.acknowledgement.ack_delay_ns = draw.magnitude(100, 20 * kUs);
  it.loss.same_path = draw.chance(800);
  it.loss.rack = draw.chance(800);
  it.loss.tail_probe = draw.chance(800);
  it.loss.rto_ns_max = draw.one_of(std::array{2 * kMs, 20 * kMs, 100 * kMs});
  it.loss.give_up_ns = draw.one_of(std::array{5 * kSecond, 10 * kSecond});
  it.credit.speculative_bytes =
      draw.chance(500) ? kBytesMax
                       : (draw.chance(400) ? 0 : it.wire.chunk_bytes * draw.between(1, 8));
  it.credit.grant_bytes = static_cast<std::uint32_t>(draw.magnitude(256, 65536));
  it.sends_max = static_cast<std::uint32_t>(draw.magnitude(1, 64));
  it.receive_parts_max = static_cast<std::uint32_t>(draw.magnitude(8, 64));
  it.chunks_max = draw.chance(500) ? 0 : static_cast<std::uint32_t>(draw.magnitude(1, 1024));
  const std::uint64_t wrap = draw.one_of(
      std::array<std::uint64_t, 5>{1ULL << 8, 1ULL << 16, 1ULL << 31, 1ULL << 32, 3ULL << 32});
  it.first_number = draw.chance(400) ? 1 : wrap - draw.magnitude(1, 200);
  it.seed = draw.between(1, UINT32_MAX);
  return it;
}

void draw_laziness(ConnectionKnobs& connection) {
  Random random(connection.options.seed);
  Draw draw(random);
  if (draw.chance(400)) {
    connection.options.acknowledgement.lazy_ns = draw.magnitude(100, 200 * kUs);
    connection.piggybacks = draw.chance(700);
    connection.is_patient = draw.chance(700);
  }
}

// The newest receives are withdrawn, where there is room for few: what they waited for often comes
// before the peer has heard of it. From numbers of its own, as well.
void draw_withdrawals(ConnectionKnobs& connection) {
  Random random(connection.options.seed + 2);
  Draw draw(random);
  if (!draw.chance(100)) {
    return;
  }
  connection.options.receive_parts_max = kReceivePartsMax;
  for (PlanKnobs& plan : connection.plans) {
    for (std::size_t i = 0; i < plan.receives.size() / 2; ++i) {
      plan.cancels.push_back({false, CancelKnobs::kNewest, draw.magnitude(1, 20 * kMs)});
    }
    std::sort(plan.cancels.begin(), plan.cancels.end(),
              [](const CancelKnobs& a, const CancelKnobs& b) { return a.at_ns < b.at_ns; });
  }
}

// Packets that come in part, where no switch trims. From numbers of its own, as well.
void draw_tears(ConnectionKnobs& connection) {
  Random random(connection.options.seed + 3);
  Draw draw(random);
  for (LinkFaults& faults : connection.faults) {
    if (!connection.options.wire.trims && draw.chance(200)) {
      faults.partial = draw.permille(300);
      faults.partial_late = draw.chance(400) ? draw.permille(1000) : 0;
    }
  }
}

// From numbers of its own, as well.
void draw_stamps(std::uint64_t seed, std::vector<HostKnobs>& hosts) {
  Random random(seed);
  Draw draw(random);
  for (HostKnobs& host : hosts) {
    host.has_stamps = draw.chance(600);
  }
}

HostKnobs draw_host(Draw& draw, TimeNs heal_ns) {
  HostKnobs it;
  it.clock_offset_ns = draw.chance(500)
                           ? draw.magnitude(1, 1ULL << 50)
                           : (1ULL << 32) * draw.between(1, 5) - draw.magnitude(kUs, kSecond);
  if (draw.chance(400)) {
    it.clock_drift_ppm = static_cast<std::int32_t>(draw.between32(0, 400)) - 200;
  }
  if (draw.chance(150)) {
    it.clock_step_at_ns = draw.between(0, heal_ns);
    it.clock_step_ns = draw.magnitude(kUs, 20 * kMs);
  }
  if (draw.chance(300)) {
    it.timer_grain_ns = draw.magnitude(kUs, kMs);
  }
  if (draw.chance(250)) {
    it.batch_ns = draw.magnitude(kUs, 200 * kUs);
  }
  if (draw.chance(200)) {
    it.stall_every_ns = draw.magnitude(20 * kMs, 500 * kMs);
    it.stall_ns_max = draw.magnitude(kMs, 50 * kMs);
  }
  if (draw.chance(300)) {
    it.egress_room_ns = draw.magnitude(1, 20 * kUs);
  }
  return it;
}

}  // namespace

void draw_plans(Random& random, ConnectionKnobs& connection, Bytes bytes_max) {
  Draw draw(random);
  const ConnectionOptions& options = connection.options;
  const bool has_cancels = draw.chance(300);
  const bool has_truncation = draw.chance(200);
  for (std::uint32_t from = 0; from < 2; ++from) {
    connection.plans[from] = {};
  }
  for (std::uint32_t from = 0; from < 2; ++from) {
    const bool sends = from == 0 ? options.sends : options.receives;
    if (!sends) {
      continue;
    }
    PlanKnobs& plan = connection.plans[from];
    PlanKnobs& other = connection.plans[1 - from];
    // Few chunks where chunks are small: a run takes some ten thousand packets at most.
    Bytes left = std::min<Bytes>(draw.magnitude(1, bytes_max), options.wire.chunk_bytes * 700ULL);
    const std::uint32_t count = static_cast<std::uint32_t>(draw.magnitude(1, 120));
    const std::uint32_t tags = draw.between32(1, 4);
    const TimeNs wait_ns = draw.chance(500) ? 0 : draw.magnitude(1, 2 * kMs);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Bytes bytes = draw_size(draw, options.wire.chunk_bytes, left);
      left -= std::min(left, bytes);
      plan.sends.push_back({draw.between32(1, tags), bytes, draw.between(0, wait_ns)});
    }
    // Receives in the order of the sends, but for some that change places with the next one, if
    // that is posted together with it in any case.
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0U);
    const auto swap_some = [&](std::uint32_t first, std::uint32_t end) {
      for (std::uint32_t i = first; i + 1 < end; ++i) {
        if (draw.chance(100) && plan.sends[order[i]].tag != plan.sends[order[i + 1]].tag) {
          std::swap(order[i], order[i + 1]);
          ++i;
        }
      }
    };
    const std::uint32_t parts_max = draw.chance(500) ? 1 : kReceivePartsMax;
    if (parts_max == 1) {
      swap_some(0, count);
    }
    const TimeNs receive_wait_ns = draw.chance(500) ? 0 : draw.magnitude(1, 2 * kMs);
    for (std::uint32_t i = 0; i < count;) {
      ReceiveKnobs receive;
      const std::uint32_t parts = std::min(count - i, draw.between32(1, parts_max));
      swap_some(i, i + parts);
      for (std::uint32_t part = 0; part < parts; ++part) {
        const Bytes bytes = plan.sends[order[i + part]].bytes;
        const bool is_short = has_truncation && bytes > 0 && draw.chance(100);
        receive.parts.push_back(order[i + part]);
        receive.capacities.push_back(is_short
                                         ? draw.between(0, bytes - 1)
                                         : bytes + (draw.chance(300) ? draw.between(1, 100) : 0));
      }
      receive.wait_ns = draw.between(0, receive_wait_ns);
      i += parts;
      other.receives.push_back(receive);
    }
    if (has_cancels) {
      const std::uint32_t cancels = draw.between32(1, 1 + count / 4);
      for (std::uint32_t i = 0; i < cancels; ++i) {
        const bool is_send = draw.chance(500);
        const auto total =
            static_cast<std::uint32_t>(is_send ? plan.sends.size() : other.receives.size());
        (is_send ? plan : other)
            .cancels.push_back(
                {is_send, draw.between32(0, total - 1), draw.magnitude(1, 20 * kMs)});
      }
    }
  }
  for (PlanKnobs& plan : connection.plans) {
    std::sort(plan.cancels.begin(), plan.cancels.end(),
              [](const CancelKnobs& a, const CancelKnobs& b) { return a.at_ns < b.at_ns; });
  }
}

Knobs draw(std::uint64_t seed) {
  // Neighbouring seeds must not be neighbouring states of the generator.
  Random random(Random(seed ^ 0xd6e8feb86659fd93ULL).next());
  Draw draw(random);
  Knobs it;
  it.seed = seed;
  it.is_clean = draw.chance(40);
  it.heal_ns = draw.magnitude(kMs, 200 * kMs);
  const std::uint32_t hosts = draw.chance(600) ? 2 : draw.between32(3, 4);
  for (std::uint32_t i = 0; i < hosts; ++i) {
    it.hosts.push_back(it.is_clean ? HostKnobs{} : draw_host(draw, it.heal_ns));
  }
  draw_stamps(seed, it.hosts);
  bool authenticates = true;
  const std::uint32_t connections = draw.chance(500) ? 1 : draw.between32(2, 4);
  for (std::uint32_t i = 0; i < connections; ++i) {
    ConnectionKnobs connection;
    connection.hosts[0] = draw.between32(0, hosts - 1);
    connection.hosts[1] = (connection.hosts[0] + draw.between32(1, hosts - 1)) % hosts;
    connection.options = draw_options(draw);
    draw_laziness(connection);
    ConnectionOptions& options = connection.options;
    const std::uint32_t ways = draw.between32(0, 3);
    options.sends = ways != 1;
    options.receives = ways != 0;
    authenticates = authenticates && options.authenticates;
    const Bytes bytes_max = draw.chance(30) ? 4'000'000 : 400'000;
    if (it.is_clean) {
      // What is asked of the speed does not hold for windows of a few bytes.
      options.window_bytes_max = 0;
      options.chunks_max = 0;
      options.window_groups = 1;
    }
    draw_plans(random, connection, bytes_max);
    if (!it.is_clean) {
      draw_withdrawals(connection);
    }
    connection.path_spread_ns = static_cast<std::uint32_t>(
        draw.chance(500) ? 0 : draw.magnitude(1, options.wire.base_rtt_ns));
    // What is demanded: a quarter of the paths, mostly the same both ways. Where they are not, no
    // probe finds them, and acknowledgements go over all paths in turn: then half of them.
    const bool is_symmetric = draw.chance(800);
    const std::uint32_t core_paths_min = (options.wire.paths + 1) / (is_symmetric ? 4 : 2);
    connection.core_paths = draw.chance(300)
                                ? options.wire.paths
                                : draw.between32(std::max(core_paths_min, 1U), options.wire.paths);
    connection.core_path[0] = draw.between32(0, options.wire.paths - 1);
    connection.core_path[1] =
        is_symmetric ? connection.core_path[0] : draw.between32(0, options.wire.paths - 1);
    connection.closer = draw.between32(0, 1);
    connection.successors = options.authenticates && draw.chance(200) ? draw.between32(1, 2) : 0;
    connection.is_clean = it.is_clean;
    if (!it.is_clean) {
      for (LinkFaults& faults : connection.faults) {
        if (draw.chance(800)) {
          faults = draw_faults(draw, options);
        }
      }
      if (options.wire.paths > 1 && options.wire.paths <= 16 && draw.chance(200)) {
        // The least that has to do: all paths but the core die for good, and some window groups
        // with them.
        const std::uint32_t paths = options.wire.paths;
        PathFault dead;
        dead.direction = 3;
        dead.path_count = paths;
        dead.from_ns = draw.between(0, it.heal_ns);
        connection.path_faults.push_back(dead);
        connection.core_paths = std::max(paths / (is_symmetric ? 4 : 2), 1U);
        connection.core_path[0] = draw.between32(0, paths - 1);
        connection.core_path[1] =
            (connection.core_path[0] + (is_symmetric ? 0 : connection.core_paths)) % paths;
        options.window_groups = 1U << draw.between32(0, 3);
        options.window_groups = std::min(options.window_groups, paths);
      }
      const std::uint32_t path_faults = draw.chance(500) ? 0 : draw.between32(1, 3);
      for (std::uint32_t f = 0; f < path_faults; ++f) {
        connection.path_faults.push_back(draw_path_fault(draw, options.wire, it.heal_ns));
      }
      connection.remap_ns = draw.chance(150) ? draw.between(0, it.heal_ns) : kNever;
      if (draw.chance(60)) {
        const TimeNs at = draw.between(0, it.heal_ns);
        const std::uint32_t which = draw.between32(1, 3);
        connection.faults[0].blackout_ns = (which & 1) != 0 ? at : kNever;
        connection.faults[1].blackout_ns = (which & 2) != 0 ? at : kNever;
      }
      if (draw.chance(60)) {
        (draw.chance(500) ? connection.abort_ns : connection.close_ns) =
            draw.between(0, it.heal_ns);
      }
    }
    if (!it.is_clean) {
      draw_tears(connection);
    }
    it.connections.push_back(connection);
  }
  // Without a tag nothing tells a packet of an incarnation before: restarts need it.
  if (!it.is_clean && authenticates && draw.chance(150)) {
    HostKnobs& host = it.hosts[random.below(hosts)];
    host.crash_ns = draw.between(0, it.heal_ns);
    host.restart_after_ns = draw.magnitude(kUs, 100 * kMs);
  }
  return it;
}

namespace {

void put(std::ostream& out, const char* name, std::uint64_t value, std::uint64_t usual = 0) {
  if (value != usual) {
    out << ' ' << name << '=' << value;
  }
}

void put_faults(std::ostream& out, const LinkFaults& it) {
  put(out, "loss", it.loss);
  put(out, "burst_enter", it.burst_enter);
  put(out, "burst_leave", it.burst_leave, 1000);
  put(out, "burst_loss", it.burst_loss);
  put(out, "lossy_type", it.lossy_type);
  put(out, "loss_of_type", it.loss_of_type);
  put(out, "loss_every", it.loss_every);
  put(out, "loss_of_ends", it.loss_of_ends);
  put(out, "loss_of_retransmissions", it.loss_of_retransmissions);
  put(out, "duplicate", it.duplicate);
  put(out, "duplicate_copies", it.duplicate_copies, 1);
  put(out, "duplicate_ns_max", it.duplicate_ns_max, 1);
  put(out, "delay", it.delay);
  put(out, "delay_ns_max", it.delay_ns_max, 1);
  put(out, "reorder", it.reorder);
  put(out, "reorder_ns_max", it.reorder_ns_max, 1);
  put(out, "corrupt_header", it.corrupt_header);
  put(out, "corrupt_payload", it.corrupt_payload);
  put(out, "trim", it.trim);
  put(out, "silent_trim", it.silent_trim);
  put(out, "partial", it.partial);
  put(out, "partial_late", it.partial_late);
  put(out, "mark", it.mark);
  put(out, "blackout_ns", it.blackout_ns, kNever);
}

}  // namespace

std::string describe(const Knobs& knobs) {
  std::ostringstream out;
  out << "seed=" << knobs.seed << " heal_ns=" << knobs.heal_ns << (knobs.is_clean ? " clean" : "")
      << '\n';
  for (std::size_t i = 0; i < knobs.hosts.size(); ++i) {
    const HostKnobs& it = knobs.hosts[i];
    out << "host " << i << ':';
    put(out, "clock_offset_ns", it.clock_offset_ns);
    if (it.clock_drift_ppm != 0) {
      out << " clock_drift_ppm=" << it.clock_drift_ppm;
    }
    put(out, "clock_step_at_ns", it.clock_step_at_ns, kNever);
    put(out, "clock_step_ns", it.clock_step_ns);
    put(out, "timer_grain_ns", it.timer_grain_ns, 1);
    put(out, "batch_ns", it.batch_ns, 1);
    put(out, "stall_every_ns", it.stall_every_ns);
    put(out, "stall_ns_max", it.stall_ns_max, 1);
    put(out, "has_stamps", it.has_stamps ? 1 : 0);
    put(out, "egress_room_ns", it.egress_room_ns, 1'000'000);
    put(out, "crash_ns", it.crash_ns, kNever);
    put(out, "restart_after_ns", it.restart_after_ns, 1);
    out << '\n';
  }
  for (std::size_t i = 0; i < knobs.connections.size(); ++i) {
    const ConnectionKnobs& it = knobs.connections[i];
    const ConnectionOptions& o = it.options;
    out << "connection " << i << ": hosts=" << it.hosts[0] << '-' << it.hosts[1]
        << " controller=" << o.controller << " spray=" << o.spray;
    put(out, "chunk_bytes", o.wire.chunk_bytes);
    put(out, "mtu_bytes", o.wire.mtu_bytes, o.wire.chunk_bytes);
    put(out, "paths", o.wire.paths);
    put(out, "rails", o.wire.rails, 1);
    put(out, "ps_per_byte", o.wire.ps_per_byte);
    put(out, "base_rtt_ns", o.wire.base_rtt_ns);
    put(out, "reorders_within_path", o.wire.reorders_within_path ? 1 : 0);
    put(out, "trims", o.wire.trims ? 1 : 0);
    put(out, "marks_ecn", o.wire.marks_ecn ? 1 : 0, 1);
    put(out, "authenticates", o.authenticates ? 1 : 0, 1);
    put(out, "authenticates_payload", o.authenticates_payload ? 1 : 0);
    put(out, "window_groups", o.window_groups, 1);
    put(out, "window_bytes_max", o.window_bytes_max);
    put(out, "single_path_bytes", o.single_path_bytes);
    put(out, "sparse", o.acknowledgement.echoes == EchoMode::kSparse ? 1 : 0);
    put(out, "ack_bytes", o.acknowledgement.ack_bytes);
    put(out, "ack_delay_ns", o.acknowledgement.ack_delay_ns);
    put(out, "lazy_ns", o.acknowledgement.lazy_ns);
    put(out, "piggybacks", it.piggybacks ? 1 : 0);
    put(out, "is_patient", it.is_patient ? 1 : 0);
    put(out, "same_path", o.loss.same_path ? 1 : 0, 1);
    put(out, "rack", o.loss.rack ? 1 : 0, 1);
    put(out, "tail_probe", o.loss.tail_probe ? 1 : 0, 1);
    put(out, "rto_ns_max", o.loss.rto_ns_max);
    put(out, "give_up_ns", o.loss.give_up_ns);
    put(out, "speculative_bytes", o.credit.speculative_bytes, kBytesMax);
    put(out, "grant_bytes", o.credit.grant_bytes);
    put(out, "sends_max", o.sends_max);
    put(out, "receive_parts_max", o.receive_parts_max);
    put(out, "chunks_max", o.chunks_max);
    put(out, "first_number", o.first_number, 1);
    put(out, "sends", o.sends ? 1 : 0, 1);
    put(out, "receives", o.receives ? 1 : 0, 1);
    put(out, "path_spread_ns", it.path_spread_ns);
    put(out, "remap_ns", it.remap_ns, kNever);
    put(out, "core_paths", it.core_paths);
    put(out, "core_path_0", it.core_path[0]);
    put(out, "core_path_1", it.core_path[1]);
    put(out, "closer", it.closer);
    put(out, "abort_ns", it.abort_ns, kNever);
    put(out, "close_ns", it.close_ns, kNever);
    put(out, "successors", it.successors);
    out << '\n';
    for (std::uint32_t end = 0; end < 2; ++end) {
      const PlanKnobs& plan = it.plans[end];
      Bytes bytes = 0;
      for (const MessageKnobs& message : plan.sends) {
        bytes += message.bytes;
      }
      out << "  end " << end << ": sends=" << plan.sends.size() << " bytes=" << bytes
          << " receives=" << plan.receives.size() << " cancels=" << plan.cancels.size();
      put_faults(out, it.faults[end]);
      out << '\n';
    }
    for (const PathFault& fault : it.path_faults) {
      out << "  paths:" << (fault.is_pause ? " pause" : " dead");
      put(out, "direction", fault.direction);
      put(out, "first", fault.path_first, UINT64_MAX);
      put(out, "step", fault.path_step, 1);
      put(out, "count", fault.path_count);
      put(out, "from_ns", fault.from_ns);
      put(out, "until_ns", fault.until_ns, kNever);
      put(out, "period_ns", fault.period_ns);
      out << '\n';
    }
  }
  return out.str();
}

}  // namespace tutti::transport::simulation
