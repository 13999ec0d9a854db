/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives of the MPI library itself against those of the preload, on host buffers, in one job.
 * bench/host_memory.py runs it. The library's own functions are looked up in the library, past the
 * preload, and called on the same communicator: each has memory of its own, and of two in one job
 * one is slower than the other (MPICH 5). For each size the two sides take turns in
 * short blocks of calls. The side that begins changes from pair to pair, so that a drift of the
 * machine's speed falls on both. Prints on rank 0, for each collective and size: paired: row
 * COLLECTIVE SIZE BYTES BLOCK_BYTES CALLS WRONG PLAN paired: pair NATIVE_AVERAGE OURS_AVERAGE
 * NATIVE_MAX OURS_MAX with microseconds per call, as the average and the maximum over the ranks,
 * one line for each pair of blocks; WRONG is the number of wrong elements in our results and PLAN
 * the plan of our side. SIZE is what was wanted and BYTES what it is in whole elements and blocks.
 * Before them: paired: cores LEAST MOST, on how many cores a rank may run, and paired: library, the
 * MPI's own words for its version. Sizes for which no time
 * is left are printed as "paired: skipped COLLECTIVE BYTES". Ends with paired: wrong ELEMENTS BYTES
 * is the vector of allreduce, reduce and bcast, and block x ranks of every other collective.
 *
 * Modes:
 *   calls    calls back to back
 *   osu      only the call is timed, a barrier of the same side follows, as in the OSU benchmarks
 *   compute  each rank computes before each call; the whole loop is timed
 *   late     one rank, another one for each call, comes late; timed from its arrival
 *   setup    prints what communicators cost (see measure_setup)
 *
 * Usage: paired [OPTION VALUE]...   (the options are in `parse` below)
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "native.h"

enum collective {
  ALLREDUCE,
  ALLGATHER,
  ALLTOALL,
  BCAST,
  REDUCE_SCATTER_BLOCK,
  REDUCE,
  GATHER,
  SCATTER,
  BARRIER,
  ALLGATHERV,
  ALLTOALLV,
  REDUCE_SCATTER,
  COLLECTIVES
};

static const char* const kNames[COLLECTIVES] = {
    "allreduce", "allgather", "alltoall",   "bcast",     "reduce_scatter_block", "reduce", "gather",
    "scatter",   "barrier",   "allgatherv", "alltoallv", "reduce_scatter"};

enum mode { CALLS, OSU, COMPUTE, LATE, SETUP, MODES };

static const char* const kModes[MODES] = {"calls", "osu", "compute", "late", "setup"};

static struct {
  const char* collectives; /* Names with commas between them. */
  const char* plan;        /* Info key tutti_plan of our communicator; empty: the default. */
  enum mode mode;
  size_t begin_bytes;
  size_t end_bytes;
  size_t factor;      /* From one size to the next. */
  double seconds;     /* After this no further size is begun. */
  double row_seconds; /* For the pairs of one size, at most. */
  double block_us;    /* Length of one block of calls, about. */
  int pairs_min;
  int pairs_max;
  double compute_us;
  double late_us;
  int is_char;      /* Reductions of MPI_CHAR in place of MPI_FLOAT. */
  int root_rotates; /* 0: root 0; 1: another root for each call. */
  int plants_wrong; /* Damages one element of our results: a test of the comparison. */
  int comms;        /* Live communicators of the mode setup. */
} options = {"allreduce", "",  CALLS, 1,   64 << 20, 4, 60, 0.3, 1000,
             3,           200, 100,   200, 0,        1, 0,  1000};

static int rank;
static int ranks;

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void quit(const char* text, const char* value) {
  fprintf(stderr, "paired: %s '%s'; remedy: see the usage in paired.c\n", text, value);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static int index_of(const char* name, size_t length, const char* const* names, int count) {
  for (int i = 0; i < count; ++i) {
    if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) {
      return i;
    }
  }
  quit("unknown name", name);
  return -1;
}

