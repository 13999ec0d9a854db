/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_THREAD_MULTIPLE: two threads of each rank, each on a communicator of its own, make their
 * first and later collectives at the same time, and odd ranks start with the other communicator.
 * Whatever is set up lazily at a communicator's first collective must not make ranks wait for each
 * other in a circle, nor whatever ends in MPI_Finalize (--keep: communicators are not freed
 * before). Last line: "threads: N checks, M failed".
 *
 * Usage: threads [--memory host|hostdevice|cuda|hip] [--same-device] [--calls N]
 *                [--keep] [--groups]
 *   --groups  the threads make communicators of the same ranks with MPI_Comm_create_group.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"

enum { kThreads = 2, kMaxCount = 20000 };

static int rank;
static int ranks;
static int calls = 60;

typedef struct {
  int index;
  MPI_Comm comm;
  long checks;
  long failures;
} Worker;

static void wrong(Worker* worker, const char* collective, int call, int index, int expected,
                  int got) {
  if (++worker->failures <= 5) {
    fprintf(stderr, "FAILED %s, thread %d, call %d, rank %d, index %d: expected %d, got %d\n",
            collective, worker->index, call, rank, index, expected, got);
  }
}

static int value(const Worker* worker, int call, int from, int index) {
  return (from + 1) * 1000 + call * 7 + worker->index * 13 + index % 101;
}

static void one_call(Worker* worker, int call, int* mirror, int* device_in, int* device_out,
                     bool on_device) {
  const int count = call % 3 == 0 ? 5 : call % 3 == 1 ? 777 : kMaxCount;
  const size_t bytes = (size_t)count * sizeof *mirror;
  const int root = call % ranks;
  for (int i = 0; i < count; ++i) mirror[i] = value(worker, call, rank, i);
  memory_write(on_device, device_in, mirror, bytes);
  const bool is_bcast = call % 4 == 3;
  int code = MPI_SUCCESS;
  if (is_bcast) {
    code = MPI_Bcast(device_in, count, MPI_INT, root, worker->comm);
    memory_read(on_device, mirror, device_in, bytes);
  } else {
    code = MPI_Allreduce(device_in, device_out, count, MPI_INT, MPI_SUM, worker->comm);
    memory_read(on_device, mirror, device_out, bytes);
  }
  const char* name = is_bcast ? "bcast" : "allreduce";
  ++worker->checks;
  if (code != MPI_SUCCESS) {
    wrong(worker, name, call, -1, MPI_SUCCESS, code);
    return;
  }
  for (int i = 0; i < count; ++i) {
    int expected = is_bcast ? value(worker, call, root, i) : 0;
    for (int from = 0; !is_bcast && from < ranks; ++from) expected += value(worker, call, from, i);
    if (mirror[i] != expected) {
      wrong(worker, name, call, i, expected, mirror[i]);
      return;
    }
  }
}

static void* work(void* argument) {
  Worker* worker = argument;
  const size_t bytes = kMaxCount * sizeof(int);
  /* Odd ranks start with the second communicator, even ranks with the first. */
  const bool late = (worker->index + rank) % 2 != 0;
  if (late) nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
  int* mirror = malloc(bytes);
  int* in[2] = {memory_allocate(false, bytes), memory_allocate(true, bytes)};
  int* out[2] = {memory_allocate(false, bytes), memory_allocate(true, bytes)};
  for (int call = 0; call < calls; ++call) {
    /* Mostly device memory; on some calls every other rank is on the host. */
    const bool on_device = call % 5 != 2 || (rank + worker->index) % 2 == 0;
    one_call(worker, call, mirror, in[on_device], out[on_device], on_device);
  }
  for (int kind = 0; kind < 2; ++kind) {
    memory_free(kind, in[kind]);
    memory_free(kind, out[kind]);
  }
  free(mirror);
  return NULL;
}

/* Half of the ranks and all of them by turns, told apart by the thread's tag. */
static void* work_on_groups(void* argument) {
  Worker* worker = argument;
  MPI_Group group[2];
  MPI_Comm_group(MPI_COMM_WORLD, &group[0]);
  MPI_Group_range_incl(group[0], 1, (int[1][3]){{0, ranks / 2, 1}}, &group[1]);
  for (int call = 0; call < calls; ++call) {
    if (call % 2 != 0 && rank > ranks / 2) continue;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_create_group(MPI_COMM_WORLD, group[call % 2], worker->index, &comm);
    MPI_Barrier(comm);
    int size = 0;
    int sum = 1;
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
    ++worker->checks;
    if (sum != size) wrong(worker, "allreduce", call, 0, size, sum);
    MPI_Comm_free(&comm);
  }
  for (int i = 0; i < 2; ++i) MPI_Group_free(&group[i]);
  return NULL;
}

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char* memory = "host";
  bool same_device = false;
  bool is_kept = false;
  bool has_groups = false;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--same-device") == 0) {
      same_device = true;
    } else if (strcmp(argv[i], "--keep") == 0) {
      is_kept = true;
    } else if (strcmp(argv[i], "--groups") == 0) {
      has_groups = true;
    } else if (strcmp(argv[i], "--memory") == 0 && i + 1 < argc) {
      memory = argv[++i];
    } else if (strcmp(argv[i], "--calls") == 0 && i + 1 < argc) {
      calls = atoi(argv[++i]);
    } else {
      fprintf(stderr, "threads: unknown option %s\n", argv[i]);
      MPI_Finalize();
      return 2;
    }
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    if (rank == 0) printf("threads: skipped: this MPI has no MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 0;
  }
  memory_open(memory, rank, same_device);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Worker worker[kThreads] = {0};
  pthread_t thread[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    worker[i].index = i;
    MPI_Comm_dup(MPI_COMM_WORLD, &worker[i].comm);
  }
  for (int i = 0; i < kThreads; ++i) {
    pthread_create(&thread[i], NULL, has_groups ? work_on_groups : work, &worker[i]);
  }
  long mine[2] = {0, 0};
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(thread[i], NULL);
    mine[0] += worker[i].checks;
    mine[1] += worker[i].failures;
  }
  for (int i = 0; i < kThreads && !is_kept; ++i) MPI_Comm_free(&worker[i].comm);
  long total[2] = {0, 0};
  MPI_Allreduce(mine, total, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) printf("threads: %ld checks, %ld failed\n", total[0], total[1]);
  return total[1] != 0 || mine[1] != 0 || total[0] == 0;
}
