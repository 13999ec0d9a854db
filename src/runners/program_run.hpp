// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One rank's program on its way: which steps still wait, which are under way. A step begins when
// the steps that it waits for are complete, so that steps of different phases and links progress
// together. Never blocks and reads no clock; who calls it decides how long to go on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runners/carrier.hpp"
#include "runners/scheduled_call.hpp"

namespace tutti::runners {

/// A program with what running it needs, the same for every run.
struct PreparedProgram {
  explicit PreparedProgram(schedule::Program of);

  schedule::Program program;
  std::vector<std::uint32_t> waits_for;       ///< By step: dependencies.
  std::vector<std::uint32_t> first_follower;  ///< By step, one more than steps: into followers.
  std::vector<std::uint32_t> followers;
};

/// May be started again once it is done: its memory is kept, so that runs allocate nothing once it
/// has grown.
class ProgramRun {
 public:
  explicit ProgramRun(Carrier& carrier) : carrier_(carrier) {}

  /// `prepared`, `call` and the buffers stay until the run is done or the carrier has abandoned it.
  void start(const PreparedProgram& prepared, const Call& call, const ProgramBuffers& bases);
  /// Begins all that can begin, then takes what has become complete.
  Status advance();
  bool is_done() const { return done_ == prepared_->program.steps.size(); }

  /// "rank 3", "ranks 1, 2, 5 and 7 others": whose messages are under way.
  std::string waits_for() const;

 private:
  Status begin(std::uint32_t number);
  void finish(std::uint32_t number);

  Carrier& carrier_;
  const PreparedProgram* prepared_ = nullptr;
  const Call* call_ = nullptr;
  ProgramBuffers bases_;
  std::vector<std::uint32_t> waiting_;  ///< By step: dependencies not complete.
  std::vector<std::uint32_t> ready_;    ///< Steps to begin, and before them those that have.
  std::size_t begun_ = 0;
  std::vector<std::uint32_t> step_of_slot_;  ///< Requests in flight.
  std::vector<int> free_slots_;
  std::vector<int> completed_;
  std::size_t done_ = 0;
};

}  // namespace tutti::runners
