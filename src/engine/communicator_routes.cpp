// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// From a call's shape to its route: the memory agreed, the plan chosen, what it needs set up.
#include "engine/communicator.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace tutti::engine {

using select::Backend;
using select::Collective;
using select::DirectPlan;
using select::Memory;
using select::MpiPlan;
using select::Shape;

namespace {

std::size_t cache_slot(const Shape& shape, std::size_t size) {
  std::uint64_t hash = shape.bytes.value_or(~Bytes{0}) * 0x9E3779B97F4A7C15ULL;
  hash ^= (static_cast<std::uint64_t>(shape.collective) << 1) ^
          (static_cast<std::uint64_t>(shape.type) << 6) ^
          (static_cast<std::uint64_t>(shape.op) << 11) ^ static_cast<std::uint64_t>(shape.memory);
  hash ^= static_cast<std::uint64_t>(shape.order) << 15;
  hash ^= hash >> 29;
  return hash % size;
}

}  // namespace

std::optional<Memory> Communicator::known_memory(Collective collective) const {
  return asserted_ || select::has_size(collective) ? asserted_ : modes_->known(collective);
}

bool Communicator::has_own_plans(Collective collective) const {
  const std::optional<Memory> memory = has_any_device_ ? known_memory(collective) : Memory::kHost;
  return std::any_of(table_->rules.begin(), table_->rules.end(), [&](const select::Rule& rule) {
    return !select::is<MpiPlan>(rule.plan) && is_for(rule, collective, memory);
  });
}

/// Whether a rule may be the one for a collective, on that memory or on any.
bool Communicator::is_for(const select::Rule& rule, Collective collective,
                          std::optional<Memory> memory) const {
  const std::vector<Collective>& meant = rule.collectives;
  return select::may_match(rule, context_.facts) &&
         (!memory || rule.memory.value_or(*memory) == *memory) &&
         (meant.empty() || std::find(meant.begin(), meant.end(), collective) != meant.end());
}

bool Communicator::may_be_apart(Collective collective) const {
  const std::optional<Memory> memory = has_any_device_ ? known_memory(collective) : Memory::kHost;
  return !memory ||
         std::any_of(table_->rules.begin(), table_->rules.end(), [&](const select::Rule& rule) {
           return !select::is<MpiPlan>(rule.plan) &&
                  !(select::is<DirectPlan>(rule.plan) && *memory == Memory::kHost) &&
                  is_for(rule, collective, memory);
         });
}

bool Communicator::can_act() const {
  if (!asserted_host_ || !disagreement_.empty() || mpi_ == nullptr || has_summary_) {
    return true;
  }
  return std::any_of(table_->rules.begin(), table_->rules.end(), [this](const select::Rule& rule) {
    return !select::is<MpiPlan>(rule.plan) &&
           rule.memory.value_or(Memory::kHost) == Memory::kHost &&
           select::may_match(rule, context_.facts) &&
           // A shipped rule that cannot be carried is no fall-back to report.
           !(rule.optional && select::is<DirectPlan>(rule.plan) && context_.machines.nodes() != 1);
  });
}

Status Communicator::agree_memory(MemoryModes::Class& memory, int device) {
  bool any_device = device >= 0;
  if (mpi_ != nullptr) {
    const Result<bool> agreed =
        mpi_->agree_on_call(calls_ + 1, modes_->number_of(memory), any_device);
    if (agreed.status().code() == ErrorCode::kMismatch) {
      --memory.calls;  // The rank whose call was refused does not know of which class it is.
      pass_by();
    }
    TUTTI_RETURN_IF_ERROR(agreed.status());
    any_device = *agreed;
  } else {
    std::uint64_t any = any_device ? 1 : 0;
    TUTTI_RETURN_IF_ERROR(context_.bootstrap.max_in_place(&any, 1));
    any_device = any != 0;
  }
  return take_memory(memory, any_device, device);
}

