/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A profiler as others preload them: it takes MPI_Init, and with TOOL_TAKES_BCAST one collective.
 */
#include <mpi.h>
#include <stdio.h>

__attribute__((visibility("default"))) int MPI_Init(int* argc, char*** argv);

int MPI_Init(int* argc, char*** argv) {
  const int code = PMPI_Init(argc, argv);
  printf("tool: MPI_Init\n");
  return code;
}

#ifdef TOOL_TAKES_BCAST
__attribute__((visibility("default"))) int MPI_Bcast(void* data, int count, MPI_Datatype type,
                                                     int root, MPI_Comm comm);

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return PMPI_Bcast(data, count, type, root, comm);
}
#endif
