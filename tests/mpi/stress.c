/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Very many random blocking collectives, cheap enough for a million calls on GPUs: collectives,
 * types, operations, sizes, roots, layouts and communicators follow each other in an order that
 * nobody would write down. Each call is drawn from the seed and its number, equally on all ranks.
 *
 * Nothing is uploaded but what a call takes in place: inputs are slices of one buffer per rank,
 * filled once with values that every rank knows of every rank. Every output is downloaded with a
 * guard in front and behind and compared with the definition, whatever its size. What the output
 * buffer held before is known from the last download, so guards and gaps need no upload either.
 *
 * A failing call is named with seed and number; `--seed S --calls K+1 --first K` replays it. Last
 * line: "stress: N calls, M elements compared, F failed".
 *
 * Usage: stress [--memory host|hostdevice|cuda|hip] [--same-device] [--calls N] [--seed S]
 *               [--first K] [--renew R] [--watchdog S] [--sabotage RANK]
 *   --first K        perform the calls before call K without comparing
 *   --renew R        one call in R first frees a communicator and makes it anew (300; 0: never)
 *   --watchdog S     say where and exit 75 when one call takes longer (0: never)
 *   --sabotage RANK  corrupt one result on that rank: the run must fail
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

enum {
  kMaxRanks = 8, /* Sums and products of so many floats are exact. */
  kGuardBytes = 64,
  kSlackBytes = 64 << 10, /* Beyond the largest call: gaps, offsets. */
  kLargeLimit = 4 << 20,
  kSmallLimit = 512 << 10,
  kOutBytes = kLargeLimit + 2 * kSlackBytes,
  kMaxGap = 3,
  kMaxOffset = 64,
};

typedef enum {
  kAllreduce,
  kReduce,
  kReduceScatter,
  kReduceScatterBlock,
  kBcast,
  kAllgather,
  kAllgatherv,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kAlltoall,
  kAlltoallv,
  kBarrier,
  kCollectiveCount,
} Collective;

static const char* const collective_names[kCollectiveCount] = {
    "allreduce", "reduce",    "reduce_scatter", "reduce_scatter_block",
    "bcast",     "allgather", "allgatherv",     "gather",
    "gatherv",   "scatter",   "scatterv",       "alltoall",
    "alltoallv", "barrier"};

static bool is_reduction(Collective c) { return c <= kReduceScatterBlock; }
static bool is_gather(Collective c) { return c == kGather || c == kGatherv; }
static bool is_scatter(Collective c) { return c == kScatter || c == kScatterv; }
static bool has_blocks(Collective c) {
  return c != kAllreduce && c != kReduce && c != kBcast && c != kBarrier;
}
static bool is_vector(Collective c) {
  return c == kReduceScatter || c == kAllgatherv || c == kGatherv || c == kScatterv ||
         c == kAlltoallv;
}
static bool has_root(Collective c) {
  return c == kReduce || c == kBcast || is_gather(c) || is_scatter(c);
}

typedef enum {
  kSum,
  kProd,
  kMin,
  kMax,
  kLand,
  kLor,
  kLxor,
  kBand,
  kBor,
  kBxor,
  kMinloc,
  kMaxloc,
  kOperationCount,
} Operation;

static const char* const operation_names[kOperationCount] = {
    "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "minloc", "maxloc"};
static MPI_Op operation_handles[kOperationCount];

/* Values by kind; each has a region of the input buffer. */
typedef enum {
  kBits,
  kFloats,
  kDoubles,
  kBools,
  kIntInts,
  kDoubleInts,
  kShort8,  /* For sums of 8 and 16 bits that stay in range: */
  kShort16, /* Open MPI's vector code saturates them. */
  kRegionCount
} Region;

static const size_t region_limit[kRegionCount] = {kLargeLimit, kLargeLimit, kLargeLimit,
                                                  kSmallLimit, kSmallLimit, kSmallLimit,
                                                  kSmallLimit, kSmallLimit};
static size_t region_at[kRegionCount];
static size_t base_bytes;

/* Reference: acc[i] = acc[i] op in[i]. Integers wrap around. */
typedef void Combine(Operation operation, unsigned char* acc, const unsigned char* in,
                     size_t count);

#define LOOP(T, EXPRESSION)                   \
  for (size_t i = 0; i < count; ++i) {        \
    T a;                                      \
    T b;                                      \
    memcpy(&a, acc + i * sizeof a, sizeof a); \
    memcpy(&b, in + i * sizeof b, sizeof b);  \
    a = (T)(EXPRESSION);                      \
    memcpy(acc + i * sizeof a, &a, sizeof a); \
  }                                           \
  break

#define DEFINE_INTEGER(T)                                                                   \
  static void combine_##T(Operation operation, unsigned char* acc, const unsigned char* in, \
                          size_t count) {                                                   \
    switch (operation) {                                                                    \
      case kSum:                                                                            \
        LOOP(T, (uint64_t)a + (uint64_t)b);                                                 \
      case kProd:                                                                           \
        LOOP(T, (uint64_t)a*(uint64_t)b);                                                   \
      case kMin:                                                                            \
        LOOP(T, b < a ? b : a);                                                             \
      case kMax:                                                                            \
        LOOP(T, b > a ? b : a);                                                             \
      case kLand:                                                                           \
        LOOP(T, a&& b);                                                                     \
      case kLor:                                                                            \
        LOOP(T, a || b);                                                                    \
      case kLxor:                                                                           \
        LOOP(T, !a != !b);                                                                  \
      case kBand:                                                                           \
        LOOP(T, a& b);                                                                      \
      case kBor:                                                                            \
        LOOP(T, a | b);                                                                     \
      case kBxor:                                                                           \
        LOOP(T, a ^ b);                                                                     \
      default:                                                                              \
        abort();                                                                            \
    }                                                                                       \
  }