static void parse(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    const char* name = argv[i];
    const char* value = argv[i + 1]; /* NULL behind the last argument. */
    if (value == NULL) {
      quit("no value after", name);
    } else if (strcmp(name, "--collectives") == 0) {
      options.collectives = value;
    } else if (strcmp(name, "--plan") == 0) {
      options.plan = value;
    } else if (strcmp(name, "--mode") == 0) {
      options.mode = (enum mode)index_of(value, strlen(value), kModes, MODES);
    } else if (strcmp(name, "--begin") == 0) {
      options.begin_bytes = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--end") == 0) {
      options.end_bytes = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--factor") == 0) {
      options.factor = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--seconds") == 0) {
      options.seconds = atof(value);
    } else if (strcmp(name, "--row-seconds") == 0) {
      options.row_seconds = atof(value);
    } else if (strcmp(name, "--block-us") == 0) {
      options.block_us = atof(value);
    } else if (strcmp(name, "--pairs-min") == 0) {
      options.pairs_min = atoi(value);
    } else if (strcmp(name, "--pairs-max") == 0) {
      options.pairs_max = atoi(value);
    } else if (strcmp(name, "--compute-us") == 0) {
      options.compute_us = atof(value);
    } else if (strcmp(name, "--late-us") == 0) {
      options.late_us = atof(value);
    } else if (strcmp(name, "--type") == 0) {
      options.is_char = strcmp(value, "char") == 0;
    } else if (strcmp(name, "--root") == 0) {
      options.root_rotates = strcmp(value, "rotate") == 0;
    } else if (strcmp(name, "--plant-wrong") == 0) {
      options.plants_wrong = atoi(value);
    } else if (strcmp(name, "--comms") == 0) {
      options.comms = atoi(value);
    } else {
      quit("unknown option", name);
    }
  }
  if (options.begin_bytes < 1 || options.factor < 2) {
    quit("too small", options.begin_bytes < 1 ? "--begin" : "--factor");
  }
}

/* --- One call ---------------------------------------------------------------------------------*/

struct side {
  int is_ours;
  MPI_Comm comm;
};

/* One collective at one size. */
struct row {
  enum collective what;
  size_t size; /* As wanted. */
  size_t bytes;
  int count; /* Elements of the vector, or of one block. */
  MPI_Datatype type;
  size_t element_bytes;
};

static char* in;  /* What a rank gives: the vector, or a block for each rank. */
static char* out; /* What it gets. */
static int* counts;
static int* displacements;

/* The library's own, looked up once. */
#define NATIVE_FUNCTIONS(X) \
  X(Allreduce)              \
  X(Allgather)              \
  X(Alltoall)               \
  X(Bcast)                  \
  X(Reduce_scatter_block)   \
  X(Reduce)                 \
  X(Gather)                 \
  X(Scatter)                \
  X(Barrier)                \
  X(Allgatherv)             \
  X(Alltoallv)              \
  X(Reduce_scatter)         \
  X(Comm_dup)               \
  X(Comm_free)

static struct {
#define DECLARE(name) __typeof__(&PMPI_##name) name;
  NATIVE_FUNCTIONS(DECLARE)
} native;

static void load_native(void) {
#define LOAD(name) native.name = NATIVE(MPI_##name);
  NATIVE_FUNCTIONS(LOAD)
}

#define CALL(name) (side->is_ours ? MPI_##name : native.name)

static void call(const struct side* side, const struct row* row, int root) {
  const int n = row->count;
  const MPI_Datatype type = row->type;
  const MPI_Comm comm = side->comm;
  switch (row->what) {
    case ALLREDUCE:
      CALL(Allreduce)(in, out, n, type, MPI_SUM, comm);
      break;
    case ALLGATHER:
      CALL(Allgather)(in, n, type, out, n, type, comm);
      break;
    case ALLTOALL:
      CALL(Alltoall)(in, n, type, out, n, type, comm);
      break;
    case BCAST:
      CALL(Bcast)(rank == root ? in : out, n, type, root, comm);
      break;
    case REDUCE_SCATTER_BLOCK:
      CALL(Reduce_scatter_block)(in, out, n, type, MPI_SUM, comm);
      break;
    case REDUCE:
      CALL(Reduce)(in, out, n, type, MPI_SUM, root, comm);
      break;
    case GATHER:
      CALL(Gather)(in, n, type, out, n, type, root, comm);
      break;
    case SCATTER:
      CALL(Scatter)(in, n, type, out, n, type, root, comm);
      break;
    case BARRIER:
      CALL(Barrier)(comm);
      break;
    case ALLGATHERV:
      CALL(Allgatherv)(in, n, type, out, counts, displacements, type, comm);
      break;
    case ALLTOALLV:
      CALL(Alltoallv)(in, counts, displacements, type, out, counts, displacements, type, comm);
      break;
    case REDUCE_SCATTER:
      CALL(Reduce_scatter)(in, out, counts, type, MPI_SUM, comm);
      break;
    default:
      break;
  }
}

