// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// From a call's shape to its route: the memory agreed, the plan chosen, what it needs set up.
#include "engine/communicator.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/compositions.hpp"
#include "engine/placement.hpp"

namespace tutti::engine {

using select::Backend;
using select::Collective;
using select::Composition;
using select::Memory;
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
    return !select::is_native_flat(rule.plan) && is_for(rule, collective, memory);
  });
}

/// Whether a rule may be the one for a collective, on that memory or on any.
bool Communicator::is_for(const select::Rule& rule, Collective collective,
                          std::optional<Memory> memory) const {
  const std::vector<Collective>& meant = rule.collectives;
  return select::may_match(rule, facts_) && (!memory || rule.memory.value_or(*memory) == *memory) &&
         (meant.empty() || std::find(meant.begin(), meant.end(), collective) != meant.end());
}

bool Communicator::may_be_apart(Collective collective) const {
  const std::optional<Memory> memory = has_any_device_ ? known_memory(collective) : Memory::kHost;
  return !memory ||
         std::any_of(table_->rules.begin(), table_->rules.end(), [&](const select::Rule& rule) {
           return !select::is_native_flat(rule.plan) &&
                  !(rule.plan.backend == Backend::kDirect && *memory == Memory::kHost) &&
                  is_for(rule, collective, memory);
         });
}

bool Communicator::can_act() const {
  if (!asserted_host_ || !disagreement_.empty() || mpi_ == nullptr || has_summary_) {
    return true;
  }
  return std::any_of(table_->rules.begin(), table_->rules.end(), [this](const select::Rule& rule) {
    return !select::is_native_flat(rule.plan) &&
           rule.memory.value_or(Memory::kHost) == Memory::kHost &&
           select::may_match(rule, facts_) &&
           // A shipped rule that cannot be carried is no fall-back to report.
           !(rule.optional && rule.plan.backend == Backend::kDirect && machines_.nodes() != 1);
  });
}

Status Communicator::agree_memory(MemoryModes::Class& memory, int device) {
  bool any_device = device >= 0;
  if (mpi_ != nullptr) {
    const Result<bool> agreed = mpi_->agree_on_call(calls_ + 1, any_device);
    if (agreed.status().code() == ErrorCode::kMismatch) {
      --memory.calls;  // The rank whose call was refused does not know of which class it is.
      pass_by();
    }
    TUTTI_RETURN_IF_ERROR(agreed.status());
    any_device = *agreed;
  } else {
    std::uint64_t any = any_device ? 1 : 0;
    TUTTI_RETURN_IF_ERROR(bootstrap_.max_in_place(&any, 1));
    any_device = any != 0;
  }
  process_.counters().agreements.fetch_add(1, std::memory_order_relaxed);
  memory.mode = any_device ? Memory::kDevice : Memory::kHost;
  if (any_device && !ccl_tried_ && disagreement_.empty()) {
    return setup_ccl(device);
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
    if (asserted_ == Memory::kDevice && !ccl_tried_ && disagreement_.empty() &&
        collective != Collective::kBarrier) {
      TUTTI_RETURN_IF_ERROR(setup_ccl(device));
    }
  } else if (collective != Collective::kBarrier) {
    agreed = &modes_->of(collective, bytes);
    if (!std::exchange(is_next_agreed_, false) && agreement_due(++agreed->calls)) {
      TUTTI_RETURN_IF_ERROR(agree_memory(*agreed, device));
    }
    shape.memory = agreed->mode;
  }
  if ((device >= 0) != (shape.memory == Memory::kDevice)) [[unlikely]] {
    process_.counters().misfits.fetch_add(1, std::memory_order_relaxed);
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
                      process_.device_report().taken + " here)");
  }
  if (ccl_tried_ || !disagreement_.empty()) {
    return {};
  }
  if (order == select::Order::kCaptured) {
    return Status(
        ErrorCode::kUnsupported,
        "the first call of a communicator on a stream sets up what it needs and cannot be "
        "captured: make one call before the capture begins");
  }
  return setup_ccl(device);
}

select::Decision Communicator::choose(const Shape& shape, select::CommFacts* facts) const {
  // Until it was tried, direct counts as usable: the table is equal on all ranks, so all of them
  // come to the first rule that wants it together.
  if (!direct_device_tried_) {
    facts->direct_device_refusal.clear();
  }
  if (!direct_host_tried_) {
    facts->direct_host_refusal.clear();
  }
  return select::choose(shape, *facts, *table_);
}

std::string Communicator::explain(const Shape& shape) const {
  select::CommFacts facts = facts_;
  if (!ccl_tried_ && has_devices_) {
    facts.ccl_usable = true;
  }
  static_cast<void>(choose(shape, &facts));
  return select::explain_json(shape, facts, *table_);
}