#define DEFINE_FLOATING(T)                                                                  \
  static void combine_##T(Operation operation, unsigned char* acc, const unsigned char* in, \
                          size_t count) {                                                   \
    switch (operation) {                                                                    \
      case kSum:                                                                            \
        LOOP(T, a + b);                                                                     \
      case kProd:                                                                           \
        LOOP(T, a* b);                                                                      \
      case kMin:                                                                            \
        LOOP(T, b < a ? b : a);                                                             \
      case kMax:                                                                            \
        LOOP(T, b > a ? b : a);                                                             \
      default:                                                                              \
        abort();                                                                            \
    }                                                                                       \
  }

typedef struct {
  int value;
  int index;
} IntInt;

typedef struct {
  double value;
  int index;
} DoubleInt;

/* The lower location where values are equal. */
#define DEFINE_LOCATED(T)                                                                   \
  static void combine_##T(Operation operation, unsigned char* acc, const unsigned char* in, \
                          size_t count) {                                                   \
    for (size_t i = 0; i < count; ++i) {                                                    \
      T a;                                                                                  \
      T b;                                                                                  \
      memcpy(&a, acc + i * sizeof a, sizeof a);                                             \
      memcpy(&b, in + i * sizeof b, sizeof b);                                              \
      const bool better = operation == kMinloc ? b.value < a.value : b.value > a.value;     \
      if (better || (b.value == a.value && b.index < a.index)) {                            \
        memcpy(acc + i * sizeof b, &b, sizeof b);                                           \
      }                                                                                     \
    }                                                                                       \
  }

DEFINE_INTEGER(int8_t)
DEFINE_INTEGER(uint8_t)
DEFINE_INTEGER(int16_t)
DEFINE_INTEGER(uint16_t)
DEFINE_INTEGER(int32_t)
DEFINE_INTEGER(uint32_t)
DEFINE_INTEGER(int64_t)
DEFINE_INTEGER(uint64_t)
DEFINE_FLOATING(float)
DEFINE_FLOATING(double)
DEFINE_LOCATED(IntInt)
DEFINE_LOCATED(DoubleInt)

enum {
  kArithmetic = 1u << kSum | 1u << kProd | 1u << kMin | 1u << kMax,
  kLogical = 1u << kLand | 1u << kLor | 1u << kLxor,
  kBitwise = 1u << kBand | 1u << kBor | 1u << kBxor,
  kLocation = 1u << kMinloc | 1u << kMaxloc,
  kInteger = kArithmetic | kLogical | kBitwise,
};

typedef struct {
  const char* name;
  MPI_Datatype type;
  size_t size; /* Extent. */
  Region region;
  unsigned operations;
  Combine* combine;
} Element;

enum { kElementCount = 14 };
static Element elements[kElementCount];

