// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The exported MPI_X symbols. They know no MPI type: at the first call the process's MPI library
// is found and one of the three flavours behind it takes over. Inert until then.
#include <atomic>
#include <mutex>
#include <utility>

#include "base/config.hpp"
#include "base/log.hpp"
#include "mpi/entries.hpp"
#include "mpi/resolve.hpp"
#include "tutti/tutti.h"

namespace tutti::mpi {
namespace {

using Word = long;  // One integer register.

std::atomic<const Door*> g_door{nullptr};
std::mutex g_mutex;

constexpr const char* kPmpiNames[kEntryCount] = {
#define TUTTI_ENTRY(name, arguments) "PMPI_" #name, "PMPI_" #name "_c",
    TUTTI_COUNTED_COLLECTIVES(TUTTI_ENTRY)
#undef TUTTI_ENTRY
#define TUTTI_ENTRY(name, arguments) "PMPI_" #name,
        TUTTI_OTHER_ENTRIES(TUTTI_ENTRY)
#undef TUTTI_ENTRY
};

/// Every call straight to the library: two MPIs in one process, or a flavour we cannot serve. Of
/// all fall-backs the largest, so under TUTTI_STRICT no collective has a way, unless all of them
/// are to go there (TUTTI_ENABLE=0).
void fill_untouched(const Config& config, Door* door) {
  const bool is_strict = config.strict && config.enable;
  for (int entry = 0; entry < kEntryCount; ++entry) {
    if (!is_strict || !is_collective(entry)) {
      door->entries[entry] = mpi_lookup(kPmpiNames[entry]);
    }
  }
  if (is_strict) {
    door->refusal = "TUTTI_STRICT: it would go to MPI untouched";
  }
}

/// Not MPI_SUCCESS in any ABI, through the communicator's error handler. A program that is linked
/// to its library gets here under TUTTI_STRICT alone.
int refuse(const Door& door, int entry, Word last) {
  constexpr int kError = 16;
  log(LogLevel::kError, std::string(kPmpiNames[entry] + 1) + ": " + door.refusal);
  using Handler = int (*)(Word comm, Word code);
  if (auto* handler = reinterpret_cast<Handler>(mpi_lookup("PMPI_Comm_call_errhandler"));
      handler != nullptr && is_collective(entry)) {
    handler(last, kError);
  }
  return kError;
}

bool open_flavour(Flavour flavour, [[maybe_unused]] Lookup native, [[maybe_unused]] Door* door) {
  switch (flavour) {
#ifdef TUTTI_HAVE_MPICH
    case Flavour::kMpich:
      return open_door_mpich(mpi_lookup, native, door);
#endif
#ifdef TUTTI_HAVE_OPENMPI
    case Flavour::kOpenMpi:
      return open_door_openmpi(mpi_lookup, native, door);
#endif
#ifdef TUTTI_HAVE_ABI
    case Flavour::kAbi:
      return open_door_abi(mpi_lookup, native, door);
#endif
    default:
      log(LogLevel::kError, std::string("this build has no door for the ") + to_string(flavour) +
                                "; every call goes to MPI untouched");
      return false;
  }
}

const Door* open_door(const void* caller) {
  const std::lock_guard lock(g_mutex);
  if (const Door* door = g_door.load(std::memory_order_acquire); door != nullptr) {
    return door;
  }
  static Door door;
  const MpiInProcess mpi = find_mpi(caller);
  const ParsedConfig parsed = config_from_environment();
  if (!mpi.other_path.empty()) {
    log(LogLevel::kError, "two MPI libraries in one process (" + mpi.path + " and " +
                              mpi.other_path + "); every call goes untouched to the first of them");
    fill_untouched(parsed.config, &door);
  } else if (!open_flavour(mpi.flavour, parsed.config.chain ? mpi_lookup_next_in_chain : mpi_lookup,
                           &door)) {
    fill_untouched(parsed.config, &door);
  }
  g_door.store(&door, std::memory_order_release);
  return &door;
}

template <int kEntry, std::size_t... I>
inline int pass(const void* caller, std::index_sequence<I...>, const Word (&words)[sizeof...(I)]) {
  const Door* door = g_door.load(std::memory_order_acquire);
  if (door == nullptr) [[unlikely]] {
    door = open_door(caller);
  }
  using Function = int (*)(decltype(static_cast<void>(I), Word{})...);
  const auto function = reinterpret_cast<Function>(door->entries[kEntry]);
  if (function == nullptr) [[unlikely]] {
    return refuse(*door, kEntry, words[sizeof...(I) - 1]);
  }
  return function(words[I]...);
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

#define TUTTI_EXPORT(name, arguments)                                                   \
  TUTTI_API int MPI_##name(TUTTI_WORDS_##arguments);                                    \
  TUTTI_API int MPI_##name(TUTTI_WORDS_##arguments) {                                   \
    return tutti::mpi::pass<tutti::mpi::k##name>(__builtin_return_address(0),           \
                                                 std::make_index_sequence<arguments>{}, \
                                                 {TUTTI_NAMES_##arguments});            \
  }
#define TUTTI_EXPORT_BOTH(name, arguments) \
  TUTTI_EXPORT(name, arguments)            \
  TUTTI_EXPORT(name##_c, arguments)

using tutti::mpi::Word;

extern "C" {
TUTTI_COUNTED_COLLECTIVES(TUTTI_EXPORT_BOTH)
TUTTI_OTHER_ENTRIES(TUTTI_EXPORT)
}