Status Communicator::take_memory(MemoryModes::Class& memory, bool any_device, int device) {
  context_.process.counters().agreements.fetch_add(1, std::memory_order_relaxed);
  memory.mode = any_device ? Memory::kDevice : Memory::kHost;
  if (any_device && !backends_.ccl.was_tried() && disagreement_.empty()) {
    return backends_.ccl.set_up(device, *table_);
  }
  return {};
}

Result<const Route*> Communicator::route(Collective collective, std::optional<Bytes> bytes,
                                         select::DataType type, select::ReduceOp op, int device,
                                         select::Order order) {
  Shape shape{collective, bytes, type, op, Memory::kHost, order};
  MemoryModes::Class* agreed = nullptr;
  if (order != select::Order::kBlocking) {
    shape.memory = Memory::kDevice;
    TUTTI_RETURN_IF_ERROR(prepare_streams(order, device));
  } else if (asserted_) {
    shape.memory = *asserted_;
    // The same call on every rank, and the first that can show which GPU is this rank's.
    if (asserted_ == Memory::kDevice && !backends_.ccl.was_tried() && disagreement_.empty() &&
        collective != Collective::kBarrier) {
      TUTTI_RETURN_IF_ERROR(backends_.ccl.set_up(device, *table_));
    }
  } else if (collective != Collective::kBarrier && disagreement_.empty()) {
    // Ranks that disagree may also count to other agreements, and all their plans are native.
    agreed = &modes_->of(collective, bytes);
    if (!std::exchange(is_next_agreed_, false) && agreement_due(++agreed->calls)) {
      TUTTI_RETURN_IF_ERROR(agree_memory(*agreed, device));
    }
    shape.memory = agreed->mode;
  }
  if ((device >= 0) != (shape.memory == Memory::kDevice)) [[unlikely]] {
    context_.process.counters().misfits.fetch_add(1, std::memory_order_relaxed);
  }
  CachedRoute& cached = cached_route(shape);
  if (!cached.valid || cached.shape != shape) [[unlikely]] {
    if (cached.valid) {
      forget_routes();
    }
    cached.valid = false;
    TUTTI_ASSIGN_OR_RETURN(cached.route, decide(shape, device));
    cached.route.agreed = agreed;
    cached.shape = shape;
    cached.valid = true;
  }
  cached.route.calls->fetch_add(1, std::memory_order_relaxed);
  if (cached.route.fallbacks != nullptr) [[unlikely]] {
    cached.route.fallbacks->fetch_add(1, std::memory_order_relaxed);
  }
  if (cached.route.summary != nullptr) [[unlikely]] {
    Summary::current() = cached.route.summary;
  }
  last_route_ = &cached.route;
  return last_route_;
}

Result<Route> Communicator::route_of_refused(Collective collective, std::optional<Bytes> bytes,
                                             select::DataType type, select::ReduceOp op) {
  if (asserted_host_ && disagreement_.empty() && !backends_.host.was_tried()) {
    const Shape shape{collective, bytes, type, op, Memory::kHost, select::Order::kBlocking};
    const select::Decision decision = select::choose(shape, facts_to_choose_by(), *table_);
    if (decision.is_carried && &backends_.of(decision.plan, Memory::kHost) == &backends_.host &&
        backends_.host.post_set_up()) {
      return make_route(shape, decision.plan, /*fallback=*/{});
    }
  }
  TUTTI_ASSIGN_OR_RETURN(const Route* found, route(collective, bytes, type, op, /*device=*/-1));
  return *found;
}

Communicator::CachedRoute& Communicator::cached_route(const Shape& shape) {
  constexpr std::size_t kSizeMin = 8;
  constexpr std::size_t kSizeMax = 256;
  if (routes_.empty()) {
    routes_.resize(kSizeMin);
  }
  CachedRoute* cached = &routes_[cache_slot(shape, routes_.size())];
  if (cached->valid && cached->shape != shape && routes_.size() < kSizeMax) {
    last_route_ = nullptr;
    forget_routes();
    routes_ = std::vector<CachedRoute>(2 * routes_.size());
    cached = &routes_[cache_slot(shape, routes_.size())];
  }
  return *cached;
}

