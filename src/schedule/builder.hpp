// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Writes programs. A generator says what one rank would do one thing after another; the builder
// finds out which steps really must wait for which: those that read what another writes, write
// what another reads, or write the same place. So overlap is as wide as the data allows, without a
// generator's saying so, and a forgotten dependency cannot happen here (the validator checks all
// the same). A message's tag is its number within its pair and direction: both ends must name
// their messages to each other in the same order. Empty regions make no step, on either end.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "schedule/program.hpp"

namespace tutti::schedule {

class Builder {
 public:
  void send(int peer, const Region& from);
  void recv(int peer, const Region& into);
  void copy(const Region& from, const Region& to);
  /// into = into op from.
  void reduce(const Region& from, const Region& into);
  /// A message without data, which says "I have got here" (barrier).
  void send_token(int peer);
  void recv_token(int peer);
  /// All that follows waits for all that came before: rounds that must not run into one another.
  void fence();
  /// Number of the next step.
  std::uint32_t next() const { return static_cast<std::uint32_t>(program_.steps.size()); }
  /// The following steps wait for steps [first, last) as well, until this is called again.
  void wait_also(std::uint32_t first, std::uint32_t last);
  /// Elements of scratch, beside those already taken; returns their region.
  Region scratch(std::uint64_t count);

  Program finish() &&;

 private:
  /// Steps that last wrote a stretch of a buffer, and that have read it since.
  struct Stretch {
    std::uint64_t end = 0;
    std::int64_t writer = -1;
    std::vector<std::uint32_t> readers;
  };
  using Stretches = std::map<std::uint64_t, Stretch>;  ///< By start; gaps were never touched.

  Stretches::iterator split(Stretches& stretches, std::uint64_t at);
  void touch(const Region& region, bool writes, std::uint32_t step,
             std::vector<std::uint32_t>* waits_for);
  void add(Step step);

  Program program_;
  Stretches stretches_[3];
  std::unordered_map<int, std::uint32_t> sent_;
  std::unordered_map<int, std::uint32_t> received_;
  std::vector<std::uint32_t> waits_for_;
  std::uint32_t also_begin_ = 0;
  std::uint32_t also_end_ = 0;
  std::uint32_t fenced_begin_ = 0;  ///< Steps between the last two fences: later ones wait for
  std::uint32_t fenced_end_ = 0;    ///< them, and through them for all before.
};

}  // namespace tutti::schedule