static void fill_tables(void) {
  const Element known[kElementCount] = {
      {"int8", MPI_INT8_T, 1, kBits, kInteger, combine_int8_t},
      {"uint8", MPI_UINT8_T, 1, kBits, kInteger, combine_uint8_t},
      {"int16", MPI_INT16_T, 2, kBits, kInteger, combine_int16_t},
      {"uint16", MPI_UINT16_T, 2, kBits, kInteger, combine_uint16_t},
      {"int32", MPI_INT32_T, 4, kBits, kInteger, combine_int32_t},
      {"uint32", MPI_UINT32_T, 4, kBits, kInteger, combine_uint32_t},
      {"int64", MPI_INT64_T, 8, kBits, kInteger, combine_int64_t},
      {"uint64", MPI_UINT64_T, 8, kBits, kInteger, combine_uint64_t},
      {"float", MPI_FLOAT, 4, kFloats, kArithmetic, combine_float},
      {"double", MPI_DOUBLE, 8, kDoubles, kArithmetic, combine_double},
      {"bool", MPI_C_BOOL, 1, kBools, kLogical, combine_uint8_t},
      {"int_int", MPI_2INT, sizeof(IntInt), kIntInts, kLocation, combine_IntInt},
      {"double_int", MPI_DOUBLE_INT, sizeof(DoubleInt), kDoubleInts, kLocation, combine_DoubleInt},
      {"byte", MPI_BYTE, 1, kBits, kBitwise, combine_uint8_t},
  };
  memcpy(elements, known, sizeof known);
  const MPI_Op operations[kOperationCount] = {MPI_SUM,  MPI_PROD, MPI_MIN,    MPI_MAX,
                                              MPI_LAND, MPI_LOR,  MPI_LXOR,   MPI_BAND,
                                              MPI_BOR,  MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
  memcpy(operation_handles, operations, sizeof operations);
}

/* Options and state. */

static struct {
  const char* memory;
  bool same_device;
  long calls;
  uint64_t seed;
  long first;
  unsigned renew;
  unsigned watchdog_s;
  int sabotage; /* Rank in MPI_COMM_WORLD, -1: nobody. */
} options = {.memory = "host", .calls = 2000, .seed = 1, .renew = 300, .sabotage = -1};

typedef struct {
  const char* name;
  MPI_Comm comm;
  int rank;
  int size;
  int world[kMaxRanks]; /* Ranks in MPI_COMM_WORLD. */
} Group;

enum { kWorld, kDup, kSplit, kGroupCount };
static Group groups[kGroupCount];

static int world_rank;
static int world_size;
static unsigned char* known[kMaxRanks]; /* What each rank's input buffer holds. */
static unsigned char* base;             /* This rank's input buffer. */
static unsigned char* out;
static unsigned char* shadow;   /* What `out` holds. */
static unsigned char* expected; /* What it should hold after the call. */
static unsigned char* got;
static long compared;
static long failures;
static char current[512] = "start"; /* What failures and the watchdog say. */

static void on_alarm(int signal_number) {
  (void)signal_number;
  const char head[] = "stress: no progress in ";
  if (write(2, head, sizeof head - 1) < 0 || write(2, current, strlen(current)) < 0 ||
      write(2, "\n", 1) < 0) {
    _exit(75);
  }
  _exit(75);
}

static void failed(const char* what) {
  enum { kMaxPrinted = 12 };
  if (++failures <= kMaxPrinted) fprintf(stderr, "FAILED %s: %s\n", current, what);
}

/* splitmix64. `shared` goes equally on all ranks of a call's communicator; `own` draws what the
 * other ranks need not know. */
static uint64_t shared;
static uint64_t own;

static uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* Below `limit`; 0 when that is 0. */
static size_t draw(uint64_t* state, size_t limit) {
  const uint64_t word = scramble(*state += 0x9e3779b97f4a7c15u);
  return limit > 0 ? (size_t)(word % limit) : 0;
}

/* The inputs: word `index` of a region on a rank. */

static uint64_t random_word(int rank, Region region, size_t index) {
  return scramble(scramble((uint64_t)rank * kRegionCount + region + 1) ^
                  (index + 1) * 0x9e3779b97f4a7c15u);
}

/* Small, rarely zero, so that a product is not zero on nearly all elements. */
static int small_number(uint64_t word) {
  static const signed char numbers[16] = {1, -1, 2, -2, 3, -3, 1, -1, 2, -2, 3, -3, 1, 2, 3, 0};
  return numbers[word >> 60];
}

static void fill(int rank, unsigned char* image) {
  for (int region = 0; region < kRegionCount; ++region) {
    unsigned char* to = image + region_at[region];
    const size_t words = (region_limit[region] + kSlackBytes) / 8;
    for (size_t i = 0; i < words; ++i, to += 8) {
      const uint64_t word = random_word(rank, (Region)region, i);
      uint64_t bits = word;
      /* One word in four is zero, for logical operations. */
      if (region == kBits && word >> 62 == 0) bits = 0;
      if (region == kBools) bits = word & 0x0101010101010101u;
      if (region == kShort8) bits = word & 0x0f0f0f0f0f0f0f0fu;
      if (region == kShort16) bits = word & 0x0fff0fff0fff0fffu;
      if (region == kFloats) {
        const float pair[2] = {(float)small_number(word), (float)small_number(word << 4)};
        memcpy(&bits, pair, sizeof bits);
      }
      if (region == kDoubles || (region == kDoubleInts && i % 2 == 0)) {
        const double number = small_number(word);
        memcpy(&bits, &number, sizeof bits);
      }
      /* Few values, so that some are equal; many locations. The second half of a DoubleInt's
       * second word is padding. */
      if (region == kIntInts || (region == kDoubleInts && i % 2 != 0)) {
        const int located[2] = {small_number(word), (int)(word & 0xffff)};
        const int tail[2] = {(int)(word & 0xffff), 0};
        memcpy(&bits, region == kIntInts ? located : tail, sizeof bits);
      }
      memcpy(to, &bits, sizeof bits);
    }
  }
}

/* Communicators. */

static void adopt(Group* group, const char* name, MPI_Comm comm) {
  group->name = name;
  group->comm = comm;
  MPI_Comm_rank(comm, &group->rank);
  MPI_Comm_size(comm, &group->size);
  MPI_Group all;
  MPI_Group mine;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Comm_group(comm, &mine);
  int ranks[kMaxRanks];
  for (int i = 0; i < group->size; ++i) ranks[i] = i;
  MPI_Group_translate_ranks(mine, group->size, ranks, all, group->world);
  MPI_Group_free(&mine);
  MPI_Group_free(&all);
}

static void renew(int slot, bool halves) {
  Group* group = &groups[slot];
  if (group->comm != MPI_COMM_NULL) MPI_Comm_free(&group->comm);
  MPI_Comm comm = MPI_COMM_NULL;
  if (slot == kDup) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  } else if (halves) {
    MPI_Comm_split(MPI_COMM_WORLD, 2 * world_rank < world_size, world_rank, &comm);
  } else {
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm);
  }
  adopt(group, slot == kDup ? "dup" : halves ? "half" : "reversed", comm);
}