static int is_rooted(enum collective what) {
  return what == BCAST || what == REDUCE || what == GATHER || what == SCATTER;
}

static int is_reduction(enum collective what) {
  return what == ALLREDUCE || what == REDUCE || what == REDUCE_SCATTER_BLOCK ||
         what == REDUCE_SCATTER;
}

/* Whether the vector is one block, rather than one for each rank. */
static int is_whole(enum collective what) {
  return what == ALLREDUCE || what == REDUCE || what == BCAST || what == BARRIER;
}

static struct row row_of(enum collective what, size_t bytes) {
  struct row row = {what, bytes, bytes, 0, MPI_CHAR, 1};
  if (is_reduction(what) && !options.is_char) {
    row.type = MPI_FLOAT;
    row.element_bytes = sizeof(float);
  }
  const size_t blocks = is_whole(what) ? 1 : (size_t)ranks;
  const size_t count = bytes / blocks / row.element_bytes;
  row.count = count > 0 ? (int)count : 1;
  row.bytes = what == BARRIER ? 0 : (size_t)row.count * row.element_bytes * blocks;
  for (int r = 0; r < ranks; ++r) {
    counts[r] = row.count;
    displacements[r] = row.count * r;
  }
  return row;
}

/* --- Results ----------------------------------------------------------------------------------
 * Data repeat with a period that no block size shares, and are written and compared in tiles of
 * many periods. Values are small, so that sums are exact: floats below 13, and characters below 3
 * where they are added. */

enum { TILE_PERIODS = 256, TILE_BYTES_MAX = TILE_PERIODS * 251 };

struct tile {
  size_t bytes;
  union {
    float floats[TILE_PERIODS * 13];
    unsigned char chars[TILE_BYTES_MAX];
  } data;
};

/* What the block holds that rank `from` gives to rank `to`; from < 0: the sum over all ranks. */
static void make_tile(struct tile* tile, const struct row* row, int from, int to) {
  const int period = row->type == MPI_FLOAT ? 13 : is_reduction(row->what) ? 3 : 251;
  for (int i = 0; i < period * TILE_PERIODS; ++i) {
    int value = 0;
    for (int r = from < 0 ? 0 : from; r <= (from < 0 ? ranks - 1 : from); ++r) {
      value += (i * 5 + r * 3 + to * 7) % period;
    }
    if (row->type == MPI_FLOAT) {
      tile->data.floats[i] = (float)value;
    } else {
      tile->data.chars[i] = (unsigned char)value;
    }
  }
  tile->bytes = (size_t)period * TILE_PERIODS * row->element_bytes;
}

static void fill(char* to, const struct tile* tile, size_t bytes) {
  for (size_t done = 0; done < bytes; done += tile->bytes) {
    const size_t part = bytes - done < tile->bytes ? bytes - done : tile->bytes;
    memcpy(to + done, &tile->data, part);
  }
}

/* Elements of `found` that differ from the tile, repeated. */
static size_t differing(const char* found, const struct tile* tile, const struct row* row) {
  const size_t bytes = (size_t)row->count * row->element_bytes;
  size_t wrong = 0;
  for (size_t done = 0; done < bytes; done += tile->bytes) {
    const size_t part = bytes - done < tile->bytes ? bytes - done : tile->bytes;
    if (memcmp(found + done, &tile->data, part) == 0) {
      continue;
    }
    const char* wanted = (const char*)&tile->data;
    for (size_t i = 0; i < part; i += row->element_bytes) {
      wrong += memcmp(found + done + i, wanted + i, row->element_bytes) != 0;
    }
  }
  return wrong;
}

