/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A rank that dies while the others have a call on a stream, or wait in one: an error on each of
 * them in bounded time, and no call hangs after it.
 *
 *   death [--ranks 2..8] [--memory host|host-device|cuda]
 *         [--call allreduce|copied-allgather|ours-first|ccl-first]
 *
 * copied-allgather: by copy engines (plan direct-copy), which only calls that wait are. ours-first,
 * ccl-first: on one stream calls of our kernels and of NCCL behind each other.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "ranks.h"
#include "tutti/tutti.h"

/* Less than a meeting takes to miss a rank: nobody may come to wait there. */
enum { COUNT = 10000, SECONDS_MAX = 15 };
/* Of a call that NCCL carries, by size. */
enum { COUNT_LARGE = 16 << 20 };

static int ranks = 2;
static enum memory_kind kind = MEMORY_HOST;
static int is_copied = 0;
static int shares_gpus = 0; /* Under MPS. */
static enum { ONE, OURS_FIRST, CCL_FIRST } order = ONE;
/* A time-out that only NCCL's plans need: our own see that the process is gone. */
static const char kTimeout[] = "5";

static int is_end(tutti_status_t status) {
  return status == TUTTI_ERROR_TIMEOUT || status == TUTTI_ERROR_LIBRARY;
}

static tutti_status_t call(tutti_comm_t* comm, int rank, void* buffer, void* stream) {
  if (is_copied) {
    const char* const own = (const char*)buffer + (size_t)rank * COUNT * sizeof(float);
    return tutti_allgather(comm, own, buffer, COUNT, TUTTI_FLOAT32, stream);
  }
  return tutti_allreduce(comm, TUTTI_IN_PLACE, buffer, COUNT, TUTTI_FLOAT32, TUTTI_MAX, stream);
}

static tutti_status_t large_call(tutti_comm_t* comm, void* buffer, void* stream) {
  return tutti_allreduce(comm, TUTTI_IN_PLACE, buffer, COUNT_LARGE, TUTTI_FLOAT32, TUTTI_MAX,
                         stream);
}

/* Whether the last call went where it was to go. */
static int last_was(tutti_comm_t* comm, const char* collective, const char* plan) {
  char query[64], wanted[64];
  snprintf(query, sizeof query, "{\"collective\": \"%s\"}", collective);
  snprintf(wanted, sizeof wanted, "\"last_plan\":\"%s", plan);
  char* const text = tutti_comm_plan_json(comm, query);
  const int found = strstr(text, wanted) != NULL;
  if (!found) {
    fprintf(stderr, "%s\n", text);
  }
  tutti_free(text);
  return found;
}

static int body(int rank, void* meeting) {
  tutti_comm_t* comm = NULL;
  tutti_bootstrap_t bootstrap;
  memory_open(kind, rank);
  meeting_bootstrap(meeting, rank, &bootstrap);
  /* Without streams a call that waits is the first to meet the dead: said, so that it does so in
   * the call and not in the bootstrap, which has its own bound. */
  const tutti_options_t options = {.size = sizeof options,
                                   .memory = kind == MEMORY_HOST ? TUTTI_MEMORY_HOST
                                             : is_copied         ? TUTTI_MEMORY_DEVICE
                                                                 : TUTTI_MEMORY_ANY};
  EXPECT(tutti_comm_create(&bootstrap, &options, &comm) == TUTTI_OK);
  const size_t count = order == ONE ? (size_t)ranks * COUNT : COUNT_LARGE;
  void* const buffer = memory_take(count * sizeof(float));
  void* const stream = kind == MEMORY_HOST || is_copied ? TUTTI_BLOCKING : stream_make();
  EXPECT(call(comm, rank, buffer, stream) == TUTTI_OK);
  EXPECT(!is_copied || last_was(comm, "allgather", "direct-copy"));
  if (order != ONE) {
    const int is_ours = last_was(comm, "allreduce", "direct-gamma");
    EXPECT(large_call(comm, buffer, stream) == TUTTI_OK);
    if (!is_ours || !last_was(comm, "allreduce", "ccl")) {
      if (rank == ranks - 1) {
        pause(); /* Whose end would not count as that of the others. */
      }
      printf("our kernels and NCCL are needed, a size each\n");
      return 77;
    }
  }
  EXPECT(tutti_comm_wait(comm) == TUTTI_OK);
  if (rank == ranks - 1) {
    if (kind == MEMORY_HOST) {
      sleep(1); /* The others are in the next call: over a network they may still be in this one. */
    }
    raise(SIGKILL);
  }
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < (order == ONE ? 1 : 4); ++i) {
    const int is_large = (order == OURS_FIRST && i % 2 == 1) || (order == CCL_FIRST && i % 2 == 0);
    const tutti_status_t queued =
        is_large ? large_call(comm, buffer, stream) : call(comm, rank, buffer, stream);
    EXPECT((queued == TUTTI_OK && stream != TUTTI_BLOCKING) || is_end(queued));
  }
  if (kind == MEMORY_HOST_DEVICE) {
    /* The first of its kind, which would agree on its memory in the bootstrap. */
    EXPECT(is_end(tutti_allreduce(comm, TUTTI_IN_PLACE, buffer, COUNT / 2, TUTTI_FLOAT32, TUTTI_MAX,
                                  TUTTI_BLOCKING)));
  }
  if (kind == MEMORY_CUDA && !is_copied) {
    stream_wait(stream); /* As a program does that knows nothing: the stream goes on. */
  }
  const tutti_status_t waited = tutti_comm_wait(comm);
  EXPECT(is_end(waited));
  if (kind == MEMORY_HOST) {
    char name[24];
    snprintf(name, sizeof name, "rank %d", ranks - 1);
    EXPECT(strstr(tutti_error_string(comm), name) != NULL);
  }
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
    } else if (strcmp(argv[i], "--share") == 0) {
      shares_gpus = atoi(argv[i + 1]);
    } else if (strcmp(argv[i], "--call") == 0) {
      is_copied = strcmp(argv[i + 1], "copied-allgather") == 0;
      order = strcmp(argv[i + 1], "ours-first") == 0  ? OURS_FIRST
              : strcmp(argv[i + 1], "ccl-first") == 0 ? CCL_FIRST
                                                      : ONE;
    }
  }
  if (ranks < 2 || ranks > 8) {
    fprintf(stderr,
            "usage: %s [--ranks 2..8] [--memory host|host-device|cuda] "
            "[--call allreduce|copied-allgather|ours-first|ccl-first] [--share 1]\n",
            argv[0]);
    return 2;
  }
  if (kind == MEMORY_CUDA && !memory_has_gpus(ranks, shares_gpus)) {
    return 77;
  }
  setenv("TUTTI_TIMEOUT", kTimeout, 1);
  if (is_copied) {
    setenv("TUTTI_ALLGATHER", "direct-copy", 1);
  }
  return run_ranks(ranks, meeting_make(ranks), body, ranks - 1);
}
