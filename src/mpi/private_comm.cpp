// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What makes, shares, splits and ends private communicators.
#include "mpi/private_comm.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mpi/library.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using runners::Scope;
using runners::ScopeRank;

namespace {

/// Private communicators of this process that each serve one of the application's alone, and at
/// most, splits included. Those that could not be freed count.
constexpr std::uint64_t kAloneMax = 8;
constexpr std::uint64_t kPrivateMax = 64;
/// Of a private communicator with scopes, beside the whole one.
constexpr std::int64_t kScopeComms = 2 * (runners::kScopeCount - 1);

std::mutex g_private_mutex;
std::vector<std::weak_ptr<PrivateComm>> g_private;  ///< In the order of their making.
std::uint64_t g_live = 0;
std::uint64_t g_number = 0;

void count_live(std::int64_t more) {
  const std::lock_guard lock(g_private_mutex);
  g_live += static_cast<std::uint64_t>(more);
}

/// The oldest one over the ranks of a communicator on which nothing is left behind; other ranks may
/// find another.
std::shared_ptr<PrivateComm> find_private(MPI_Comm application) {
  const std::lock_guard lock(g_private_mutex);
  std::erase_if(g_private, [](const auto& known) { return known.expired(); });
  for (const auto& known : g_private) {
    int order = MPI_UNEQUAL;
    std::shared_ptr<PrivateComm> found = known.lock();
    if (found != nullptr && !found->has_left && !found->has_missed &&
        pmpi.Comm_compare(application, found->comms[0], &order) == MPI_SUCCESS &&
        order == MPI_CONGRUENT) {
      return found;
    }
  }
  return nullptr;
}

void free_if_any(MPI_Comm* comm) {
  if (*comm != MPI_COMM_NULL) {
    pmpi.Comm_free(comm);
  }
}

}  // namespace

bool split(MPI_Comm from, int color, int key, MPI_Comm* made) {
  const QuietErrors quiet(from);
  if (pmpi.Comm_split(from, color, key, made) != MPI_SUCCESS) {
    *made = MPI_COMM_NULL;
    return false;
  }
  return *made == MPI_COMM_NULL ||
         pmpi.Comm_set_errhandler(*made, MPI_ERRORS_RETURN) == MPI_SUCCESS;
}

PrivateComm::~PrivateComm() {
  if (has_left || comms[0] == MPI_COMM_NULL) {
    return;
  }
  // MPICH ends the job where messages are left on a communicator that is freed. Those of steps,
  // which are MPI's own collectives, cannot be seen.
  int has_messages = 0;
  if (has_missed && (pmpi.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[0], &has_messages,
                                 MPI_STATUS_IGNORE) != MPI_SUCCESS ||
                     has_messages != 0)) {
    return;
  }
  for (MPI_Comm& comm : comms) {
    free_if_any(&comm);
  }
  for (MPI_Comm& comm : for_reduce) {
    if (!has_missed) {
      free_if_any(&comm);
    }
  }
  count_live(!has_scopes ? -1 : has_missed ? -1 - kScopeComms / 2 : -1 - kScopeComms);
}

Result<bool> Library::all_made(bool is_made) {
  std::uint64_t failed = is_made ? 0 : 1;
  TUTTI_RETURN_IF_ERROR(max_in_place(&failed, 1));
  return failed == 0;
}

Result<bool> Library::duplicate(bool may_share) {
  enum : std::size_t { kLive, kNumber, kShared, kSharedInverse, kCount };
  std::array<std::uint64_t, kCount> values{};
  std::shared_ptr<PrivateComm> found = may_share ? find_private(application_) : nullptr;
  {
    const std::lock_guard lock(g_private_mutex);
    values[kLive] = g_live;
    values[kNumber] = ++g_number;
  }
  values[kShared] = found != nullptr ? found->number : 0;
  values[kSharedInverse] = ~values[kShared];
  TUTTI_RETURN_IF_ERROR(max_in_place(values.data(), kCount));
  number_ = values[kNumber];
  {
    const std::lock_guard lock(g_private_mutex);
    g_number = std::max(g_number, number_);
  }
  if (values[kLive] >= kAloneMax && values[kShared] != 0 &&
      values[kShared] == ~values[kSharedInverse]) {
    private_ = std::move(found);
    TUTTI_RETURN_IF_ERROR(take_places());
    return true;
  }
  if (values[kLive] >= kPrivateMax) {
    return false;
  }
  auto made = std::make_shared<PrivateComm>();
  made->number = number_;
  const bool is_made = split(application_, 0, rank_, &made->comms[0]);
  TUTTI_ASSIGN_OR_RETURN(const bool have_all, all_made(is_made));
  if (!have_all) {
    free_if_any(&made->comms[0]);
    return false;
  }
  private_ = std::move(made);
  const std::lock_guard lock(g_private_mutex);
  ++g_live;
  g_private.push_back(private_);
  return true;
}

Status Library::make_scopes(int node) {
  if (private_ == nullptr) {
    return Status(ErrorCode::kUnavailable, "no communicator of ours to split");
  }
  if (private_->has_scopes) {  // Made for another communicator, on all of its ranks.
    return take_places();
  }
  // MPI_Comm_split waits without bound: no rank begins it before all have come this far.
  std::uint64_t unused = 0;
  TUTTI_RETURN_IF_ERROR(max_in_place(&unused, 1));
  return split_scopes(node);
}

Status Library::split_scopes(int node) {
  constexpr auto kNode = static_cast<std::size_t>(Scope::kNode);
  constexpr auto kLeaders = static_cast<std::size_t>(Scope::kLeaders);
  int rank_on_node = 0;
  std::vector<MPI_Comm*> made;
  for (auto* const some : {&private_->comms, &private_->for_reduce}) {
    for (const std::size_t scope : {kNode, kLeaders}) {
      MPI_Comm& comm = (*some)[scope];
      made.push_back(&comm);
      const int color = scope == kNode ? node : rank_on_node == 0 ? 0 : MPI_UNDEFINED;
      TUTTI_ASSIGN_OR_RETURN(const bool have_all, all_made(split(own(), color, rank_, &comm)));
      if (!have_all) {
        for (auto one = made.rbegin(); one != made.rend(); ++one) {
          free_if_any(*one);
        }
        return Status(ErrorCode::kUnavailable, "the MPI library has no more communicators");
      }
      if (scope == kNode) {
        pmpi.Comm_rank(comm, &rank_on_node);
      }
    }
  }
  private_->has_scopes = true;
  count_live(kScopeComms);
  return take_places();
}

Status Library::take_places() {
  for (const Scope scope : {Scope::kNode, Scope::kLeaders}) {
    ScopeRank& place = places_[static_cast<std::size_t>(scope)];
    place = {-1, 0};
    if (MPI_Comm comm = comm_of(scope); comm != MPI_COMM_NULL) {
      TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_rank(comm, &place.rank), "MPI_Comm_rank"));
      TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_size(comm, &place.ranks), "MPI_Comm_size"));
    }
  }
  return {};
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
