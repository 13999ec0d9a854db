// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which paths to one peer its datagrams arrive by, and how long they may be: a switch with a
// smaller MTU than both hosts drops long ones and tells nobody (RFC 8899 calls it a black hole).
// Each direction is its sender's to find out, and each path is asked for itself, by a round: up to
// kTries times a short probe and one of the size in use. One long answer ends it. Twelve long ones
// in vain beside six short ones that were answered are no congestion, which drops short ones, too:
// then usual sizes are tried, and the longest that arrives is used on all paths. Rounds begin when
// the peer is new, on all paths in turn, and while there is data, every kWatchNs on the next path.
//
// No clock, no sockets: what is sent and when is the caller's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/types.hpp"

namespace tutti::wire::udp {

class Prober {
 public:
  using TimeNs = transport::TimeNs;

  static constexpr int kTries = 12;
  static constexpr int kShortAnswersMin = kTries / 2;
  static constexpr int kLadderTries = 4;
  static constexpr TimeNs kTryNs = 40'000'000;
  static constexpr TimeNs kLastNs = 300'000'000;    ///< After the last try, for late answers.
  static constexpr TimeNs kSweepNs = 5'000'000;     ///< From one new path to the next.
  static constexpr TimeNs kWatchNs = 250'000'000;   ///< Between paths that are in use.
  static constexpr TimeNs kSilentNs = 100'000'000;  ///< Until a silent peer is asked again.
  /// A peer that may not be there yet is asked by so many paths, and once for a long one.
  static constexpr std::size_t kPathsUnheard = 8;
  static constexpr std::uint16_t kShortBytes = 64;

  struct Options {
    std::uint16_t bytes = 0;        ///< UDP payload of a full datagram.
    std::uint16_t least_bytes = 0;  ///< Of one that can still be used; at most `bytes`.
    std::uint16_t ip_bytes = 28;    ///< What IP and UDP put before it: an MTU less this.
    std::uint32_t paths = 1;
    bool is_near = false;  ///< On this host: no switch is in between, and short ones say all.
  };

  /// What travels, and comes back as it is in the answer.
  struct Probe {
    std::uint16_t path = 0;
    std::uint16_t bytes = 0;
    std::uint32_t round = 0;  ///< Round and try.
    friend bool operator==(const Probe&, const Probe&) = default;
  };

  enum class FindingKind : std::uint8_t {
    kSmaller,      ///< Only datagrams of `bytes` arrive, and are used from now on.
    kNoneFits,     ///< Not even those of Options::least_bytes arrive: nothing can be done.
    kSilentPaths,  ///< Of the first round of all paths, some had no answer and others had.
  };
  struct Finding {
    FindingKind kind = FindingKind::kSmaller;
    std::uint16_t bytes = 0;
    std::vector<std::uint16_t> paths;  ///< That are silent.
  };

  explicit Prober(const Options& options);

  /// Sends what is due, by send(probe).
  template <class Send>
  void poll(TimeNs now, Send&& send) {
    if (now >= due_ns_) {
      begin_rounds(now);
      for (std::size_t path = 0; path < paths_.size(); ++path) {
        if (paths_[path].due_ns <= now) {
          step(now, static_cast<std::uint16_t>(path), send);
        }
      }
      set_due();
    }
  }
  TimeNs due_ns() const { return due_ns_; }

  /// A probe of the peer has come: it is there now, if it was not when our first ones left.
  void on_heard();
  void on_answer(TimeNs now, const Probe& probe);
  /// Data is sent to it.
  void on_data() {
    if (!is_used_ && !options_.is_near) {
      is_used_ = true;
      due_ns_ = std::min(due_ns_, watch_ns_);
    }
  }
  /// The host itself has been told of a smaller size.
  void limit(std::uint16_t bytes);

  std::uint16_t bytes() const { return bytes_; }
  bool is_heard() const { return is_heard_; }
  /// By some path datagrams arrive and are answered, and how long they may be is known.
  bool is_known() const { return is_known_; }
  /// Some path was asked for a whole round without any answer.
  bool is_tried() const { return is_tried_; }
  /// Short ones arrive, and none that could be used.
  bool is_too_small() const { return is_too_small_; }
  std::optional<Finding> take_finding();

 private:
  enum class State : std::uint8_t { kNew, kAnswered, kSilent };
  struct Path {
    TimeNs due_ns = transport::kNever;  ///< Of the next step of its round; kNever: none is on.
    std::uint32_t round = 0;
    std::uint32_t short_answers = 0;  ///< By try.
    int tries = 0;
    std::uint16_t best_bytes = 0;  ///< Of the ladder.
    bool is_ladder = false;
    State state = State::kNew;
  };

  void begin_rounds(TimeNs now);
  void begin(Path& path, TimeNs due_ns);
  void end_round(Path& path, State state);
  void judge(TimeNs now, Path& path);
  void take_smaller(TimeNs now, std::uint16_t bytes);
  void set_due();
  void tell_of_silence();
  std::uint16_t asked_bytes() const { return options_.is_near ? kShortBytes : bytes_; }
  std::vector<std::uint16_t> ladder() const;

  template <class Send>
  void step(TimeNs now, std::uint16_t number, Send&& send) {
    Path& path = paths_[number];
    if (path.tries == (path.is_ladder ? kLadderTries : kTries)) {
      judge(now, path);
      return;
    }
    const std::uint32_t round = path.round << 8 | static_cast<std::uint32_t>(path.tries);
    if (path.is_ladder) {
      for (const std::uint16_t bytes : ladder()) {
        if (bytes > path.best_bytes) {
          send(Probe{number, bytes, round});
        }
      }
    } else {
      if (is_heard_ || path.tries == 0) {
        send(Probe{number, asked_bytes(), round});
      }
      if (asked_bytes() > kShortBytes || path.tries > 0) {
        send(Probe{number, kShortBytes, round});
      }
    }
    ++path.tries;
    const bool is_last = path.tries == (path.is_ladder ? kLadderTries : kTries);
    path.due_ns = now + (is_last ? kLastNs : kTryNs);
  }

  Options options_;
  std::uint16_t bytes_;
  std::vector<Path> paths_;
  std::vector<Finding> findings_;
  TimeNs due_ns_ = 0;
  TimeNs watch_ns_ = 0;
  std::size_t next_path_ = 0;  ///< That is watched.
  std::size_t begun_ = 0;      ///< Paths whose first round has begun.
  bool is_used_ = false;
  bool is_heard_ = false;
  bool is_known_ = false;
  bool is_tried_ = false;
  bool is_too_small_ = false;
  bool has_told_silence_ = false;
};

}  // namespace tutti::wire::udp
