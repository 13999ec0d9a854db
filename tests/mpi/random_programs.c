/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Random programs of valid and invalid collective calls. What each call returned and a hash of what
 * it left in the buffers go to a file of each rank, to be compared with those of the same programs
 * without the preload: random_programs.py. A program is a function of its number, the number of
 * ranks and the MPI; all ranks draw the same one.
 *
 * Usage: random_programs --out DIRECTORY [--first N] [--count N] [--memory KIND] [--valid]
 *                        [--alike] [--kind NAME] [--collective NAME] [--one] [--verbose]
 * [--watchdog SECONDS]
 *   --valid  no invalid calls.
 *   --alike  no calls that are wrong on one rank, or unequal.
 *   --kind, --collective, --one  only invalid calls of this kind (valid for none), collective, and
 *            made by one rank: a survey of what an MPI does with them.
 *   --verbose  prints each call of each rank.
 * A file has a line for each program: its number, and a word for each call:
 *
 *   V0h0.1234abcd   kind, error class, how often an error handler was called, hash
 *
 * The kinds of calls are V, valid; A, invalid on all ranks; O, invalid on one rank; U, valid on
 * each rank, and unequal. "-" stands for a call of a communicator that this rank is not in.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "blocking.h"
#include "memory.h"

#if MPI_VERSION >= 4
#define HAVE_LARGE 1
#else
#define HAVE_LARGE 0
#endif

enum {
  kMaxRanks = 8,
  kMaxCalls = 7,
  kArenaBytes = 4 << 20,
  kGuardBytes = 32,
  kShiftBytes = 64, /* A buffer begins up to here in its arena. */
};

/* What is wrong with a call. */
typedef enum {
  kValid,
  kRootBelow,
  kRootBeyond,
  kNegativeCount,
  kNullType,
  kUncommitted,
  kNullOp,
  kWrongOp,
  kNullSend,
  kNullRecv,
  kAliased,
  kMisplacedInPlace,
  kNullComm,
  kFreedComm,
  kNegativeInArray,
  /* Unequal. */
  kLonger,
  kShorter,
  kMixedInPlace,
  kKindCount,
} Kind;

static const char* const kind_names[kKindCount] = {
    "valid",     "root-below",    "root-beyond",       "negative-count",
    "null-type", "uncommitted",   "null-op",           "wrong-op",
    "null-send", "null-recv",     "aliased",           "misplaced-in-place",
    "null-comm", "freed-comm",    "negative-in-array", "longer",
    "shorter",   "mixed-in-place"};

/* What an element is filled with. */
typedef enum { kI8, kI16, kI32, kI64, kF32, kF64, kIntPair, kFloatInt } Base;

typedef struct {
  const char* name;
  MPI_Datatype type;
  Base base;
  int extent;
  unsigned operations; /* Bits of operations. 0: data movement alone. */
} Type;

typedef enum {
  kSum,
  kProd,
  kMin,
  kMax,
  kLand,
  kLor,
  kBand,
  kBxor,
  kMinloc,
  kMaxloc,
  kUserAdd,
  kUserFirst,
  kOpCount,
} Operation;

enum {
  kArithmetic = 1U << kSum | 1U << kProd | 1U << kMin | 1U << kMax,
  kIntegral = kArithmetic | 1U << kLand | 1U << kLor | 1U << kBand | 1U << kBxor,
  kLocation = 1U << kMinloc | 1U << kMaxloc,
  kUser = 1U << kUserAdd | 1U << kUserFirst,
};

enum { kTypeCount = 13, kPlainTypes = 9 };
static Type types[kTypeCount];
static MPI_Op operations[kOpCount];
static MPI_Datatype uncommitted, ints_in_pairs;

static struct {
  long first, count;
  const char* memory;
  const char* out;
  bool valid, alike, one, verbose;
  int kind, collective;
  unsigned watchdog_s;
} options = {0, 100, "host", NULL, false, false, false, false, -1, -1, 60};

static int world_rank, world_size;
static unsigned char* arena[2][2]; /* Send and receive, in host and in device memory. */
static long leaked;                /* Communicators that are not to be used again. */
static int handled, handled_code;  /* Calls of the error handler, and what it got. */
static MPI_Errhandler counting;
static char current[512]; /* For the watchdog. */

/* Random numbers, equal on all ranks where what they are drawn from is. */
static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9e3779b97f4a7c15U + b + 0x243f6a8885a308d3U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

typedef struct {
  uint64_t state, used;
} Random;

static unsigned draw(Random* random, unsigned below) {
  return (unsigned)(mix(random->state, ++random->used) >> 33) % below;
}

static bool one_in(Random* random, unsigned times) { return draw(random, times) == 0; }

/* Communicators. */
typedef struct {
  MPI_Comm comm; /* Null: this rank is not in it. */
  const char* name;
  int rank, size;
  int remote; /* Ranks of the other group; 0: not an intercommunicator. */
  bool first_group;
} Group;

enum { kWorldDup, kReversed, kHalves, kAlone, kInter, kStandingCount };
static Group standing[kStandingCount];
static MPI_Comm freed_comm;

static void on_error(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  ++handled;
  handled_code = *code;
}

static Group group_of(MPI_Comm comm, const char* name) {
  Group group = {comm, name, 0, 0, 0, false};
  if (comm == MPI_COMM_NULL) return group;
  int is_inter = 0;
  MPI_Comm_rank(comm, &group.rank);
  MPI_Comm_size(comm, &group.size);
  MPI_Comm_test_inter(comm, &is_inter);
  if (is_inter) MPI_Comm_remote_size(comm, &group.remote);
  group.first_group = world_rank < world_size / 2;
  return group;
}

static void make_standing(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  standing[kWorldDup] = group_of(comm, "world");
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm);
  standing[kReversed] = group_of(comm, "reversed");
  const int half = world_size / 2;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank < half, world_rank, &comm);
  standing[kHalves] = group_of(comm, "halves");
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  standing[kAlone] = group_of(comm, "alone");
  standing[kInter] = standing[kWorldDup];
  if (half > 0) {
    MPI_Intercomm_create(standing[kHalves].comm, 0, standing[kWorldDup].comm,
                         world_rank < half ? half : 0, 7, &comm);
    standing[kInter] = group_of(comm, "inter");
  }
}

