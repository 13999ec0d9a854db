// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/comm_state.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "mpi/members.hpp"
#include "mpi/types.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

std::atomic<std::uint64_t> g_generation{1};
thread_local constinit LastLookup t_last{};

namespace {

Lookup g_lookup = nullptr;

/// Guards keyvals, the error class and the list of states; never held across MPI communication.
std::mutex g_mutex;
std::atomic<int> g_state_keyval = MPI_KEYVAL_INVALID;  ///< Read without it, too.
int g_shutdown_keyval = MPI_KEYVAL_INVALID;
std::vector<CommState*> g_states;

int do_not_copy(MPI_Comm /*comm*/, int /*keyval*/, void* /*extra*/, void* /*in*/, void* /*out*/,
                int* flag) {
  *flag = 0;
  return MPI_SUCCESS;
}

void stop(CommState* state) {
  state->memo.reset();
  state->engine.reset();
  state->library.reset();
  state->inert = true;
  state->are_duplicates_inert = false;
}

int delete_state(MPI_Comm /*comm*/, int /*keyval*/, void* value, void* /*extra*/) {
  auto* state = static_cast<CommState*>(value);
  g_generation.fetch_add(1, std::memory_order_acq_rel);
  {
    const std::lock_guard lock(g_mutex);
    g_states.erase(std::remove(g_states.begin(), g_states.end(), state), g_states.end());
  }
  stop(state);
  delete state;
  return MPI_SUCCESS;
}

/// MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else: all of MPI still
/// works here. Threads may have made states in another order on each rank: what waits for peers
/// is begun for all of them before the first is waited for.
int shut_down(MPI_Comm /*comm*/, int /*keyval*/, void* /*value*/, void* /*extra*/) {
  g_generation.fetch_add(1, std::memory_order_acq_rel);
  std::vector<CommState*> states;
  {
    const std::lock_guard lock(g_mutex);
    states = g_states;
  }
  for (CommState* state : states) {
    if (state->engine != nullptr) {
      state->engine->begin_end();
    }
  }
  for (CommState* state : states) {
    stop(state);
  }
  free_quiet_comm();
  engine::Process& process = engine::Process::get();
  process.release_scratch();
  const Status summarized = guarded([&]() -> Status {
    int rank = 0;
    int ranks = 1;
    if (engine::Summary* summary = process.summary();
        summary != nullptr && pmpi.Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS && rank == 0 &&
        pmpi.Comm_size(MPI_COMM_WORLD, &ranks) == MPI_SUCCESS) {
      log_text(summary->table(rank, ranks));
    }
    return {};
  });
  static_cast<void>(summarized);  // No memory for a table: the job itself went well.
  return MPI_SUCCESS;
}

/// A program with a communicator in its hand has started MPI, in one way or the other.
bool is_finalized() {
  int flag = 0;
  return pmpi.Finalized(&flag) != MPI_SUCCESS || flag != 0;
}

Status ensure_keyvals() {
  const std::lock_guard lock(g_mutex);
  if (g_state_keyval == MPI_KEYVAL_INVALID) {
    int keyval = MPI_KEYVAL_INVALID;
    TUTTI_RETURN_IF_ERROR(
        check(pmpi.Comm_create_keyval(do_not_copy, delete_state, &keyval, nullptr),
              "MPI_Comm_create_keyval"));
    g_state_keyval = keyval;
  }
  // Without a world (sessions model) each communicator is freed before its session ends.
  if (g_shutdown_keyval == MPI_KEYVAL_INVALID && has_world()) {
    int keyval = MPI_KEYVAL_INVALID;
    TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_create_keyval(do_not_copy, shut_down, &keyval, nullptr),
                                "MPI_Comm_create_keyval"));
    Status set = check(pmpi.Comm_set_attr(MPI_COMM_SELF, keyval, nullptr), "MPI_Comm_set_attr");
    if (!set.ok()) {
      // Each call tries again. Raised so far on MPI_COMM_SELF alone, not on the call's
      // communicator.
      pmpi.Comm_free_keyval(&keyval);
      return set;
    }
    g_shutdown_keyval = keyval;
  }
  return {};
}

Result<CommState*> attach(MPI_Comm comm) {
  auto state = std::make_unique<CommState>();
  state->comm = comm;
  if (const int code = pmpi.Comm_set_attr(comm, g_state_keyval, state.get()); code != MPI_SUCCESS) {
    return Status::mpi(code, "MPI_Comm_set_attr", /*raised=*/true);
  }
  const std::lock_guard lock(g_mutex);
  g_states.push_back(state.get());
  return state.release();
}

