// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our schedules on host memory over our transport, for communicators without an MPI. Brought up at
// the first call that a rule gives to it.
#pragma once

#include <memory>
#include <string>

#include "engine/plan_runner.hpp"
#include "runners/net/net_start.hpp"

namespace tutti::engine {

class NetBackend : public PlanRunner {
 public:
  explicit NetBackend(CommContext& context) : PlanRunner(context) {}

  bool was_tried() const { return was_tried_; }
  /// Once; the answer is in the facts: net_refusal.
  Status prepare(const select::Plan& plan, int device, std::string* ccl_refusal) override;
  /// Device buffers of a rank that differs from the agreed mode pass through pinned memory.
  Status run(const Route& route, const runners::Call& call) override;
  /// The other ranks hear of it.
  void fail(const Status& status) override;

 private:
  Status carry(const select::SchedulePlan& plan, const runners::Call& call);

  bool was_tried_ = false;
  std::unique_ptr<runners::NetRunner> runner_;  ///< Null: not up.
};

}  // namespace tutti::engine
