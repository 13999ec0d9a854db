/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A module that uses MPI and is opened by a program that does not (opened.c).
 */
#include <mpi.h>
#include <stddef.h>

int run(int has_collective);

int run(int has_collective) {
  if (MPI_Init(NULL, NULL) != MPI_SUCCESS) return 1;
  double one = 1, sum = 0;
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (has_collective) MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (has_collective && sum != ranks) return 1;
  return MPI_Finalize();
}
