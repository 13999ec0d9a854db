/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Two ranks, of which one has no GPU library: rank 0's buffer is in device memory, rank 1's is not.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "memory.h"
#include "ranks.h"
#include "tutti/tutti.h"

enum { COUNT = 1000 };

static int body(int rank, void* meeting) {
  tutti_comm_t* comm = NULL;
  setenv("TUTTI_DEVICE", rank == 0 ? "host" : "none", 1);
  memory_open(rank == 0 ? MEMORY_HOST_DEVICE : MEMORY_HOST, rank);
  tutti_bootstrap_t bootstrap;
  meeting_bootstrap(meeting, rank, &bootstrap);
  EXPECT(tutti_comm_create(&bootstrap, NULL, &comm) == TUTTI_OK);
  float* const data = memory_take(COUNT * sizeof(float));
  for (int i = 0; i < COUNT; ++i) {
    data[i] = (float)(rank + i);
  }
  EXPECT(tutti_allreduce(comm, TUTTI_IN_PLACE, data, COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                         TUTTI_BLOCKING) == TUTTI_OK);
  for (int i = 0; i < COUNT; ++i) {
    EXPECT(data[i] == (float)(2 * i + 1));
  }
  EXPECT(tutti_comm_destroy(comm) == TUTTI_OK);
  return 0;
}

int main(void) { return run_ranks(2, meeting_make(2), body, -1); }
