// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/net_backend.hpp"

#include <utility>

#include "base/log.hpp"

namespace tutti::engine {

Status NetBackend::prepare(const select::Plan& /*plan*/, int /*device*/,
                           std::string* /*ccl_refusal*/) {
  if (was_tried_) {
    return {};
  }
  was_tried_ = true;
  std::string& refusal = context_.facts.net_refusal;
  refusal.clear();
  runners::NetRunner::Options options;
  options.rank = context_.me.rank;
  options.timeout_s = context_.timeout_s;
  options.layout = context_.placement;
  options.scratch = &context_.process.scratch();
  options.look = [is_aborted = context_.is_aborted] {
    return is_aborted->load(std::memory_order_acquire)
               ? Status(ErrorCode::kLibraryFailed, "the communicator was aborted")
               : Status();
  };
  auto started = runners::start_net_runner(context_.bootstrap, options, &refusal);
  if (!started.ok()) {
    refusal = "its set-up failed: " + started.status().message();
    return started.status();
  }
  runner_ = std::move(*started);
  if (context_.is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, refusal.empty() ? "net: our transport of this communicator is ready"
                                         : "no schedules over our transport: " + refusal);
  }
  return {};
}

Status NetBackend::run(const Route& route, const runners::Call& call) {
  const auto& plan = std::get<select::SchedulePlan>(route.plan);
  if (!runners::is_on_device(call)) {
    return carry(plan, call);
  }
  return run_through_host(
      route, call, [&](const runners::Call& moved) { return carry(plan, moved); },
      [this](const Status& status) { context_.fail(status); });
}

Status NetBackend::carry(const select::SchedulePlan& plan, const runners::Call& call) {
  runner_->set_refused_calls(context_.refused_calls);
  const auto run_one = [&](const runners::Call& one) {
    return runner_->run(plan.algorithm, schedule_parameters(plan), one);
  };
  Status status = call.op == select::ReduceOp::kAvg ? run_average(call, run_one) : run_one(call);
  if (!status.ok()) {
    context_.fail(status);  // No later call may meet the messages of this one.
  }
  return status;
}

void NetBackend::fail(const Status& status) {
  if (runner_ != nullptr) {
    runner_->give_up(status.message());
  }
}

}  // namespace tutti::engine
