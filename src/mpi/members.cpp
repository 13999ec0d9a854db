// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/members.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "mpi/launcher.hpp"
#include "mpi/library.hpp"
#include "mpi/pmpi.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {
namespace {

/// A group of this process alone, freed at the end of the block.
class Group {
 public:
  Group() : group_(MPI_GROUP_NULL) {}
  ~Group() {
    if (group_ != MPI_GROUP_NULL) {
      pmpi.Group_free(&group_);
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  MPI_Group* out() { return &group_; }
  MPI_Group get() const { return group_; }

 private:
  MPI_Group group_;
};

/// The processes that were started together, as ranks of MPI_COMM_WORLD, also where there is none
/// (sessions model). Calls `use` with the group; false when the library does not say.
template <class Use>
bool with_world_group(Lookup lookup, Use use) {
  Group world;
  if (has_world()) {
    return pmpi.Comm_group(MPI_COMM_WORLD, world.out()) == MPI_SUCCESS && use(world.get());
  }
#ifdef MPI_SESSION_NULL  // Also of Open MPI 5, whose MPI_VERSION is 3.
  auto* const init = reinterpret_cast<decltype(&PMPI_Session_init)>(lookup("PMPI_Session_init"));
  auto* const group_of = reinterpret_cast<decltype(&PMPI_Group_from_session_pset)>(
      lookup("PMPI_Group_from_session_pset"));
  auto* const finalize =
      reinterpret_cast<decltype(&PMPI_Session_finalize)>(lookup("PMPI_Session_finalize"));
  MPI_Session session = MPI_SESSION_NULL;
  if (init == nullptr || group_of == nullptr || finalize == nullptr ||
      init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS) {
    return false;
  }
  bool is_used = group_of(session, "mpi://WORLD", world.out()) == MPI_SUCCESS && use(world.get());
  if (world.get() != MPI_GROUP_NULL) {
    pmpi.Group_free(world.out());
  }
  finalize(&session);
  return is_used;
#else
  return false;
#endif
}

/// The communicator's processes as ranks of MPI_COMM_WORLD; -1: started apart from this one
/// (spawned, connected), or the library does not say.
std::vector<int> world_ranks_of(MPI_Comm comm, int ranks, Lookup lookup) {
  std::vector<int> found(static_cast<std::size_t>(ranks), -1);
  Group group;
  if (pmpi.Comm_group(comm, group.out()) != MPI_SUCCESS) {
    return found;
  }
  std::vector<int> own(static_cast<std::size_t>(ranks));
  std::iota(own.begin(), own.end(), 0);
  const bool is_known = with_world_group(lookup, [&](MPI_Group world) {
    // As after MPI_Comm_dup. Open MPI translates a rank by a comparison with each other one.
    int compared = MPI_UNEQUAL;
    if (pmpi.Group_compare(group.get(), world, &compared) == MPI_SUCCESS && compared == MPI_IDENT) {
      found = own;
      return true;
    }
    return pmpi.Group_translate_ranks(group.get(), ranks, own.data(), world, found.data()) ==
           MPI_SUCCESS;
  });
  std::replace_if(
      found.begin(), found.end(), [&](int rank) { return !is_known || rank < 0; }, -1);
  return found;
}

/// Why no message of ours may go to this communicator's processes, with the rank that says so;
/// empty when all of them have this library. Local: each rank with us comes to the same.
struct Absence {
  std::string text;
  int speaker = 0;
};
Absence absence_in(MPI_Comm comm, int ranks, Lookup lookup) {
  const std::vector<int> world_ranks = world_ranks_of(comm, ranks, lookup);
  const auto stranger = std::find(world_ranks.begin(), world_ranks.end(), -1);
  if (stranger != world_ranks.end()) {
    const auto known =
        std::find_if(world_ranks.begin(), world_ranks.end(), [](int rank) { return rank != -1; });
    return {"rank " + std::to_string(stranger - world_ranks.begin()) +
                " of a communicator was not started with this process (spawned or connected), and "
                "may be without Tutti: collectives with it are the MPI library's own",
            static_cast<int>(known - world_ranks.begin()) % ranks};
  }
  if (presence_is_unknown(kIsOpenMpi, lookup)) {
    return {};
  }
  const std::vector<Presence> found = presence_of(world_ranks);
  if (std::all_of(found.begin(), found.end(),
                  [](Presence rank) { return rank == Presence::kPresent; })) {
    return {};
  }
  // Where MPI was started past us, nobody is known to have us, and rank 0 speaks.
  const auto present = std::find(found.begin(), found.end(), Presence::kPresent);
  return {describe_absent(world_ranks),
          static_cast<int>(present - found.begin()) % static_cast<int>(found.size())};
}

}  // namespace

Status check_launcher(const engine::Process& process, int world_ranks) {
  static const std::string problem = world_ranks == 1 ? lost_peers(kIsOpenMpi) : std::string();
  if (problem.empty()) {
    return {};
  }
  static const bool is_logged = [] {
    log(LogLevel::kError, problem);
    return true;
  }();
  static_cast<void>(is_logged);
  return process.config().strict ? Status(ErrorCode::kUnsupported, problem) : Status();
}

Result<bool> all_have_us(const engine::Process& process, MPI_Comm comm, int rank, int ranks,
                         Lookup lookup) {
  if (ranks == 1) {
    return true;
  }
  const Absence absence = absence_in(comm, ranks, lookup);
  if (absence.text.empty()) {
    return true;
  }
  const Config& config = process.config();  // TUTTI_ENABLE=0 wants nothing else.
  if (config.enable && config.strict) {
    return Status(ErrorCode::kUnsupported, "TUTTI_STRICT: " + absence.text);
  }
  if (config.enable && absence.speaker == rank && first_to_report_absent()) {
    log(LogLevel::kWarn, absence.text);
  }
  return false;
}

void report_unknown_presence(int world_rank, int world_ranks, Lookup lookup) {
  if (world_rank != 0 || world_ranks == 1 || !presence_is_unknown(kIsOpenMpi, lookup)) {
    return;
  }
  static const bool is_logged = [] {
    log(LogLevel::kInfo,
        "this launcher does not say which ranks have Tutti: every rank must have the preload");
    return true;
  }();
  static_cast<void>(is_logged);
}

Status settle_world(Lookup lookup) {
  constexpr int kTag = 0x7475;
  int rank = 0;
  int ranks = 1;
  TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank"));
  TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size"));
  const auto is_present = [](int other) {
    return presence_of({other}).front() == Presence::kPresent;
  };
  if (ranks == 1 || presence_is_unknown(kIsOpenMpi, lookup) || !is_present(rank)) {
    return {};  // Nobody waits for this rank.
  }
  unsigned char are_all = 1;
  const auto send = [&](int peer) {
    return check(pmpi.Send(&are_all, 1, MPI_BYTE, peer, kTag, MPI_COMM_WORLD), "MPI_Send");
  };
  const auto receive = [&](int peer, unsigned char* value) {
    return check(pmpi.Recv(value, 1, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                 "MPI_Recv");
  };
  std::vector<int> children;
  for (int child = 2 * rank + 1; child <= 2 * rank + 2 && child < ranks; ++child) {
    unsigned char below = 0;
    if (is_present(child)) {
      children.push_back(child);
      TUTTI_RETURN_IF_ERROR(receive(child, &below));
    }
    are_all = static_cast<unsigned char>(are_all & below);
  }
  const int parent = (rank - 1) / 2;
  if (rank != 0 && is_present(parent)) {
    TUTTI_RETURN_IF_ERROR(send(parent));
    TUTTI_RETURN_IF_ERROR(receive(parent, &are_all));
  } else if (rank != 0) {
    are_all = 0;
  }
  for (const int child : children) {
    TUTTI_RETURN_IF_ERROR(send(child));
  }
  if (are_all != 0) {
    set_all_present();
    return {};
  }
  // Now, while no other thread can be in the MPI library, which speaks to the same store.
  std::vector<int> everyone(static_cast<std::size_t>(ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  static_cast<void>(presence_of(everyone));
  return {};
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