/* One call. Counts and displacements are in elements. */

typedef struct {
  long number;
  Collective collective;
  const Group* group;
  const Element* element;
  Operation operation;
  Region region; /* Of the inputs. */
  size_t count;  /* Of a block; at most, where they differ. */
  int root;
  bool in_place;
  size_t start[kMaxRanks];          /* Of each rank's slice in its region. */
  int counts[kMaxRanks][kMaxRanks]; /* From rank to rank; reductions: [0][rank] of the result. */
  int displs[kMaxRanks][kMaxRanks]; /* From the slice's start. */
  int receive_displs[kMaxRanks];    /* By source, on this rank. */
  size_t total;                     /* Elements of a reduction's input. */
} Call;

/* Mostly below 4 KiB, one in twenty up to 256 KiB, one in a thousand up to 4 MiB. */
static size_t draw_count(const Element* element, Region region, bool blocks, int size) {
  const size_t kind = draw(&shared, 1000);
  const size_t exponent = draw(&shared, 13);
  const size_t random = draw(&shared, SIZE_MAX);
  if (kind < 30) return 0;
  if (kind < 70) return 1;
  if (kind < 949) return random % (((size_t)1 << exponent) / element->size + 2);
  size_t bytes = ((size_t)4 << 10) + random % ((size_t)4 << (10 + exponent % 7));
  if (bytes > 256 << 10) bytes = 256 << 10;
  if (kind == 999) bytes = random % 4 == 0 ? kLargeLimit : random % (kLargeLimit + 1);
  if (bytes > region_limit[region]) bytes = region_limit[region];
  return bytes / (blocks ? (size_t)size : 1) / element->size;
}

/* Blocks one after the other or last first, dense or with gaps. */
static void lay_out(uint64_t* state, const int* counts, int* displs, int size) {
  const bool is_dense = draw(state, 3) == 0;
  const bool is_descending = draw(state, 3) == 0;
  int at = 0;
  for (int i = 0; i < size; ++i) {
    const int block = is_descending ? size - 1 - i : i;
    if (!is_dense) at += (int)draw(state, kMaxGap + 1);
    displs[block] = at;
    at += counts[block];
  }
}

static int draw_block(const Call* c, size_t pattern) {
  const size_t some = draw(&shared, c->count + 1);
  if (!is_vector(c->collective) || pattern == 0) return (int)c->count;
  return pattern == 1 && some % 2 == 0 ? 0 : (int)some;
}

