// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/library.hpp"

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "mpi/types.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

Status check(int code, const char* what) {
  if (code == MPI_SUCCESS) {
    return {};
  }
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  pmpi.Error_string(code, text, &length);
  return Status::mpi(code, std::string(what) + ": " + text);
}

namespace {

std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  if (pmpi.Get_library_version(text, &length) != MPI_SUCCESS) {
    return "";
  }
  // Libraries with MPICH's ABI that are not MPICH's own begin otherwise.
  const std::string_view version(text);
  return version.starts_with("MPICH Version:") ? "mpich"
         : version.starts_with("Open MPI v")   ? "openmpi"
                                               : "";
}

const std::string& known_library_name() {
  static const std::string found = library_name();
  return found;
}

bool is_fatal(MPI_Comm comm) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  if (pmpi.Comm_get_errhandler(comm, &handler) != MPI_SUCCESS) {
    return true;
  }
  const bool found = handler == MPI_ERRORS_ARE_FATAL;
  pmpi.Errhandler_free(&handler);
  return found;
}

/// The communicator whose handler gets the errors of one. MPICH gives MPI_COMM_SELF and what
/// MPI_Comm_create and MPI_Intercomm_merge make no handler: MPI_COMM_WORLD's gets their errors, and
/// who asks hears MPI_ERRORS_ARE_FATAL.
MPI_Comm handled_on(MPI_Comm comm) {
  const bool may_have_none = known_library_name() == "mpich" && is_fatal(comm) && has_world();
  return may_have_none && !is_fatal(MPI_COMM_WORLD) ? MPI_COMM_WORLD : comm;
}

}  // namespace

bool has_world() {
  int flag = 0;
  return pmpi.Initialized(&flag) == MPI_SUCCESS && flag != 0;
}

void call_errhandler(MPI_Comm comm, int code) { pmpi.Comm_call_errhandler(handled_on(comm), code); }

// Where a communicator may have no handler of its own, none could be given back to it.
QuietErrors::QuietErrors(MPI_Comm comm)
    : comm_(comm),
      is_quiet_(handled_on(comm) == comm &&
                pmpi.Comm_get_errhandler(comm, &handler_) == MPI_SUCCESS &&
                pmpi.Comm_set_errhandler(comm, MPI_ERRORS_RETURN) == MPI_SUCCESS) {}

QuietErrors::~QuietErrors() {
  if (is_quiet_) {
    pmpi.Comm_set_errhandler(comm_, handler_);
    pmpi.Errhandler_free(&handler_);
  }
}

namespace {

std::mutex g_quiet_mutex;
// Not MPI_COMM_NULL at first: that is not known before the MPI library is.
MPI_Comm g_quiet{};
bool g_has_quiet = false;

}  // namespace

MPI_Comm quiet_comm() {
  const std::lock_guard lock(g_quiet_mutex);
  if (!g_has_quiet && has_world()) {
    g_has_quiet = split(MPI_COMM_SELF, 0, 0, &g_quiet);
  }
  return g_has_quiet ? g_quiet : MPI_COMM_NULL;
}

void free_quiet_comm() {
  const std::lock_guard lock(g_quiet_mutex);
  if (std::exchange(g_has_quiet, false)) {
    pmpi.Comm_free(&g_quiet);
  }
}

void ask_alone(const std::function<void(MPI_Comm)>& ask) {
  MPI_Comm alone = MPI_COMM_NULL;
  // Not split(): MPICH's MPI_COMM_SELF would then keep the handler that it has now.
  if (!has_world() || pmpi.Comm_split(MPI_COMM_SELF, 0, 0, &alone) != MPI_SUCCESS) {
    return;
  }
  if (pmpi.Comm_set_errhandler(alone, MPI_ERRORS_RETURN) == MPI_SUCCESS) {
    ask(alone);
  }
  pmpi.Comm_free(&alone);
}

Library::Library(MPI_Comm application, double timeout_s)
    : application_(application), timeout_s_(timeout_s) {
  pmpi.Comm_rank(application, &rank_);
  pmpi.Comm_size(application, &ranks_);
  places_[0] = {rank_, ranks_};
}

Library::~Library() {
  constexpr double kRefusalS = 1;  // The others are about to free this communicator, too.
  bool is_settled = settle_within(kRefusalS).ok();
  while (is_settled && !doubts_.empty()) {
    is_settled = settle_doubt(kRefusalS).ok() && late_doubts_ == 0;
  }
  if (!is_settled) {
    leave();
  }
  for (PendingAgreement& doubt : doubts_) {
    static_cast<void>(doubt.values.release());  // MPI may still write there.
  }
}

Status Library::own_check(int code, const char* what) const {
  Status status = check(code, what);
  return status.ok() || private_ != nullptr
             ? status
             : Status::mpi(status.mpi_code(), status.message(), /*raised=*/true);
}

std::string Library::name() const { return known_library_name(); }

/// MPI 4.1 section 3.7.4 wants a blocked call to let others' messages complete. A probe enters the
/// library's progress and takes no message.
void Library::progress() {
  int found = 0;
  // No wildcards: an application may have asserted that none are used (mpi_assert_no_any_source).
  pmpi.Iprobe(rank_, 0, application_, &found, MPI_STATUS_IGNORE);
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