static Group make_fresh(Random* random) {
  MPI_Comm comm = MPI_COMM_NULL;
  const char* name = "";
  switch (draw(random, 6)) {
    case 0:
      name = "fresh dup";
      MPI_Comm_dup(standing[kWorldDup].comm, &comm);
      break;
    case 1:
      name = "fresh dup reversed";
      MPI_Comm_dup(standing[kReversed].comm, &comm);
      break;
    case 2: {
      name = "fresh split";
      const int colour = world_rank % 2;
      MPI_Comm_split(standing[kWorldDup].comm, colour, world_rank, &comm);
      break;
    }
    case 3: {
      name = "fresh without rank 0";
      const int colour = world_rank == 0 && world_size > 1 ? MPI_UNDEFINED : 0;
      MPI_Comm_split(standing[kWorldDup].comm, colour, -world_rank, &comm);
      break;
    }
    case 4: {
      name = "fresh ring";
      const int periodic = 1;
      MPI_Cart_create(standing[kWorldDup].comm, 1, &world_size, &periodic, 0, &comm);
      break;
    }
    default:
      if (standing[kInter].remote == 0) {
        MPI_Comm_dup(standing[kWorldDup].comm, &comm);
      } else if (one_in(random, 2)) {
        name = "fresh merged";
        MPI_Intercomm_merge(standing[kInter].comm, standing[kInter].first_group, &comm);
      } else {
        name = "fresh inter";
        MPI_Comm_dup(standing[kInter].comm, &comm);
      }
      break;
  }
  Group group = group_of(comm, name);
  const bool counts = one_in(random, 2);
  if (comm != MPI_COMM_NULL && counts) MPI_Comm_set_errhandler(comm, counting);
  return group;
}

/* Types and operations. */
static void add_ints(void* in, void* inout, int* length, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *length; ++i) ((int*)inout)[i] += ((int*)in)[i];
}

static void keep_first(void* in, void* inout, int* length, MPI_Datatype* type) {
  (void)type;
  memcpy(inout, in, sizeof(int) * (size_t)*length);
}

static void make_types(void) {
  types[0] = (Type){"int", MPI_INT, kI32, 4, kIntegral | kUser};
  types[1] = (Type){"double", MPI_DOUBLE, kF64, 8, kArithmetic};
  types[2] = (Type){"float", MPI_FLOAT, kF32, 4, kArithmetic};
  types[3] = (Type){"long", MPI_LONG, kI64, sizeof(long), kIntegral};
  types[4] = (Type){"short", MPI_SHORT, kI16, 2, kIntegral};
  types[5] = (Type){"uint8", MPI_UINT8_T, kI8, 1, kIntegral};
  types[6] = (Type){"byte", MPI_BYTE, kI8, 1, 1U << kBand | 1U << kBxor};
  types[7] = (Type){"2int", MPI_2INT, kIntPair, 8, kLocation};
  types[8] = (Type){"float-int", MPI_FLOAT_INT, kFloatInt, 8, kLocation};
  MPI_Datatype bare;
  MPI_Datatype made;
  MPI_Type_contiguous(3, MPI_INT, &made);
  MPI_Type_commit(&made);
  types[9] = (Type){"three", made, kI32, 12, 0};
  MPI_Type_vector(2, 1, 2, MPI_INT, &bare);
  MPI_Type_create_resized(bare, 0, 16, &made);
  MPI_Type_commit(&made);
  MPI_Type_free(&bare);
  types[10] = (Type){"gaps", made, kI32, 16, 0};
  const int lengths[2] = {1, 1};
  const MPI_Aint places[2] = {8, 0};
  const MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE};
  MPI_Type_create_struct(2, lengths, places, parts, &bare);
  MPI_Type_create_resized(bare, 0, 16, &made);
  MPI_Type_commit(&made);
  MPI_Type_free(&bare);
  types[11] = (Type){"record", made, kI32, 16, 0};
  MPI_Type_contiguous(0, MPI_INT, &made);
  MPI_Type_commit(&made);
  types[12] = (Type){"nothing", made, kI32, 0, 0};
  MPI_Type_contiguous(2, MPI_INT, &ints_in_pairs);
  MPI_Type_commit(&ints_in_pairs);
  MPI_Type_contiguous(1, MPI_INT, &uncommitted);
  operations[kSum] = MPI_SUM;
  operations[kProd] = MPI_PROD;
  operations[kMin] = MPI_MIN;
  operations[kMax] = MPI_MAX;
  operations[kLand] = MPI_LAND;
  operations[kLor] = MPI_LOR;
  operations[kBand] = MPI_BAND;
  operations[kBxor] = MPI_BXOR;
  operations[kMinloc] = MPI_MINLOC;
  operations[kMaxloc] = MPI_MAXLOC;
  MPI_Op_create(add_ints, 1, &operations[kUserAdd]);
  MPI_Op_create(keep_first, 0, &operations[kUserFirst]);
}

static void free_types(void) {
  for (int i = kPlainTypes; i < kTypeCount; ++i) MPI_Type_free(&types[i].type);
  MPI_Type_free(&ints_in_pairs);
  MPI_Type_free(&uncommitted);
  MPI_Op_free(&operations[kUserAdd]);
  MPI_Op_free(&operations[kUserFirst]);
}

/* A call as all ranks draw it. */
typedef struct {
  const Group* group;
  Collective collective;
  Kind kind;
  bool one;   /* Wrong on the rank `victim` alone. */
  int victim; /* Of the group: also who is late, who sends more. */
  int count;
  const Type* type;
  Operation operation;
  int root;
  bool in_place, twin, junk, large;
  unsigned late_us;
  unsigned companion; /* 1: a non-blocking collective, 2: messages are under way meanwhile. */
  unsigned device;    /* Bits: send and receive buffer of even and odd ranks. */
  uint64_t seed;
} Call;

static bool is_reduction(Collective c) { return c >= kReduce; }
static bool is_rooted(Collective c) { return (c >= kBcast && c <= kScatterv) || c == kReduce; }
static bool has_arrays(Collective c) {
  return c == kGatherv || c == kScatterv || c == kAllgatherv || c == kAlltoallv ||
         c == kAlltoallw || c == kReduceScatter;
}
static bool is_plain(const Type* type) { return type < types + kPlainTypes; }

/* Whether the kind has a meaning for the collective. */
static bool fits(Kind kind, Collective c) {
  switch (kind) {
    case kValid:
    case kNullComm:
    case kFreedComm:
      return true;
    case kRootBelow:
    case kRootBeyond:
      return is_rooted(c);
    case kNegativeCount:
      return c != kBarrier && c != kAlltoallv && c != kAlltoallw && c != kReduceScatter;
    case kNullType:
    case kUncommitted:
      return c != kBarrier;
    case kNullOp:
    case kWrongOp:
      return is_reduction(c);
    case kNullSend:
      return c != kBarrier && c != kBcast;
    case kNullRecv:
      return c != kBarrier && c != kExscan;
    case kAliased:
      return c != kBarrier && c != kBcast;
    case kMisplacedInPlace:
      return c != kBarrier && c != kScan && c != kExscan;
    case kNegativeInArray:
      return has_arrays(c);
    case kLonger: /* Of the others some wait for ever, or reduce what is not there. */
      return c == kBcast || c == kGather || c == kGatherv || c == kScatter || c == kScatterv ||
             c == kAlltoall || c == kAlltoallv;
    case kShorter: /* The others get a part without an error. */
      return c == kBcast;
    case kMixedInPlace:
      return c == kAllgather || c == kAllgatherv || c == kAllreduce || c == kReduceScatterBlock ||
             c == kScan;
    default:
      return false;
  }
}

