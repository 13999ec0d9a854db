// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Private communicators: shared by communicators of the same ranks, limited in number, freed where
// no message is left on them.
#pragma once

#include <array>
#include <cstdint>

#include "mpi/pmpi.hpp"
#include "runners/call.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// MPI_Comm_split with errors returned. Not MPI_Comm_dup, which runs the copy callbacks of the
/// application's attributes. False: the MPI library has no more; null: none for this rank.
bool split(MPI_Comm from, int color, int key, MPI_Comm* made);

/// A duplicate of an application's communicator, with its splits; other communicators of the same
/// ranks may share it.
struct PrivateComm {
  PrivateComm() {
    comms.fill(MPI_COMM_NULL);
    for_reduce.fill(MPI_COMM_NULL);
  }
  ~PrivateComm();
  PrivateComm(const PrivateComm&) = delete;
  PrivateComm& operator=(const PrivateComm&) = delete;

  std::uint64_t number = 0;  ///< The same on all its ranks, none twice on a rank.
  /// By scope; the whole one first.
  std::array<MPI_Comm, runners::kScopeCount> comms;
  /// The same again, but for the whole one, for the steps of a reduce: where its root was refused
  /// alone they may never be met, and must not be taken for those of an allreduce.
  std::array<MPI_Comm, runners::kScopeCount> for_reduce;
  bool has_scopes = false;
  /// A root was not in a call in which others may have sent it something.
  bool has_missed = false;
  /// Messages on what is ours may never be met. An MPI may refuse to free such a communicator
  /// (MPICH does), or give its place to a new one, which they would then meet: it stays.
  bool has_left = false;
};

}  // namespace tutti::mpi::TUTTI_FLAVOUR