/* Wrong elements of one call of our side on this rank. */
static size_t check(const struct side* side, const struct row* row, int root) {
  static struct tile tile;
  if (row->what == BARRIER) {
    call(side, row, root);
    return 0;
  }
  const size_t block = (size_t)row->count * row->element_bytes;
  const int blocks_in = row->what == ALLTOALL || row->what == ALLTOALLV || row->what == SCATTER ||
                                row->what == REDUCE_SCATTER || row->what == REDUCE_SCATTER_BLOCK
                            ? ranks
                            : 1;
  for (int to = 0; to < blocks_in; ++to) {
    make_tile(&tile, row, rank, to);
    fill(in + (size_t)to * block, &tile, block);
  }
  const int is_all = row->what != REDUCE && row->what != GATHER;
  const int gets = is_all ? !(row->what == BCAST && rank == root) : rank == root;
  const int blocks_out = row->what == ALLGATHER || row->what == ALLGATHERV ||
                                 row->what == ALLTOALL || row->what == ALLTOALLV ||
                                 row->what == GATHER
                             ? ranks
                             : 1;
  memset(out, 0xff, (size_t)blocks_out * block);
  call(side, row, root);
  if (!gets) {
    return 0;
  }
  if (options.plants_wrong) {
    out[(size_t)blocks_out * block - 1] ^= 0x55;
  }
  size_t wrong = 0;
  for (int b = 0; b < blocks_out; ++b) {
    const int is_from_root = row->what == BCAST || row->what == SCATTER;
    const int is_to_me = row->what == ALLTOALL || row->what == ALLTOALLV || row->what == SCATTER ||
                         row->what == REDUCE_SCATTER || row->what == REDUCE_SCATTER_BLOCK;
    const int from = is_reduction(row->what) ? -1 : is_from_root ? root : b;
    make_tile(&tile, row, from, is_to_me ? rank : 0);
    wrong += differing(out + (size_t)b * block, &tile, row);
  }
  return wrong;
}

/* --- Time -------------------------------------------------------------------------------------*/

static uint64_t compute_steps; /* That take options.compute_us on a core of one's own. */

/* A fixed amount of work, not of time: a waiting rank that takes the core away makes it longer. */
static void compute(uint64_t steps) {
  volatile uint64_t sink = 0;
  for (uint64_t i = 0; i < steps; ++i) {
    sink = sink + i;
  }
}

