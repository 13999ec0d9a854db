// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which path the next chunk takes, within one group's share of the paths. Five ways, by name:
// - oblivious: every path once per round, in a permuted order; no state
// - two_choices: the better of two random ones by own bytes in the air and round trip, of which the
//   first weighs more (UCCL: by their sum); one that was slow time after time loses
// - bitmap: the permuted walk; a path with a penalty is skipped once for each point (UEC, STrack)
// - reps: paths that just brought an unmarked echo are used again, else a random one (REPS)
// - mixed: the same, else the bitmap walk
// Dead paths are never chosen, suspect ones in 1 of 16 cases.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "transport/flight.hpp"
#include "transport/path.hpp"
#include "transport/random.hpp"

namespace tutti::transport {

enum class SprayMode : std::uint8_t { kOblivious, kTwoChoices, kBitmap, kReps, kMixed };

std::optional<SprayMode> parse_spray(std::string_view name);

class Spray {
 public:
  struct Share {
    PathId first = 0;
    std::uint16_t count = 1;  ///< 1 to kPathsMax.
  };
  Spray(SprayMode mode, Share share, std::uint32_t ps_per_byte, std::uint64_t seed);

  /// `avoid`: the path that lost the chunk, or kNoPath.
  PathId pick(TimeNs now, TimeNs srtt_ns, PathTable& paths, const Flight& flight, PathId avoid);

  /// An echo of the path came.
  void on_echo(PathId path, bool ecn) {
    if (ecn) {
      return;
    }
    if (recycled_count_ == kRecycled) {
      ++recycled_first_;
      --recycled_count_;
    }
    recycled_[(recycled_first_ + recycled_count_++) % kRecycled] = path;
  }
  /// A timeout: explores only what has proved itself for a while (REPS section 3.3).
  void on_timeout(TimeNs now);

 private:
  static constexpr std::uint8_t kRecycled = 8;  ///< Of REPS: paths in the ring; a power of two.
  static constexpr TimeNs kFreezeNs = 10'000'000;
  static constexpr std::uint8_t kExplorations = 16;  ///< Random paths after a freeze.

  inline PathId propose(TimeNs now, TimeNs srtt_ns, PathTable& paths, const Flight& flight);
  PathId walk();
  PathId walk_with_penalties(PathTable& paths);
  PathId better_of_two(TimeNs now, TimeNs srtt_ns, const PathTable& paths, const Flight& flight);
  TimeNs score(TimeNs now, TimeNs srtt_ns, const PathTable& paths, const Flight& flight,
               PathId path) const;
  inline PathId recycle(TimeNs now);
  PathId random_path() { return static_cast<PathId>(share_.first + random_.below(share_.count)); }

  // What each chunk looks at, 32 bytes: connection.hpp has them in one line of the cache with more.
  std::array<PathId, kRecycled> recycled_{};
  TimeNs frozen_until_ns_ = 0;
  Share share_;
  SprayMode mode_;
  std::uint8_t recycled_first_ = 0;
  std::uint8_t recycled_count_ = 0;
  std::uint8_t explorations_ = 0;
  std::uint32_t ps_per_byte_;
  std::uint32_t walk_mask_;  ///< Power of two not below the count, less 1.
  Random random_;
  std::uint32_t walk_xor_;
  std::uint32_t walk_index_ = 0;
};

}  // namespace tutti::transport
