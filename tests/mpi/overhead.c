/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Nanoseconds per MPI_Allreduce of one double on host buffers. bench/overhead.py runs it with and
 * without the preload. Prints one line, rank 0's mean over the best of BATCHES batches:
 *   overhead: <ns per call> <ns per call, median batch> <iterations per batch>
 *
 * Usage: overhead [ITERATIONS [BATCHES [WHAT]]]
 *   WHAT  call   on MPI_COMM_WORLD (default)
 *         first  the first collective of a communicator, without making and freeing it
 *         churn  MPI_Comm_dup, the collective and MPI_Comm_free
 */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static double in = 1;
static double out;

static void call(MPI_Comm comm) { MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, comm); }

static double calls_ns(long calls) {
  const double start = now_ns();
  for (long i = 0; i < calls; ++i) call(MPI_COMM_WORLD);
  return now_ns() - start;
}

/* Of the whole life of each communicator, or of its first collective alone. */
static double communicators_ns(long communicators, int whole) {
  double first_ns = 0;
  const double start = now_ns();
  for (long i = 0; i < communicators; ++i) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    const double begin = now_ns();
    call(comm);
    first_ns += now_ns() - begin;
    MPI_Comm_free(&comm);
  }
  return whole ? now_ns() - start : first_ns;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const long iterations = argc > 1 ? atol(argv[1]) : 100000;
  const int batches = argc > 2 ? atoi(argv[2]) : 10;
  const char* what = argc > 3 ? argv[3] : "call";
  const int whole = strcmp(what, "churn") == 0;
  const int is_of_communicators = whole || strcmp(what, "first") == 0;
  const long per_batch = iterations / batches;
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (is_of_communicators) {
    communicators_ns(10, whole);
  } else {
    calls_ns(2000);
  }
  double* batch = malloc((size_t)batches * sizeof *batch);
  int wrong = 0;
  for (int b = 0; b < batches; ++b) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double all_ns =
        is_of_communicators ? communicators_ns(per_batch, whole) : calls_ns(per_batch);
    batch[b] = all_ns / (double)per_batch;
    wrong |= out != ranks;
  }
  qsort(batch, (size_t)batches, sizeof *batch, ascending);
  MPI_Finalize();
  if (rank == 0) {
    printf("overhead: %.2f %.2f %ld\n", batch[0], batch[batches / 2], per_batch);
  }
  free(batch);
  return wrong;
}
