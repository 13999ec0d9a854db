// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/presence.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>

#include "mpi/function_table.hpp"
#include "mpi/presence_store.hpp"

namespace tutti::mpi {
namespace {

constexpr const char* kFortranValue = "fortran";
constexpr const char* kUnservedValue = "unserved";

struct State {
  std::mutex mutex;
  bool is_chosen = false;
  std::unique_ptr<PresenceStore> store;  ///< Null: none that we can speak to.
  /// What a rank announces whose calls pass us as they do here.
  std::string present_value = tutti_version();
  std::string own_value;  ///< Empty: announced nothing.
  std::map<int, Presence> known;
  bool are_all_present = false;
};

/// Never destroyed: MPI may be finalized by an exit handler.
State& state() {
  static State& made = *new State;
  return made;
}

/// Whether the MPI library's initialization is running and has still to hand over our value.
std::atomic<bool> g_puts_at_commit{false};
std::atomic<bool> g_has_reported{false};

void choose_store(bool is_open_mpi, Lookup lookup) {
  if (!state().is_chosen) {
    state().is_chosen = true;
    state().store = is_open_mpi ? open_pmix_store(lookup) : open_pmi_store();
  }
}

Presence meaning(const std::optional<std::string>& value) {
  if (!value) {
    return Presence::kAbsent;
  }
  return *value == kFortranValue           ? Presence::kFortran
         : *value == kUnservedValue        ? Presence::kUnserved
         : *value == state().present_value ? Presence::kPresent
                                           : Presence::kDifferent;
}

const char* reason(Presence presence) {
  return presence == Presence::kFortran ? "calls of Open MPI's Fortran functions do not pass Tutti"
         : presence == Presence::kUnserved
             ? "every call goes to the MPI library untouched, see that rank's log"
         : presence == Presence::kDifferent
             ? "another version of Tutti (remedy: the same on all ranks)"
             : "no preload there, or an MPI_Init that did not pass it (remedy: preload "
               "libtutti-mpi.so on every rank)";
}

/// Ranks as ranges, with the host where it is known, as far as they fit on a line.
std::string list_ranks(const std::vector<int>& ranks) {
  constexpr int kMost = 8;
  std::string text;
  int parts = 0;
  for (std::size_t begin = 0; begin < ranks.size(); ++parts) {
    if (parts == kMost) {
      return text + " and " + std::to_string(ranks.size() - begin) + " more";
    }
    const std::string host = state().store->host(ranks[begin]);
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1 &&
           state().store->host(ranks[end]) == host) {
      ++end;
    }
    text += (parts == 0 ? "" : ", ") + std::to_string(ranks[begin]);
    text += end - begin > 1 ? "-" + std::to_string(ranks[end - 1]) : "";
    text += host.empty() ? "" : " (" + host + ")";
    begin = end;
  }
  return text;
}

std::vector<Presence> look_up(const std::vector<int>& world_ranks) {
  if (state().are_all_present) {
    return std::vector<Presence>(world_ranks.size(), Presence::kPresent);
  }
  std::vector<int> unknown;
  std::copy_if(world_ranks.begin(), world_ranks.end(), std::back_inserter(unknown),
               [](int rank) { return state().known.count(rank) == 0; });
  const auto values = state().store->get(unknown);
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    state().known[unknown[i]] = meaning(values[i]);
  }
  std::vector<Presence> found;
  std::transform(world_ranks.begin(), world_ranks.end(), std::back_inserter(found),
                 [](int rank) { return state().known[rank]; });
  return found;
}

}  // namespace

bool presence_is_unknown(bool is_open_mpi, Lookup lookup) {
  const std::lock_guard lock(state().mutex);
  choose_store(is_open_mpi, lookup);
  return state().store == nullptr;
}

void set_all_present() {
  const std::lock_guard lock(state().mutex);
  state().are_all_present = true;
}

std::vector<Presence> presence_of(const std::vector<int>& world_ranks) {
  const std::lock_guard lock(state().mutex);
  return look_up(world_ranks);
}

std::string describe_absent(const std::vector<int>& world_ranks) {
  const std::lock_guard lock(state().mutex);
  const std::vector<Presence> found = look_up(world_ranks);
  std::string text;
  for (const Presence kind :
       {Presence::kAbsent, Presence::kFortran, Presence::kUnserved, Presence::kDifferent}) {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] == kind) {
        ranks.push_back(world_ranks[i]);
      }
    }
    std::sort(ranks.begin(), ranks.end());
    if (!ranks.empty()) {
      text += (text.empty() ? "" : "; ") + list_ranks(ranks) + ": " + reason(kind);
    }
  }
  return "collectives are the MPI library's own with these ranks of MPI_COMM_WORLD: " + text;
}

bool first_to_report_absent() { return !g_has_reported.exchange(true); }

}  // namespace tutti::mpi

using namespace tutti::mpi;

extern "C" void tutti_mpi_before_init(Flavour flavour, const char* other_path, int has_fortran,
                                      Lookup lookup) {
  const std::lock_guard lock(state().mutex);
  choose_store(flavour == Flavour::kOpenMpi, lookup);
  if (state().store == nullptr || !state().own_value.empty()) {
    return;  // MPI_Init may call MPI_Init_thread, and a program may start several sessions.
  }
  state().own_value = *other_path != '\0' || !supports_abi(flavour) ? kUnservedValue
                      : has_fortran != 0                            ? kFortranValue
                                                                    : state().present_value;
  if (state().store->puts_at_commit()) {
    g_puts_at_commit.store(true);
  } else {
    state().store->put(state().own_value);
  }
}

extern "C" void tutti_mpi_after_init() { g_puts_at_commit.store(false); }

extern "C" void tutti_mpi_before_commit() {
  if (g_puts_at_commit.exchange(false)) {
    const std::lock_guard lock(state().mutex);
    state().store->put(state().own_value);
  }
}
