/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A known number of calls of several collectives and sizes, for the summary at the end of a job:
 * 3 allreduces of 8 bytes on a communicator that is freed, 2 of 100,000 bytes, a bcast of nothing,
 * an alltoallv, 4 barriers. Prints "counted: N of M ranks" from each rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  double one = 1, sum = 0;
  for (int i = 0; i < 3; ++i) MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, copy);
  MPI_Comm_free(&copy);
  if (sum != ranks) MPI_Abort(MPI_COMM_WORLD, 3);

  enum { kFloats = 25000 };
  float* in = calloc(kFloats, sizeof *in);
  float* out = calloc(kFloats, sizeof *out);
  for (int i = 0; i < 2; ++i) MPI_Allreduce(in, out, kFloats, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);

  MPI_Bcast(&one, 0, MPI_DOUBLE, 0, MPI_COMM_WORLD);

  int* counts = calloc((size_t)ranks, sizeof *counts);
  int* displs = calloc((size_t)ranks, sizeof *displs);
  for (int i = 0; i < ranks; ++i) {
    counts[i] = 1;
    displs[i] = i;
  }
  MPI_Alltoallv(in, counts, displs, MPI_FLOAT, out, counts, displs, MPI_FLOAT, MPI_COMM_WORLD);
  for (int i = 0; i < 4; ++i) MPI_Barrier(MPI_COMM_WORLD);

  printf("counted: %d of %d ranks\n", rank, ranks);
  fflush(stdout);
  free(in);
  free(out);
  free(counts);
  free(displs);
  MPI_Finalize();
  return 0;
}