static void draw_blocks(Call* c) {
  const int size = c->group->size;
  const size_t pattern = draw(&shared, 4);
  memset(c->counts, 0, sizeof c->counts);
  memset(c->displs, 0, sizeof c->displs);
  memset(c->receive_displs, 0, sizeof c->receive_displs);
  for (int i = 0; i < size; ++i) {
    const int block = draw_block(c, pattern);
    for (int j = 0; j < size; ++j) {
      if (c->collective == kBcast) c->counts[c->root][j] = (int)c->count;
      if (is_gather(c->collective)) c->counts[i][c->root] = block;
      if (is_scatter(c->collective)) c->counts[c->root][i] = block;
      if (c->collective == kAllgather || c->collective == kAllgatherv) c->counts[i][j] = block;
      if (c->collective == kAlltoall) c->counts[i][j] = block;
      if (c->collective == kAlltoallv) c->counts[i][j] = draw_block(c, pattern);
      if (c->collective == kAlltoallv && c->in_place && j < i) c->counts[i][j] = c->counts[j][i];
    }
    if (is_reduction(c->collective)) c->counts[0][i] = block;
  }
  int receive_counts[kMaxRanks];
  for (int i = 0; i < size; ++i) receive_counts[i] = c->counts[i][c->group->rank];
  for (int i = 0; i < size && !is_reduction(c->collective); ++i) {
    const bool sends = is_scatter(c->collective) ? i == c->root : c->collective == kAlltoallv;
    if (is_vector(c->collective) && sends) {
      lay_out(&shared, c->counts[i], c->displs[i], size);
    } else if (c->collective == kScatter || c->collective == kAlltoall) {
      for (int j = 0; j < size; ++j) c->displs[i][j] = j * (int)c->count;
    }
    if (has_blocks(c->collective) && !is_scatter(c->collective)) {
      c->receive_displs[i] = i * (int)c->count;
    }
  }
  if (c->collective == kGatherv || c->collective == kAllgatherv || c->collective == kAlltoallv) {
    lay_out(&own, receive_counts, c->receive_displs, size);
  }
  c->total = c->count;
  if (c->collective == kReduceScatter || c->collective == kReduceScatterBlock) {
    c->total = 0;
    for (int i = 0; i < size; ++i) c->total += (size_t)c->counts[0][i];
  }
  for (int i = 0; i < size; ++i) {
    size_t span = is_reduction(c->collective) ? c->total : 0;
    for (int j = 0; j < size && !is_reduction(c->collective); ++j) {
      const size_t end = (size_t)(c->displs[i][j] + c->counts[i][j]);
      if (end > span) span = end;
    }
    const size_t bytes = region_limit[c->region] + kSlackBytes;
    c->start[i] = draw(&shared, bytes / c->element->size - span + 1);
  }
}

static Call draw_call(long number) {
  Call c = {.number = number};
  shared = scramble(scramble(options.seed + 1) + (uint64_t)number);
  own = scramble(shared + (uint64_t)world_rank + 1);
  const size_t renewal = draw(&shared, options.renew);
  const size_t which = draw(&shared, 4);
  if (options.renew > 0 && renewal == 0) {
    snprintf(current, sizeof current, "seed %llu, new communicators before call %ld",
             (unsigned long long)options.seed, number);
    renew(which < 2 ? kDup : kSplit, which == 2);
  }
  const size_t slot = draw(&shared, 4);
  c.group = &groups[slot < 2 ? kWorld : slot == 2 ? kDup : kSplit];
  c.collective = (Collective)draw(&shared, kCollectiveCount);
  /* A barrier has no choices. Half of the rest are reductions. */
  if (c.collective != kBarrier && draw(&shared, 4) == 0) {
    c.collective = (Collective)draw(&shared, kReduceScatterBlock + 1);
  }
  c.element = &elements[draw(&shared, kElementCount)];
  do {
    c.operation = (Operation)draw(&shared, kOperationCount);
  } while ((c.element->operations >> c.operation & 1u) == 0);
  c.root = (int)draw(&shared, (size_t)c.group->size);
  c.in_place = draw(&shared, 3) == 0;
  c.region = c.element->region;
  if (is_reduction(c.collective) && c.operation == kSum && c.element->size <= 2) {
    c.region = c.element->size == 1 ? kShort8 : kShort16;
  }
  c.count = draw_count(c.element, c.region, has_blocks(c.collective), c.group->size);
  draw_blocks(&c);
  return c;
}

static void describe(const Call* c) {
  int n = snprintf(current, sizeof current, "seed %llu, call %ld: %s(",
                   (unsigned long long)options.seed, c->number, collective_names[c->collective]);
  if (c->collective != kBarrier) {
    n += snprintf(current + n, sizeof current - (size_t)n, "%s, %s%scount %zu%s", c->element->name,
                  is_reduction(c->collective) ? operation_names[c->operation] : "",
                  is_reduction(c->collective) ? ", " : "", c->count,
                  c->in_place ? ", in place" : "");
  }
  if (has_root(c->collective)) {
    n += snprintf(current + n, sizeof current - (size_t)n, ", root %d", c->root);
  }
  snprintf(current + n, sizeof current - (size_t)n, ") on %s of %d, rank %d (world %d)",
           c->group->name, c->group->size, c->group->rank, world_rank);
}