/* Whether a kind of error is one at the root alone, so that the others go on. */
static bool is_at_root(Kind kind, Collective c) {
  if (!is_rooted(c) || c == kBcast) return false;
  const bool scatters = c == kScatter || c == kScatterv;
  switch (kind) {
    case kNullSend:
      return scatters;
    case kNullRecv:
      return !scatters;
    case kMisplacedInPlace: /* Of a scatter it is right at the root alone. */
    case kAliased:
    case kNegativeInArray:
      return true;
    default:
      return false;
  }
}

/* What the MPI itself does not survive, or where what it delivers is not defined, as found with
 * --kind. Not in the list of kinds at all: types and operations that were freed and null arrays,
 * which both libraries follow; different roots or collectives, which wait for ever or leave
 * messages behind that a later call takes for its own. */
static bool is_left_out(Kind kind, Collective c, bool one) {
  if (one) {
    /* The others wait for ever, but where they only send, or nothing is expected of this one. */
    if (!is_rooted(c)) return true;
    /* Without its communicator a rank does not come at all, and the others may wait for it. */
    if (kind == kNullComm || kind == kFreedComm) return true;
    if (kind == kAliased && (c == kScatter || c == kScatterv)) return true;
    if (kind == kMisplacedInPlace && (c == kScatter || c == kScatterv || c == kBcast)) return true;
    if (kind == kNullSend && (c == kScatter || c == kScatterv)) return true;
    if (kind == kNegativeInArray && c == kScatterv) return true;
#ifdef OPEN_MPI
    /* Looks for aliased buffers in reductions, and at the root's side of a scatter alone. */
    if (kind == kAliased && c != kReduce) return true;
#endif
  } else if (is_at_root(kind, c)) {
    return true; /* Of the kind `one`. */
  }
  /* Not of the same arrays: no library looks for it. */
  if (kind == kAliased && (c == kAlltoallv || c == kAlltoallw || c == kGatherv)) return true;
#ifdef OPEN_MPI
  if (kind == kFreedComm) return true; /* Reads freed memory. */
  if (kind == kNullSend || kind == kNullRecv) return true;
  if (kind == kNullComm && c == kAllgather) return true;
  if (kind == kUncommitted && c == kScatterv) return true; /* Looks at the root's type alone. */
  if (kind == kNegativeInArray && c == kAllgatherv) return true;
  if (kind == kAliased && c != kReduce && c != kAllreduce) return true;
  /* The others of these wait for ever. */
  if (kind == kLonger || kind == kShorter) {
    return c != kGather && c != kGatherv;
  }
#else
  /* A process that ends. */
  if (is_reduction(c) && (kind == kNegativeCount || kind == kNullType)) return true;
  if (kind == kMisplacedInPlace && (c == kBcast || c == kScatter || c == kScatterv)) return true;
#endif
  return false;
}

static int draw_count(Random* random) {
  static const int few[] = {0,  1,  1,  2,  3,  4,  5,  7,   8,   15,
                            16, 17, 31, 33, 63, 64, 65, 100, 127, 255};
  const unsigned how = draw(random, 64);
  if (how == 0) return 1 + (int)draw(random, 20000);
  if (how < 8) return 1 + (int)draw(random, 1500);
  return few[draw(random, sizeof few / sizeof *few)];
}

static Call draw_call(Random* random, const Group* group, Kind kind, bool one, int collective) {
  Call c = {.group = group, .kind = kind, .one = one};
  const bool is_inter = group->remote > 0;
  do {
    c.collective = collective >= 0 ? (Collective)collective : draw(random, kCollectiveCount);
  } while (collective < 0 &&
           (!fits(kind, c.collective) || is_left_out(kind, c.collective, one) ||
            (is_inter && (has_arrays(c.collective) || c.collective > kAllreduce))));
  c.count = draw_count(random);
  c.victim = (int)draw(random, 1 << 16);
  c.root = (int)draw(random, 1 << 16);
  c.late_us = one_in(random, 6) ? (one_in(random, 20) ? 2000 : draw(random, 150)) : 0;
  c.companion = one_in(random, 8) ? 1 + draw(random, 2) : 0;
  c.device = one_in(random, 4) ? draw(random, 16) : 15 * draw(random, 2);
  c.seed = mix(random->state, random->used);
  c.in_place = one_in(random, 4) && !is_inter && c.collective != kBcast && c.collective != kBarrier;
  c.junk = one_in(random, 3);
  c.large = one_in(random, 4);
  if (is_reduction(c.collective)) {
    do {
      c.type = &types[draw(random, kPlainTypes)];
    } while (c.type->operations == 0);
    do {
      c.operation = draw(random, kOpCount);
    } while (!(c.type->operations >> c.operation & 1U));
    if (c.operation >= kUserAdd) c.large = false; /* Of a user's function for int counts. */
  } else {
    c.type = one_in(random, 2) ? &types[0] : &types[draw(random, kTypeCount)];
    c.twin = c.type == types && one_in(random, 3);
  }
  /* MPICH 5.0 refuses long messages of a type whose parts are not in the order of their addresses,
   * on an intercommunicator for one (MPI_ERR_TYPE on one rank, a hang of the other). */
  if (c.type == &types[11]) c.count %= 256;
  if (kind != kValid) {
    c.companion = 0;
    if (c.count == 0 || c.type->extent == 0 || one || kind >= kLonger) {
      c.count = 1 + (int)draw(random, 100);
    }
    if (kind == kUncommitted || c.type->extent == 0 || !is_plain(c.type)) c.type = types;
    if (kind == kAliased || kind >= kLonger || one) c.twin = c.in_place = false;
    if (kind == kUncommitted) c.twin = false; /* It would be of another size. */
    const bool has_type = kind == kNullType || kind == kUncommitted;
    if (has_type || kind == kNegativeCount || kind == kNullSend || kind == kNullRecv ||
        kind == kMisplacedInPlace || kind == kNegativeInArray) {
      c.in_place = false;
    }
  }
  c.victim %= group->size > 0 ? group->size : 1;
  c.root %= is_inter ? (group->first_group ? group->size : group->remote)
                     : (group->size > 0 ? group->size : 1);
  if (one) {
    /* A root that is refused lets the others go on where they only send; so does a last rank that
     * only receives. */
    const bool to_root =
        c.collective == kGather || c.collective == kGatherv || c.collective == kReduce;
    if (c.operation == kUserFirst) c.operation = kUserAdd; /* Its reduce goes by way of rank 0. */
    c.root = to_root ? c.victim : 0;
    if (!to_root) c.victim = group->size - 1;
  }
  if (kind >= kLonger && is_rooted(c.collective)) {
    c.root = 0;
    const bool to_root = c.collective == kGather || c.collective == kGatherv;
    c.victim = to_root ? group->size - 1 : 0; /* Who sends another number. */
  }
  return c;
}

