// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/mpi_backend.hpp"

#include <algorithm>
#include <optional>

namespace tutti::engine {

void MpiBackend::begin(runners::MpiLibrary& mpi) {
  mpi_ = &mpi;
  runner_ = std::make_unique<runners::MpiRunner>(mpi, context_.process.device(),
                                                 context_.process.scratch(),
                                                 context_.process.counters().staged_bytes);
}

Status MpiBackend::prepare(const select::Plan& /*plan*/, int /*device*/,
                           std::string* /*ccl_refusal*/) {
  return {};
}

runners::MpiRunner& MpiBackend::runner_for(const Route& route, select::Collective collective) {
  mpi_->start(collective);  // Its steps are not to be taken for another collective's.
  runner_->set_options({.stage_device = route.stages_device, .chunk_bytes = route.chunk_bytes});
  return *runner_;
}

Result<device::Stream> MpiBackend::staging_stream(int device, Bytes bytes) {
  context_.process.counters().staged_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return runner_->staging_stream(device);
}

Status MpiBackend::run(const Route& route, const runners::Call& call) {
  std::optional<device::RelaxedCapture> relaxed;
  relax_for(route, call, &relaxed);
  if (const auto* const schedule = std::get_if<select::SchedulePlan>(&route.plan)) {
    return run_schedule(*schedule, call);
  }
  return runner_for(route, call.collective).run(runners::Scope::kWhole, call);
}

Status MpiBackend::run_schedule(const select::SchedulePlan& plan, const runners::Call& call) {
  if (schedule_runner_ == nullptr) {
    schedule_runner_ = std::make_unique<runners::ScheduleRunner>(
        *mpi_, context_.me.rank, context_.process.device(), context_.process.scratch(),
        context_.placement, context_.timeout_s,
        [this] { return host_.look_at_peers(/*in_call=*/true); });
  }
  device::Stream stream = nullptr;
  if (const int device = std::max(call.send_memory.device, call.recv_memory.device); device >= 0) {
    TUTTI_ASSIGN_OR_RETURN(stream, staging_stream(device, call.count * call.element_bytes));
  }
  Status status = schedule_runner_->run(plan.algorithm, schedule_parameters(plan), call, stream);
  if (!status.ok()) {
    context_.fail(status);  // Messages of it may still be under way: no later call may meet them.
  }
  return status;
}

}  // namespace tutti::engine
