// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Bringing up the CCL for a communicator, so that it is usable on every rank or on none: the
// library and its version, a GPU of its own for each rank, and the library's own initialisation
// are each agreed before the next step. What fails is one clear line that names the rank.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.hpp"
#include "engine/communicator.hpp"

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

template <std::size_t N>
void put(char (&field)[N], const std::string& text) {
  std::strncpy(field, text.c_str(), N - 1);
}

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

Status Communicator::setup_ccl(int device) {
  ccl_tried_ = true;
  std::optional<device::RelaxedCapture> relaxed;
  relax(&relaxed);
  TUTTI_RETURN_IF_ERROR(agree_ccl(device));
  if (!facts_.ccl_usable && is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, "no CCL on this communicator: " + facts_.ccl_refusal);
  }
  return {};
}

Status Communicator::choose_device(int device) {
  device::Api& api = *process_.device();
  if (device_ < 0) {
    device_ = device >= 0 ? device : api.current_device();
  }
  TUTTI_RETURN_IF_ERROR(api.initialize());
  if (device_ < 0) {
    TUTTI_ASSIGN_OR_RETURN(const int count, api.device_count());
    if (count < 1) {
      return Status(ErrorCode::kUnavailable, "no GPU is visible");
    }
    device_ = machines_.local_of[static_cast<std::size_t>(place_.rank)] % count;
  }
  return {};
}

Status Communicator::agree_ccl(int device) {
  CclFacts mine;
  ccl::Library* library = nullptr;
  const auto explain = [&mine](const Status& status) {
    if (!status.ok()) {
      put(mine.reason, status.message());
    }
    return status.ok();
  };
  auto found = process_.ccl();
  if (explain(found.status())) {
    library = *found;
    mine.version = library->version();
    put(mine.name, library->name());
    if (explain(choose_device(device))) {
      auto identity = process_.device()->identity(device_);
      if (explain(identity.status())) {
        put(mine.gpu, *identity);
        mine.usable = 1;
      }
    }
  }
  std::vector<CclFacts> all(static_cast<std::size_t>(place_.ranks));
  TUTTI_RETURN_IF_ERROR(bootstrap_.allgather(&mine, all.data(), sizeof(mine)));
  facts_.ccl_refusal = refusal_of(all, machines_);
  if (!facts_.ccl_refusal.empty() || library == nullptr) {
    return {};
  }
  facts_.ccl_name = all[0].name;
  ccl_runner_ =
      std::make_unique<runners::CclRunner>(*library, *process_.device(), device_, bootstrap_,
                                           process_.scratch(), process_.config().timeout_s, end_,
                                           /*takes_turns=*/!is_concurrent_);
  TUTTI_RETURN_IF_ERROR(init_ccl_scope(runners::Scope::kWhole, &facts_.ccl_refusal));
  facts_.ccl_usable = facts_.ccl_refusal.empty();
  if (facts_.ccl_usable && is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, std::string(library->name()) + " " +
                             ccl::format_version(library->version()) + " (" + library->path() +
                             ", " + library->found_by() + ") on " + mine.gpu);
  }
  return facts_.ccl_usable ? setup_device_reductions() : Status();
}

/// What schedules over the CCL reduce with; the table, equal on all ranks, says whether there are
/// any.
Status Communicator::setup_device_reductions() {
  const bool wanted =
      std::any_of(table_->rules.begin(), table_->rules.end(), [](const select::Rule& rule) {
        return rule.plan.backend == select::Backend::kSchedule &&
               rule.plan.carrier == select::Backend::kCcl;
      });
  if (!wanted) {
    return {};
  }
  auto combine = runners::DeviceCombine::create(*process_.device(), device_);
  std::string refusal;
  TUTTI_RETURN_IF_ERROR(agree_step(combine.status(), "has no kernels to reduce with", &refusal));
  facts_.device_reduces = refusal.empty();
  if (facts_.device_reduces) {
    device_combine_ = std::make_unique<runners::DeviceCombine>(std::move(*combine));
  } else if (is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, "no reductions of device memory on this communicator: " + refusal);
  }
  return {};
}