/* How this rank makes the call. */
typedef struct {
  unsigned char *send, *recv; /* Null, or where the arena has them. */
  const void* given_send;
  void* given_recv;
  size_t send_bytes, recv_bytes;
  int send_count, recv_count;
  MPI_Datatype send_type, recv_type;
  int send_counts[kMaxRanks], send_displs[kMaxRanks];
  int recv_counts[kMaxRanks], recv_displs[kMaxRanks];
  MPI_Datatype send_types[kMaxRanks], recv_types[kMaxRanks];
  MPI_Op op;
  int root;
  MPI_Comm comm;
} Arguments;

static void fill(unsigned char* to, size_t bytes, const Call* c, uint64_t seed) {
  const bool truth = c->operation == kLand || c->operation == kLor;
  /* No sum overflows: Open MPI's saturate. */
  const bool is_unsigned = c->type->base == kI8;
  const int low = truth ? 0 : c->operation == kProd ? 1 : is_unsigned ? 0 : -20;
  const unsigned range = truth || c->operation == kProd ? 2 : 41;
  uint64_t state = mix(seed, 77);
#define NEXT (low + (int)((state = state * 6364136223846793005U + 99) >> 40) % (int)range)
#define FILL(type)                                                   \
  for (size_t i = 0; i + sizeof(type) <= bytes; i += sizeof(type)) { \
    const type value = (type)NEXT;                                   \
    memcpy(to + i, &value, sizeof value);                            \
  }
  memset(to, 0, bytes);
  switch (c->type->base) {
    case kI8:
      FILL(unsigned char);
      break;
    case kI16:
      FILL(short);
      break;
    case kI64:
      FILL(long);
      break;
    case kF32:
      FILL(float);
      break;
    case kF64:
      FILL(double);
      break;
    case kFloatInt:
      for (size_t i = 0; i + 8 <= bytes; i += 8) {
        const float value = (float)NEXT;
        const int index = NEXT;
        memcpy(to + i, &value, 4);
        memcpy(to + i + 4, &index, 4);
      }
      break;
    default:
      FILL(int);
      break;
  }
}

static uint32_t hash_bytes(const unsigned char* at, size_t bytes, uint64_t state) {
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word;
    memcpy(&word, at + i, 8);
    state = (state ^ word) * 0x9e3779b97f4a7c15U;
    state ^= state >> 29;
  }
  for (; i < bytes; ++i) state = (state ^ at[i]) * 0x100000001b3U;
  return (uint32_t)(state ^ (state >> 32));
}

/* Elements that `from` sends to `to` in a v-form; reduce_scatter: its share is that of `to`. */
static int pair_count(const Call* c, int from, int to) {
  const int drawn = (int)(mix(c->seed, (uint64_t)(from * kMaxRanks + to)) >> 40);
  return c->kind == kValid ? drawn % (c->count + 1) : 1 + drawn % c->count;
}

/* Displacements of blocks, in an order and with gaps of this rank's own; gives the elements. */
static int lay_out(const Call* c, int blocks, const int* counts, int* displs, uint64_t salt) {
  const uint64_t own = mix(c->seed + salt, (uint64_t)world_rank + 1000);
  int at = 0;
  for (int i = 0; i < blocks; ++i) {
    const int block = (own & 1) ? blocks - 1 - i : i;
    displs[block] = at;
    at += counts[block] + (int)((own >> (8 + 4 * i)) & 3 ? 0 : 2);
  }
  return at;
}

static void set_plain(Arguments* a, const Call* c) {
  const Group* g = c->group;
  const int peers = g->remote ? g->remote : g->size;
  const bool is_root = c->root == g->rank;
  const int n = c->count;
  int sent = 0;
  int received = 0; /* Elements of each buffer. */
  a->send_type = a->recv_type = c->type->type;
  a->send_count = a->recv_count = n;
  for (int i = 0; i < peers; ++i) {
    a->send_types[i] = a->recv_types[i] = c->type->type;
    a->send_counts[i] = a->recv_counts[i] = 0;
    a->send_displs[i] = a->recv_displs[i] = 0;
  }
  switch (c->collective) {
    case kBcast:
    case kScan:
    case kExscan:
    case kAllreduce:
    case kReduce:
      sent = received = n;
      break;
    case kGather:
      sent = n;
      received = peers * n;
      break;
    case kAllgather:
      sent = n;
      received = peers * n;
      break;
    case kScatter:
    case kReduceScatterBlock:
      sent = peers * n;
      received = c->in_place ? peers * n : n;
      break;
    case kAlltoall:
      sent = received = peers * n;
      break;
    case kGatherv:
    case kAllgatherv: {
      const int to = 0;
      a->send_count = sent = pair_count(c, g->rank, to);
      for (int i = 0; i < peers; ++i) a->recv_counts[i] = pair_count(c, i, to);
      received = lay_out(c, peers, a->recv_counts, a->recv_displs, 1);
      break;
    }
    case kScatterv:
      a->recv_count = received = pair_count(c, 0, g->rank);
      for (int i = 0; i < peers; ++i) a->send_counts[i] = pair_count(c, 0, i);
      sent = lay_out(c, peers, a->send_counts, a->send_displs, 2);
      break;
    case kAlltoallv:
    case kAlltoallw:
      for (int i = 0; i < peers; ++i) {
        a->send_counts[i] = pair_count(c, g->rank, i);
        a->recv_counts[i] = pair_count(c, i, g->rank);
        if (c->in_place) {
          a->recv_counts[i] = g->rank < i ? pair_count(c, g->rank, i) : pair_count(c, i, g->rank);
        }
      }
      sent = lay_out(c, peers, a->send_counts, a->send_displs, 3);
      received = lay_out(c, peers, a->recv_counts, a->recv_displs, 4);
      if (c->collective == kAlltoallw) {
        for (int i = 0; i < peers; ++i) {
          a->send_displs[i] *= c->type->extent;
          a->recv_displs[i] *= c->type->extent;
        }
      }
      break;
    case kReduceScatter:
      for (int i = 0; i < peers; ++i) sent += a->recv_counts[i] = pair_count(c, 0, i);
      received = c->in_place ? sent : a->recv_counts[g->rank];
      break;
    default:
      break;
  }
  a->send_bytes = (size_t)sent * (size_t)c->type->extent;
  a->recv_bytes = (size_t)received * (size_t)c->type->extent;
  a->op = is_reduction(c->collective) ? operations[c->operation] : MPI_OP_NULL;
  a->root = c->root;
  if (g->remote && is_rooted(c->collective)) {
    a->root = !g->first_group ? c->root : is_root ? MPI_ROOT : MPI_PROC_NULL;
  }
}