/// Whether the library keeps keys of an info that it does not know, as MPICH 5 and Open MPI 5 do
/// not. Asked once: a communicator's info takes as long as a short collective. True in doubt.
bool keeps_hints() {
  static const bool keeps = [] {
    bool are_found = true;
    ask_alone([&](MPI_Comm alone) {
      MPI_Info given = MPI_INFO_NULL;
      MPI_Info kept = MPI_INFO_NULL;
      if (pmpi.Info_create(&given) != MPI_SUCCESS) {
        return;
      }
      pmpi.Info_set(given, kPlanKey, "mpi");
      pmpi.Info_set(given, kMemoryKindsKey, "mpi");
      if (pmpi.Comm_set_info(alone, given) == MPI_SUCCESS &&
          pmpi.Comm_get_info(alone, &kept) == MPI_SUCCESS) {
        are_found =
            !info_value(kept, kPlanKey).empty() || !info_value(kept, kMemoryKindsKey).empty();
        pmpi.Info_free(&kept);
      }
      pmpi.Info_free(&given);
    });
    return are_found;
  }();
  return keeps;
}

/// Hints that came with a communicator in a way we do not stand in front of, as far as MPI kept
/// them.
void take_missing_hints(CommState* state) {
  if (!keeps_hints()) {
    return;
  }
  MPI_Info info = MPI_INFO_NULL;
  if (pmpi.Comm_get_info(state->comm, &info) != MPI_SUCCESS || info == MPI_INFO_NULL) {
    return;
  }
  for (auto [key, hint] : {std::pair(kPlanKey, &state->hints.plan),
                           std::pair(kMemoryKindsKey, &state->hints.memory_kinds)}) {
    if (hint->empty()) {
      *hint = info_value(info, key);
    }
  }
  pmpi.Info_free(&info);
}

engine::RankInfo rank_info(const Library& library) {
  engine::RankInfo me;
  me.rank = library.rank();
  me.ranks = library.ranks();
  // World rank 0 speaks; without a world (sessions model) each communicator's rank 0 does.
  me.world_rank = me.rank;
  me.world_ranks = me.ranks;
  if (has_world()) {
    pmpi.Comm_rank(MPI_COMM_WORLD, &me.world_rank);
    pmpi.Comm_size(MPI_COMM_WORLD, &me.world_ranks);
  }
  int threads = MPI_THREAD_SINGLE;
  me.thread_multiple = pmpi.Query_thread(&threads) == MPI_SUCCESS && threads == MPI_THREAD_MULTIPLE;
  me.types_hash = ask_library_types();
  me.keeps_hints = keeps_hints();
  return me;
}

void keep(CommState* state, std::unique_ptr<engine::Communicator> engine) {
  state->inert = engine->is_inert();
  state->are_duplicates_inert = engine->are_duplicates_inert();
  if (state->inert) {
    engine.reset();
    state->library.reset();  // Nobody asks them again; a program may have thousands.
  } else {
    state->engine = std::move(engine);
  }
}

Status start(CommState* state) {
  state->started = true;
  int is_inter = 0;
  if (pmpi.Comm_test_inter(state->comm, &is_inter) != MPI_SUCCESS || is_inter != 0) {
    state->inert = true;
    return {};
  }
  engine::Process& process = engine::Process::get();
  state->library = std::make_unique<Library>(state->comm, process.config().timeout_s);
  engine::RankInfo me = rank_info(*state->library);
  if (has_world()) {
    TUTTI_RETURN_IF_ERROR(check_launcher(process, me.world_ranks));
  }
  process.report_configuration(me.world_rank);
  report_unknown_presence(me.world_rank, me.world_ranks, g_lookup);
  TUTTI_ASSIGN_OR_RETURN(const bool is_ours,
                         all_have_us(process, state->comm, me.rank, me.ranks, g_lookup));
  if (!is_ours) {
    state->library.reset();
    state->inert = true;
    return {};
  }
  me.mpi_device_aware =
      process.device() != nullptr && mpi_is_device_aware(process.device()->name());
  take_missing_hints(state);
  TUTTI_ASSIGN_OR_RETURN(
      auto created, engine::Communicator::create(process, *state->library, state->library.get(), me,
                                                 state->hints));
  keep(state, std::move(created));
  return {};
}