static void calibrate_compute(void) {
  enum { STEPS = 20000, TRIALS = 50 };
  double best_us = 1e9;
  for (int trial = 0; trial < TRIALS; ++trial) {
    const double start = now_us();
    compute(STEPS);
    const double took = now_us() - start;
    best_us = took < best_us ? took : best_us;
  }
  native.Allreduce(MPI_IN_PLACE, &best_us, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  compute_steps = (uint64_t)(options.compute_us / best_us * STEPS);
}

/* This rank's time from the later of its own and the late rank's arrival to the call's end. */
static double late_call_us(const struct side* side, const struct row* row, int root, int late) {
  native.Barrier(MPI_COMM_WORLD);
  double arrival = now_us();
  if (rank == late) {
    const double until = arrival + options.late_us;
    while ((arrival = now_us()) < until) {
    }
  }
  const double own = arrival;
  call(side, row, root);
  const double end = now_us();
  native.Bcast(&arrival, 1, MPI_DOUBLE, late, MPI_COMM_WORLD);
  const double begin = arrival > own ? arrival : own;
  return end > begin ? end - begin : 0; /* A rank need not wait for a late one that only gets. */
}

/* Microseconds per call of a block, on this rank. */
static double block_call_us(const struct side* side, const struct row* row, int calls, int first) {
  const int rotates = options.root_rotates && is_rooted(row->what);
  double sum = 0;
  native.Barrier(MPI_COMM_WORLD);
  const double start = now_us();
  for (int i = 0; i < calls; ++i) {
    const int root = rotates ? (first + i) % ranks : 0;
    if (options.mode == OSU) {
      const double begin = now_us();
      call(side, row, root);
      sum += now_us() - begin;
      CALL(Barrier)(side->comm);
    } else if (options.mode == LATE) {
      sum += late_call_us(side, row, root, (first + i) % ranks);
    } else {
      if (options.mode == COMPUTE) {
        compute(compute_steps);
      }
      call(side, row, root);
    }
  }
  if (options.mode == CALLS || options.mode == COMPUTE) {
    sum = now_us() - start;
  }
  return sum / calls;
}

struct pair {
  double average_us[2]; /* Native, ours. */
  double max_us[2];
};

/* Measures one pair of blocks; false when `until_us` of rank 0's clock is over, on every rank. */
static int measure_pair(const struct side sides[2], const struct row* row, int calls, int index,
                        double until_us, struct pair* pair) {
  double own[3];
  for (int turn = 0; turn < 2; ++turn) {
    const int s = (index + turn) % 2;
    own[s] = block_call_us(&sides[s], row, calls, index);
  }
  native.Allreduce(own, pair->max_us, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  own[2] = rank == 0 && now_us() >= until_us;
  double sums[3];
  native.Allreduce(own, sums, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  pair->average_us[0] = sums[0] / ranks;
  pair->average_us[1] = sums[1] / ranks;
  return sums[2] == 0;
}

static void plan_used(MPI_Comm comm, char* plan, int size) {
  MPI_Info info;
  int found = 0;
  MPI_Comm_get_info(comm, &info);
  MPI_Info_get(info, "tutti_plan_used", size - 1, plan, &found);
  MPI_Info_free(&info);
  if (!found) {
    strcpy(plan, "none");
  }
}

/* The pairs of one row; returns the wrong elements of all ranks. */
static size_t measure_row(const struct side sides[2], const struct row* row, double seconds) {
  const double until_us = now_us() + seconds * 1e6;
  unsigned long long wrong = check(&sides[1], row, 0);
  wrong += check(&sides[1], row, ranks - 1);
  call(&sides[0], row, 0);
  native.Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);

  /* A call first, then as many as fit into a tenth of a block; the faster of both counts, since one
   * call alone may have been interrupted. */
  double wall_us[2] = {1e12, 1e12};
  double call_us = 0;
  int calls = 1;
  for (int trial = 0; trial < 2; ++trial) {
    for (int s = 0; s < 2; ++s) {
      const double start = now_us();
      block_call_us(&sides[s], row, calls, 0);
      const double took = (now_us() - start) / calls;
      wall_us[s] = took < wall_us[s] ? took : wall_us[s];
    }
    native.Allreduce(MPI_IN_PLACE, wall_us, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    call_us = wall_us[0] > wall_us[1] ? wall_us[0] : wall_us[1];
    calls = call_us < options.block_us / 10 ? (int)(options.block_us / 10 / call_us) : 1;
  }
  const double fitting = options.block_us / call_us;
  calls = fitting < 1 ? 1 : fitting > 10000 ? 10000 : (int)fitting;
  struct pair* measured = malloc((size_t)options.pairs_max * sizeof *measured);
  measure_pair(sides, row, calls, 0, 0, &measured[0]); /* Not counted: caches settle. */
  int pairs = 0;
  int is_time_left = 1;
  while (pairs < options.pairs_max && (is_time_left || pairs < options.pairs_min)) {
    is_time_left = measure_pair(sides, row, calls, pairs, until_us, &measured[pairs]);
    ++pairs;
  }
  char plan[128];
  call(&sides[1], row, 0); /* A barrier may have been the last one. */
  plan_used(sides[1].comm, plan, (int)sizeof plan);
  if (rank == 0) {
    const size_t block = row->what == BARRIER ? 0 : (size_t)row->count * row->element_bytes;
    printf("paired: row %s %zu %zu %zu %d %llu %s\n", kNames[row->what], row->size, row->bytes,
           block, calls, wrong, plan);
    for (int p = 0; p < pairs; ++p) {
      const struct pair* one = &measured[p];
      printf("paired: pair %.4f %.4f %.4f %.4f\n", one->average_us[0], one->average_us[1],
             one->max_us[0], one->max_us[1]);
    }
    fflush(stdout);
  }
  free(measured);
  return (size_t)wrong;
}

/* The chosen collectives; returns their number. */
static int chosen(enum collective* list) {
  int count = 0;
  for (const char* name = options.collectives; *name != '\0' && count < COLLECTIVES;) {
    const size_t length = strcspn(name, ",");
    list[count++] = (enum collective)index_of(name, length, kNames, COLLECTIVES);
    name += length + (name[length] == ',');
  }
  return count;
}

/* Sizes ascend, and at each size every collective has its turn: where time runs out, the largest
 * sizes are missing from all. */
static size_t measure_all(const struct side sides[2]) {
  enum collective list[COLLECTIVES];
  const int collectives = chosen(list);
  int sizes = 0;
  for (size_t bytes = options.begin_bytes; bytes <= options.end_bytes; bytes *= options.factor) {
    ++sizes;
  }
  int left = sizes * collectives;
  const double start = now_us();
  size_t wrong = 0;
  for (size_t bytes = options.begin_bytes; bytes <= options.end_bytes; bytes *= options.factor) {
    for (int c = 0; c < collectives; ++c, --left) {
      if (list[c] == BARRIER && bytes != options.begin_bytes) {
        continue;
      }
      const struct row row = row_of(list[c], bytes);
      if (bytes > options.begin_bytes && row.bytes > bytes && list[c] != BARRIER) {
        continue; /* A block of one element, as at the size before. */
      }
      /* What is left is shared among the sizes that are left: small ones take less than theirs. */
      double seconds = (options.seconds - (now_us() - start) * 1e-6) / left;
      native.Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
      if (seconds <= 0) {
        if (rank == 0) {
          printf("paired: skipped %s %zu\n", kNames[list[c]], row.size);
        }
        continue;
      }
      wrong +=
          measure_row(sides, &row, seconds < options.row_seconds ? seconds : options.row_seconds);
    }
  }
  return wrong;
}

/* --- Communicators ----------------------------------------------------------------------------*/

/* KiB of this process by a key of a file of /proc/self; 0 where there is none. */
static long memory_kib(const char* path, const char* key) {
  FILE* file = fopen(path, "r");
  if (file == NULL) {
    return 0;
  }
  char line[256];
  long found = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, key, strlen(key)) == 0) {
      found = atol(line + strlen(key));
    }
  }
  fclose(file);
  return found;
}

