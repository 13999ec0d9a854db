// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The exported symbols, all that libtutti-mpi.so has. They know no MPI type: at the first call the
// process's MPI library is found, and one of the three flavours in libtutti.so takes over. Inert
// until then.
//
// Both MPI_X and PMPI_X are here, so that a profiler and Tutti both see each call, in whichever
// order they are loaded: a profiler before us calls our PMPI_X; one behind us is given our MPI_X
// first. Beside the collectives there is what starts MPI: the other ranks must learn there that
// this one has us (presence.hpp).
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "mpi/function_table.hpp"
#include "mpi/resolve.hpp"
#include "tutti/tutti.h"

namespace tutti::mpi {
namespace {

struct Dispatch {
  FunctionTable table;
  void* tools[kEntryCount] = {};    ///< MPI_X of a profiler behind us, or null.
  void* library[kEntryCount] = {};  ///< PMPI_X of the MPI library.
  AddressRange library_code;
};

std::atomic<const Dispatch*> g_dispatch{nullptr};
/// Of g_dispatch, where nothing but the call itself is to do; else null. All of what a call that
/// goes to the MPI library as it is costs here.
std::atomic<void*> g_entries[kEntryCount] = {};
std::atomic<bool> g_init_seen{false};
std::atomic<bool> g_is_mpich{false};  ///< Set before g_dispatch.
std::atomic<bool> g_tool_reported{false};
pid_t g_process = 0;
std::mutex g_mutex;
/// Whether a PMPI_X was called since a profiler's MPI_X was.
thread_local bool t_came_back = false;

/// Inside of a call that starts MPI, which tools and the library make of others.
thread_local bool t_is_starting = false;

/// `known`: the MPI that the process had when it started MPI.
const Dispatch* open_dispatch(const void* caller, const MpiInProcess* known = nullptr) {
  const std::lock_guard lock(g_mutex);
  if (const Dispatch* dispatch = g_dispatch.load(std::memory_order_acquire); dispatch != nullptr) {
    return dispatch;
  }
  static Dispatch dispatch;
  const MpiInProcess mpi = known != nullptr ? *known : find_mpi(caller);
  tutti_mpi_fill_table(mpi.flavour, mpi.path.c_str(), mpi.other_path.c_str(), mpi_lookup,
                       &dispatch.table);
  for (int entry = 0; entry < kEntryCount; ++entry) {
    dispatch.tools[entry] = tool_lookup(kPmpiNames[entry] + 1);
    dispatch.library[entry] = mpi_lookup(kPmpiNames[entry]);
  }
  dispatch.library_code = mpi_addresses();
  g_is_mpich.store(mpi.flavour == Flavour::kMpich, std::memory_order_relaxed);
  g_dispatch.store(&dispatch, std::memory_order_release);
  for (int entry = 0; entry < kEntryCount; ++entry) {
    if (dispatch.tools[entry] == nullptr) {
      g_entries[entry].store(dispatch.table.entries[entry], std::memory_order_release);
    }
  }
  return &dispatch;
}

inline const Dispatch* ready(const void* caller) {
  const Dispatch* dispatch = g_dispatch.load(std::memory_order_acquire);
  return dispatch != nullptr ? dispatch : open_dispatch(caller);
}

template <class... Words>
inline int call(void* function, Words... words) {
  return reinterpret_cast<int (*)(Words...)>(function)(words...);
}

template <int kEntry, class... Words>
inline int carry(const Dispatch* dispatch, Words... words) {
  void* const function = dispatch->table.entries[kEntry];
  if (function == nullptr) [[unlikely]] {
    const Word all[] = {words...};
    return dispatch->table.refuse(&dispatch->table, kEntry, all[sizeof...(words) - 1]);
  }
  return call(function, words...);
}

/// A profiler whose PMPI_X is the library's own (it searched behind itself, and we stand before it)
/// does not come back to us.
template <class... Words>
int hand_to_tool(void* tool, Words... words) {
  t_came_back = false;
  const int code = call(tool, words...);
  if (!t_came_back && !g_tool_reported.exchange(true)) {
    tutti_mpi_report_tool(file_of(tool).c_str());
  }
  return code;
}

/// What there is to do beside the call itself, apart, so that elsewhere the arguments stay where
/// they came.
template <int kEntry, class... Words>
[[gnu::noinline, gnu::cold]] int enter_slowly(const void* caller, Words... words) {
  const Dispatch* dispatch = ready(caller);
  if (void* tool = dispatch->tools[kEntry]; tool != nullptr) {
    return hand_to_tool(tool, words...);
  }
  return carry<kEntry>(dispatch, words...);
}

/// What the MPI library calls for itself (ROMIO does) stays its own.
template <int kEntry, class... Words>
inline int enter_as_pmpi(const void* caller, Words... words) {
  const Dispatch* dispatch = ready(caller);
  if (dispatch->library_code.contains(caller)) {
    return call(dispatch->library[kEntry], words...);
  }
  t_came_back = true;
  return carry<kEntry>(dispatch, words...);
}

/// A call that starts MPI goes on to a tool's behind us, or to the library's. That it came here
/// also shows that calls pass us.
template <class... Words>
int start_mpi(const char* name, const char* native, bool has_world, bool is_fortran,
              const void* caller, Words... words) {
  constexpr int kError = 16;  // Not MPI_SUCCESS in any ABI: the process has no MPI library.
  g_init_seen.store(true, std::memory_order_relaxed);
  const bool is_first = !std::exchange(t_is_starting, true);
  MpiInProcess mpi;
  if (is_first) {
    const std::lock_guard lock(g_mutex);
    mpi = find_mpi(caller);
    if (mpi.flavour != Flavour::kUnknown) {
      tutti_mpi_before_init(mpi.flavour, mpi.other_path.c_str(), mpi.has_fortran_past_us ? 1 : 0,
                            mpi_lookup);
    }
  }
  const bool is_native = std::strcmp(name, native) == 0;
  void* function = is_fortran   ? next_symbol(name, caller)
                   : !is_native ? tool_lookup(name)
                                : nullptr;
  function = function != nullptr ? function : mpi_lookup_of(caller, native);
  int code = function != nullptr ? call(function, words...) : kError;
  if (!is_first) {
    return code;
  }
  t_is_starting = false;
  if (function == nullptr) {
    return code;
  }
  tutti_mpi_after_init();
  if (is_fortran) {
    code = 0;  // A subroutine: what is in its register says nothing.
  }
  if (code == 0 && has_world) {
    // Now, and not at the first collective: what this process has announced, it must keep, whatever
    // it loads until then.
    if (const Dispatch* dispatch = open_dispatch(caller, &mpi); dispatch->table.start != nullptr) {
      dispatch->table.start();
    }
  }
  return code;
}

/// In the MPICH ABI a handle in Fortran is that of C; elsewhere the call goes past us, as all of
/// Open MPI 5's Fortran does. `error` may be null: it is optional.
void barrier_f08(const int* comm, int* error, const void* caller) {
  const Dispatch* dispatch = ready(caller);
  if (g_is_mpich.load(std::memory_order_relaxed)) {
    const int code = carry<kBarrier>(dispatch, Word{*comm});
    if (error != nullptr) {
      *error = code;
    }
    return;
  }
  using Function = void (*)(const int*, int*);
  const auto function = reinterpret_cast<Function>(next_symbol("mpi_barrier_f08_", caller));
  if (function != nullptr) {
    function(comm, error);
  }
}

/// MPI that was initialised without our MPI_Init is not called through us. A program that makes no
/// collective has passed MPI_Init. A child that was forked is not asked: its parent says it.
void report_unseen() noexcept {
  if (g_dispatch.load() != nullptr || g_init_seen.load() || getpid() != g_process) {
    return;
  }
  try {
    if (const std::string path = initialised_mpi(); !path.empty()) {
      tutti_mpi_report_unseen(path.c_str());
    }
  } catch (...) {
    return;  // No memory for a line: nothing else is lost.
  }
}

/// At exit, not as a destructor, which would come after those of a library that was opened later.
[[gnu::constructor]] void watch_end() {
  g_process = getpid();
  std::atexit(report_unseen);
}

}  // namespace
}  // namespace tutti::mpi

