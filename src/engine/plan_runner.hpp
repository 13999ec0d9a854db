// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The seam between what a communicator chose and what carries it: one plan runner for each kind of
// plan, which brings up what its plans need, so that they are usable on every rank or on none, and
// runs their calls. Used by one thread at a time, as the communicator is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "engine/agreement.hpp"
#include "engine/comm_context.hpp"
#include "engine/counters.hpp"
#include "engine/summary.hpp"
#include "runners/call.hpp"
#include "schedule/algorithm.hpp"
#include "select/plan.hpp"

namespace tutti::engine {

class PlanRunner;

/// What all ranks do with one shape of call.
struct Route {
  select::Plan plan;
  bool stages_device = true;     ///< The MPI library is not given pointers to device memory.
  Bytes chunk_bytes = 0;         ///< Of what is staged for the MPI library; 0: in one piece.
  PlanRunner* runner = nullptr;  ///< Of that plan.
  select::Memory memory = select::Memory::kHost;
  select::Order order = select::Order::kBlocking;
  bool is_through_host = false;  ///< Of device memory that nothing else carries: may_stage().
  /// The MPI's own collective on the application's own arguments carries the call, on every rank
  /// whose local buffers the MPI can read; ranks whose buffers it cannot read stage them alone.
  bool native_flat = true;
  Counter* calls = nullptr;
  Counter* fallbacks = nullptr;      ///< Null when the plan is the first choice.
  Summary::Cell* summary = nullptr;  ///< Null without TUTTI_SUMMARY.
  /// What the ranks have agreed on for calls of this size; null: nothing has to be.
  MemoryModes::Class* agreed = nullptr;
  mutable bool was_taken = false;  ///< For the entry point: by an earlier call.

  /// There a rank hears at once of a peer whose call goes another way.
  bool is_in_shared_memory() const {
    return select::is<select::DirectPlan>(plan) && memory == select::Memory::kHost;
  }
};

/// A route, and what a call that is known to take it needs: the fewer lines of a cache it reads and
/// writes beside the MPI library's, the less it costs ranks that share a core's caches.
struct KnownRoute {
  const Route* route = nullptr;
  Counter* calls = nullptr;  ///< The route's.
};

/// Parameters of a plan's algorithm; 0: the algorithm's own.
inline schedule::Parameters schedule_parameters(const select::SchedulePlan& plan) {
  return {.radix = plan.radix.value_or(0), .segments = plan.segments.value_or(0)};
}

class PlanRunner {
 public:
  /// `context` outlives it.
  explicit PlanRunner(CommContext& context) : context_(context) {}
  virtual ~PlanRunner() = default;
  PlanRunner(const PlanRunner&) = delete;
  PlanRunner& operator=(const PlanRunner&) = delete;

  /// Collective: sets up what `plan` lacks. Why it cannot be is in the context's facts, the same on
  /// all ranks, or, where it is so for this choice alone, in `ccl_refusal`. Errors: nothing was
  /// agreed.
  virtual Status prepare(const select::Plan& plan, int device, std::string* ccl_refusal) = 0;
  /// False: what was up is so no more, on any rank.
  virtual bool is_up() const { return true; }
  /// Collective; returns when the call is done here. As runners::Runner::run().
  virtual Status run(const Route& route, const runners::Call& call) = 0;
  /// Queues a call on a stream; returns at once. kUnsupported: the plan goes on only while the
  /// caller waits for it; nothing has begun.
  virtual Status start(const Route& route, const runners::Call& call, device::Stream stream) {
    static_cast<void>(call);
    static_cast<void>(stream);
    return Status(ErrorCode::kUnsupported, to_string(route.plan) + " carries no call on a stream");
  }
  /// The communicator has failed on this rank.
  virtual void fail(const Status& status) { static_cast<void>(status); }
  /// Begins what the end of this object waits for; no call may follow.
  virtual void begin_end() {}

 protected:
  /// For the scope of a call that asks something of the driver.
  void relax_for(const Route& route, const runners::Call& call,
                 std::optional<device::RelaxedCapture>* relaxed) const {
    if (route.memory == select::Memory::kDevice || runners::is_on_device(call)) {
      context_.relax(relaxed);
    }
  }

  /// A call with device buffers, carried on copies in host memory. `give_up`: there can be none.
  Status run_through_host(const Route& route, const runners::Call& call,
                          const std::function<Status(const runners::Call&)>& carry,
                          const std::function<void(const Status&)>& give_up);

  /// An average on host memory: the sum, by `carry`, divided.
  Status run_average(const runners::Call& call,
                     const std::function<Status(const runners::Call&)>& carry) const;

  CommContext& context_;
};

}  // namespace tutti::engine