/* Where this rank's slice is, in an image of its input buffer. */
static size_t slice_at(const Call* c, int rank) {
  return region_at[c->region] + c->start[rank] * c->element->size;
}

static bool takes_in_place(const Call* c) {
  return c->in_place && (!has_root(c->collective) || c->group->rank == c->root);
}

static bool has_output(const Call* c) {
  const bool is_root = c->group->rank == c->root;
  switch (c->collective) {
    case kBarrier:
      return false;
    case kBcast:
      return !is_root || c->in_place; /* In place: from the output buffer, not from the inputs. */
    case kScatter:
    case kScatterv:
      return !is_root || !c->in_place;
    case kReduce:
    case kGather:
    case kGatherv:
      return is_root;
    default:
      return true;
  }
}

/* Elements of the result of a reduction on this rank, and where they are in the input. */
static size_t result_count(const Call* c, size_t* first) {
  *first = 0;
  if (c->collective != kReduceScatter && c->collective != kReduceScatterBlock) return c->total;
  for (int i = 0; i < c->group->rank; ++i) *first += (size_t)c->counts[0][i];
  return (size_t)c->counts[0][c->group->rank];
}

/* Elements of the output buffer from its address on, gaps included. */
static size_t output_span(const Call* c) {
  size_t first = 0;
  if (is_reduction(c->collective)) return c->in_place ? c->total : result_count(c, &first);
  size_t span = 0;
  for (int i = 0; i < c->group->size; ++i) {
    const int count = c->counts[i][c->group->rank];
    const size_t end = (size_t)(c->receive_displs[i] + count);
    if (count > 0 && end > span) span = end;
  }
  return span;
}

/* Puts into `image`, at the output's place, what this rank gives from there. */
static void put_input(const Call* c, unsigned char* image) {
  const int me = c->group->rank;
  const size_t size = c->element->size;
  const unsigned char* slice = known[world_rank] + slice_at(c, me);
  if (is_reduction(c->collective)) {
    memcpy(image, slice, c->total * size);
    return;
  }
  const bool exchanges = c->collective == kAlltoall || c->collective == kAlltoallv;
  for (int i = 0; i < c->group->size; ++i) {
    if (i != me && !exchanges) continue;
    memcpy(image + (size_t)c->receive_displs[i] * size, slice + (size_t)c->displs[me][i] * size,
           (size_t)c->counts[me][i] * size);
  }
}

/* What may differ from the definition, made equal: padding, and any non-zero truth. */
static void forgive(const Call* c, unsigned char* right, const unsigned char* found, size_t count) {
  const size_t size = c->element->size;
  if (c->element->region == kDoubleInts) {
    const size_t significant = offsetof(DoubleInt, index) + sizeof(int);
    for (size_t i = significant; i < count * size; i += size) {
      memcpy(right + i, found + i, size - significant);
    }
  }
  const Operation op = c->operation;
  if (!is_reduction(c->collective) || (op != kLand && op != kLor && op != kLxor)) return;
  for (size_t i = 0; i < count * size; i += size) {
    static const unsigned char zero[8];
    if (!memcmp(right + i, zero, size) == !memcmp(found + i, zero, size)) {
      memcpy(right + i, found + i, size);
    }
  }
}

/* Puts the result into `image`, at the output's place. */
static void put_result(const Call* c, unsigned char* image, const unsigned char* found) {
  const Group* g = c->group;
  const size_t size = c->element->size;
  if (!is_reduction(c->collective)) {
    for (int i = 0; i < g->size; ++i) {
      const size_t count = (size_t)c->counts[i][g->rank];
      const size_t to = (size_t)c->receive_displs[i] * size;
      memcpy(image + to, known[g->world[i]] + slice_at(c, i) + (size_t)c->displs[i][g->rank] * size,
             count * size);
      forgive(c, image + to, found + to, count);
      compared += (long)count;
    }
    return;
  }
  size_t first = 0;
  const size_t count = result_count(c, &first);
  memcpy(image, known[g->world[0]] + slice_at(c, 0) + first * size, count * size);
  for (int i = 1; i < g->size; ++i) {
    c->element->combine(c->operation, image, known[g->world[i]] + slice_at(c, i) + first * size,
                        count);
  }
  forgive(c, image, found, count);
  compared += (long)count;
  /* In place, the input behind the result is left open by the standard. */
  if (c->in_place && count < c->total) {
    memcpy(image + count * size, found + count * size, (c->total - count) * size);
  }
}

