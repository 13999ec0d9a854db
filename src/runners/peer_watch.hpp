// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The end of a wait for other ranks' messages: a rank that has died or failed ends it at once, the
// time limit ends it only where nothing tells whether the ranks live.
#pragma once

#include <chrono>
#include <functional>

#include "base/result.hpp"

namespace tutti::runners {

/// One wait, from its construction on.
class PeerWatch {
 public:
  /// `look`: MpiLibrary::set_look()'s, may be null, and lives as long as this. `limit_s`: of the
  /// wait. `waits_for_the_living`: not while `look` is ok.
  PeerWatch(const std::function<Status()>& look, double limit_s, bool waits_for_the_living = true)
      : look_(look), limit_s_(limit_s), waits_for_the_living_(waits_for_the_living) {}

  /// ok: wait on. kTimeout without words: the limit has passed. Else what `look` says of a rank.
  Status check() {
    const double waited_s = std::chrono::duration<double>(Clock::now() - start_).count();
    const bool is_over = waited_s > limit_s_;
    if (look_ && (waited_s > look_at_s_ || (is_over && !all_live_))) {
      look_at_s_ = waited_s + kLookEveryS;
      Status looked = look_();
      if (!looked.ok() && looked.code() != ErrorCode::kUnavailable) {
        return looked;
      }
      all_live_ = waits_for_the_living_ && looked.ok();
    }
    return is_over && !all_live_ ? Status(ErrorCode::kTimeout, "") : Status();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kLookEveryS = 0.25;

  const std::function<Status()>& look_;
  double limit_s_;
  bool waits_for_the_living_;
  Clock::time_point start_ = Clock::now();
  double look_at_s_ = kLookEveryS;
  bool all_live_ = false;
};

}  // namespace tutti::runners
