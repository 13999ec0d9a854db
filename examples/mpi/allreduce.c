/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * An ordinary MPI program: it knows nothing of Tutti. Times an allreduce of some sizes and prints
 * the median of the slowest rank; exit status 1 when a sum is wrong. docs/guide-mpi.md runs it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCalls = 200, kSizes = 3 };

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a;
  const double y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  static const int counts[kSizes] = {16, 4096, 262144}; /* 64 B, 16 KiB, 1 MiB of float */
  int rank;
  int ranks;
  int wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  float* const in = malloc(sizeof(float) * (size_t)counts[kSizes - 1]);
  float* const out = malloc(sizeof(float) * (size_t)counts[kSizes - 1]);
  if (in == NULL || out == NULL) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int i = 0; i < counts[kSizes - 1]; ++i) {
    in[i] = (float)(rank + 1);
  }
  for (int size = 0; size < kSizes; ++size) {
    double us[kCalls];
    for (int call = -10; call < kCalls; ++call) { /* Ten calls to warm up. */
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin_s = MPI_Wtime();
      MPI_Allreduce(in, out, counts[size], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      double mine_us = (MPI_Wtime() - begin_s) * 1e6;
      double slowest_us;
      MPI_Reduce(&mine_us, &slowest_us, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
      if (call >= 0) {
        us[call] = slowest_us;
      }
    }
    for (int i = 0; i < counts[size]; ++i) {
      wrong += out[i] != (float)(ranks * (ranks + 1) / 2);
    }
    if (rank == 0) {
      qsort(us, kCalls, sizeof(us[0]), by_value);
      printf("%8d bytes  %10.2f us\n", counts[size] * 4, us[kCalls / 2]);
    }
  }
  free(in);
  free(out);
  MPI_Finalize();
  return wrong != 0;
}
