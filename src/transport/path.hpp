// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a connection knows of each of its paths: round trip, penalty, whether it is alive. A path
// on which nothing arrives is suspect, then dead; a dead path carries probes only. One that is
// slower than the others time after time is left alone for ever longer. When most paths of a rail
// die together, the rail is down. At least one path always stays in use: giving up altogether is
// the connection's decision. Not the choice among paths: spray.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/types.hpp"

namespace tutti::transport {

/// One line of the cache: of many connections with many paths each chunk finds its path cold.
struct alignas(64) Path {
  TimeNs rtt_ns = 0;           ///< Of the fabric alone, smoothed with 1/8; 0: no sample.
  TimeNs sample_ns = 0;        ///< When the last sample came.
  TimeNs probe_ns = kNever;    ///< Dead: when it is probed next.
  TimeNs timeout_ns = kNever;  ///< When the last of timeouts_in_a_row was.
  TimeNs slow_ns = 0;          ///< When the last of slow_in_a_row was.
  std::uint64_t chunks_sent = 0;
  std::uint32_t probe_interval_ns = 0;
  std::uint32_t losses = 0;
  std::uint32_t marks = 0;
  std::uint8_t penalty : 4 = 0;        ///< 0 to 15: how often a walk skips it.
  std::uint8_t slow_in_a_row : 4 = 0;  ///< Echoes of kSlowTimes, and losses; at most kSlowMax.
  std::uint8_t losses_in_a_row = 0;    ///< Since the last echo.
  std::uint8_t timeouts_in_a_row = 0;  ///< Same; of several chunks at one moment as one.
  PathState state = PathState::kGood;
};
static_assert(sizeof(Path) == 64);

class PathTable {
 public:
  static constexpr std::uint32_t kProbeIntervalNsMin = 10'000'000;
  static constexpr std::uint32_t kProbeIntervalNsMax = 1'000'000'000;
  static constexpr TimeNs kRailWindowNs = 1'000'000;  ///< Deaths this close tell of a rail.
  static constexpr std::uint8_t kPenaltyMax = 15;
  static constexpr std::uint8_t kPenaltyEcn = 1;
  static constexpr std::uint8_t kPenaltyNack = 4;
  static constexpr std::uint8_t kPenaltyTimeout = 15;
  static constexpr std::uint8_t kTimeoutsToDie = 2;
  static constexpr std::uint8_t kTimeoutsOfLastToDie = 6;
  /// Losses that no echo interrupts. At 10 % random loss, one in a million chunks sees six.
  static constexpr std::uint8_t kLossesToDie = 6;
  static constexpr std::uint8_t kLossesToSuspect = 2;
  static constexpr TimeNs kSlowTimes = 2;  ///< The usual round trip.
  /// One slow echo is a collision; several in a row are a link that is degraded or crowded.
  static constexpr std::uint8_t kSlowToAvoid = 2;
  static constexpr std::uint8_t kSlowMax = 7;

  PathTable(std::uint32_t paths, std::uint32_t rails);

  Path& operator[](PathId path) { return paths_[path]; }
  const Path& operator[](PathId path) const { return paths_[path]; }
  std::uint32_t count() const { return count_; }
  std::uint32_t alive() const { return alive_; }
  std::uint8_t rail_of(PathId path) const { return static_cast<std::uint8_t>(path % rails_); }
  bool is_usable(PathId path) const { return paths_[path].state != PathState::kDead; }
  /// Better none that was slow the last times, for 16 to 512 round trips; then it is tried again.
  bool is_slow(TimeNs now, PathId path, TimeNs srtt_ns) const {
    const Path& it = paths_[path];
    return it.slow_in_a_row >= kSlowToAvoid &&
           now - it.slow_ns <= (TimeNs{4} << it.slow_in_a_row) * srtt_ns;
  }

  enum class Change : std::uint8_t { kNone, kSuspect, kDead, kRailDown, kRevived, kRailUp };

  /// An echo came over the path: it is alive. `rtt_ns`, of the fabric, 0: unknown. `usual_ns`: that
  /// of all paths; 0: of what went there it does not tell.
  Change on_echo(TimeNs now, PathId path, TimeNs rtt_ns, bool ecn, TimeNs usual_ns = 0);
  Change on_loss(TimeNs now, PathId path, bool is_timeout);
  void on_nack(PathId path) { punish(paths_[path], kPenaltyNack); }

  /// When the next dead path is to be probed; kNever.
  TimeNs next_probe_ns() const { return next_probe_ns_; }
  /// A dead path whose probe is due; kNoPath. Its next probe comes after twice the time.
  PathId take_probe(TimeNs now);

 private:
  static void punish(Path& path, std::uint8_t penalty);
  static void note_slow(TimeNs now, Path& path);
  Change die(TimeNs now, PathId path);
  void bury(TimeNs now, PathId path);
  void revive(PathId path);
  /// The last one seems to have died too: nothing is known any more, and each is tried again. A
  /// path may work one way only, and then no probe of it is answered.
  void revive_all();
  void find_next_probe();

  struct Rail {
    TimeNs window_start_ns = 0;
    std::uint32_t deaths = 0;  ///< In the window.
    std::uint32_t paths = 0;
    bool is_down = false;
  };

  std::vector<Path> paths_;
  std::array<Rail, kRailsMax> rails_state_{};
  std::uint32_t rails_;
  std::uint32_t count_;
  std::uint32_t alive_;
  TimeNs next_probe_ns_ = kNever;
};

}  // namespace tutti::transport
