// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Bringing up the CCL for a communicator, so that it is usable on every rank or on none: the
// library and its version, a GPU of its own for each rank, and the library's own initialisation
// are each agreed before the next step. What fails is one clear line that names the rank.
#include "engine/ccl_backend.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "base/log.hpp"

namespace tutti::engine {
namespace {

/// What a rank could not do with the CCL.
constexpr const char* kInitialise = "could not initialise it";

/// What a rank tells the others; fixed size, host byte order (one kind of node per job).
struct CclFacts {
  std::int32_t usable = 0;
  std::int32_t version = 0;
  char name[8] = {};
  char gpu[64] = {};
  char reason[240] = {};
};

/// The first reason, in rank order, why this communicator cannot use the CCL; empty: it can.
std::string refusal_of(const std::vector<CclFacts>& all, const topology::Layout& machines) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].usable == 0) {
      return "rank " + std::to_string(rank) + ": " + all[rank].reason;
    }
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].version != all[0].version ||
        std::strncmp(all[rank].name, all[0].name, sizeof(all[0].name)) != 0) {
      return "rank " + std::to_string(rank) + " has " + all[rank].name + " " +
             ccl::format_version(all[rank].version) + ", rank 0 has " + all[0].name + " " +
             ccl::format_version(all[0].version) + "; give all ranks the same library";
    }
  }
  for (const auto& node : machines.ranks_of) {
    for (std::size_t i = 0; i < node.size(); ++i) {
      for (std::size_t j = i + 1; j < node.size(); ++j) {
        const CclFacts& a = all[static_cast<std::size_t>(node[i])];
        const CclFacts& b = all[static_cast<std::size_t>(node[j])];
        if (std::strncmp(a.gpu, b.gpu, sizeof(a.gpu)) == 0) {
          return "ranks " + std::to_string(node[i]) + " and " + std::to_string(node[j]) +
                 " share " + a.gpu + "; give each rank a GPU of its own";
        }
      }
    }
  }
  return {};
}

}  // namespace

CclBackend::~CclBackend() {
  if (combine_ != nullptr && context_.calls->has_failed()) {
    combine_->abandon();
  }
}

Status CclBackend::set_up(int device, const select::Table& table) {
  was_tried_ = true;
  std::optional<device::RelaxedCapture> relaxed;
  context_.relax(&relaxed);
  TUTTI_RETURN_IF_ERROR(agree(device, table));
  if (!context_.facts.ccl_usable && context_.is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, "no CCL on this communicator: " + context_.facts.ccl_refusal);
  }
  return {};
}

Status CclBackend::agree(int device, const select::Table& table) {
  CclFacts mine;
  ccl::CclLibrary* library = nullptr;
  const auto explain = [&mine](const Status& status) {
    if (!status.ok()) {
      put_text(mine.reason, status.message());
    }
    return status.ok();
  };
  const Status chosen = context_.choose_device(device);  // For what else is on streams, too.
  auto found = context_.process.ccl();
  if (explain(found.status())) {
    library = *found;
    mine.version = library->version();
    put_text(mine.name, library->name());
    if (explain(chosen)) {
      auto identity = context_.process.device()->identity(context_.device);
      if (explain(identity.status())) {
        put_text(mine.gpu, *identity);
        mine.usable = 1;
      }
    }
  }
  std::vector<CclFacts> all(static_cast<std::size_t>(context_.me.ranks));
  TUTTI_RETURN_IF_ERROR(context_.bootstrap.allgather(&mine, all.data(), sizeof(mine)));
  context_.facts.ccl_refusal = refusal_of(all, context_.machines);
  if (!context_.facts.ccl_refusal.empty() || library == nullptr) {
    return {};
  }
  context_.facts.ccl_name = all[0].name;
  runner_ = std::make_unique<runners::CclRunner>(
      *library, *context_.process.device(), context_.device, context_.bootstrap,
      context_.process.scratch(), context_.timeout_s, context_.calls,
      /*takes_turns=*/!context_.is_concurrent);
  TUTTI_RETURN_IF_ERROR(init_scope(runners::Scope::kWhole, &context_.facts.ccl_refusal));
  context_.facts.ccl_usable = context_.facts.ccl_refusal.empty();
  if (context_.facts.ccl_usable && context_.is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, std::string(library->name()) + " " +
                             ccl::format_version(library->version()) + " (" + library->path() +
                             ", " + library->found_by() + ") on " + mine.gpu);
  }
  return context_.facts.ccl_usable ? set_up_reductions(table) : Status();
}

/// What schedules over the CCL reduce with; the table, equal on all ranks, says whether there are
/// any.
Status CclBackend::set_up_reductions(const select::Table& table) {
  const bool wanted =
      std::any_of(table.rules.begin(), table.rules.end(), [](const select::Rule& rule) {
        const auto* const schedule = std::get_if<select::SchedulePlan>(&rule.plan);
        return schedule != nullptr && schedule->carrier == select::Backend::kCcl;
      });
  if (!wanted) {
    return {};
  }
  auto combine = runners::DeviceCombine::create(*context_.process.device(), context_.device);
  std::string refusal;
  TUTTI_RETURN_IF_ERROR(
      context_.agree_step(combine.status(), "has no kernels to reduce with", &refusal));
  context_.facts.device_reduces = refusal.empty();
  if (context_.facts.device_reduces) {
    combine_ = std::make_unique<runners::DeviceCombine>(std::move(*combine));
  } else if (context_.is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, "no reductions of device memory on this communicator: " + refusal);
  }
  return {};
}