/* The same signature in other words, on odd ranks. */
static void use_twin(Arguments* a, const Call* c) {
  if (!c->twin || c->group->rank % 2 == 0 || has_arrays(c->collective)) return;
  if (a->send_count % 2 == 0) a->send_type = ints_in_pairs, a->send_count /= 2;
  if (a->recv_count % 2 == 0) a->recv_type = ints_in_pairs, a->recv_count /= 2;
}

/* Who has which buffer. */
static bool sends(const Call* c) {
  const Group* g = c->group;
  const bool is_root = g->remote ? g->first_group && c->root == g->rank : c->root == g->rank;
  const bool is_leaf = g->remote ? !g->first_group : true;
  switch (c->collective) {
    case kBarrier:
    case kBcast:
      return false;
    case kScatter:
    case kScatterv:
      return is_root;
    case kGather:
    case kGatherv:
    case kReduce:
      return is_leaf;
    default:
      return true;
  }
}

static bool receives(const Call* c) {
  const Group* g = c->group;
  const bool is_root = g->remote ? g->first_group && c->root == g->rank : c->root == g->rank;
  const bool is_leaf = g->remote ? !g->first_group : true;
  switch (c->collective) {
    case kBarrier:
      return false;
    case kBcast:
      return is_root || is_leaf;
    case kGather:
    case kGatherv:
    case kReduce:
      return is_root;
    case kScatter:
    case kScatterv:
      return is_leaf;
    default:
      return true;
  }
}

static void unequal(Arguments* a, const Call* c) {
  const bool hit = c->victim == c->group->rank;
  if (c->kind == kMixedInPlace || !hit) return;
  const bool longer = c->kind == kLonger;
  const int extent = c->type->extent;
  const int n = longer ? 2 * c->count + 1 : (c->count + 1) / 2;
  const int peers = c->group->size;
  switch (c->collective) {
    case kGatherv:
    case kAllgatherv:
      a->send_count = longer ? a->send_count + 9 : (a->send_count + 1) / 2;
      a->send_bytes = (size_t)(a->send_count * extent);
      break;
    case kScatterv:
    case kAlltoallv:
      for (int i = 0; i < peers; ++i) {
        a->send_counts[i] = longer ? a->send_counts[i] + 9 : (a->send_counts[i] + 1) / 2;
      }
      a->send_bytes += (size_t)(longer ? 9 * peers * extent : 0);
      break;
    case kBcast:
      a->recv_count = n;
      a->recv_bytes = (size_t)(n * extent);
      break;
    default:
      a->send_count = n;
      a->send_bytes = (size_t)(n * extent) * (size_t)peers;
      break;
  }
}

static void spoil(Arguments* a, const Call* c) {
  const Group* g = c->group;
  const int peers = g->remote ? g->remote : g->size;
  const int which = (int)((c->seed >> 8 & 0xffff) % (uint64_t)(peers > 0 ? peers : 1));
  const bool of_send =
      (c->seed >> 7 & 1) && c->collective != kBcast && !is_reduction(c->collective);
#define SPOIL_TYPE(wrong)                                                  \
  do {                                                                     \
    if (of_send) a->send_type = a->send_types[which] = (wrong);            \
    if (!of_send) a->recv_type = a->recv_types[which] = (wrong);           \
    if (of_send ? c->collective == kScatter || c->collective == kScatterv  \
                : c->collective == kGather || c->collective == kGatherv) { \
      a->send_type = a->recv_type = (wrong);                               \
    }                                                                      \
  } while (0)
  switch (c->kind) {
    case kRootBelow:
      a->root = -(17 + (int)(c->seed & 7));
      break;
    case kRootBeyond:
      a->root = c->seed & 16 ? peers : 100000;
      break;
    case kNegativeCount:
      a->send_count = a->recv_count = -1 - (int)(c->seed & 3);
      break;
    case kNullType:
      SPOIL_TYPE(MPI_DATATYPE_NULL);
      break;
    case kUncommitted:
      SPOIL_TYPE(uncommitted);
      break;
    case kNullOp:
      a->op = MPI_OP_NULL;
      break;
    case kWrongOp:
      if (c->type->base == kF32 || c->type->base == kF64) {
        a->op = c->seed & 8 ? MPI_BAND : MPI_LXOR;
      } else {
        a->op = c->type->base >= kIntPair ? MPI_SUM : MPI_MAXLOC;
      }
      break;
    case kNullSend:
      a->given_send = NULL;
      break;
    case kNullRecv:
      a->given_recv = NULL;
      break;
    case kMisplacedInPlace:
      a->given_recv = MPI_IN_PLACE;
      break;
    case kNullComm:
      a->comm = MPI_COMM_NULL;
      break;
    case kFreedComm:
      a->comm = freed_comm;
      break;
    case kNegativeInArray:
      a->send_counts[which] = a->recv_counts[which] = -3;
      break;
    default:
      break;
  }
}

/* What MPI does not look at. */
static void put_junk(Arguments* a, const Call* c) {
  if (!c->junk) return;
  const bool sending = sends(c);
  const bool receiving = receives(c);
  if (c->collective == kBarrier || c->collective == kBcast) return;
  if (!receiving && !is_reduction(c->collective)) {
    a->given_recv = c->seed & 1 ? NULL : (void*)a->recv;
    a->recv_count = -5;
    a->recv_type = MPI_DATATYPE_NULL;
  }
  if (!receiving && c->collective == kReduce) a->given_recv = NULL;
  if (!sending) {
    a->given_send = NULL;
    a->send_count = -6;
    a->send_type = MPI_DATATYPE_NULL;
  }
}

