/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_Allreduce of a plan of Tutti against the MPI library's own, float sums on host buffers, in
 * one job. bench/direct_host.py runs it under the preload. The library's own is called as
 * PMPI_Allreduce, past the preload. For each size the two take turns in short blocks of calls, the
 * first one changing from round to round, so that a drift of the machine's speed falls on both.
 * Prints one line per size and round, rank 0's mean over a block:
 *   paired: <bytes> <own ns per call> <plan's ns per call>
 * and at the end the number of wrong results (exit status 1 if there are some) and the plan used:
 *   paired: wrong <elements> plan <name>
 *
 * Usage: paired PLAN BEGIN END ROUNDS
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Each rank on a core of its own, if there are enough: both variants on the same. */
static void pin(int rank, int ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) {
    return;
  }
  int found = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && found++ == rank) {
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(core, &own);
      sched_setaffinity(0, sizeof own, &own);
      return;
    }
  }
}

struct variant {
  int (*allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
  MPI_Comm comm;
};

static double block_ns(const struct variant* variant, const float* in, float* out, int count,
                       int calls) {
  PMPI_Barrier(MPI_COMM_WORLD);
  const double start = now_ns();
  for (int i = 0; i < calls; ++i) {
    variant->allreduce(in, out, count, MPI_FLOAT, MPI_SUM, variant->comm);
  }
  return (now_ns() - start) / calls;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5) {
    fprintf(stderr, "usage: paired PLAN BEGIN END ROUNDS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  pin(rank, ranks);
  const size_t end = strtoull(argv[3], NULL, 10);
  const int rounds = atoi(argv[4]);

  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "tutti_plan", argv[1]);
  struct variant variants[2] = {{PMPI_Allreduce, MPI_COMM_NULL}, {MPI_Allreduce, MPI_COMM_NULL}};
  PMPI_Comm_dup(MPI_COMM_WORLD, &variants[0].comm);
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &variants[1].comm);
  MPI_Info_free(&info);

  float* in = malloc(end);
  float* out = malloc(end);
  for (size_t i = 0; i < end / sizeof *in; ++i) {
    in[i] = (float)(i % 1000) + (float)rank;
  }
  size_t wrong = 0;
  for (size_t bytes = strtoull(argv[2], NULL, 10); bytes <= end; bytes *= 2) {
    const int count = (int)(bytes / sizeof *in);
    /* About 2 ms of the slower one, and at least two calls. */
    const double expected_ns = 300.0 + (double)bytes / 4;
    const int calls = expected_ns > 1e6 ? 2 : (int)(2e6 / expected_ns);
    for (int v = 0; v < 2; ++v) {
      memset(out, 0, bytes);
      block_ns(&variants[v], in, out, count, 2);
      for (int i = 0; i < count; ++i) {
        const float sum = (float)(i % 1000 * ranks) + (float)(ranks * (ranks - 1)) / 2;
        wrong += out[i] != sum;
      }
    }
    for (int round = 0; round < rounds; ++round) {
      double ns[2];
      const int first = round % 2;
      ns[first] = block_ns(&variants[first], in, out, count, calls);
      ns[1 - first] = block_ns(&variants[1 - first], in, out, count, calls);
      if (rank == 0) {
        printf("paired: %zu %.1f %.1f\n", bytes, ns[0], ns[1]);
      }
    }
  }
  char plan[128] = "?";
  int found = 0;
  MPI_Comm_get_info(variants[1].comm, &info);
  MPI_Info_get(info, "tutti_plan_used", (int)sizeof plan - 1, plan, &found);
  MPI_Info_free(&info);
  if (rank == 0) {
    printf("paired: wrong %zu plan %s\n", wrong, plan);
  }
  MPI_Comm_free(&variants[0].comm);
  MPI_Comm_free(&variants[1].comm);
  free(in);
  free(out);
  MPI_Finalize();
  return wrong != 0;
}
