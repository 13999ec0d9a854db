/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that dies while the others have a call on a stream, or wait in one: an error on each of
 * them in bounded time, and no call hangs after it.
 *
 *   death [--ranks 2..8] [--memory host|host-device|cuda]
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"
#include "ranks.h"
#include "tutti/tutti.h"

/* Less than a meeting takes to miss a rank: nobody may come to wait there. */
enum { COUNT = 10000, SECONDS_MAX = 15 };

static int ranks = 2;
static enum memory_kind kind = MEMORY_HOST;
/* A time-out that only NCCL's plans need: our own see that the process is gone. */
static const char kTimeout[] = "5";

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "rank %d, line %d: " #condition ": %s\n", rank, __LINE__, \
              tutti_error_string(comm));                                        \
      return 1;                                                                 \
    }                                                                           \
  } while (0)

static int is_end(tutti_status_t status) {
  return status == TUTTI_ERROR_TIMEOUT || status == TUTTI_ERROR_LIBRARY;
}

static int body(int rank, void* meeting) {
  tutti_comm_t* comm = NULL;
  tutti_bootstrap_t bootstrap;
  memory_open(kind, rank);
  meeting_bootstrap(meeting, rank, &bootstrap);
  /* Without streams a call that waits is the first to meet the dead: said, so that it does so in
   * the call and not in the bootstrap, which has its own bound. */
  const tutti_options_t options = {
      .size = sizeof options, .memory = kind == MEMORY_HOST ? TUTTI_MEMORY_HOST : TUTTI_MEMORY_ANY};
  EXPECT(tutti_comm_create(&bootstrap, &options, &comm) == TUTTI_OK);
  void* const buffer = memory_take(COUNT * sizeof(float));
  void* const stream = kind == MEMORY_HOST ? TUTTI_BLOCKING : stream_make();
  EXPECT(tutti_allreduce(comm, TUTTI_IN_PLACE, buffer, COUNT, TUTTI_FLOAT32, TUTTI_MAX, stream) ==
         TUTTI_OK);
  EXPECT(tutti_comm_wait(comm) == TUTTI_OK);
  if (rank == ranks - 1) {
    raise(SIGKILL);
  }
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  const tutti_status_t queued =
      tutti_allreduce(comm, TUTTI_IN_PLACE, buffer, COUNT, TUTTI_FLOAT32, TUTTI_MAX, stream);
  EXPECT(queued == TUTTI_OK || is_end(queued));
  if (kind == MEMORY_HOST_DEVICE) {
    /* The first of its kind, which would agree on its memory in the bootstrap. */
    EXPECT(is_end(tutti_allreduce(comm, TUTTI_IN_PLACE, buffer, COUNT / 2, TUTTI_FLOAT32, TUTTI_MAX,
                                  TUTTI_BLOCKING)));
  }
  if (kind == MEMORY_CUDA) {
    stream_wait(stream); /* As a program does that knows nothing: the stream goes on. */
  }
  const tutti_status_t waited = tutti_comm_wait(comm);
  EXPECT(is_end(waited));
  clock_gettime(CLOCK_MONOTONIC, &end);
  EXPECT(end.tv_sec - start.tv_sec < SECONDS_MAX);
  if (rank == 0) {
    printf("after %ld s: %s\n", (long)(end.tv_sec - start.tv_sec), tutti_error_string(comm));
  }
  EXPECT(is_end(tutti_comm_status(comm)));
  EXPECT(is_end(tutti_allreduce(comm, TUTTI_IN_PLACE, buffer, COUNT, TUTTI_FLOAT32, TUTTI_MAX,
                                TUTTI_BLOCKING)));
  EXPECT(is_end(tutti_barrier(comm, TUTTI_BLOCKING)));
  tutti_comm_destroy(comm);
  return 0;
}

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--ranks") == 0) {
      ranks = atoi(argv[i + 1]);
    } else if (strcmp(argv[i], "--memory") == 0) {
      kind = strcmp(argv[i + 1], "cuda") == 0          ? MEMORY_CUDA
             : strcmp(argv[i + 1], "host-device") == 0 ? MEMORY_HOST_DEVICE
                                                       : MEMORY_HOST;
    }
  }
  if (ranks < 2 || ranks > 8) {
    fprintf(stderr, "usage: %s [--ranks 2..8] [--memory host|host-device|cuda]\n", argv[0]);
    return 2;
  }
  if (kind == MEMORY_CUDA && cuda_devices() < ranks) {
    printf("%d GPUs are needed\n", ranks);
    return 77;
  }
  setenv("TUTTI_TIMEOUT", kTimeout, 1);
  return run_ranks(ranks, meeting_make(ranks), body, ranks - 1);
}
