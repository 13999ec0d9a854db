// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The exported MPI_X symbols, all that libtutti-mpi.so has. They know no MPI type: at the first
// call the process's MPI library is found, and one of the three flavours in libtutti.so takes over.
// Inert until then.
#include <atomic>
#include <mutex>
#include <utility>

#include "mpi/open_door.hpp"
#include "mpi/resolve.hpp"
#include "tutti/tutti.h"

namespace tutti::mpi {
namespace {

std::atomic<const Door*> g_door{nullptr};
std::mutex g_mutex;

const Door* open_door(const void* caller) {
  const std::lock_guard lock(g_mutex);
  if (const Door* door = g_door.load(std::memory_order_acquire); door != nullptr) {
    return door;
  }
  static Door door;
  const MpiInProcess mpi = find_mpi(caller);
  tutti_mpi_open_door(mpi.flavour, mpi.path.c_str(), mpi.other_path.c_str(), mpi_lookup,
                      mpi_lookup_next_in_chain, &door);
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
    return door->refuse(door, kEntry, words[sizeof...(I) - 1]);
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
