// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "transport/spray.hpp"

#include <algorithm>
#include <bit>

namespace tutti::transport {

namespace {

/// By how much a path is taken to be slower than the link. Own bytes in the air on a path know its
/// rate and are never old; the round trip decides where they are the same. Paths have the link's
/// rate in the simulator and an eighth of it on a fabric of eight spines: of 1, 8, 16 and 64 the
/// last was the best in both. (64 bits are enough: 1 Mb/s and 30 GB in the air.)
constexpr std::uint64_t kInAirWeight = 64;

/// More than what is in the air on any path: a message ends with its slowest chunk.
constexpr TimeNs kSlow = TimeNs{1} << 60;

}  // namespace

std::optional<SprayMode> parse_spray(std::string_view name) {
  if (name == "oblivious") {
    return SprayMode::kOblivious;
  }
  if (name == "two_choices") {
    return SprayMode::kTwoChoices;
  }
  if (name == "bitmap") {
    return SprayMode::kBitmap;
  }
  if (name == "reps") {
    return SprayMode::kReps;
  }
  if (name == "mixed" || name.empty()) {
    return SprayMode::kMixed;
  }
  return std::nullopt;
}

Spray::Spray(SprayMode mode, Share share, std::uint32_t ps_per_byte, std::uint64_t seed)
    : share_(share),
      mode_(mode),
      ps_per_byte_(ps_per_byte),
      walk_mask_(std::bit_ceil(std::uint32_t{share.count}) - 1),
      random_(seed),
      walk_xor_(static_cast<std::uint32_t>(random_.next()) & walk_mask_) {}

PathId Spray::pick(TimeNs now, TimeNs srtt_ns, PathTable& paths, const Flight& flight,
                   PathId avoid) {
  if (share_.count == 1) {
    return share_.first;
  }
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    const PathId path = propose(now, srtt_ns, paths, flight);
    const PathState state = paths[path].state;
    if (path == avoid || state == PathState::kDead ||
        (state == PathState::kSuspect && random_.below(16) != 0)) {
      continue;
    }
    return path;
  }
  // Most are dead or suspect: the next one that is not, from a random place; else any that lives.
  const std::uint32_t start = random_.below(share_.count);
  PathId fallback = static_cast<PathId>(share_.first + start);
  for (std::uint32_t i = 0; i < share_.count; ++i) {
    const auto path = static_cast<PathId>(share_.first + (start + i) % share_.count);
    if (path != avoid && paths[path].state == PathState::kGood) {
      return path;
    }
    const bool is_better = paths.is_usable(path) && path != avoid;
    if (is_better && (!paths.is_usable(fallback) || fallback == avoid)) {
      fallback = path;
    }
  }
  return fallback == avoid || paths.is_usable(fallback) || avoid == kNoPath ? fallback : avoid;
}

[[gnu::always_inline]] inline PathId Spray::propose(TimeNs now, TimeNs srtt_ns, PathTable& paths,
                                                    const Flight& flight) {
  if (mode_ == SprayMode::kMixed || mode_ == SprayMode::kReps) [[likely]] {
    const PathId path = recycle(now);
    if (path != kNoPath) {
      return path;
    }
  }
  switch (mode_) {
    case SprayMode::kOblivious:
      return walk();
    case SprayMode::kTwoChoices:
      return better_of_two(now, srtt_ns, paths, flight);
    case SprayMode::kBitmap:
    case SprayMode::kMixed:
      return walk_with_penalties(paths);
    case SprayMode::kReps:
      return random_path();
  }
  return share_.first;
}

PathId Spray::walk() {
  while (true) {
    const std::uint32_t index = (walk_index_ & walk_mask_) ^ walk_xor_;
    if ((++walk_index_ & walk_mask_) == 0) {
      walk_xor_ = static_cast<std::uint32_t>(random_.next()) & walk_mask_;
    }
    if (index < share_.count) {
      return static_cast<PathId>(share_.first + index);
    }
  }
}

PathId Spray::walk_with_penalties(PathTable& paths) {
  PathId path = walk();
  for (std::uint32_t skipped = 0; paths[path].penalty > 0 && skipped < share_.count; ++skipped) {
    --paths[path].penalty;
    path = walk();
  }
  return path;
}

TimeNs Spray::score(TimeNs now, TimeNs srtt_ns, const PathTable& paths, const Flight& flight,
                    PathId path) const {
  const Path& it = paths[path];
  // The round trip alone is one round trip old. A path that was bad long ago is tried again.
  const bool is_stale = it.rtt_ns == 0 || now - it.sample_ns > 4 * srtt_ns;
  return (is_stale ? 0 : it.rtt_ns) + (paths.is_slow(now, path, srtt_ns) ? kSlow : 0) +
         flight.path_inflight_bytes(path) * ps_per_byte_ * kInAirWeight / 1000;
}

PathId Spray::better_of_two(TimeNs now, TimeNs srtt_ns, const PathTable& paths,
                            const Flight& flight) {
  const std::uint32_t a = random_.below(share_.count);
  std::uint32_t b = random_.below(share_.count - 1);
  b += b >= a ? 1 : 0;
  const auto first = static_cast<PathId>(share_.first + a);
  const auto second = static_cast<PathId>(share_.first + b);
  return score(now, srtt_ns, paths, flight, first) <= score(now, srtt_ns, paths, flight, second)
             ? first
             : second;
}

[[gnu::always_inline]] inline PathId Spray::recycle(TimeNs now) {
  if (now < frozen_until_ns_ && recycled_count_ > 0) {
    const PathId path = recycled_[recycled_first_ % kRecycled];
    recycled_[(recycled_first_++ + recycled_count_) % kRecycled] = path;  // Used again and again.
    return path;
  }
  if (frozen_until_ns_ != 0 && now >= frozen_until_ns_) {
    frozen_until_ns_ = 0;
    recycled_count_ = 0;
    explorations_ = kExplorations;
  }
  if (explorations_ > 0) {
    --explorations_;
    return random_path();
  }
  if (recycled_count_ == 0) {
    return kNoPath;
  }
  --recycled_count_;
  return recycled_[recycled_first_++ % kRecycled];
}

void Spray::on_timeout(TimeNs now) {
  if (frozen_until_ns_ == 0) {
    frozen_until_ns_ = now + kFreezeNs;
  }
}

}  // namespace tutti::transport