static int perform(const Call* c, void* output) {
  const Group* g = c->group;
  const int n = (int)c->count;
  const bool in_place = takes_in_place(c);
  const bool is_root = g->rank == c->root;
  const MPI_Datatype type = c->element->type;
  const MPI_Op op = operation_handles[c->operation];
  void* slice = base + slice_at(c, g->rank);
  void* send = in_place ? MPI_IN_PLACE : slice;
  int sent[kMaxRanks];     /* To each. */
  int received[kMaxRanks]; /* From each. */
  for (int i = 0; i < g->size; ++i) {
    sent[i] = c->counts[g->rank][i];
    received[i] = c->counts[i][g->rank];
  }
  const int* displs = c->displs[g->rank];
  switch (c->collective) {
    case kAllreduce:
      return MPI_Allreduce(send, output, n, type, op, g->comm);
    case kReduce:
      return MPI_Reduce(send, output, n, type, op, c->root, g->comm);
    case kReduceScatter:
      return MPI_Reduce_scatter(send, output, c->counts[0], type, op, g->comm);
    case kReduceScatterBlock:
      return MPI_Reduce_scatter_block(send, output, n, type, op, g->comm);
    case kBcast:
      return MPI_Bcast(is_root && !in_place ? slice : output, n, type, c->root, g->comm);
    case kAllgather:
      return MPI_Allgather(send, n, type, output, n, type, g->comm);
    case kAllgatherv:
      return MPI_Allgatherv(send, sent[g->rank], type, output, received, c->receive_displs, type,
                            g->comm);
    case kGather:
      return MPI_Gather(send, n, type, output, n, type, c->root, g->comm);
    case kGatherv:
      return MPI_Gatherv(send, sent[c->root], type, output, received, c->receive_displs, type,
                         c->root, g->comm);
    case kScatter:
      return MPI_Scatter(is_root ? slice : NULL, n, type, in_place ? MPI_IN_PLACE : output, n, type,
                         c->root, g->comm);
    case kScatterv:
      return MPI_Scatterv(is_root ? slice : NULL, sent, displs, type,
                          in_place ? MPI_IN_PLACE : output, received[c->root], type, c->root,
                          g->comm);
    case kAlltoall:
      return MPI_Alltoall(send, n, type, output, n, type, g->comm);
    case kAlltoallv:
      return MPI_Alltoallv(send, sent, displs, type, output, received, c->receive_displs, type,
                           g->comm);
    default:
      return MPI_Barrier(g->comm);
  }
}

static void report(const Call* c, size_t at, size_t from, size_t bytes) {
  size_t differing = 0;
  size_t i = 0;
  for (size_t k = bytes; k-- > 0;) {
    if (expected[from + k] == got[from + k]) continue;
    ++differing;
    i = from + k;
  }
  char text[160];
  snprintf(text, sizeof text,
           "byte %td of the output (element %td) is 0x%02x, not 0x%02x; %zu bytes of %zu differ",
           (ptrdiff_t)i - (ptrdiff_t)at,
           ((ptrdiff_t)i - (ptrdiff_t)at) / (ptrdiff_t)c->element->size, got[i], expected[i],
           differing, bytes);
  failed(text);
}

/* What `out` holds in [from, from + bytes) is to be what `expected` says. */
static void compare(const Call* c, size_t at, size_t from, size_t bytes) {
  memory_read(true, got + from, out + from, bytes);
  if (options.sabotage == world_rank && bytes > 2 * kGuardBytes) {
    options.sabotage = -1;
    got[at] ^= 0x40;
  }
  put_result(c, expected + at, got + at);
  if (memcmp(expected + from, got + from, bytes) != 0) report(c, at, from, bytes);
  memcpy(shadow + from, got + from, bytes);
}

static void one_call(long number) {
  const Call c = draw_call(number);
  describe(&c);
  const bool outputs = has_output(&c);
  const size_t bytes = outputs ? output_span(&c) * c.element->size : 0;
  const size_t at = kGuardBytes + draw(&own, kMaxOffset) * c.element->size;
  const size_t from = at - kGuardBytes;
  const size_t guarded = bytes + 2 * kGuardBytes;
  if (outputs) memcpy(expected + from, shadow + from, guarded);
  /* A root that scatters in place gives from the inputs and has no output. */
  if (outputs && takes_in_place(&c)) {
    put_input(&c, expected + at);
    memory_write(true, out + at, expected + at, bytes);
  }
  memory_before_call((unsigned)number);
  const int code = perform(&c, outputs ? out + at : NULL);
  if (!memory_left_alone()) failed("the current device or context has changed");
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    failed(text);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (outputs && number >= options.first) compare(&c, at, from, guarded);
}