static Arguments arguments_of(const Call* c) {
  Arguments a;
  memset(&a, 0, sizeof a);
  const Group* g = c->group;
  const bool wrong = c->kind != kValid && c->kind < kLonger && (!c->one || c->victim == g->rank);
  set_plain(&a, c);
  use_twin(&a, c);
  if (c->kind >= kLonger) unequal(&a, c);
  /* An MPI that knows no GPU cannot read a GPU's memory, and calls on intercommunicators are its.
   */
  const unsigned on = memory_has_device() && !g->remote ? c->device >> (2 * (g->rank % 2)) : 0;
  const size_t shift = (size_t)(c->type->extent >= 8 ? 8 : 4) * ((c->seed >> 12) % 8);
  a.send = arena[on & 1][0] + kGuardBytes + shift;
  a.recv = arena[on >> 1 & 1][1] + kGuardBytes + (c->seed >> 16 & 1 ? shift : 0);
  if (a.send_bytes > kArenaBytes - 1024 || a.recv_bytes > kArenaBytes - 1024) abort();
  a.given_send = a.send;
  a.given_recv = a.recv;
  a.comm = g->comm;
  const bool mixed = c->kind == kMixedInPlace && c->victim == g->rank;
  if (c->in_place || mixed) {
    const bool is_root = c->root == g->rank;
    if (c->collective == kScatter || c->collective == kScatterv) {
      if (is_root) a.given_recv = MPI_IN_PLACE;
    } else if ((c->collective != kGather && c->collective != kGatherv &&
                c->collective != kReduce) ||
               is_root) {
      a.given_send = MPI_IN_PLACE;
      if (is_reduction(c->collective)) a.recv_bytes = a.send_bytes;
    }
    if (c->junk && a.given_send == MPI_IN_PLACE && !is_reduction(c->collective)) {
      a.send_count = -4;
      a.send_type = MPI_DATATYPE_NULL;
    }
  }
  if (wrong && c->kind == kAliased) {
    a.given_send = a.send = a.recv;
    if (a.send_bytes > a.recv_bytes) a.recv_bytes = a.send_bytes;
    /* The own block where it will be. */
    const size_t extent = (size_t)c->type->extent;
    if (c->collective == kAllgather || c->collective == kGather) {
      a.given_send = a.send = a.recv + (size_t)(g->rank * c->count) * extent;
    } else if (c->collective == kAllgatherv) {
      a.given_send = a.send = a.recv + (size_t)a.recv_displs[g->rank] * extent;
    }
  }
  /* What is not looked at is right where something else is wrong. */
  if (c->kind == kValid) put_junk(&a, c);
  if (wrong) spoil(&a, c);
  return a;
}

/* The call itself, with int counts and with MPI_Count. */
#define PLAIN_CALLS(suffix, scs, sds, rcs, rds, sds_w, rds_w)                                      \
  switch (c->collective) {                                                                         \
    case kBcast:                                                                                   \
      return MPI_Bcast##suffix(a->given_recv, a->recv_count, a->recv_type, a->root, a->comm);      \
    case kGather:                                                                                  \
      return MPI_Gather##suffix(a->given_send, a->send_count, a->send_type, a->given_recv,         \
                                a->recv_count, a->recv_type, a->root, a->comm);                    \
    case kGatherv:                                                                                 \
      return MPI_Gatherv##suffix(a->given_send, a->send_count, a->send_type, a->given_recv, rcs,   \
                                 rds, a->recv_type, a->root, a->comm);                             \
    case kScatter:                                                                                 \
      return MPI_Scatter##suffix(a->given_send, a->send_count, a->send_type, a->given_recv,        \
                                 a->recv_count, a->recv_type, a->root, a->comm);                   \
    case kScatterv:                                                                                \
      return MPI_Scatterv##suffix(a->given_send, scs, sds, a->send_type, a->given_recv,            \
                                  a->recv_count, a->recv_type, a->root, a->comm);                  \
    case kAllgather:                                                                               \
      return MPI_Allgather##suffix(a->given_send, a->send_count, a->send_type, a->given_recv,      \
                                   a->recv_count, a->recv_type, a->comm);                          \
    case kAllgatherv:                                                                              \
      return MPI_Allgatherv##suffix(a->given_send, a->send_count, a->send_type, a->given_recv,     \
                                    rcs, rds, a->recv_type, a->comm);                              \
    case kAlltoall:                                                                                \
      return MPI_Alltoall##suffix(a->given_send, a->send_count, a->send_type, a->given_recv,       \
                                  a->recv_count, a->recv_type, a->comm);                           \
    case kAlltoallv:                                                                               \
      return MPI_Alltoallv##suffix(a->given_send, scs, sds, a->send_type, a->given_recv, rcs, rds, \
                                   a->recv_type, a->comm);                                         \
    case kAlltoallw:                                                                               \
      return MPI_Alltoallw##suffix(a->given_send, scs, sds_w, a->send_types, a->given_recv, rcs,   \
                                   rds_w, a->recv_types, a->comm);                                 \
    case kReduce:                                                                                  \
      return MPI_Reduce##suffix(a->given_send, a->given_recv, a->recv_count, a->recv_type, a->op,  \
                                a->root, a->comm);                                                 \
    case kAllreduce:                                                                               \
      return MPI_Allreduce##suffix(a->given_send, a->given_recv, a->recv_count, a->recv_type,      \
                                   a->op, a->comm);                                                \
    case kReduceScatter:                                                                           \
      return MPI_Reduce_scatter##suffix(a->given_send, a->given_recv, rcs, a->recv_type, a->op,    \
                                        a->comm);                                                  \
    case kReduceScatterBlock:                                                                      \
      return MPI_Reduce_scatter_block##suffix(a->given_send, a->given_recv, a->recv_count,         \
                                              a->recv_type, a->op, a->comm);                       \
    case kScan:                                                                                    \
      return MPI_Scan##suffix(a->given_send, a->given_recv, a->recv_count, a->recv_type, a->op,    \
                              a->comm);                                                            \
    case kExscan:                                                                                  \
      return MPI_Exscan##suffix(a->given_send, a->given_recv, a->recv_count, a->recv_type, a->op,  \
                                a->comm);                                                          \
    default:                                                                                       \
      return MPI_Barrier(a->comm);                                                                 \
  }

static int perform_int(const Call* c, const Arguments* a) {
  PLAIN_CALLS(, a->send_counts, a->send_displs, a->recv_counts, a->recv_displs, a->send_displs,
              a->recv_displs)
}

#if HAVE_LARGE
static int perform_large(const Call* c, const Arguments* a) {
  MPI_Count send_counts[kMaxRanks], recv_counts[kMaxRanks];
  MPI_Aint send_displs[kMaxRanks], recv_displs[kMaxRanks];
  for (int i = 0; i < kMaxRanks; ++i) {
    send_counts[i] = a->send_counts[i];
    recv_counts[i] = a->recv_counts[i];
    send_displs[i] = a->send_displs[i];
    recv_displs[i] = a->recv_displs[i];
  }
  PLAIN_CALLS(_c, send_counts, send_displs, recv_counts, recv_displs, send_displs, recv_displs)
}
#else
#define perform_large perform_int
#endif

