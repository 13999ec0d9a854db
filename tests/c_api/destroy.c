/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranks whose communicators do not end alike: tutti_comm_destroy waits for no live peer for ever.
 *
 *   destroy [--case order|stuck] [--memory host-device|cuda]
 *
 * order: two ranks destroy two communicators, each in another order. stuck: a call on host memory
 * misses a peer, which lives on and destroys nothing until the other rank has.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "ranks.h"
#include "tutti/tutti.h"

enum { RANKS = 2, COUNT = 1000 };

static enum memory_kind kind = MEMORY_HOST_DEVICE;
static int is_stuck = 0;
static int shares_gpus = 0; /* Under MPS. */

static tutti_status_t call(tutti_comm_t* comm, void* buffer) {
  return tutti_allreduce(comm, TUTTI_IN_PLACE, buffer, COUNT, TUTTI_FLOAT32, TUTTI_MAX,
                         TUTTI_BLOCKING);
}

/* Bounded, unlike what is tested. */
static int meet(const tutti_bootstrap_t* bootstrap) {
  const char mine = 0;
  char all[RANKS];
  return bootstrap->allgather(bootstrap->context, &mine, all, 1) == 0;
}

static int body(int rank, void* meeting) {
  static float on_host[COUNT];
  tutti_comm_t* comm = NULL;
  tutti_comm_t* other = NULL;
  tutti_bootstrap_t bootstrap;
  memory_open(kind, rank);
  meeting_bootstrap(meeting, rank, &bootstrap);
  void* const buffer = memory_take(COUNT * sizeof(float));
  EXPECT(tutti_comm_create(&bootstrap, NULL, &comm) == TUTTI_OK);
  EXPECT(call(comm, buffer) == TUTTI_OK);
  if (is_stuck) {
    EXPECT(call(comm, on_host) == TUTTI_OK);
    if (rank == 0) {
      EXPECT(call(comm, on_host) == TUTTI_ERROR_TIMEOUT);
      EXPECT(tutti_comm_destroy(comm) == TUTTI_OK);
    }
    comm = rank == 0 ? NULL : comm;
    EXPECT(meet(&bootstrap));
    EXPECT(tutti_comm_destroy(comm) == TUTTI_OK);
    return 0;
  }
  EXPECT(tutti_comm_create(&bootstrap, NULL, &other) == TUTTI_OK);
  EXPECT(call(other, buffer) == TUTTI_OK);
  EXPECT(tutti_comm_destroy(rank == 0 ? comm : other) == TUTTI_OK);
  EXPECT(tutti_comm_destroy(rank == 0 ? other : comm) == TUTTI_OK);
  comm = NULL;
  EXPECT(meet(&bootstrap));
  return 0;
}

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--case") == 0) {
      is_stuck = strcmp(argv[i + 1], "stuck") == 0;
    } else if (strcmp(argv[i], "--share") == 0) {
      shares_gpus = atoi(argv[i + 1]);
    } else if (strcmp(argv[i], "--memory") == 0) {
      kind = strcmp(argv[i + 1], "cuda") == 0 ? MEMORY_CUDA : MEMORY_HOST_DEVICE;
    }
  }
  if (kind == MEMORY_CUDA && !memory_has_gpus(RANKS, shares_gpus)) {
    return 77;
  }
  if (is_stuck) {
    setenv("TUTTI_TIMEOUT", "1", 1);
  }
  return run_ranks(RANKS, meeting_make(RANKS), body, -1);
}