static long shared_files_kib(void) {
  struct statvfs of;
  return statvfs("/dev/shm", &of) == 0 ? (long)((of.f_blocks - of.f_bfree) * of.f_frsize / 1024)
                                       : 0;
}

static void print_memory(const char* when, int comms) {
  native.Barrier(MPI_COMM_WORLD);
  long kib[3] = {memory_kib("/proc/self/status", "VmRSS:"),
                 memory_kib("/proc/self/status", "RssShmem:"),
                 memory_kib("/proc/self/smaps_rollup", "Pss:")};
  native.Allreduce(MPI_IN_PLACE, kib, 3, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("paired: memory %s %d %ld %ld %ld %ld\n", when, comms, kib[0], kib[1], kib[2],
           shared_files_kib());
  }
}

/* Microseconds of the slowest rank. */
static double slowest_us(double us) {
  native.Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return us;
}

/* Duplicates the world and calls once on the copy; returns the microseconds of that call. */
static double dup_and_call(int is_ours, MPI_Comm* comm) {
  const struct side chosen_side = {is_ours, MPI_COMM_NULL};
  const struct side* side = &chosen_side;
  double value = 1;
  double sum = 0;
  CALL(Comm_dup)(MPI_COMM_WORLD, comm);
  const double start = now_us();
  CALL(Allreduce)(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, *comm);
  if (sum != ranks) {
    quit("a wrong sum on", "a new communicator");
  }
  return now_us() - start;
}

