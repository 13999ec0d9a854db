/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A profiler to preload, as small as one can be: it counts MPI_Allreduce, hands each to
 * PMPI_Allreduce and prints "profiler: N allreduces" in MPI_Finalize. Compiled twice: PMPI
 * functions by the linker (mpiP), or with PROFILER_LOOKS_UP by dlsym(RTLD_NEXT), as Darshan's
 * preload finds them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int calls;

#ifdef PROFILER_LOOKS_UP
#define NEXT(name) ((__typeof__(&P##name))dlsym(RTLD_NEXT, "P" #name))
#else
#define NEXT(name) P##name
#endif

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  ++calls;
  return NEXT(MPI_Allreduce)(in, out, count, type, op, comm);
}

int MPI_Finalize(void) {
  printf("profiler: %d allreduces\n", calls);
  fflush(stdout);
  return NEXT(MPI_Finalize)();
}
