// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// NCCL or RCCL for one communicator: the library, its communicators and streams, each usable on
// every rank or on none.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "engine/plan_runner.hpp"
#include "runners/ccl/ccl_runner.hpp"
#include "runners/ccl/ccl_schedule_runner.hpp"
#include "runners/direct/device_combine.hpp"
#include "select/table.hpp"

namespace tutti::engine {

class CclBackend : public PlanRunner {
 public:
  /// `context` outlives it.
  explicit CclBackend(CommContext& context) : PlanRunner(context) {}
  /// Of a communicator that has failed its kernels may be behind one that never ends.
  ~CclBackend() override;

  /// Collective. Loads the library and brings up its communicator, and what schedules of `table`
  /// reduce with. The answer is agreed, and in the facts: ccl_usable, ccl_refusal.
  Status set_up(int device, const select::Table& table);
  bool was_tried() const { return was_tried_; }
  /// Collective. The library's communicator of a scope.
  Status init_scope(runners::Scope scope, std::string* refusal);
  /// Makes the streams and communicators that a pipeline lacks. What failed once is in the facts
  /// (streams_refusal, comms_refusal) and is not tried again.
  Status prepare(const select::Plan& plan, int device, std::string* ccl_refusal) override;
  Status run(const Route& route, const runners::Call& call) override;
  Status start(const Route& route, const runners::Call& call, device::Stream stream) override;
  void begin_end() override {
    if (runner_ != nullptr) {
      runner_->begin_end();
    }
  }
  /// Null: not up.
  runners::CclRunner* runner() const { return runner_.get(); }

 private:
  Status agree(int device, const select::Table& table);
  Status set_up_reductions(const select::Table& table);
  /// An algorithm of ours over the library's messages.
  Status run_schedule(const select::SchedulePlan& plan, const runners::Call& call);
  /// A unique id of the scope's first rank on all of its ranks; `status` is this rank's own.
  Status share_id(runners::Scope scope, ccl::UniqueId* id, Status* status);

  bool was_tried_ = false;
  std::unique_ptr<runners::CclRunner> runner_;
  std::unique_ptr<runners::DeviceCombine> combine_;  ///< For schedules.
  std::unique_ptr<runners::CclScheduleRunner> schedule_runner_;
  std::array<bool, runners::kScopeCount> scopes_{};  ///< Up on all ranks.
  /// Why a scope's communicator could not be made; a second try could not meet all ranks.
  std::array<std::string, runners::kScopeCount> scope_refusals_;
  int streams_ = 1;  ///< Of pipelines, made on all ranks, as are the communicators.
  int comms_ = 1;
};

}  // namespace tutti::engine
