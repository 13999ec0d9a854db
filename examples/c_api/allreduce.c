/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A program without MPI: ranks that are forked meet through shared memory, sum a vector, and say
 * which plan carried it. Another program gives a callback of its own way to meet: a TCP store, a
 * job launcher's key-value space, MPI_Allgather.
 *
 *   allreduce [RANKS]
 *
 * With buffers on GPUs only two things change: they come from cudaMalloc or hipMalloc, and
 * TUTTI_BLOCKING may be the stream that the sum takes its turn on.
 */
#define _DEFAULT_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { RANKS_MAX = 64, BYTES_MAX = 8192, COUNT = 1 << 20 };

/* What the processes share. */
struct board {
  int ranks;
  _Atomic int came;
  _Atomic int turn;
  char bytes[RANKS_MAX][BYTES_MAX];
};
struct seat {
  struct board* board;
  int rank;
};

static void meet(struct board* board) {
  const int turn = atomic_load(&board->turn);
  if (atomic_fetch_add(&board->came, 1) + 1 == board->ranks) {
    atomic_store(&board->came, 0);
    atomic_fetch_add(&board->turn, 1);
  }
  while (atomic_load(&board->turn) == turn) {
    sched_yield();
  }
}

static int allgather(void* context, const void* send, void* recv, size_t bytes) {
  const struct seat* seat = context;
  if (bytes > BYTES_MAX) {
    return 1;
  }
  memcpy(seat->board->bytes[seat->rank], send, bytes);
  meet(seat->board);
  for (int rank = 0; rank < seat->board->ranks; ++rank) {
    memcpy((char*)recv + (size_t)rank * bytes, seat->board->bytes[rank], bytes);
  }
  meet(seat->board);
  return 0;
}

static int rank_main(struct board* board, int rank) {
  struct seat seat = {board, rank};
  tutti_bootstrap_t bootstrap = {.size = sizeof bootstrap,
                                 .rank = rank,
                                 .ranks = board->ranks,
                                 .context = &seat,
                                 .allgather = allgather};
  tutti_comm_t* comm = NULL;
  if (tutti_comm_create(&bootstrap, NULL, &comm) != TUTTI_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, tutti_error_string(NULL));
    return 1;
  }
  float* vector = malloc(COUNT * sizeof *vector);
  for (int i = 0; i < COUNT; ++i) {
    vector[i] = (float)(rank + i % 10);
  }
  if (tutti_allreduce(comm, TUTTI_IN_PLACE, vector, COUNT, TUTTI_FLOAT32, TUTTI_SUM,
                      TUTTI_BLOCKING) != TUTTI_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, tutti_error_string(comm));
    return 1;
  }
  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) {
    wrong += vector[i] != (float)(board->ranks * (board->ranks - 1) / 2 + board->ranks * (i % 10));
  }
  if (rank == 0) {
    char* plan = tutti_comm_plan_json(comm,
                                      "{\"collective\": \"allreduce\", \"bytes\": 4194304, "
                                      "\"type\": \"float32\", \"op\": \"sum\"}");
    printf("%d ranks, %d elements, %d wrong; the plan and why:\n%s\n", board->ranks, COUNT, wrong,
           plan);
    tutti_free(plan);
  }
  free(vector);
  return tutti_comm_destroy(comm) == TUTTI_OK && wrong == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? atoi(argv[1]) : 2;
  struct board* board =
      mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (board == MAP_FAILED || ranks < 1 || ranks > RANKS_MAX) {
    fprintf(stderr, "usage: %s [RANKS]\n", argv[0]);
    return 2;
  }
  board->ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() == 0) {
      exit(rank_main(board, rank));
    }
  }
  int failed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  return failed != 0;
}
