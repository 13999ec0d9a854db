// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our state of one MPI communicator, an attribute of it: made at its first collective, or with it
// (start_derived()), deleted by the attribute's callback when the communicator is freed, and by a
// callback on MPI_COMM_SELF when MPI_Finalize begins. No wrapper of Finalize or Comm_free is
// needed. Before its first message we ask whether every process of the communicator has this
// library (presence.hpp); where one has not, or cannot be asked about, the communicator is inert.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "engine/communicator.hpp"
#include "mpi/library.hpp"
#include "mpi/native_memo.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

struct CommState {
  MPI_Comm comm;
  engine::Hints hints;
  /// Null until the first collective, and after MPI_Finalize has begun.
  std::unique_ptr<Library> library;
  std::unique_ptr<engine::Communicator> engine;
  std::unique_ptr<NativeMemo> memo;        ///< Null until there is something to remember.
  std::unique_ptr<RefusedAtRoot> refused;  ///< The last such call, of those in doubt.
  /// Every call goes straight to MPI: an intercommunicator, nothing to gain, or shut down.
  bool inert = false;
  bool are_duplicates_inert = false;
  /// A first collective was tried; a failed set-up is not tried again: it fails every call, since
  /// what the other ranks came to is not known.
  bool started = false;
  Status failure;
};

/// Grows when a state is deleted or restarted, so that threads forget the communicator they
/// looked up last: MPI may give its handle to a new communicator.
extern std::atomic<std::uint64_t> g_generation;

/// The communicator a thread looked up last, with what a remembered call needs of its state: the
/// fewer loads wait for each other, the sooner the MPI library begins. Initial-exec: a call into
/// the loader for every collective would be half of what the preload costs. Where this library is
/// loaded late (PyTorch, NCCL), its few bytes come from the room that the C library keeps for such.
struct LastLookup {
  MPI_Comm comm;
  CommState* state;          ///< Null: inert.
  std::uint64_t generation;  ///< 0: none; generations start at 1.
  engine::Communicator* engine;
  const NativeMemo* memo;           ///< none() where there is none yet.
  const engine::KnownRoute* known;  ///< Of the call that is on its way, where devices may be.

  /// Null: there is none yet.
  void set_memo(const NativeMemo* found) { memo = found != nullptr ? found : &NativeMemo::none(); }
};
extern thread_local constinit LastLookup t_last __attribute__((tls_model("initial-exec")));

/// Whether the thread's last lookup was of this communicator and still holds.
inline bool is_last(MPI_Comm comm) {
  return t_last.comm == comm && t_last.generation == g_generation.load(std::memory_order_acquire);
}

/// Whether the state still exists, and has this engine: an error handler of the application may
/// free the communicator, or give it hints that start it anew. Takes a lock.
bool has_engine(const CommState* state, const engine::Communicator* engine);

/// The state of a communicator, started if this is its first collective. Null when the call
/// must go to MPI untouched (a null communicator, inert, MPI not running). When set-up failed, or
/// the state could not be made, which other ranks do not know of, `*error` holds the code to
/// return, already passed to the communicator's error handler.
CommState* comm_state_of(MPI_Comm comm, int* error);

/// The state for hints, without starting it; null when there can be none (a null communicator, MPI
/// not running).
Result<CommState*> comm_state_for_hints(MPI_Comm comm);
/// Looks only; null when the communicator has none.
CommState* existing_comm_state(MPI_Comm comm);
/// What a rank passed to MPI_Comm_split.
struct Split {
  int color;
  int key;
};
/// `derived` has just been derived from `comm`, by MPI_Comm_split or (null) by MPI_Comm_dup; it may
/// be MPI_COMM_NULL. Its state is started now where that is cheap, and else at its first
/// collective: the same on all ranks. An error: this rank cannot know what the others came to.
Status start_derived(MPI_Comm comm, MPI_Comm derived, const Split* split);
/// MPI has derived none on this rank, and may have on others.
void decline_derived(MPI_Comm comm);
/// New hints: the next collective starts the state anew.
void restart(CommState* state);

/// Info keys of a communicator.
inline constexpr const char* kPlanKey = "tutti_plan";
inline constexpr const char* kMemoryKindsKey = "mpi_assert_memory_alloc_kinds";
/// The key's value, empty when the info has none.
std::string info_value(MPI_Info info, const char* key);

/// Turns a failure into the communicator's MPI error: its error handler is called with a code
/// whose text is the message; returns the code.
int raise(MPI_Comm comm, const Status& status);

/// What was thrown, as far as there is memory to say it: "no memory" needs none.
Status thrown(const char* what);

/// Runs `body`, which returns a Status. Memory that ran out, a length over all bounds or a thread
/// that could not be had is an error of the call: the frames above are C's. What the application's
/// own handlers throw is theirs.
template <class Body>
Status guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::kOutOfMemory, "no memory");
  } catch (const std::logic_error& error) {
    return thrown(error.what());
  } catch (const std::system_error& error) {
    return thrown(error.what());
  }
}

/// The same for a body that returns an MPI code and has passed errors on.
template <class Body>
int guarded_code(MPI_Comm comm, Body body) {
  int code = MPI_SUCCESS;
  const Status status = guarded([&]() -> Status {
    code = body();
    return {};
  });
  return status.ok() ? code : raise(comm, status);
}

/// When MPI_COMM_WORLD has come about: finds out whether all of its ranks have this library.
void start_world();

/// After load_pmpi: keyvals are made at first use.
void load_comm_states(Lookup lookup);

/// True when every rank's MPI reads device memory itself, as far as this rank's library says.
bool mpi_is_device_aware(const char* device_name);

}  // namespace tutti::mpi::TUTTI_FLAVOUR
