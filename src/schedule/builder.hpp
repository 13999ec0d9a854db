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
#include <memory_resource>
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
  /// About so many more steps will come: in programs of many thousand, growing costs more than all
  /// else, in pages that the system has to clear.
  void reserve(std::size_t steps);
  /// Number of the next step.
  std::uint32_t next() const { return static_cast<std::uint32_t>(program_.steps.size()); }
  /// The following steps wait for steps [first, last) as well, until this is called again.
  void wait_also(std::uint32_t first, std::uint32_t last);
  /// Until the next call, what steps call input and output are these regions: one algorithm's
  /// steps as a part of another's, which is cheaper than append() where the ranks are the same.
  void place(const Region& input, const Region& output);
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
    std::int64_t reader = -1;         ///< The first reader: mostly there is one.
    std::uint32_t more = kNoReaders;  ///< The others, a list in more_readers_.
  };
  struct Reader {
    std::uint32_t step = 0;
    std::uint32_t next = kNoReaders;
  };
  static constexpr std::uint32_t kNoReaders = ~0U;
  /// What was done to a buffer, by start; gaps were never touched.
  struct Stretches : std::pmr::map<std::uint64_t, Stretch> {
    using Map = std::pmr::map<std::uint64_t, Stretch>;
    explicit Stretches(std::pmr::memory_resource* memory) : Map(memory), found{end(), end()} {}
    /// The first stretch that starts at `at` or later. Looks beside the last one found before it
    /// searches: what steps read they read in order, mostly, and so with what they write.
    iterator from(std::uint64_t at, bool writes);
    iterator found[2];
  };

  static std::uint32_t next_tag(std::vector<std::uint32_t>* messages, int peer);
  Stretches::iterator split(Stretches& stretches, std::uint64_t at, bool writes);
  void touch(const Region& region, bool writes, std::uint32_t step,
             std::vector<std::uint32_t>* waits_for);
  void add(Step step);
  void add_part(const Step& step, std::uint64_t from, std::uint64_t count);

  Program program_;
  std::pmr::monotonic_buffer_resource memory_;  ///< A program of many steps makes many stretches.
  Stretches stretches_[3] = {Stretches(&memory_), Stretches(&memory_), Stretches(&memory_)};
  std::vector<Reader> more_readers_;
  /// Where input, output and scratch begin.
  Region places_[3] = {{Buffer::kInput, 0, 0}, {Buffer::kOutput, 0, 0}, {Buffer::kScratch, 0, 0}};
  std::vector<std::uint32_t> sent_;  ///< Messages by peer.
  std::vector<std::uint32_t> received_;
  std::vector<std::uint32_t> waits_for_;
  std::vector<std::uint32_t> explicit_;  ///< Of the next step alone, beside what data asks for.
  std::uint32_t also_begin_ = 0;
  std::uint32_t also_end_ = 0;
  std::uint32_t fenced_begin_ = 0;  ///< Steps between the last two fences: later ones wait for
  std::uint32_t fenced_end_ = 0;    ///< them, and through them for all before.
};

}  // namespace tutti::schedule
