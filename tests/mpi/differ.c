/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that differ between the ranks: other counts, another root, another collective. Such a call
 * may fail, on the ranks that see it; the calls after it, which are right, must give right results.
 * Only for plans that promise this (direct on host memory): with others such a program may hang.
 *
 * Usage: differ [--calls N] [--seed N] [--across first|later]
 *   --across  instead: one bcast of 100,000 bytes that the others take for one of 1000, then an
 *             allreduce, with the handler that MPI programs begin with: the job must end. `later`:
 *             after a call that is right.
 * Last line: "differ: N right calls, W wrong, E of D differing calls failed, T truncations" summed
 * over the ranks. Exit status 1 when W > 0.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCollectives = 8, kCountMax = 40000 };

static int rank, ranks;
static int *in, *out;
static unsigned long long state;

static unsigned draw(unsigned below) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (unsigned)(state >> 33) % below;
}

static int value(int call, int from, int i) { return call * 7 + from * 1000 + i % 91; }

static int run(int collective, int count, int root) {
  switch (collective) {
    case 0:
      return MPI_Bcast(rank == root ? in : out, count, MPI_INT, root, MPI_COMM_WORLD);
    case 1:
      return MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    case 2:
      return MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
    case 3:
      return MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
    case 4:
      return MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    case 5:
      return MPI_Gather(in, count, MPI_INT, out, count, MPI_INT, root, MPI_COMM_WORLD);
    case 6:
      return MPI_Scatter(in, count, MPI_INT, out, count, MPI_INT, root, MPI_COMM_WORLD);
    default:
      return MPI_Reduce_scatter_block(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  }
}

/* What element i of `out` must be; -1: not written there. */
static int expected(int collective, int call, int count, int root, int i) {
  const int block = count > 0 ? i / count : 0;
  const int sum = ranks * call * 7 + ranks * (ranks - 1) / 2 * 1000;
  const int at = rank * count + i;
  switch (collective) {
    case 0:
      return rank != root && i < count ? value(call, root, i) : -1;
    case 1:
      return i < count ? sum + ranks * (i % 91) : -1;
    case 2:
      return block < ranks ? value(call, block, i % count) : -1;
    case 3:
      return block < ranks ? value(call, block, rank * count + i % count) : -1;
    case 4:
      return rank == root && i < count ? sum + ranks * (i % 91) : -1;
    case 5:
      return rank == root && block < ranks ? value(call, block, i % count) : -1;
    case 6:
      return i < count ? value(call, root, at) : -1;
    default:
      return i < count ? sum + ranks * (at % 91) : -1;
  }
}

static void fill(int call, int elements) {
  for (int i = 0; i < elements; ++i) {
    in[i] = value(call, rank, i);
    out[i] = -1;
  }
}

int main(int argc, char** argv) {
  long calls = 2000, right = 0, wrong = 0, failed = 0, differing = 0, truncations = 0;
  unsigned long long seed = 1;
  const char* across = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--calls") == 0) calls = atol(argv[i + 1]);
    if (strcmp(argv[i], "--across") == 0) across = argv[i + 1];
    if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (across) {
    static char bytes[100000];
    if (strcmp(across, "later") == 0) {
      MPI_Allreduce(MPI_IN_PLACE, bytes, 8, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    }
    MPI_Bcast(bytes, rank == 0 ? (int)sizeof bytes : 1000, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, bytes, 8, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    printf("differ: passed on\n");
    MPI_Finalize();
    return 0;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int elements = 2 * kCountMax * ranks + ranks;
  in = malloc((size_t)elements * sizeof *in);
  out = malloc((size_t)elements * sizeof *out);
  for (int call = 0; call < calls; ++call) {
    state = seed * 1000003 + (unsigned long long)call;
    const int collective = (int)draw(kCollectives);
    const int count = 1 + (int)draw(1U + (kCountMax >> draw(14)));
    const int root = (int)draw((unsigned)ranks);
    const int differs = draw(4) == 0;
    int own_collective = collective, own_count = count, own_root = root;
    if (differs) {
      state ^= (unsigned long long)(rank + 1) << 40;
      draw(2);
      switch (draw(6)) {
        case 0:
          own_count = 2 * count + 1;
          break;
        case 1:
          own_count = (count + 1) / 2;
          break;
        case 2:
          own_root = (int)draw((unsigned)ranks);
          break;
        case 3:
          own_collective = (int)draw(kCollectives);
          break;
        default:
          break;
      }
    }
    const int written = own_count * ranks < 64 ? 64 : own_count * ranks;
    fill(call, written);
    const int code = run(own_collective, own_count, own_root);
    if (differs) {
      int class = MPI_SUCCESS;
      if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
      ++differing;
      failed += code != MPI_SUCCESS;
      truncations += class == MPI_ERR_TRUNCATE;
      continue;
    }
    ++right;
    if (code != MPI_SUCCESS) {
      ++wrong;
      fprintf(stderr, "FAILED call %d on rank %d: collective %d, count %d: error %d\n", call, rank,
              collective, count, code);
      continue;
    }
    for (int i = 0; i < written; ++i) {
      const int wanted = expected(collective, call, count, root, i);
      if (out[i] == wanted) continue;
      ++wrong;
      fprintf(stderr,
              "FAILED call %d on rank %d: collective %d, count %d, root %d: %d at %d, not %d\n",
              call, rank, collective, count, root, out[i], i, wanted);
      break;
    }
  }
  const long mine[] = {right, wrong, failed, differing, truncations};
  long sums[5];
  for (int i = 0; i < 5; ++i) sums[i] = mine[i];
  MPI_Allreduce(mine, sums, 5, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    printf(
        "differ: %ld right calls, %ld wrong, %ld of %ld differing calls failed, %ld truncations\n",
        sums[0], sums[1], sums[2], sums[3], sums[4]);
  }
  free(in);
  free(out);
  MPI_Finalize();
  return sums[1] > 0;
}