#define TUTTI_WORDS_1 Word a
#define TUTTI_WORDS_2 TUTTI_WORDS_1, Word b
#define TUTTI_WORDS_3 TUTTI_WORDS_2, Word c
#define TUTTI_WORDS_4 TUTTI_WORDS_3, Word d
#define TUTTI_WORDS_5 TUTTI_WORDS_4, Word e
#define TUTTI_WORDS_6 TUTTI_WORDS_5, Word f
#define TUTTI_WORDS_7 TUTTI_WORDS_6, Word g
#define TUTTI_WORDS_8 TUTTI_WORDS_7, Word h
#define TUTTI_WORDS_9 TUTTI_WORDS_8, Word i
#define TUTTI_NAMES_1 a
#define TUTTI_NAMES_2 TUTTI_NAMES_1, b
#define TUTTI_NAMES_3 TUTTI_NAMES_2, c
#define TUTTI_NAMES_4 TUTTI_NAMES_3, d
#define TUTTI_NAMES_5 TUTTI_NAMES_4, e
#define TUTTI_NAMES_6 TUTTI_NAMES_5, f
#define TUTTI_NAMES_7 TUTTI_NAMES_6, g
#define TUTTI_NAMES_8 TUTTI_NAMES_7, h
#define TUTTI_NAMES_9 TUTTI_NAMES_8, i