Status CclBackend::init_scope(runners::Scope scope, std::string* refusal) {
  if (runner_ == nullptr) {
    *refusal = context_.facts.ccl_refusal;
    return {};
  }
  // Every rank of the communicator holds the same view of which scopes are up.
  if (scopes_[static_cast<std::size_t>(scope)]) {
    return {};
  }
  std::string& known_refusal = scope_refusals_[static_cast<std::size_t>(scope)];
  if (!known_refusal.empty()) {
    *refusal = known_refusal;
    return {};
  }
  Status status;
  ccl::UniqueId id{};
  TUTTI_RETURN_IF_ERROR(share_id(scope, &id, &status));
  if (status.ok()) {
    status = runner_->init_scope(scope, id);
  }
  TUTTI_RETURN_IF_ERROR(context_.agree_step(status, kInitialise, &known_refusal));
  if (!known_refusal.empty()) {
    *refusal = known_refusal;
    return {};
  }
  scopes_[static_cast<std::size_t>(scope)] = true;
  return {};
}

Status CclBackend::share_id(runners::Scope scope, ccl::UniqueId* id, Status* status) {
  struct Ticket {
    ccl::UniqueId id{};
    std::int32_t ok = 0;
  } ticket;
  const runners::ScopeRank me = context_.bootstrap.scope_rank(scope);
  if (me.rank == 0) {
    auto found = context_.process.ccl();
    auto made = found.ok() ? (*found)->unique_id() : Result<ccl::UniqueId>(found.status());
    if (made.ok()) {
      ticket.id = *made;
      ticket.ok = 1;
    } else {
      *status = made.status();
    }
  }
  std::vector<Ticket> all(static_cast<std::size_t>(context_.me.ranks));
  TUTTI_RETURN_IF_ERROR(context_.bootstrap.allgather(&ticket, all.data(), sizeof(ticket)));
  // Rank 0 leads its node, and is the first of the leaders and of the whole.
  const auto first =
      scope == runners::Scope::kNode
          ? context_.placement.ranks_of[static_cast<std::size_t>(
                context_.placement.node_of[static_cast<std::size_t>(context_.me.rank)])][0]
          : 0;
  const Ticket& taken = all[static_cast<std::size_t>(first)];
  if (me.rank >= 0 && taken.ok == 0 && status->ok()) {
    *status = Status(ErrorCode::kLibraryFailed, "rank 0 of the scope made no unique id");
  }
  *id = taken.id;
  return {};
}

Status CclBackend::prepare(const select::Plan& plan, int /*device*/, std::string* /*ccl_refusal*/) {
  const auto* const pipeline = std::get_if<select::PipelinePlan>(&plan);
  if (pipeline == nullptr) {
    return {};
  }
  const bool has_comms = pipeline->kind == select::Pipeline::kComms;
  std::string& refusal = has_comms ? context_.facts.comms_refusal : context_.facts.streams_refusal;
  if (streams_ < pipeline->chunks) {
    TUTTI_RETURN_IF_ERROR(
        context_.agree_step(runner_->make_streams(pipeline->chunks), kInitialise, &refusal));
    if (!refusal.empty()) {
      return {};
    }
    streams_ = pipeline->chunks;
  }
  // One after the other, each agreed: no rank waits for one that will not come to the next.
  while (has_comms && comms_ < pipeline->chunks) {
    ccl::UniqueId id{};
    Status status;
    TUTTI_RETURN_IF_ERROR(share_id(runners::Scope::kWhole, &id, &status));
    if (status.ok()) {
      status = runner_->add_communicator(id);
    }
    TUTTI_RETURN_IF_ERROR(context_.agree_step(status, kInitialise, &refusal));
    if (!refusal.empty()) {
      return {};
    }
    ++comms_;
  }
  return {};
}

Status CclBackend::run(const Route& route, const runners::Call& call) {
  std::optional<device::RelaxedCapture> relaxed;
  relax_for(route, call, &relaxed);
  if (const auto* const schedule = std::get_if<select::SchedulePlan>(&route.plan)) {
    return run_schedule(*schedule, call);
  }
  if (const auto* const pipeline = std::get_if<select::PipelinePlan>(&route.plan)) {
    return runner_->run_pipeline(pipeline->kind, pipeline->chunks, call);
  }
  return runner_->run(runners::Scope::kWhole, call);
}

Status CclBackend::start(const Route& route, const runners::Call& call, device::Stream stream) {
  if (select::is<select::SchedulePlan>(route.plan) ||
      select::is<select::PipelinePlan>(route.plan)) {
    return PlanRunner::start(route, call, stream);
  }
  return runner_->enqueue_on(call, stream, route.order == select::Order::kCaptured);
}

Status CclBackend::run_schedule(const select::SchedulePlan& plan, const runners::Call& call) {
  if (schedule_runner_ == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(ccl::CclLibrary * library, context_.process.ccl());
    schedule_runner_ = std::make_unique<runners::CclScheduleRunner>(
        *runner_, *library, *context_.process.device(), context_.device, context_.bootstrap,
        context_.process.scratch(), context_.placement,
        combine_ == nullptr ? runners::DeviceReduce()
                            : runners::DeviceReduce(std::cref(*combine_)));
  }
  return schedule_runner_->run(plan.algorithm, schedule_parameters(plan), call);
}

}  // namespace tutti::engine