static void wait_us(unsigned us) {
  struct timespec start, now;
  if (us >= 1000) {
    const struct timespec pause = {0, (long)us * 1000};
    nanosleep(&pause, NULL);
    return;
  }
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < us);
}

/* What is under way on the same communicator during the call. */
typedef struct {
  MPI_Request requests[2];
  int in[2], out[2];
  int code;
} Companion;

static void begin(Companion* under_way, const Call* c) {
  const Group* g = c->group;
  *under_way = (Companion){{MPI_REQUEST_NULL, MPI_REQUEST_NULL}, {world_rank + 3, 5}, {0}, 0};
  if (c->companion == 1) {
    under_way->code = MPI_Iallreduce(under_way->in, under_way->out, 2, MPI_INT, MPI_SUM, g->comm,
                                     &under_way->requests[0]);
  } else if (c->companion == 2) {
    const int to =
        g->remote ? (g->rank < g->remote ? g->rank : MPI_PROC_NULL) : (g->rank + 1) % g->size;
    const int from = g->remote ? to : (g->rank + g->size - 1) % g->size;
    MPI_Irecv(under_way->out, 2, MPI_INT, from, 3, g->comm, &under_way->requests[0]);
    MPI_Isend(under_way->in, 2, MPI_INT, to, 3, g->comm, &under_way->requests[1]);
  }
}

static void describe(char* text, size_t size, const Call* c, const Arguments* a) {
  snprintf(text, size,
           "%s on %s (rank %d of %d): %s%s, count %d of %s, root %d, op %d%s%s%s%s%s, rank %d is "
           "special, send %zu and receive %zu bytes, device %u",
           collective_names[c->collective], c->group->name, c->group->rank, c->group->size,
           kind_names[c->kind], c->one ? " on one rank" : "", c->count, c->type->name, c->root,
           (int)c->operation, c->in_place ? ", in place" : "", c->twin ? ", twin" : "",
           c->junk ? ", junk" : "", c->large ? ", large" : "",
           c->companion ? ", beside others" : "", c->victim, a->send_bytes, a->recv_bytes,
           c->device);
}

static char letter(const Call* c) {
  if (c->kind == kValid) return 'V';
  return c->kind >= kLonger ? 'U' : c->one ? 'O' : 'A';
}

/* The host cannot read what a GPU's memory holds: all goes by way of a mirror. */
static unsigned char mirror[kArenaBytes];

static bool is_on_device(const unsigned char* at) {
  for (int side = 0; side < 2; ++side) {
    const unsigned char* const begin = arena[1][side];
    if (at >= begin && at < begin + kArenaBytes) return true;
  }
  return false;
}

static void fill_arena(unsigned char* to, size_t bytes, const Call* c, uint64_t seed) {
  fill(mirror, bytes, c, seed);
  memory_write(is_on_device(to), to, mirror, bytes);
}

static uint32_t hash_arena(const unsigned char* at, size_t bytes, uint32_t hash) {
  memory_read(is_on_device(at), mirror, at, bytes);
  return hash_bytes(mirror, bytes, hash);
}

static void one_call(const Call* c, FILE* out, long program, int number) {
  if (c->group->comm == MPI_COMM_NULL) {
    fputs(" -", out);
    return;
  }
  const Arguments a = arguments_of(c);
  const bool receiving = receives(c);
  unsigned char* const before_send = a.send - kGuardBytes;
  unsigned char* const before_recv = a.recv - kGuardBytes;
  fill_arena(before_recv, a.recv_bytes + 2 * kGuardBytes, c, c->seed + 100 + (uint64_t)world_rank);
  fill_arena(before_send, a.send_bytes + 2 * kGuardBytes, c, c->seed + (uint64_t)world_rank);
  if (options.verbose || options.watchdog_s) {
    const int length =
        snprintf(current, sizeof current, "program %ld, call %d, world rank %d: ", program, number,
                 world_rank);
    if (options.verbose) {
      describe(current + length, sizeof current - (size_t)length, c, &a);
      fprintf(stderr, "%s\n", current);
    } else {
      snprintf(current + length, sizeof current - (size_t)length, "%s, %s%s",
               collective_names[c->collective], kind_names[c->kind], c->one ? " on one rank" : "");
    }
  }
  Companion under_way;
  if (c->companion) begin(&under_way, c);
  if (c->late_us && c->victim == c->group->rank) wait_us(c->late_us);
  handled = 0;
  int code = c->large ? perform_large(c, &a) : perform_int(c, &a);
  if (handled > 0) code = handled_code; /* MPICH returns MPI_SUCCESS once a handler has run. */
  int class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
  uint32_t hash = 0;
  if (c->companion) {
    MPI_Waitall(2, under_way.requests, MPI_STATUSES_IGNORE);
    hash = hash_bytes((unsigned char*)under_way.out, sizeof under_way.out, hash);
  }
  /* Of what a reduction of unequal counts leaves there, nothing is defined. */
  if (code == MPI_SUCCESS && !(c->kind >= kLonger && is_reduction(c->collective))) {
    size_t bytes = a.recv_bytes + kGuardBytes;
    const size_t extent = (size_t)c->type->extent;
    /* In place, what is behind the result is left open; the first rank of an exscan gets nothing
     * that is defined. */
    if (c->collective == kReduceScatterBlock && a.given_send == MPI_IN_PLACE) {
      bytes = (size_t)c->count * extent;
    }
    if (c->collective == kReduceScatter && a.given_send == MPI_IN_PLACE) {
      bytes = (size_t)a.recv_counts[c->group->rank] * extent;
    }
    if (c->collective == kExscan && c->group->rank == 0) bytes = 0;
    if (!receiving && c->collective != kBarrier) bytes = a.recv_bytes;
    hash = hash_arena(before_recv, bytes + kGuardBytes, hash);
    if (a.send != a.recv) hash = hash_arena(before_send, a.send_bytes + 2 * kGuardBytes, hash);
  }
  if (options.verbose) fprintf(stderr, "  rank %d: class %d, hash %08x\n", world_rank, class, hash);
  fprintf(out, " %c%dh%d.%08x", letter(c), class, handled, hash);
}

static void on_alarm(int number) {
  (void)number;
  const char text[] = "random_programs: a hang: ";
  ssize_t unused = write(2, text, sizeof text - 1);
  unused += write(2, current, strlen(current));
  unused += write(2, "\n", 1);
  (void)unused;
  _exit(3);
}

static void drop(Group* group) {
  if (group->comm != MPI_COMM_NULL) MPI_Comm_free(&group->comm);
}

