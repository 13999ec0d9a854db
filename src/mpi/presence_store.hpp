// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The key-value stores of launchers, as far as we speak to them. Neither waits for another rank.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi/entries.hpp"

namespace tutti::mpi {

class PresenceStore {
 public:
  virtual ~PresenceStore() = default;
  /// This rank's value, visible to all once the MPI library's initialization has ended. A value has
  /// no blanks.
  virtual void put(const std::string& value) = 0;
  /// The values of ranks of MPI_COMM_WORLD; none where a rank has put nothing.
  virtual std::vector<std::optional<std::string>> get(const std::vector<int>& ranks) = 0;
  /// The host of a rank; empty where the store does not say.
  virtual std::string host(int rank) = 0;
  /// True where put() must come after the MPI library's own start of the store's client.
  virtual bool puts_at_commit() const = 0;
};

/// PMI-1 over the descriptor that Hydra (MPICH, Intel MPI, MVAPICH) gives to its processes. Null:
/// another launcher has started this one.
std::unique_ptr<PresenceStore> open_pmi_store();

/// PMIx, through the library that Open MPI 5 itself uses. Null: not started by a PMIx launcher, or
/// a library without it.
std::unique_ptr<PresenceStore> open_pmix_store(Lookup lookup);

}  // namespace tutti::mpi
