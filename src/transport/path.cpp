// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/path.hpp"

#include <algorithm>

namespace tutti::transport {

PathTable::PathTable(std::uint32_t paths, std::uint32_t rails)
    : paths_(paths), rails_(rails), count_(paths), alive_(paths) {
  for (std::uint32_t path = 0; path < paths; ++path) {
    ++rails_state_[path % rails].paths;
  }
}

void PathTable::punish(Path& path, std::uint8_t penalty) {
  path.penalty = static_cast<std::uint8_t>(std::min<int>(path.penalty + penalty, kPenaltyMax));
}

void PathTable::note_slow(TimeNs now, Path& path) {
  path.slow_in_a_row = std::min<std::uint8_t>(path.slow_in_a_row + 1, kSlowMax);
  path.slow_ns = now;
}

PathTable::Change PathTable::on_echo(TimeNs now, PathId path, TimeNs rtt_ns, bool ecn,
                                     TimeNs usual_ns) {
  Path& it = paths_[path];
  if (rtt_ns != 0) {
    it.rtt_ns = it.rtt_ns == 0 ? rtt_ns : it.rtt_ns - it.rtt_ns / 8 + rtt_ns / 8;
    it.sample_ns = now;
    if (usual_ns != 0 && rtt_ns > kSlowTimes * usual_ns) {
      note_slow(now, it);
    } else if (usual_ns != 0) {
      it.slow_in_a_row = 0;
    }
  }
  if (ecn) {
    ++it.marks;
    punish(it, kPenaltyEcn);
  }
  it.losses_in_a_row = 0;
  it.timeouts_in_a_row = 0;
  if (it.state == PathState::kGood) {
    return Change::kNone;
  }
  if (it.state == PathState::kSuspect) {
    it.state = PathState::kGood;
    return Change::kNone;
  }
  Rail& rail = rails_state_[rail_of(path)];
  const bool was_down = rail.is_down;
  rail.is_down = false;
  rail.deaths = 0;
  revive(path);
  if (was_down) {
    // The others are asked at once, not trusted: were they still dead, they would take chunks with
    // them and, as a majority, the living one too.
    for (std::uint32_t other = rail_of(path); other < paths_.size(); other += rails_) {
      if (paths_[other].state == PathState::kDead) {
        paths_[other].probe_ns = now;
        paths_[other].probe_interval_ns = kProbeIntervalNsMin;
      }
    }
  }
  find_next_probe();
  return was_down ? Change::kRailUp : Change::kRevived;
}

PathTable::Change PathTable::on_loss(TimeNs now, PathId path, bool is_timeout) {
  Path& it = paths_[path];
  ++it.losses;
  // A chunk that is given up leaves the path's bytes in the air, and a slow path would look free.
  note_slow(now, it);
  if (is_timeout) {
    punish(it, kPenaltyTimeout);
    // All chunks of one timeout may wait for the same lost acknowledgement.
    if (it.timeout_ns != now) {
      it.timeout_ns = now;
      it.timeouts_in_a_row = static_cast<std::uint8_t>(std::min(it.timeouts_in_a_row + 1, 255));
    }
  } else {
    punish(it, kPenaltyNack);
    it.losses_in_a_row = static_cast<std::uint8_t>(std::min(it.losses_in_a_row + 1, 255));
  }
  if (it.state == PathState::kDead) {
    return Change::kNone;
  }
  // The last one is given up late: what it was tried for may have arrived, and the answers be lost.
  const std::uint8_t timeouts_to_die = alive_ > 1 ? kTimeoutsToDie : kTimeoutsOfLastToDie;
  if (it.timeouts_in_a_row >= timeouts_to_die || it.losses_in_a_row >= kLossesToDie) {
    return die(now, path);
  }
  if (it.state == PathState::kGood &&
      it.losses_in_a_row + it.timeouts_in_a_row >= kLossesToSuspect) {
    it.state = PathState::kSuspect;
    return Change::kSuspect;
  }
  return Change::kNone;
}

PathTable::Change PathTable::die(TimeNs now, PathId path) {
  paths_[path].state = PathState::kSuspect;
  if (alive_ == 1) {
    revive_all();
    return Change::kNone;
  }
  bury(now, path);
  Rail& rail = rails_state_[rail_of(path)];
  if (now - rail.window_start_ns > kRailWindowNs) {
    rail.window_start_ns = now;
    rail.deaths = 0;
  }
  ++rail.deaths;
  Change change = Change::kDead;
  if (rails_ > 1 && !rail.is_down && rail.deaths * 2 > rail.paths && alive_ > 1) {
    rail.is_down = true;
    for (std::uint32_t other = rail_of(path); other < paths_.size() && alive_ > 1;
         other += rails_) {
      if (paths_[other].state != PathState::kDead) {
        bury(now, static_cast<PathId>(other));
      }
    }
    change = Change::kRailDown;
  }
  find_next_probe();
  return change;
}

void PathTable::bury(TimeNs now, PathId path) {
  Path& it = paths_[path];
  it.state = PathState::kDead;
  it.probe_interval_ns = kProbeIntervalNsMin;
  it.probe_ns = now + kProbeIntervalNsMin;
  --alive_;
}

void PathTable::revive_all() {
  for (std::size_t path = 0; path < paths_.size(); ++path) {
    revive(static_cast<PathId>(path));
    paths_[path].state = PathState::kSuspect;
  }
  for (Rail& rail : rails_state_) {
    rail.is_down = false;
    rail.deaths = 0;
  }
  find_next_probe();
}

void PathTable::revive(PathId path) {
  Path& it = paths_[path];
  if (it.state == PathState::kDead) {
    ++alive_;
  }
  it.state = PathState::kGood;
  it.probe_ns = kNever;
  it.losses_in_a_row = 0;
  it.timeouts_in_a_row = 0;
  it.slow_in_a_row = 0;
}

PathId PathTable::take_probe(TimeNs now) {
  if (now < next_probe_ns_) {
    return kNoPath;
  }
  for (std::size_t path = 0; path < paths_.size(); ++path) {
    Path& it = paths_[path];
    if (it.probe_ns <= now) {
      it.probe_interval_ns = std::min(it.probe_interval_ns * 2, kProbeIntervalNsMax);
      it.probe_ns = now + it.probe_interval_ns;
      find_next_probe();
      return static_cast<PathId>(path);
    }
  }
  return kNoPath;
}

void PathTable::find_next_probe() {
  next_probe_ns_ = kNever;
  for (const Path& path : paths_) {
    next_probe_ns_ = std::min(next_probe_ns_, path.probe_ns);
  }
}

}  // namespace tutti::transport
