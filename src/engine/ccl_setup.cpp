// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Bringing up the CCL for a communicator, so that it is usable on every rank or on none: the
// library and its version, a GPU of its own for each rank, and the library's own initialisation
// are each agreed before the next step. What fails is one clear line that names the rank.
#include <array>
#include <cstring>

#include "base/log.hpp"
#include "engine/communicator.hpp"

namespace tutti::engine {
namespace {

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
  TUTTI_RETURN_IF_ERROR(mpi_.allgather(&mine, all.data(), sizeof(mine)));
  facts_.ccl_refusal = refusal_of(all, machines_);
  if (!facts_.ccl_refusal.empty() || library == nullptr) {
    return {};
  }
  facts_.ccl_name = all[0].name;
  ccl_runner_ = std::make_unique<runners::CclRunner>(
      *library, *process_.device(), device_, mpi_, process_.scratch(), process_.config().timeout_s);
  TUTTI_RETURN_IF_ERROR(init_ccl_scope(runners::Scope::kWhole, &facts_.ccl_refusal));
  facts_.ccl_usable = facts_.ccl_refusal.empty();
  if (facts_.ccl_usable && is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, std::string(library->name()) + " " +
                             ccl::format_version(library->version()) + " (" + library->path() +
                             ", " + library->found_by() + ") on " + mine.gpu);
  }
  return {};
}

Status Communicator::init_ccl_scope(runners::Scope scope, std::string* refusal) {
  if (ccl_runner_ == nullptr) {
    *refusal = facts_.ccl_refusal;
    return {};
  }
  const runners::ScopeRank me = mpi_.scope_rank(scope);
  // Every rank of the communicator holds the same view of which scopes are up.
  if (ccl_scopes_[static_cast<std::size_t>(scope)]) {
    return {};
  }
  std::string& known_refusal = ccl_scope_refusals_[static_cast<std::size_t>(scope)];
  if (!known_refusal.empty()) {
    *refusal = known_refusal;
    return {};
  }
  struct Ticket {
    ccl::UniqueId id{};
    std::int32_t ok = 0;
  } ticket;
  Status status;
  if (me.rank == 0) {
    auto found = process_.ccl();
    auto id = found.ok() ? (*found)->unique_id() : Result<ccl::UniqueId>(found.status());
    if (id.ok()) {
      ticket.id = *id;
      ticket.ok = 1;
    } else {
      status = id.status();
    }
  }
  if (me.rank >= 0) {
    runners::Call bcast;
    bcast.collective = select::Collective::kBcast;
    bcast.recv = &ticket;
    bcast.count = sizeof(ticket);
    TUTTI_RETURN_IF_ERROR(mpi_.collective(scope, bcast));
    if (ticket.ok == 0 && status.ok()) {
      status = Status(ErrorCode::kLibraryFailed, "rank 0 of the scope made no unique id");
    }
    if (status.ok()) {
      status = ccl_runner_->init_scope(scope, ticket.id);
    }
  }
  // Agreed over the whole communicator: usable for all or for none. The highest rank is named.
  std::uint64_t failed = status.ok() ? 0 : static_cast<std::uint64_t>(place_.rank) + 1;
  TUTTI_RETURN_IF_ERROR(mpi_.max_in_place(&failed, 1));
  if (failed != 0) {
    if (!status.ok()) {
      log(LogLevel::kWarn, status.message());
    }
    known_refusal = "rank " + std::to_string(failed - 1) + " could not initialise it (see its log)";
    *refusal = known_refusal;
    return {};
  }
  ccl_scopes_[static_cast<std::size_t>(scope)] = true;
  return {};
}

}  // namespace tutti::engine