Status Communicator::init_ccl_scope(runners::Scope scope, std::string* refusal) {
  if (ccl_runner_ == nullptr) {
    *refusal = facts_.ccl_refusal;
    return {};
  }
  // Every rank of the communicator holds the same view of which scopes are up.
  if (ccl_scopes_[static_cast<std::size_t>(scope)]) {
    return {};
  }
  std::string& known_refusal = ccl_scope_refusals_[static_cast<std::size_t>(scope)];
  if (!known_refusal.empty()) {
    *refusal = known_refusal;
    return {};
  }
  Status status;
  ccl::UniqueId id{};
  TUTTI_RETURN_IF_ERROR(share_ccl_id(scope, &id, &status));
  if (status.ok()) {
    status = ccl_runner_->init_scope(scope, id);
  }
  TUTTI_RETURN_IF_ERROR(agree_step(status, kInitialise, &known_refusal));
  if (!known_refusal.empty()) {
    *refusal = known_refusal;
    return {};
  }
  ccl_scopes_[static_cast<std::size_t>(scope)] = true;
  return {};
}

Status Communicator::share_ccl_id(runners::Scope scope, ccl::UniqueId* id, Status* status) {
  struct Ticket {
    ccl::UniqueId id{};
    std::int32_t ok = 0;
  } ticket;
  const runners::ScopeRank me = bootstrap_.scope_rank(scope);
  if (me.rank == 0) {
    auto found = process_.ccl();
    auto made = found.ok() ? (*found)->unique_id() : Result<ccl::UniqueId>(found.status());
    if (made.ok()) {
      ticket.id = *made;
      ticket.ok = 1;
    } else {
      *status = made.status();
    }
  }
  std::vector<Ticket> all(static_cast<std::size_t>(place_.ranks));
  TUTTI_RETURN_IF_ERROR(bootstrap_.allgather(&ticket, all.data(), sizeof(ticket)));
  // Rank 0 leads its node, and is the first of the leaders and of the whole.
  const auto first = scope == runners::Scope::kNode
                         ? placement_.ranks_of[static_cast<std::size_t>(
                               placement_.node_of[static_cast<std::size_t>(place_.rank)])][0]
                         : 0;
  const Ticket& taken = all[static_cast<std::size_t>(first)];
  if (me.rank >= 0 && taken.ok == 0 && status->ok()) {
    *status = Status(ErrorCode::kLibraryFailed, "rank 0 of the scope made no unique id");
  }
  *id = taken.id;
  return {};
}

Status Communicator::prepare_pipeline(const select::Plan& plan) {
  const bool has_comms = plan.pipeline == select::Pipeline::kComms;
  std::string& refusal = has_comms ? facts_.comms_refusal : facts_.streams_refusal;
  if (pipeline_streams_ < plan.chunks) {
    TUTTI_RETURN_IF_ERROR(
        agree_step(ccl_runner_->make_streams(plan.chunks), kInitialise, &refusal));
    if (!refusal.empty()) {
      return {};
    }
    pipeline_streams_ = plan.chunks;
  }
  // One after the other, each agreed: no rank waits for one that will not come to the next.
  while (has_comms && pipeline_comms_ < plan.chunks) {
    ccl::UniqueId id{};
    Status status;
    TUTTI_RETURN_IF_ERROR(share_ccl_id(runners::Scope::kWhole, &id, &status));
    if (status.ok()) {
      status = ccl_runner_->add_communicator(id);
    }
    TUTTI_RETURN_IF_ERROR(agree_step(status, kInitialise, &refusal));
    if (!refusal.empty()) {
      return {};
    }
    ++pipeline_comms_;
  }
  return {};
}

}  // namespace tutti::engine