Result<Route> Communicator::decide(const Shape& shape, int device, const std::string& reached_by) {
  if (!disagreement_.empty()) {
    return make_route(shape, select::native_plan(facts_), disagreement_);
  }
  std::optional<device::RelaxedCapture> relaxed;
  relax(&relaxed);  // Whatever has to be set up.
  select::CommFacts facts = facts_;
  for (;;) {
    const select::Decision decision = choose(shape, &facts);
    const bool on_device = shape.memory == Memory::kDevice;
    if (decision.plan.backend == Backend::kDirect &&
        !(on_device ? direct_device_tried_ : direct_host_tried_)) {
      TUTTI_RETURN_IF_ERROR(setup_direct(shape.memory, device));
      facts.direct_device_refusal = facts_.direct_device_refusal;
      facts.direct_host_refusal = facts_.direct_host_refusal;
      continue;
    }
    if (decision.plan.copied && !copies_tried_) {
      TUTTI_RETURN_IF_ERROR(prepare_copies());
      facts.copies_refusal = facts_.copies_refusal;
      facts.direct_device_refusal = facts_.direct_device_refusal;
      continue;
    }
    if (!decision.is_carried) {
      return no_route(shape, decision, device);
    }
    std::string fallback;
    if (!reached_by.empty()) {
      fallback = reached_by + "; using " + to_string(decision.plan) + " through host memory";
    } else if (!decision.refused.empty()) {
      const select::Refused& first = decision.refused.front();
      fallback = std::string(to_string(shape.collective)) + ": " + to_string(first.plan) +
                 " refused: " + first.reason + "; using " + to_string(decision.plan);
    }
    if (decision.plan.composition == Composition::kAlpha) {
      std::string refusal;
      TUTTI_RETURN_IF_ERROR(prepare_alpha(decision.plan, &refusal));
      if (!refusal.empty()) {
        // Agreed by all ranks: choose again as if the CCL were not there.
        facts.ccl_usable = false;
        facts.ccl_refusal = refusal;
        facts.messages_refusal = facts_.messages_refusal;
        continue;
      }
    }
    if (decision.plan.pipeline != select::Pipeline::kNone) {
      TUTTI_RETURN_IF_ERROR(prepare_pipeline(decision.plan));
      facts.streams_refusal = facts_.streams_refusal;
      facts.comms_refusal = facts_.comms_refusal;
      if (!select::refusal(decision.plan, shape, facts).empty()) {
        continue;
      }
    }
    return make_route(shape, decision.plan, fallback);
  }
}

/// Without an MPI there may be no plan. Device memory that no GPU carries can still go through the
/// memory of the node, for a caller who waits (select::may_stage).
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
  if (!select::may_stage(shape, facts_)) {
    return Status(ErrorCode::kUnsupported, text);
  }
  shape.memory = Memory::kHost;
  auto staged = decide(shape, device, text);
  return staged.status().code() == ErrorCode::kUnsupported
             ? Status(ErrorCode::kUnsupported, text + "; " + staged.status().message())
             : std::move(staged);
}

Result<Route> Communicator::make_route(const Shape& shape, const select::Plan& plan,
                                       const std::string& fallback) {
  if (!fallback.empty() && strict_) {
    if (is_speaker()) {
      log(LogLevel::kError, "TUTTI_STRICT: " + fallback);
    }
    return Status(ErrorCode::kFallback, fallback);
  }
  Route route;
  route.plan = plan;
  if (!plan.parameters.chunk_bytes) {
    route.plan.parameters.chunk_bytes = process_.config().pipeline_chunk_bytes;
  }
  route.memory = shape.memory;
  route.order = shape.order;
  // Chunks only where every rank must expect staging, and only on what all ranks can divide alike.
  // What MPI refuses it refuses whole: an error between two chunks breaks the communicator.
  const bool staging = shape.memory == Memory::kDevice && (!facts_.mpi_device_aware || plan.staged);
  const bool chunked =
      plan.backend == Backend::kMpi && staging && shape.bytes &&
      !runners::has_counts(shape.collective) && shape.op != select::ReduceOp::kUser &&
      shape.type != select::DataType::kOther && !select::is_pair(shape.type) &&
      (shape.op == select::ReduceOp::kNone || select::is_defined(shape.op, shape.type)) &&
      *route.plan.parameters.chunk_bytes != 0 && *shape.bytes > *route.plan.parameters.chunk_bytes;
  if (!chunked) {
    route.plan.parameters.chunk_bytes = 0;
  }
  route.native_flat = select::is_native_flat(plan) && !chunked;
  route.calls = &process_.counters().plan(to_string(plan));
  if (Summary* summary = process_.summary(); summary != nullptr) {
    route.summary = summary->cell(shape.collective, shape.bytes, to_string(plan));
  }
  if (!fallback.empty()) {
    route.fallbacks = &process_.fallback(fallback, is_speaker());
  }
  return route;
}

runners::Runner& Communicator::runner(Backend backend) {
  if (backend == Backend::kCcl) {
    return *ccl_runner_;
  }
  if (backend == Backend::kDirect) {
    return *direct_runner_;
  }
  return *mpi_runner_;
}

Status Communicator::prepare_alpha(const select::Plan& plan, std::string* refusal) {
  if (!scopes_made_) {
    const Status made =
        bootstrap_.make_scopes(placement_.node_of[static_cast<std::size_t>(place_.rank)]);
    if (made.code() == ErrorCode::kUnavailable && bootstrap_.failure().ok()) {
      lose_messages();  // Agreed by all ranks.
      *refusal = facts_.messages_refusal;
      return {};
    }
    TUTTI_RETURN_IF_ERROR(made);
    scopes_made_ = true;
  }
  const Backend node = plan.parameters.node_backend.value_or(plan.backend);
  const Backend leaders = plan.parameters.leaders_backend.value_or(plan.backend);
  if (node == Backend::kCcl) {
    TUTTI_RETURN_IF_ERROR(init_ccl_scope(runners::Scope::kNode, refusal));
  }
  if (leaders == Backend::kCcl && refusal->empty()) {
    TUTTI_RETURN_IF_ERROR(init_ccl_scope(runners::Scope::kLeaders, refusal));
  }
  return {};
}

}  // namespace tutti::engine