/// Of `state`'s communicator, derived from `parent`, all ranks of which have us.
Status start_derived_state(engine::ParentCommunicator& parent, CommState* state) {
  const engine::Process& process = parent.communicator().process();
  state->library = std::make_unique<Library>(state->comm, process.config().timeout_s);
  TUTTI_ASSIGN_OR_RETURN(auto created, engine::Communicator::create_derived(
                                           parent, *state->library, rank_info(*state->library)));
  if (created == nullptr) {
    state->library.reset();
    return {};
  }
  state->started = true;
  keep(state, std::move(created));
  return {};
}

}  // namespace

void start_world() {
  const Status settled = guarded([] { return settle_world(g_lookup); });
  static_cast<void>(settled);  // MPI has raised its error; what is not known is asked for later.
}

void load_comm_states(Lookup lookup) { g_lookup = lookup; }

std::string info_value(MPI_Info info, const char* key) {
  char value[MPI_MAX_INFO_VAL + 1] = {};
  int found = 0;
  if (info == MPI_INFO_NULL ||
      pmpi.Info_get(info, key, MPI_MAX_INFO_VAL, value, &found) != MPI_SUCCESS || found == 0) {
    return {};
  }
  return value;
}

bool has_engine(const CommState* state, const engine::Communicator* engine) {
  const std::lock_guard lock(g_mutex);
  return std::find(g_states.begin(), g_states.end(), state) != g_states.end() &&
         state->engine.get() == engine;
}

CommState* existing_comm_state(MPI_Comm comm) {
  if (g_state_keyval == MPI_KEYVAL_INVALID) {
    return nullptr;
  }
  void* value = nullptr;
  int found = 0;
  if (pmpi.Comm_get_attr(comm, g_state_keyval, static_cast<void*>(&value), &found) != MPI_SUCCESS ||
      found == 0) {
    return nullptr;
  }
  return static_cast<CommState*>(value);
}

Result<CommState*> comm_state_for_hints(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL || is_finalized()) {
    return nullptr;
  }
  TUTTI_RETURN_IF_ERROR(ensure_keyvals());
  CommState* state = existing_comm_state(comm);
  return state != nullptr ? state : attach(comm);
}

void restart(CommState* state) {
  // Threads that looked it up last would take it for started again, with or without an engine.
  g_generation.fetch_add(1, std::memory_order_acq_rel);
  state->memo.reset();
  state->refused.reset();
  state->engine.reset();
  state->library.reset();
  state->inert = false;
  state->are_duplicates_inert = false;
  state->started = false;
  state->failure = {};
}

Status start_derived(MPI_Comm comm, MPI_Comm derived, const Split* split) {
  const CommState* const parent_state = existing_comm_state(comm);
  if (parent_state == nullptr) {
    return {};
  }
  CommState* state = nullptr;
  if (parent_state->engine == nullptr) {
    if (parent_state->are_duplicates_inert && split == nullptr) {
      TUTTI_ASSIGN_OR_RETURN(state, comm_state_for_hints(derived));
    }
    if (state != nullptr) {
      state->started = state->inert = state->are_duplicates_inert = true;
    }
    return {};
  }
  engine::Communicator& engine = *parent_state->engine;
  Status started = guarded([&]() -> Status {
    if (!engine.become_parent()) {
      return {};
    }
    engine::ParentCommunicator parent(engine, split == nullptr ? 0 : split->color,
                                      split == nullptr ? 0 : split->key);
    TUTTI_ASSIGN_OR_RETURN(state, comm_state_for_hints(derived));
    return state == nullptr ? Status() : start_derived_state(parent, state);
  });
  if (!started.ok() && state != nullptr) {
    state->started = true;
    state->failure = started;
  } else if (!started.ok()) {
    engine.fail(started);
  }
  return started;
}

void decline_derived(MPI_Comm comm) {
  CommState* parent = nullptr;
  {
    // Not by the attribute: who passed no communicator has heard so once.
    const std::lock_guard lock(g_mutex);
    const auto found = std::find_if(g_states.begin(), g_states.end(),
                                    [comm](const CommState* one) { return one->comm == comm; });
    parent = found == g_states.end() ? nullptr : *found;
  }
  if (parent != nullptr && parent->engine != nullptr) {
    parent->engine->withdraw_as_parent();
  }
}

