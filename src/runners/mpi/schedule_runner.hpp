// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries a schedule over MPI point-to-point: a step starts when the steps that it waits for are
// complete, so steps of different phases and links progress together. Buffers are host memory;
// device buffers are staged whole. Knows no algorithm's name but to ask for its program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runners/call.hpp"
#include "runners/runner.hpp"
#include "runners/scheduled_call.hpp"
#include "runners/scratch.hpp"
#include "schedule/algorithm.hpp"
#include "topology/layout.hpp"

namespace tutti::runners {

class ScheduleRunner {
 public:
  /// A call that is not complete after `timeout_s` is an error; 0: wait for ever.
  ScheduleRunner(MpiLibrary& mpi, device::Api* api, Scratch& scratch, topology::Layout layout,
                 double timeout_s)
      : mpi_(mpi),
        api_(api),
        scratch_(scratch),
        layout_(std::move(layout)),
        timeout_s_(timeout_s) {}

  /// Collective over the communicator; after an error messages may still be under way, and no
  /// further call may follow. Selection has made sure that there is such an algorithm. Blocks of
  /// v-forms that are not dense pass through scratch. `stream` is for staging, null without device
  /// buffers.
  Status run(const std::string& algorithm, const schedule::Parameters& parameters, const Call& call,
             device::Stream stream);

 private:
  /// A program with what running it needs, made once per shape.
  struct Prepared {
    std::string algorithm;
    schedule::Parameters parameters;
    schedule::Problem problem;
    schedule::Program program;
    std::vector<std::uint32_t> waits_for;       ///< By step: dependencies.
    std::vector<std::uint32_t> first_follower;  ///< By step, one more than steps: into followers.
    std::vector<std::uint32_t> followers;
  };
  const Prepared& prepared(const std::string& algorithm, const schedule::Parameters& parameters,
                           const Call& call, const ScopeRank& me);
  Status run_on_host(const Prepared& prepared, const Call& call, const ScopeRank& me);
  Status carry_out(const Prepared& prepared, const Call& call, const ProgramBuffers& bases);
  Status begin(const schedule::Step& step, std::uint32_t number, const Call& call,
               const ProgramBuffers& bases);
  void finish(const Prepared& prepared, std::uint32_t number);

  MpiLibrary& mpi_;
  device::Api* api_;
  Scratch& scratch_;
  topology::Layout layout_;
  double timeout_s_;
  std::vector<std::unique_ptr<Prepared>> cache_;
  // Of the call in flight; kept, so that calls allocate nothing once they have grown.
  std::vector<std::uint32_t> waiting_;       ///< By step: dependencies not complete.
  std::vector<std::uint32_t> ready_;         ///< Steps to begin.
  std::vector<std::uint32_t> step_of_slot_;  ///< Requests in flight.
  std::vector<int> free_slots_;
  std::vector<int> completed_;
  std::uint32_t done_ = 0;
};

}  // namespace tutti::runners