/* The inputs as they were filled, and `out` as the calls left it. */
static void check_the_rest(void) {
  snprintf(current, sizeof current, "seed %llu, after the last call, world rank %d",
           (unsigned long long)options.seed, world_rank);
  memory_read(true, got, out, kOutBytes);
  if (options.calls > options.first && memcmp(got, shadow, kOutBytes) != 0) {
    failed("a call wrote far outside its output");
  }
  unsigned char* now = malloc(base_bytes);
  memory_read(true, now, base, base_bytes);
  if (memcmp(now, known[world_rank], base_bytes) != 0) failed("a call changed its input");
  free(now);
}

static void make_buffers(void) {
  for (int region = 0; region < kRegionCount; ++region) {
    region_at[region] = base_bytes;
    base_bytes += region_limit[region] + kSlackBytes;
  }
  bool is_short = false;
  for (int rank = 0; rank < world_size; ++rank) {
    known[rank] = malloc(base_bytes);
    is_short = is_short || !known[rank];
    if (known[rank]) fill(rank, known[rank]);
  }
  shadow = malloc(kOutBytes);
  expected = malloc(kOutBytes);
  got = malloc(kOutBytes);
  if (is_short || !shadow || !expected || !got) {
    fprintf(stderr, "stress: out of memory\n");
    MPI_Abort(MPI_COMM_WORLD, 71);
  }
  for (size_t i = 0; i < kOutBytes; ++i) shadow[i] = (unsigned char)scramble(i + 1);
  base = memory_allocate(true, base_bytes);
  out = memory_allocate(true, kOutBytes);
  memory_write(true, base, known[world_rank], base_bytes);
  memory_write(true, out, shadow, kOutBytes);
}

static void free_buffers(void) {
  memory_free(true, base);
  memory_free(true, out);
  for (int rank = 0; rank < world_size; ++rank) free(known[rank]);
  free(shadow);
  free(expected);
  free(got);
}

static bool parse_options(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--same-device") == 0) {
      options.same_device = true;
      continue;
    }
    if (++i == argc) return false;
    if (strcmp(name, "--memory") == 0) {
      options.memory = argv[i];
    } else if (strcmp(name, "--calls") == 0) {
      options.calls = atol(argv[i]);
    } else if (strcmp(name, "--seed") == 0) {
      options.seed = strtoull(argv[i], NULL, 0);
    } else if (strcmp(name, "--first") == 0) {
      options.first = atol(argv[i]);
    } else if (strcmp(name, "--renew") == 0) {
      options.renew = (unsigned)atoi(argv[i]);
    } else if (strcmp(name, "--watchdog") == 0) {
      options.watchdog_s = (unsigned)atoi(argv[i]);
    } else if (strcmp(name, "--sabotage") == 0) {
      options.sabotage = atoi(argv[i]);
    } else {
      return false;
    }
  }
  return true;
}

static int rank_on_node(void) {
  MPI_Comm node;
  int rank = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &rank);
  MPI_Comm_free(&node);
  return rank;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (!parse_options(argc, argv) || world_size > kMaxRanks) {
    if (world_rank == 0) {
      fprintf(stderr, "stress: unknown option, or more than %d ranks; see stress.c\n", kMaxRanks);
    }
    MPI_Finalize();
    return 2;
  }
  signal(SIGALRM, on_alarm);
  memory_open(options.memory, rank_on_node(), options.same_device);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  fill_tables();
  make_buffers();
  adopt(&groups[kWorld], "world", MPI_COMM_WORLD);
  groups[kDup].comm = groups[kSplit].comm = MPI_COMM_NULL;
  renew(kDup, false);
  renew(kSplit, true);

  for (long call = 0; call < options.calls; ++call) {
    if (options.watchdog_s) alarm(options.watchdog_s);
    if (call == options.first) memory_read(true, shadow, out, kOutBytes);
    one_call(call);
  }
  if (options.watchdog_s) alarm(options.watchdog_s);
  check_the_rest();
  long mine[2] = {compared, failures};
  long total[2] = {0, 0};
  snprintf(current, sizeof current, "the final count");
  MPI_Allreduce(mine, total, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (failures > total[1]) total[1] = failures; /* The count came through Tutti, too. */
  MPI_Comm_free(&groups[kDup].comm);
  MPI_Comm_free(&groups[kSplit].comm);
  free_buffers();
  MPI_Finalize();
  alarm(0);
  if (world_rank == 0) {
    printf("stress: %ld calls, %ld elements compared, %ld failed\n", options.calls, total[0],
           total[1]);
    fflush(stdout);
  }
  return total[1] != 0 || total[0] == 0;
}
