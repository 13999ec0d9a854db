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
  /// The steps of another program, whose rank i is ranks[i] here (empty: the same), and whose
  /// input and output are these regions. All ranks of that program must append it, in the same
  /// order with respect to other messages between them.
  void append(const Program& program, const std::vector<int>& ranks, const Region& input,
              const Region& output);
  /// Elements of scratch, beside those already taken; returns their region.
  Region scratch(std::uint64_t count);

  Program finish() &&;

  /// The program with every step cut into at most `segments` parts, each of which waits only for
  /// the data that it needs: phases that follow one another then overlap. Waits that are not for
  /// data (fences) are dropped, but for those of messages without data. Source: the pipelining of
  /// Watts and van de Geijn 1995, as a transformation.
  static Program segmented(const Program& program, int segments);

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
  void add_part(const Step& step, std::uint64_t from, std::uint64_t count);

  Program program_;
  Stretches stretches_[3];
  std::unordered_map<int, std::uint32_t> sent_;
  std::unordered_map<int, std::uint32_t> received_;
  std::vector<std::uint32_t> waits_for_;
  std::vector<std::uint32_t> explicit_;  ///< Of the next step alone, beside what data asks for.
  std::uint32_t also_begin_ = 0;
  std::uint32_t also_end_ = 0;
  std::uint32_t fenced_begin_ = 0;  ///< Steps between the last two fences: later ones wait for
  std::uint32_t fenced_end_ = 0;    ///< them, and through them for all before.
};

}  // namespace tutti::schedule