/// The same answer on every rank, which all make the same calls.
Status Communicator::prepare_streams(select::Order order, int device) {
  if (!has_devices_) {
    return Status(ErrorCode::kUnavailable,
                  "a call on a stream: not every rank has a GPU library (" +
                      context_.process.device_report().taken + " here)");
  }
  if (backends_.ccl.was_tried() || !disagreement_.empty()) {
    return {};
  }
  if (order == select::Order::kCaptured) {
    return Status(
        ErrorCode::kUnsupported,
        "the first call of a communicator on a stream sets up what it needs and cannot be "
        "captured: make one call before the capture begins");
  }
  return backends_.ccl.set_up(device, *table_);
}

/// Until they were tried, direct and our transport count as usable: the table is equal on all
/// ranks, so all of them come to the first rule that wants it together. `ccl_refusal`: of one
/// choice.
select::CommFacts Communicator::facts_to_choose_by(const std::string& ccl_refusal) const {
  select::CommFacts facts = context_.facts;
  if (!backends_.direct.was_tried()) {
    facts.direct_device_refusal.clear();
  }
  if (!backends_.host.was_tried()) {
    facts.direct_host_refusal.clear();
  }
  if (!backends_.net.was_tried()) {
    facts.net_refusal.clear();
  }
  if (!ccl_refusal.empty()) {
    facts.ccl_usable = false;
    facts.ccl_refusal = ccl_refusal;
  }
  return facts;
}

std::string Communicator::explain(const Shape& shape) const {
  select::CommFacts facts = facts_to_choose_by();
  if (!backends_.ccl.was_tried() && has_devices_) {
    facts.ccl_usable = true;
  }
  return select::explain_json(shape, facts, *table_);
}

Result<Route> Communicator::decide(const Shape& shape, int device, const std::string& reached_by) {
  if (!disagreement_.empty()) {
    return make_route(shape, select::native_plan(context_.facts), disagreement_);
  }
  std::optional<device::RelaxedCapture> relaxed;
  relax(&relaxed);  // Whatever has to be set up.
  std::string ccl_refusal;
  for (;;) {
    const select::Decision decision =
        select::choose(shape, facts_to_choose_by(ccl_refusal), *table_);
    if (!decision.is_carried) {
      return no_route(shape, decision, device);
    }
    TUTTI_RETURN_IF_ERROR(prepare(decision.plan, shape.memory, device, &ccl_refusal));
    // What no rule has chosen is not refused, whatever it is.
    if (decision.rule >= 0 &&
        !select::refusal(decision.plan, shape, facts_to_choose_by(ccl_refusal)).empty()) {
      continue;  // Agreed by all ranks, which choose again.
    }
    std::string fallback;
    if (!reached_by.empty()) {
      fallback = reached_by + "; using " + to_string(decision.plan) + " through host memory";
    } else if (!decision.refused.empty()) {
      const select::Refused& first = decision.refused.front();
      fallback = std::string(to_string(shape.collective)) + ": " + to_string(first.plan) +
                 " refused: " + first.reason + "; using " + to_string(decision.plan);
    }
    return make_route(shape, decision.plan, fallback);
  }
}

/// Its line of calls comes to be elsewhere.
Status Communicator::set_up_host() {
  calls_line_ = unread_line_.data();
  const Status made = backends_.host.set_up();
  set_calls_line();
  return made;
}

/// Where what was up is so no more, all routes are chosen again; and where our kernels have come
/// up, which captured calls did without.
Status Communicator::prepare(const select::Plan& plan, Memory memory, int device,
                             std::string* ccl_refusal) {
  PlanRunner& runner = backends_.of(plan, memory);
  const bool was_up = runner.is_up();
  const Status prepared = &runner == &backends_.host && !backends_.host.was_tried()
                              ? set_up_host()
                              : runner.prepare(plan, device, ccl_refusal);
  if (was_up != runner.is_up() && (was_up || &runner == &backends_.direct)) {
    for (CachedRoute& cached : routes_) {
      cached.valid = false;
    }
    forget_routes();
  }
  return prepared;
}

