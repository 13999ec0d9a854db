/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Nanoseconds per MPI_Allreduce of one double on host buffers. bench/overhead.py runs it with and
 * without the preload. Prints one line, rank 0's mean over the best of BATCHES batches:
 *   overhead: <ns per call> <ns per call, median batch> <iterations per batch> <ms of MPI_Init>
 * The last is that of the slowest rank.
 *
 * Usage: overhead [ITERATIONS [BATCHES]]
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int ascending(const void* left, const void* right) {
  const double difference = *(const double*)left - *(const double*)right;
  return (difference > 0) - (difference < 0);
}

int main(int argc, char** argv) {
  const double started_ns = now_ns();
  MPI_Init(&argc, &argv);
  double init_ms = (now_ns() - started_ns) / 1e6;
  MPI_Allreduce(MPI_IN_PLACE, &init_ms, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  const long iterations = argc > 1 ? atol(argv[1]) : 100000;
  const int batches = argc > 2 ? atoi(argv[2]) : 10;
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  double in = 1;
  double out = 0;
  for (long i = 0; i < 2000; ++i) {
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  double* batch = malloc((size_t)batches * sizeof *batch);
  int wrong = 0;
  for (int b = 0; b < batches; ++b) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now_ns();
    for (long i = 0; i < iterations / batches; ++i) {
      MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    batch[b] = (now_ns() - start) / (double)(iterations / batches);
    wrong |= out != ranks;
  }
  qsort(batch, (size_t)batches, sizeof *batch, ascending);
  MPI_Finalize();
  if (rank == 0) {
    printf("overhead: %.2f %.2f %ld %.3f\n", batch[0], batch[batches / 2], iterations / batches,
           init_ms);
  }
  free(batch);
  return wrong;
}
