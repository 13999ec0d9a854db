// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/plan_runner.hpp"

#include "runners/direct/host_reduce.hpp"
#include "runners/staged_call.hpp"

namespace tutti::engine {

Status PlanRunner::run_through_host(const Route& route, const runners::Call& call,
                                    const std::function<Status(const runners::Call&)>& carry,
                                    const std::function<void(const Status&)>& give_up) {
  std::optional<device::RelaxedCapture> relaxed;
  relax_for(route, call, &relaxed);
  const auto is_device = [](const device::PointerInfo& memory) {
    return memory.kind == device::MemoryKind::kDevice;
  };
  runners::StagedCall staged;
  Status moved = staged.move_in(
      call, {.rank = context_.me.rank, .ranks = context_.me.ranks},
      {.move_send = is_device(call.send_memory), .move_recv = is_device(call.recv_memory)},
      context_.process.device(), context_.process.scratch());
  if (!moved.ok()) {
    give_up(moved);  // The other ranks are in the call.
    return moved;
  }
  TUTTI_RETURN_IF_ERROR(carry(staged.call()));
  return staged.move_out();
}

Status PlanRunner::run_average(const runners::Call& call,
                               const std::function<Status(const runners::Call&)>& carry) const {
  runners::Call sum = call;
  sum.op = select::ReduceOp::kSum;
  TUTTI_RETURN_IF_ERROR(carry(sum));
  for (const runners::Run& run : recv_runs(call, context_.me.rank, context_.me.ranks)) {
    runners::divide(static_cast<std::byte*>(call.recv) + run.offset * call.element_bytes, run.count,
                    call.type, context_.me.ranks);
  }
  return {};
}

}  // namespace tutti::engine