// The caller is asked for where it is needed: compilers do not move that behind the branch.
#define TUTTI_EXPORT(name, arguments)                                                   \
  TUTTI_API int MPI_##name(TUTTI_WORDS_##arguments);                                    \
  TUTTI_API int MPI_##name(TUTTI_WORDS_##arguments) {                                   \
    using namespace tutti::mpi;                                                         \
    if (void* const function = g_entries[k##name].load(std::memory_order_acquire);      \
        function != nullptr) [[likely]] {                                               \
      return call(function, TUTTI_NAMES_##arguments);                                   \
    }                                                                                   \
    return enter_slowly<k##name>(__builtin_return_address(0), TUTTI_NAMES_##arguments); \
  }                                                                                     \
  TUTTI_API int PMPI_##name(TUTTI_WORDS_##arguments);                                   \
  TUTTI_API int PMPI_##name(TUTTI_WORDS_##arguments) {                                  \
    return tutti::mpi::enter_as_pmpi<tutti::mpi::k##name>(__builtin_return_address(0),  \
                                                          TUTTI_NAMES_##arguments);     \
  }
#define TUTTI_EXPORT_BOTH(name, arguments) \
  TUTTI_EXPORT(name, arguments)            \
  TUTTI_EXPORT(name##_c, arguments)
#define TUTTI_START(name, native, arguments, has_world, is_fortran)                     \
  TUTTI_API int name(TUTTI_WORDS_##arguments);                                          \
  TUTTI_API int name(TUTTI_WORDS_##arguments) {                                         \
    return tutti::mpi::start_mpi(#name, native, has_world, is_fortran,                  \
                                 __builtin_return_address(0), TUTTI_NAMES_##arguments); \
  }

using tutti::mpi::Word;

extern "C" {
TUTTI_COUNTED_COLLECTIVES(TUTTI_EXPORT_BOTH)
TUTTI_OTHER_ENTRIES(TUTTI_EXPORT)

TUTTI_START(MPI_Init, "PMPI_Init", 2, true, false)
TUTTI_START(MPI_Init_thread, "PMPI_Init_thread", 4, true, false)
TUTTI_START(PMPI_Init, "PMPI_Init", 2, true, false)
TUTTI_START(PMPI_Init_thread, "PMPI_Init_thread", 4, true, false)
TUTTI_START(MPI_Session_init, "PMPI_Session_init", 3, false, false)
// MPICH's module mpi_f08 starts the library without a call of a C function that we could export.
TUTTI_START(mpi_init_f08_, "pmpi_init_f08_", 1, true, true)
TUTTI_START(mpi_init_thread_f08_, "pmpi_init_thread_f08_", 3, true, true)

/// A barrier of MPICH's module mpi_f08, likewise. Peers may call it from C, where it passes us.
TUTTI_API void mpi_barrier_f08_(const int* comm, int* error);
TUTTI_API void mpi_barrier_f08_(const int* comm, int* error) {
  tutti::mpi::barrier_f08(comm, error, __builtin_return_address(0));
}

/// Of PMIx: Open MPI hands over what this process tells the others, inside of its initialization.
TUTTI_API int PMIx_Commit(void);   // NOLINT(readability-identifier-naming)
TUTTI_API int PMIx_Commit(void) {  // NOLINT(readability-identifier-naming)
  constexpr int kPmixError = -1;
  tutti_mpi_before_commit();
  using Function = int (*)();
  const auto function = reinterpret_cast<Function>(
      tutti::mpi::next_symbol("PMIx_Commit", __builtin_return_address(0)));
  return function == nullptr ? kPmixError : function();
}
}