/* A communicator that is no more, while nothing has taken its place. */
static void make_freed(Kind kind) {
  if (kind != kFreedComm) return;
  MPI_Comm comm;
  MPI_Comm_dup(standing[kWorldDup].comm, &comm);
  freed_comm = comm;
  MPI_Comm_free(&comm);
}

static Kind draw_kind(Random* random) {
  for (;;) {
    const Kind kind = (Kind)(1 + draw(random, kLonger - 1));
    for (int c = 0; c < kCollectiveCount; ++c) {
      if (fits(kind, (Collective)c) && !is_left_out(kind, (Collective)c, false)) return kind;
    }
  }
}

/* A call that an MPI may not come back from as it was: on a communicator that is not used again,
 * nor freed, for a later one could get its messages. */
static bool leave_one_behind(Random* random, FILE* out, long program, int number) {
  Kind kind = options.kind >= 0 ? (Kind)options.kind : kValid;
  bool one = options.one;
  int collective = options.collective;
  for (int tries = 0; options.kind < 0 && collective < 0 && tries < 200; ++tries) {
    kind = (Kind)(1 + draw(random, kKindCount - 1));
    one = kind < kLonger;
    const Collective c = (Collective)draw(random, kCollectiveCount);
    if (fits(kind, c) && !is_left_out(kind, c, one)) collective = (int)c;
  }
  if (collective < 0) return false;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(standing[kWorldDup].comm, &comm);
  const Group group = group_of(comm, "left behind");
  make_freed(kind);
  const Call c = draw_call(random, &group, kind, one, collective);
  one_call(&c, out, program, number);
  ++leaked;
  return true;
}

static void one_program(long program, FILE* out) {
  Random random = {mix(0x5eed, (uint64_t)program), 0};
  const int calls = 2 + (int)draw(&random, kMaxCalls - 1);
  const Group* first = &standing[draw(&random, kStandingCount)];
  const bool has_fresh = one_in(&random, 8);
  const bool wrong = one_in(&random, 2);
  const bool leaves_one = one_in(&random, 24);
  Group fresh = {MPI_COMM_NULL, "", 0, 0, 0, false};
  if (has_fresh) fresh = make_fresh(&random);
  fprintf(out, "%ld", program);
  int number = 0;
  for (; number < calls; ++number) {
    Random own = {mix(random.state, 1000 + (uint64_t)number), 0};
    if (has_fresh && number > 0 && one_in(&own, 4)) {
      drop(&fresh);
      fresh = make_fresh(&own);
    }
    const Group* group = has_fresh && one_in(&own, 2) ? &fresh
                         : one_in(&own, 4)            ? &standing[draw(&own, kStandingCount)]
                                                      : first;
    Kind kind = kValid;
    int collective = -1;
    const bool is_survey = options.kind > 0 && options.kind < kLonger && !options.one;
    if (is_survey ? number % 2 == 1 : !options.valid && wrong && one_in(&own, 3)) {
      kind = is_survey ? (Kind)options.kind : options.kind < 0 ? draw_kind(&own) : kValid;
      if (is_survey) collective = options.collective;
    }
    if (kind != kValid && group->remote > 0) group = &standing[kWorldDup];
    make_freed(kind);
    const Call c = draw_call(&own, group, kind, false, collective);
    one_call(&c, out, program, number);
  }
  if (has_fresh) drop(&fresh);
  const bool is_survey = options.kind >= 0 && (options.one || options.kind >= kLonger);
  if (is_survey || (!options.valid && !options.alike && options.kind < 0 && leaves_one)) {
    Random own = {mix(random.state, 2000), 0};
    if (leave_one_behind(&own, out, program, number)) {
      const Call c = draw_call(&own, &standing[kWorldDup], kValid, false, -1);
      one_call(&c, out, program, number + 1);
    }
  }
  fputc('\n', out);
}

static int index_of(const char* name, const char* const* names, int count) {
  for (int i = 0; i < count; ++i) {
    if (strcmp(name, names[i]) == 0) return i;
  }
  fprintf(stderr, "random_programs: no such name: %s\n", name);
  exit(2);
}

static bool parse_options(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--valid") == 0) {
      options.valid = true;
    } else if (strcmp(name, "--alike") == 0) {
      options.alike = true;
    } else if (strcmp(name, "--one") == 0) {
      options.one = true;
    } else if (strcmp(name, "--verbose") == 0) {
      options.verbose = true;
    } else if (++i == argc) {
      return false;
    } else if (strcmp(name, "--first") == 0) {
      options.first = atol(argv[i]);
    } else if (strcmp(name, "--count") == 0) {
      options.count = atol(argv[i]);
    } else if (strcmp(name, "--memory") == 0) {
      options.memory = argv[i];
    } else if (strcmp(name, "--out") == 0) {
      options.out = argv[i];
    } else if (strcmp(name, "--kind") == 0) {
      options.kind = index_of(argv[i], kind_names, kKindCount);
    } else if (strcmp(name, "--collective") == 0) {
      options.collective = index_of(argv[i], collective_names, kCollectiveCount);
    } else if (strcmp(name, "--watchdog") == 0) {
      options.watchdog_s = (unsigned)atoi(argv[i]);
    } else {
      return false;
    }
  }
  return options.out != NULL;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (!parse_options(argc, argv) || world_size > kMaxRanks) {
    fprintf(stderr, "random_programs: unknown option, no --out, or more than %d ranks\n",
            kMaxRanks);
    MPI_Finalize();
    return 2;
  }
  signal(SIGALRM, on_alarm);
  memory_open(options.memory, world_rank, false);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_create_errhandler(on_error, &counting);
  for (int side = 0; side < 2; ++side) {
    arena[0][side] = memory_allocate(false, kArenaBytes);
    arena[1][side] = memory_allocate(true, kArenaBytes);
  }
  make_types();
  make_standing();
  char path[512];
  snprintf(path, sizeof path, "%s/rank%d.txt", options.out, world_rank);
  FILE* out = fopen(path, "w");
  if (!out) {
    perror(path);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (long program = options.first; program < options.first + options.count; ++program) {
    if (options.watchdog_s) alarm(options.watchdog_s);
    one_program(program, out);
    fflush(out);
  }
  fclose(out);
  for (int i = 0; i < kStandingCount; ++i) {
    if (i < kInter || standing[kInter].remote > 0) drop(&standing[i]);
  }
  free_types();
  for (int side = 0; side < 2; ++side) {
    memory_free(false, arena[0][side]);
    memory_free(true, arena[1][side]);
  }
  MPI_Errhandler_free(&counting);
  MPI_Finalize();
  alarm(0);
  if (world_rank == 0) {
    printf("random_programs: %ld programs, %ld communicators left behind\n", options.count, leaked);
  }
  return 0;
}
