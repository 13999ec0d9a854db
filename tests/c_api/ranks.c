/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 */
#define _GNU_SOURCE
#include "ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 16, BYTES_MAX = 1 << 16, SECONDS_MAX = 20 };

struct meeting {
  int ranks;
  _Atomic int waiting;
  _Atomic int generation;
  char bytes[RANKS_MAX][BYTES_MAX];
};
struct guest {
  struct meeting* meeting;
  int rank;
};

void* meeting_make(int ranks) {
  struct meeting* meeting =
      mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (meeting == MAP_FAILED || ranks > RANKS_MAX) {
    perror("meeting");
    exit(3);
  }
  meeting->ranks = ranks;
  return meeting;
}

/* 0 when all came; a rank that died does not come in time. */
static int barrier(struct meeting* meeting) {
  const int mine = atomic_load(&meeting->generation);
  if (atomic_fetch_add(&meeting->waiting, 1) + 1 == meeting->ranks) {
    atomic_store(&meeting->waiting, 0);
    atomic_fetch_add(&meeting->generation, 1);
    return 0;
  }
  const time_t start = time(NULL);
  while (atomic_load(&meeting->generation) == mine) {
    sched_yield();
    if (time(NULL) - start > SECONDS_MAX) {
      return 2;
    }
  }
  return 0;
}

static int allgather(void* context, const void* send, void* recv, size_t bytes) {
  const struct guest* guest = context;
  struct meeting* meeting = guest->meeting;
  if (bytes > BYTES_MAX) {
    return 1;
  }
  memcpy(meeting->bytes[guest->rank], send, bytes);
  if (barrier(meeting) != 0) {
    return 2;
  }
  for (int rank = 0; rank < meeting->ranks; ++rank) {
    memcpy((char*)recv + (size_t)rank * bytes, meeting->bytes[rank], bytes);
  }
  return barrier(meeting);
}

void meeting_bootstrap(void* meeting, int rank, tutti_bootstrap_t* bootstrap) {
  static struct guest guest;
  guest.meeting = meeting;
  guest.rank = rank;
  bootstrap->size = sizeof *bootstrap;
  bootstrap->rank = rank;
  bootstrap->ranks = guest.meeting->ranks;
  bootstrap->context = &guest;
  bootstrap->allgather = allgather;
}

int run_ranks(int ranks, void* meeting, int (*body)(int rank, void* meeting), int mortal) {
  pid_t children[RANKS_MAX];
  for (int rank = 0; rank < ranks; ++rank) {
    children[rank] = fork();
    if (children[rank] == 0) {
      exit(body(rank, meeting)); /* As a program ends: libraries close. */
    }
  }
  int worst = 0;
  for (int left = ranks; left > 0; --left) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    for (int rank = 0; rank < ranks; ++rank) {
      if (children[rank] == ended) {
        children[rank] = 0;
        if (rank == mortal) {
          code = code == 128 + SIGKILL ? 0 : 4;
        }
      }
    }
    if (code == 0 || worst != 0) {
      continue;
    }
    worst = code;
    for (int rank = 0; rank < ranks; ++rank) {
      if (children[rank] > 0) {
        kill(children[rank], SIGKILL);
      }
    }
  }
  return worst;
}
