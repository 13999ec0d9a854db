// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The MPI library's own collectives, and our schedules over its messages.
#pragma once

#include <memory>
#include <string>

#include "engine/host_backend.hpp"
#include "engine/plan_runner.hpp"
#include "runners/mpi/mpi_runner.hpp"
#include "runners/schedule_runner.hpp"

namespace tutti::engine {

class MpiBackend : public PlanRunner {
 public:
  /// `host` tells whether the peers of a schedule live.
  MpiBackend(CommContext& context, HostBackend& host) : PlanRunner(context), host_(host) {}

  void begin(runners::MpiLibrary& mpi);
  Status prepare(const select::Plan& plan, int device, std::string* ccl_refusal) override;
  Status run(const Route& route, const runners::Call& call) override;

  /// For the scopes of a call's composition, with the options of its route.
  runners::MpiRunner& runner_for(const Route& route, select::Collective collective);
  /// A stream for copies to and from `device` that stage a native call; `bytes` are counted.
  Result<device::Stream> staging_stream(int device, Bytes bytes);

 private:
  Status run_schedule(const select::SchedulePlan& plan, const runners::Call& call);

  HostBackend& host_;
  runners::MpiLibrary* mpi_ = nullptr;  ///< With `runner_`.
  std::unique_ptr<runners::MpiRunner> runner_;
  std::unique_ptr<runners::ScheduleRunner> schedule_runner_;
};

}  // namespace tutti::engine
