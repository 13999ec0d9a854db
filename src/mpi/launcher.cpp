// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/launcher.hpp"

#include <charconv>

#include "base/config.hpp"

namespace tutti::mpi {
namespace {

/// A launcher and the variable in which it says how many ranks it has started.
struct Launcher {
  const char* name;
  const char* variable;
};

constexpr Launcher kHydra = {"MPICH's mpirun (Hydra)", "PMI_SIZE"};
constexpr Launcher kOpenMpi = {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE"};
constexpr Launcher kSrun = {"srun", "SLURM_STEP_NUM_TASKS"};

}  // namespace

std::string lost_peers(bool is_open_mpi) {
  const Launcher& own = is_open_mpi ? kOpenMpi : kHydra;
  if (!environment_value(own.variable).empty()) {
    return {};  // The library's own launcher: the world has one rank because one was started.
  }
  for (const Launcher* const other : {is_open_mpi ? &kHydra : &kOpenMpi, &kSrun}) {
    const std::string text = environment_value(other->variable);
    int ranks = 0;
    std::from_chars(text.data(), text.data() + text.size(), ranks);
    if (ranks > 1) {
      return "MPI_COMM_WORLD has 1 rank, though " + std::string(other->name) + " started " +
             std::to_string(ranks) + " (" + other->variable + "): the program uses " +
             (is_open_mpi ? "Open MPI" : "MPICH or a library of its ABI") +
             ", which does not know this launcher; remedy: start it with " + own.name +
             (other == &kSrun ? ", or with the --mpi of srun that the library was built for" : "");
    }
  }
  return {};
}

}  // namespace tutti::mpi
