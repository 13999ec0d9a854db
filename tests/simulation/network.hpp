// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The faulty network of one connection: what becomes of each packet. Each path of a direction is a
// queue of its own that keeps its order unless a fault breaks it. Decides, does not carry: the
// world holds the packets. Virtual time in ns.
#pragma once

#include <array>
#include <vector>

#include "simulation/records.hpp"

namespace tutti::transport::simulation {

class Network {
 public:
  Network(const ConnectionKnobs& knobs, std::uint64_t seed);

  /// When the copies of a packet arrive that leaves at `depart_ns`; none: it is lost. Changes the
  /// packet: marks, trims, flips bits.
  const std::vector<TimeNs>& carry(TimeNs depart_ns, Flying& packet);

  /// The liveness phase: the core paths work from now on, the rest stays as it is.
  void heal() { is_healed_ = true; }
  /// This direction never carries anything again.
  void kill(int from, TimeNs at_ns) { dead_from_[static_cast<std::size_t>(from)] = at_ns; }

 private:
  struct Way {
    TimeNs last_arrival_ns = 0;
    bool is_bad = false;  ///< Gilbert-Elliott state.
  };

  bool chance(std::uint32_t in_1000) { return in_1000 != 0 && random_.below(1000) < in_1000; }
  bool is_core(std::uint32_t from, PathId path) const;
  bool is_lost(const LinkFaults& faults, const Flying& packet, Way& way);
  /// kNever: the path is dead now; else when it lets packets pass.
  TimeNs opens_ns(std::uint32_t from, PathId path, TimeNs at_ns) const;
  TimeNs length_ns(std::uint32_t from, PathId path, TimeNs at_ns) const;

  const ConnectionKnobs& knobs_;
  Random random_;
  bool is_healed_ = false;
  std::array<TimeNs, 2> dead_from_;
  std::array<std::vector<Way>, 2> ways_;
  std::array<std::uint32_t, 2> of_lossy_type_{};
  std::vector<TimeNs> arrivals_;
};

}  // namespace tutti::transport::simulation