CommState* comm_state_of(MPI_Comm comm, int* error) {
  // The generation first, and as it was before the state was looked up: with another one the
  // state may be gone.
  const std::uint64_t generation = g_generation.load(std::memory_order_acquire);
  if (t_last.generation == generation && t_last.comm == comm) [[likely]] {
    return t_last.state;
  }
  CommState* state = nullptr;
  const Status found = guarded([&]() -> Status {
    TUTTI_ASSIGN_OR_RETURN(state, comm_state_for_hints(comm));
    return {};
  });
  if (!found.ok()) {
    // The other ranks are in our first agreement, which MPI's own collective would not meet.
    *error = raise(comm, found);
    return nullptr;
  }
  if (state == nullptr) {
    return nullptr;
  }
  if (!state->started) {
    state->failure = guarded([&] { return start(state); });
    if (!state->failure.ok() && state->library != nullptr) {
      state->library->leave();  // The other ranks may be further.
    }
  }
  if (!state->failure.ok()) {
    const Status failure = state->failure;
    if (failure.raised()) {  // By MPI, once: from now on it is ours to raise.
      state->failure = Status::mpi(failure.mpi_code(), failure.message());
    }
    *error = raise(comm, failure);  // Last: an error handler may free the communicator.
    return nullptr;
  }
  t_last = {comm,   state->inert ? nullptr : state, generation, state->engine.get(), nullptr,
            nullptr};
  t_last.set_memo(state->inert ? nullptr : state->memo.get());
  return t_last.state;
}

Status thrown(const char* what) {
  return guarded([=] { return Status(ErrorCode::kUnavailable, what); });
}

namespace {

/// An error code of ours with the status's words for it, as far as there is memory for them: of a
/// class of our own, and where the ranks' calls differ of the one that MPI libraries give there.
int code_of(const Status& status) {
  static int own_class = MPI_ERR_OTHER;
  static int mismatch_code = MPI_ERR_OTHER;
  const bool is_mismatch = status.code() == ErrorCode::kMismatch;
  int& error_class = is_mismatch ? mismatch_code : own_class;
  const std::lock_guard lock(g_mutex);
  if (error_class == MPI_ERR_OTHER &&
      (is_mismatch ? pmpi.Add_error_code(MPI_ERR_TRUNCATE, &error_class)
                   : pmpi.Add_error_class(&error_class)) != MPI_SUCCESS) {
    error_class = is_mismatch ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
  }
  const Status said = guarded([&]() -> Status {
    log(LogLevel::kError, status.message());
    if (error_class != MPI_ERR_OTHER && error_class != MPI_ERR_TRUNCATE) {
      const std::string text =
          ("tutti: " + std::string(to_string(status.code())) + ": " + status.message())
              .substr(0, MPI_MAX_ERROR_STRING - 1);
      pmpi.Add_error_string(error_class, text.c_str());
    }
    return {};
  });
  static_cast<void>(said);
  return error_class;
}

}  // namespace

int raise(MPI_Comm comm, const Status& status) {
  if (status.raised()) {
    return status.mpi_code();
  }
  const int code = status.code() == ErrorCode::kMpiFailed ? status.mpi_code() : code_of(status);
  call_errhandler(comm, code);
  return code;
}

bool mpi_is_device_aware(const char* device_name) {
  const bool is_cuda = std::strcmp(device_name, "cuda") == 0;
  const bool is_hip = std::strcmp(device_name, "hip") == 0;
  // Open MPI: MPIX_Query_*_support() answer 0 or 1 (mpi-ext.h).
  using Query = int();
  for (const char* name : {is_cuda ? "MPIX_Query_cuda_support" : "MPIX_Query_rocm_support",
                           is_hip ? "MPIX_Query_hip_support" : "MPIX_Query_cuda_support"}) {
    if (auto* query = reinterpret_cast<Query*>(g_lookup(name));
        query != nullptr && (is_cuda || is_hip) &&
        (std::strstr(name, "cuda") != nullptr) == is_cuda && query() == 1) {
      return true;
    }
  }
  // MPICH: MPIX_GPU_query_support(type, &flag); CUDA is 0, HIP is 2 (mpi.h of MPICH 4 and 5).
  using GpuQuery = int(int, int*);
  if (auto* query = reinterpret_cast<GpuQuery*>(g_lookup("MPIX_GPU_query_support"));
      query != nullptr && (is_cuda || is_hip)) {
    int flag = 0;
    return query(is_cuda ? 0 : 2, &flag) == MPI_SUCCESS && flag != 0;
  }
  return false;
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
