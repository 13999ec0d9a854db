// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries out schedules on host memory over any carrier of messages, MPI point-to-point or our
// transport; device buffers are staged whole. Ends a run after TUTTI_TIMEOUT and says what it waits
// for. Knows no algorithm's name but to ask for its program.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runners/call.hpp"
#include "runners/carrier.hpp"
#include "runners/program_run.hpp"
#include "runners/runner.hpp"
#include "runners/scheduled_call.hpp"
#include "runners/scratch.hpp"
#include "schedule/algorithm.hpp"
#include "topology/layout.hpp"

namespace tutti::runners {

class ScheduleRunner {
 public:
  /// A call that is not complete after `timeout_s` is an error, unless `look`
  /// (MpiLibrary::set_look) says that all ranks live; 0: wait for ever.
  ScheduleRunner(Carrier& carrier, int rank, device::Api* api, Scratch& scratch,
                 topology::Layout layout, double timeout_s, std::function<Status()> look = {})
      : carrier_(carrier),
        me_{rank, layout.ranks()},
        api_(api),
        scratch_(scratch),
        layout_(std::move(layout)),
        timeout_s_(timeout_s),
        look_(std::move(look)),
        running_(carrier) {}

  /// Collective over the communicator; after an error messages may still be under way, and no
  /// further call may follow. Selection has made sure that there is such an algorithm. Blocks of
  /// v-forms that are not dense pass through scratch. `stream` is for staging, null without device
  /// buffers.
  Status run(const std::string& algorithm, const schedule::Parameters& parameters, const Call& call,
             device::Stream stream);

 private:
  /// A program, made once per shape.
  struct Prepared {
    std::string algorithm;
    schedule::Parameters parameters;
    schedule::Problem problem;
    PreparedProgram program;
  };
  Result<const Prepared*> prepared(const std::string& algorithm,
                                   const schedule::Parameters& parameters, const Call& call);
  Status run_on_host(const Prepared& prepared, const Call& call);
  Status carry_out(const Prepared& prepared, const Call& call, const ProgramBuffers& bases);

  Carrier& carrier_;
  ScopeRank me_;
  device::Api* api_;
  Scratch& scratch_;
  topology::Layout layout_;
  double timeout_s_;
  std::function<Status()> look_;
  std::vector<std::unique_ptr<Prepared>> cache_;
  ProgramRun running_;
};

}  // namespace tutti::runners
