// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Which ranks of MPI_COMM_WORLD have this library, known before any message of ours: a rank without
// it would take such a message for the application's. Each process announces itself in the
// launcher's key-value store before the MPI library's own initialization synchronizes all ranks,
// with data; afterwards every rank reads the same answers, and a rank without us disturbs nothing.
#pragma once

#include <string>
#include <vector>

#include "mpi/entries.hpp"

namespace tutti::mpi {

/// What a rank has announced.
enum class Presence {
  kPresent,
  kAbsent,     ///< Nothing: no preload, or an initialization that did not pass us.
  kFortran,    ///< Open MPI's Fortran functions are loaded, which do not pass us.
  kUnserved,   ///< Every call goes to MPI untouched: two MPI libraries, or one we do not know.
  kDifferent,  ///< Another version of this library.
};

/// The launcher offers no store that we can speak to: nothing is known of any rank. Equal on all
/// ranks, since it depends on the launcher and the MPI library alone.
bool presence_is_unknown(bool is_open_mpi, Lookup lookup);

/// All ranks are known to be present: none is asked for from now on.
void set_all_present();

/// Of ranks of MPI_COMM_WORLD, in their order. Asks the store once for each rank, which takes some
/// 25 us with Hydra, one rank of a node after the other.
std::vector<Presence> presence_of(const std::vector<int>& world_ranks);

/// One line: which of these ranks are without us, why, and the remedy.
std::string describe_absent(const std::vector<int>& world_ranks);

/// True for the first caller in this process: a job's line about ranks without us is given once.
bool first_to_report_absent();

}  // namespace tutti::mpi