static int is_time_over(double until_us) {
  int is_over = now_us() >= until_us;
  native.Bcast(&is_over, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return is_over;
}

/* Prints, on rank 0:
 *   paired: first NATIVE OURS     the process's first allreduce of 8 bytes, us
 *   paired: dup NATIVE OURS NATIVE_CALL OURS_CALL
 *                                 MPI_Comm_dup, allreduce of 8 bytes and MPI_Comm_free, and the
 *                                 allreduce alone, us, of some in a row
 *   paired: memory WHEN COMMUNICATORS RSS SHARED PSS FILES
 *                                 KiB of the largest rank, and of all files in /dev/shm
 * WHEN: start (before any call); native_first and native (with one and with --comms live
 * communicators of the library, or as many as a third of --seconds gave); freed (without them);
 * ours_first and ours.
 */
static void measure_setup(void) {
  const double begin_us = now_us();
  const double third_us = options.seconds * 1e6 / 3;
  print_memory("start", 0);
  double first[2];
  double sum = 0;
  double value = 1;
  for (int s = 0; s < 2; ++s) {
    native.Barrier(MPI_COMM_WORLD);
    const double start = now_us();
    (s ? MPI_Allreduce : native.Allreduce)(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    first[s] = slowest_us(now_us() - start);
  }
  if (rank == 0) {
    printf("paired: first %.1f %.1f\n", first[0], first[1]);
  }
  for (int p = 0; p < 2 || (p < options.pairs_max && !is_time_over(begin_us + third_us)); ++p) {
    double all[2];
    double called[2];
    for (int turn = 0; turn < 2; ++turn) {
      const int s = (p + turn) % 2;
      enum { kInTurn = 20 }; /* One alone is mostly the time that the ranks are apart. */
      double call_us = 0;
      native.Barrier(MPI_COMM_WORLD);
      const double start = now_us();
      for (int i = 0; i < kInTurn; ++i) {
        MPI_Comm comm;
        call_us += dup_and_call(s, &comm) / kInTurn;
        (s ? MPI_Comm_free : native.Comm_free)(&comm);
      }
      all[s] = slowest_us((now_us() - start) / kInTurn);
      called[s] = slowest_us(call_us);
    }
    if (rank == 0) {
      printf("paired: dup %.1f %.1f %.1f %.1f\n", all[0], all[1], called[0], called[1]);
    }
  }
  MPI_Comm* comms = malloc((size_t)options.comms * sizeof *comms);
  for (int s = 0; s < 2; ++s) {
    const double until_us = begin_us + third_us * (s + 2);
    int live = 0;
    while (live < options.comms && !(live > 0 && is_time_over(until_us))) {
      dup_and_call(s, &comms[live++]);
      if (live == 1) {
        print_memory(s ? "ours_first" : "native_first", 1);
      }
    }
    print_memory(s ? "ours" : "native", live);
    while (live > 0) {
      (s ? MPI_Comm_free : native.Comm_free)(&comms[--live]);
    }
    if (!s) {
      print_memory("freed", 0);
    }
  }
  free(comms);
}

static void print_cores(void) {
  cpu_set_t allowed;
  int cores[2] = {0, 0};
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    cores[1] = CPU_COUNT(&allowed);
  }
  cores[0] = -cores[1];
  native.Allreduce(MPI_IN_PLACE, cores, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("paired: cores %d %d\n", -cores[0], cores[1]);
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    printf("paired: library %.*s\n", (int)strcspn(version, "\n"), version);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  load_native();
  parse(argc, argv);
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  print_cores();
  size_t wrong = 0;
  if (options.mode == SETUP) {
    measure_setup();
  } else {
    calibrate_compute();
    /* Blocks of less than an element are rounded up to one. */
    const size_t least = (size_t)ranks * sizeof(float);
    const size_t bytes = options.end_bytes > least ? options.end_bytes : least;
    in = malloc(bytes);
    out = malloc(bytes);
    counts = malloc((size_t)ranks * sizeof *counts);
    displacements = malloc((size_t)ranks * sizeof *displacements);
    memset(in, 0, bytes);

    MPI_Comm comm;
    MPI_Info info;
    MPI_Info_create(&info);
    if (options.plan[0] != '\0') {
      MPI_Info_set(info, "tutti_plan", options.plan);
    }
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    const struct side sides[2] = {{0, comm}, {1, comm}};
    wrong = measure_all(sides);
    MPI_Comm_free(&comm);
    free(in);
    free(out);
    free(counts);
    free(displacements);
  }
  if (rank == 0) {
    printf("paired: wrong %zu\n", wrong);
  }
  MPI_Finalize();
  return wrong != 0;
}