/// Without an MPI there may be no plan. Device memory that no GPU carries can still go through host
/// memory, but not in a graph (select::may_stage).
Result<Route> Communicator::no_route(Shape shape, const select::Decision& decision, int device) {
  std::string reasons;
  for (const auto* list : {&decision.refused, &decision.passed_over}) {
    for (const select::Refused& entry : *list) {
      const std::string reason = "; " + to_string(entry.plan) + ": " + entry.reason;
      reasons += reasons.find(reason) == std::string::npos ? reason : "";
    }
  }
  const std::string text = std::string(to_string(shape.collective)) +
                           ": nothing carries this call on " + to_string(shape.memory) +
                           " memory (" + to_string(shape.order) + ")" + reasons;
  if (!select::may_stage(shape, context_.facts)) {
    return Status(ErrorCode::kUnsupported, text);
  }
  shape.memory = Memory::kHost;
  shape.order = select::Order::kBlocking;
  auto staged = decide(shape, device, text);
  if (staged.ok()) {
    staged->is_through_host = true;
  }
  return staged.status().code() == ErrorCode::kUnsupported
             ? Status(ErrorCode::kUnsupported, text + "; " + staged.status().message())
             : std::move(staged);
}

Result<Route> Communicator::make_route(const Shape& shape, const select::Plan& plan,
                                       const std::string& fallback) {
  if (!fallback.empty() && strict_) {
    if (context_.is_speaker()) {
      log(LogLevel::kError, "TUTTI_STRICT: " + fallback);
    }
    return Status(ErrorCode::kFallback, fallback);
  }
  Route route;
  route.plan = plan;
  route.runner = &backends_.of(plan, shape.memory);
  route.memory = shape.memory;
  route.order = shape.order;
  const auto* const mpi = std::get_if<MpiPlan>(&plan);
  const auto* const alpha = std::get_if<select::AlphaPlan>(&plan);
  route.stages_device = !context_.facts.mpi_device_aware || (mpi != nullptr && mpi->staged) ||
                        (alpha != nullptr && alpha->staged);
  // Chunks only where every rank must expect staging, and only on what all ranks can divide alike.
  // What MPI refuses it refuses whole: an error between two chunks breaks the communicator.
  // A CCL plan with an MPI part is cut where its rule says so.
  if ((mpi != nullptr || (alpha != nullptr && (alpha->backend == Backend::kMpi ||
                                               (alpha->chunk_bytes && alpha->needs_mpi())))) &&
      shape.memory == Memory::kDevice && route.stages_device && shape.bytes &&
      !runners::has_counts(shape.collective) && shape.op != select::ReduceOp::kUser &&
      shape.type != select::DataType::kOther && !select::is_pair(shape.type) &&
      (shape.op == select::ReduceOp::kNone || select::is_defined(shape.op, shape.type))) {
    const Bytes chunk_bytes = (mpi != nullptr ? mpi->chunk_bytes : alpha->chunk_bytes)
                                  .value_or(context_.process.config().pipeline_chunk_bytes);
    route.chunk_bytes = *shape.bytes > chunk_bytes ? chunk_bytes : 0;
  }
  route.native_flat = mpi != nullptr && route.chunk_bytes == 0;
  route.calls = &context_.process.counters().plan(to_string(plan));
  if (Summary* summary = context_.process.summary(); summary != nullptr) {
    route.summary = summary->cell(shape.collective, shape.bytes, to_string(plan));
  }
  if (!fallback.empty()) {
    route.fallbacks = &context_.process.fallback(fallback, context_.is_speaker());
  }
  return route;
}

}  // namespace tutti::engine
