// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/udp/prober.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti::wire::udp {

using transport::kNever;

namespace {

/// Of Ethernet with and without tunnels, and of what else hosts are behind.
constexpr std::uint16_t kUsualMtus[] = {9000, 8950, 8192, 4470, 4096, 2304,
                                        1500, 1492, 1450, 1420, 1400, 1280};

}  // namespace

Prober::Prober(const Options& options)
    : options_(options), bytes_(options.bytes), paths_(std::max(options.paths, 1U)) {}

/// From the longest to the shortest, all shorter than what is in use.
std::vector<std::uint16_t> Prober::ladder() const {
  std::vector<std::uint16_t> rungs;
  for (const std::uint16_t mtu : kUsualMtus) {
    const auto bytes = static_cast<std::uint16_t>(mtu - options_.ip_bytes);
    if (bytes < bytes_ && bytes > options_.least_bytes) {
      rungs.push_back(bytes);
    }
  }
  if (options_.least_bytes < bytes_) {
    rungs.push_back(options_.least_bytes);
  }
  return rungs;
}

void Prober::begin(Path& path, TimeNs due_ns) {
  ++path.round;
  path.due_ns = due_ns;
  path.short_answers = 0;
  path.tries = 0;
  path.best_bytes = 0;
  path.is_ladder = false;
}

void Prober::begin_rounds(TimeNs now) {
  const std::size_t wanted = is_heard_ ? paths_.size() : std::min(paths_.size(), kPathsUnheard);
  for (TimeNs due_ns = now; begun_ < wanted; ++begun_, due_ns += kSweepNs) {
    if (paths_[begun_].state != State::kAnswered) {
      begin(paths_[begun_], due_ns);
    }
  }
  if (is_used_ && now >= watch_ns_) {
    is_used_ = false;
    watch_ns_ = now + kWatchNs;
    Path& path = paths_[next_path_];
    next_path_ = (next_path_ + 1) % paths_.size();
    if (path.due_ns == kNever) {
      begin(path, now);
    }
  }
}

void Prober::set_due() {
  const bool has_new = begun_ < paths_.size() && (is_heard_ || begun_ < kPathsUnheard);
  due_ns_ = has_new ? 0 : is_used_ ? watch_ns_ : kNever;
  for (const Path& path : paths_) {
    due_ns_ = std::min(due_ns_, path.due_ns);
  }
}

/// What was sent before it was there says nothing, and all paths are asked now.
void Prober::on_heard() {
  if (!std::exchange(is_heard_, true)) {
    is_tried_ = false;
    begun_ = 0;
    due_ns_ = 0;
  }
}

void Prober::on_answer(TimeNs now, const Probe& probe) {
  if (probe.path >= paths_.size()) {
    return;
  }
  on_heard();
  Path& path = paths_[probe.path];
  // However late: it has arrived. Only what is counted is of this round.
  if (probe.bytes >= asked_bytes()) {
    is_known_ = true;
    end_round(path, State::kAnswered);
  } else if (path.due_ns != kNever && probe.round >> 8 == path.round) {
    if (path.is_ladder) {
      path.best_bytes = std::max(path.best_bytes, probe.bytes);
      if (probe.bytes == ladder().front()) {
        judge(now, path);
      }
    } else if (probe.bytes == kShortBytes && (probe.round & 0xff) < kTries) {
      path.short_answers |= 1U << (probe.round & 0xff);
    }
  }
  set_due();
}

/// A round, or what follows it, is over without the answer that ends it.
void Prober::judge(TimeNs now, Path& path) {
  const int answers = std::popcount(path.short_answers);
  if (path.is_ladder && path.best_bytes > 0) {
    is_known_ = true;
    const std::uint16_t best_bytes = path.best_bytes;
    end_round(path, State::kAnswered);
    take_smaller(now, best_bytes);
  } else if (path.is_ladder) {
    end_round(path, State::kAnswered);
    if (!std::exchange(is_too_small_, true)) {
      findings_.push_back({FindingKind::kNoneFits, options_.least_bytes, {}});
    }
  } else if (answers >= kShortAnswersMin) {
    begin(path, now);
    path.is_ladder = true;
    path.tries = ladder().empty() ? kLadderTries : 0;
  } else if (answers > 0) {
    begin(path, now);  // It loses a lot: that says nothing of sizes.
  } else {
    is_tried_ = true;
    end_round(path, State::kSilent);
    if (!is_known_) {
      begin(path, now + kSilentNs);
    }
  }
}

void Prober::end_round(Path& path, State state) {
  path.due_ns = kNever;
  path.state = state;
  tell_of_silence();
}

/// Once: paths that fall silent later are the transport's to leave.
void Prober::tell_of_silence() {
  const bool is_open = std::any_of(paths_.begin(), paths_.end(), [](const Path& path) {
    return path.state == State::kNew || (path.state == State::kSilent && path.due_ns != kNever);
  });
  if (has_told_silence_ || !is_known_ || is_open) {
    return;
  }
  has_told_silence_ = true;
  Finding silent{FindingKind::kSilentPaths, 0, {}};
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (paths_[i].state == State::kSilent) {
      silent.paths.push_back(static_cast<std::uint16_t>(i));
    }
  }
  if (!silent.paths.empty()) {
    findings_.push_back(std::move(silent));
  }
}

void Prober::take_smaller(TimeNs now, std::uint16_t bytes) {
  if (bytes >= bytes_) {
    return;
  }
  limit(bytes);
  findings_.push_back({FindingKind::kSmaller, bytes, {}});
  // What others are asked for is not used any more.
  for (Path& path : paths_) {
    if (path.due_ns != kNever && path.tries > 0) {
      begin(path, now);
    }
  }
}

void Prober::limit(std::uint16_t bytes) { bytes_ = std::min(bytes_, bytes); }

std::optional<Prober::Finding> Prober::take_finding() {
  if (findings_.empty()) {
    return std::nullopt;
  }
  Finding first = std::move(findings_.front());
  findings_.erase(findings_.begin());
  return first;
}

}  // namespace tutti::wire::udp
