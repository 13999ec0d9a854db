/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * An ordinary MPI program that knows nothing of Tutti: every blocking collective and its _c form,
 * compared byte for byte with a reference that each rank computes by itself, with guard zones and
 * gaps that must stay untouched. Run natively it tests the MPI library, under the preload Tutti.
 *
 * Each call is a Spec. Everything else (counts per peer, layouts, values, kinds of memory, whether
 * insignificant arguments are NULL or garbage) follows from the spec and a seed, so that any rank
 * knows what any other rank passes. The last line on stdout is
 *   collectives: N checks, M failed
 * and the exit status is 1 on every rank when M > 0.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "blocking.h"
#include "elements.h"
#include "memory.h"
#include "native.h"

#define HAVE_LARGE (MPI_VERSION >= 4)

static bool is_movement(Collective c) { return c >= kBcast && c <= kAlltoallw; }
static bool is_reduction(Collective c) { return c >= kReduce; }
static bool is_vector(Collective c) {
  return c == kGatherv || c == kScatterv || c == kAllgatherv || c == kAlltoallv ||
         c == kAlltoallw || c == kReduceScatter;
}
static bool has_root(Collective c) { return (c >= kBcast && c <= kScatterv) || c == kReduce; }
static bool has_in_place(Collective c) { return c > kBcast; }

typedef struct {
  MPI_Comm comm;
  int rank;
  int size;
  const char* name;
} Group;

/* How a v-form's blocks lie in the buffer and how long they are. */
typedef enum {
  kDense,   /* Equal counts, one after the other. */
  kHoles,   /* Differing counts, gaps between the blocks. */
  kZeros,   /* Every other block empty. */
  kDescend, /* Differing counts, last block first, with gaps. */
  kPatternCount,
} Pattern;

static const char* const pattern_names[kPatternCount] = {"dense", "holes", "zeros", "descending"};

/* kOwnShapes: each rank has its own layouts, of equal signature. */
enum { kOwnShapes = kShapeCount };

typedef struct {
  Collective collective;
  const Group* group;
  const Element* element;
  Operation operation; /* Reductions. */
  size_t count;        /* Elements per block (at most, in patterns of differing counts). */
  int root;
  bool in_place;
  bool large; /* The _c form. */
  Pattern pattern;
  int send_shape; /* Shape or kOwnShapes. */
  int receive_shape;
  uint64_t seed; /* Set by check(). */
} Spec;

/* Options and state. */

typedef enum {
  kAllSame,
  kEven,
  kOdd,
  kAlternate,
  kRandom,
  kEvery,
  kRootOnly,
  kSendOnly,
  kReceiveOnly,
  kMixCount
} Mix;

static const char* const mix_names[kMixCount] = {
    "none", "even", "odd", "alternate", "random", "every", "rootonly", "sendonly", "recvonly"};

static struct {
  const char* memory;
  Mix mix;
  uint64_t mix_seed;
  uint64_t seed;
  int rounds;
  bool same_device;
  bool deep;
  bool huge;
  bool verbose;
  const char* only;
  int sabotage; /* Rank in MPI_COMM_WORLD, -1: nobody. */
  unsigned watchdog_s;
} options = {.memory = "host", .seed = 1, .rounds = 1, .sabotage = -1};

static Group world;
static Group lone;
static uint64_t call_number; /* Equal on all ranks of a call: world-wide calls, see part_split. */
static long checks;
static long failures;
static char current[512] = "start"; /* What the watchdog says. */

static void describe(char* text, size_t size, const Spec* s) {
  int n = snprintf(text, size, "%s%s(", collective_names[s->collective], s->large ? "_c" : "");
  if (s->element) n += snprintf(text + n, size - (size_t)n, "%s, ", s->element->name);
  if (is_reduction(s->collective)) {
    n += snprintf(text + n, size - (size_t)n, "%s, ", operation_name(s->operation));
  }
  n += snprintf(text + n, size - (size_t)n, "count %zu", s->count);
  if (has_root(s->collective)) n += snprintf(text + n, size - (size_t)n, ", root %d", s->root);
  if (s->in_place) n += snprintf(text + n, size - (size_t)n, ", in place");
  if (is_vector(s->collective)) {
    n += snprintf(text + n, size - (size_t)n, ", %s", pattern_names[s->pattern]);
  }
  if (s->send_shape || s->receive_shape) {
    n += snprintf(text + n, size - (size_t)n, ", %s -> %s",
                  s->send_shape == kOwnShapes ? "own" : shape_name((Shape)s->send_shape),
                  s->receive_shape == kOwnShapes ? "own" : shape_name((Shape)s->receive_shape));
  }
  snprintf(text + n, size - (size_t)n, ") on %s of %d, rank %d (world %d), call %llu",
           s->group->name, s->group->size, s->group->rank, world.rank,
           (unsigned long long)call_number);
}

static void failed(const char* format, ...) {
  enum { kMaxPrinted = 12 };
  if (++failures > kMaxPrinted) return;
  va_list arguments;
  va_start(arguments, format);
  flockfile(stderr);
  fprintf(stderr, "FAILED ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "%s\n", failures == kMaxPrinted ? " (further failures are only counted)" : "");
  funlockfile(stderr);
  va_end(arguments);
}

static void expect(bool condition, const char* what) {
  ++checks;
  if (!condition) failed("%s on rank %d (world)", what, world.rank);
}

static void on_alarm(int signal_number) {
  (void)signal_number;
  const char head[] = "collectives: no progress in ";
  if (write(2, head, sizeof head - 1) < 0 || write(2, current, strlen(current)) < 0 ||
      write(2, "\n", 1) < 0) {
    _exit(75);
  }
  _exit(75);
}

/* Memory of one call. */

static void** arena;
static size_t arena_size;
static size_t arena_capacity;

/* Lives until the check ends. */
static void* take(size_t bytes) {
  if (arena_size == arena_capacity) {
    arena_capacity = arena_capacity ? 2 * arena_capacity : 256;
    arena = realloc(arena, arena_capacity * sizeof *arena);
  }
  void* memory = calloc(bytes ? bytes : 1, 1);
  if (!arena || !memory) {
    fprintf(stderr, "collectives: out of memory\n");
    MPI_Abort(MPI_COMM_WORLD, 71);
  }
  arena[arena_size++] = memory;
  return memory;
}

static void release_all(void) {
  while (arena_size > 0) free(arena[--arena_size]);
}

/* Which ranks keep which buffer on the device. A function of values that every rank knows, so that
 * a failing combination can be told from the output alone. */
static bool on_device(const Spec* s, bool receives) {
  if (!memory_has_device()) return false;
  const int rank = s->group->rank;
  switch (options.mix) {
    case kEven:
      return rank % 2 == 0;
    case kOdd:
      return rank % 2 == 1;
    case kAlternate:
      return ((uint64_t)rank + call_number) % 2 == 0;
    case kRandom:
      return hash(options.mix_seed, (uint64_t)rank, call_number, receives) & 1u;
    case kEvery: {
      /* Two calls per pair of rank sets: each set of device ranks follows each other one. */
      const uint64_t sets = (uint64_t)1 << (s->group->size < 16 ? s->group->size : 16);
      const uint64_t pair = call_number / 2;
      const uint64_t set = call_number % 2 == 0 ? pair / sets % sets : pair % sets;
      return set >> (rank % 16) & 1u;
    }
    case kRootOnly:
      return rank == s->root;
    case kSendOnly:
      return !receives;
    case kReceiveOnly:
      return receives;
    default:
      return true;
  }
}

/* One stretch of a buffer: `items` items of `layout` from byte `at` on. */
typedef struct {
  const Layout* layout;
  size_t items;
  ptrdiff_t at;
  const unsigned char* before; /* Stream put there before the call; NULL: noise. */
  const unsigned char* after;  /* Stream expected there afterwards; NULL: as before. */
  bool loose;                  /* The standard leaves its content open. */
} Block;

typedef struct {
  Block* block;
  int blocks;
  bool is_on_device;
  size_t bytes;
  unsigned char* expected;
  unsigned char* ignored; /* 1: the byte is not compared. */
  unsigned char* memory;
  void* address; /* What MPI gets. */
} Buffer;

enum { kGuardBytes = 64 };

/* Walks the significant bytes of a block in stream order. */
typedef enum { kPut, kGet, kIgnore } Walk;

static void walk_block(const Block* block, unsigned char* image, ptrdiff_t origin, Walk walk,
                       unsigned char* stream) {
  const Layout* layout = block->layout;
  const Element* element = layout->element;
  for (size_t item = 0; item < block->items; ++item) {
    const ptrdiff_t start = origin + block->at + (ptrdiff_t)item * layout->extent;
    for (int unit = 0; unit < layout->units; ++unit) {
      for (int i = 0; i < element->parts; ++i) {
        const Part* part = &element->part[i];
        unsigned char* place = image + start + layout->offset[unit] + part->offset;
        if (walk == kPut) memcpy(place, stream, part->size);
        if (walk == kGet) memcpy(stream, place, part->size);
        if (walk == kIgnore) memset(place, 1, part->size);
        if (walk != kIgnore) stream += part->size;
      }
    }
  }
}

static void ignore_padding(const Block* block, unsigned char* ignored, ptrdiff_t origin) {
  const Layout* layout = block->layout;
  const Element* element = layout->element;
  for (size_t item = 0; item < block->items; ++item) {
    const ptrdiff_t start = origin + block->at + (ptrdiff_t)item * layout->extent;
    for (int unit = 0; unit < layout->units; ++unit) {
      for (int i = 0; i < element->parts; ++i) {
        const Part* part = &element->part[i];
        memset(ignored + start + layout->offset[unit] + part->offset + part->size, 1,
               part->padding);
      }
    }
  }
}

/* Bytes in front of MPI's address: guard, and room for layouts that reach back. */
static ptrdiff_t bounds(const Buffer* buffer, ptrdiff_t* end) {
  ptrdiff_t first = 0;
  ptrdiff_t last = 0;
  for (int i = 0; i < buffer->blocks; ++i) {
    const Block* b = &buffer->block[i];
    if (b->items == 0) continue;
    const ptrdiff_t low = b->at + b->layout->first;
    const ptrdiff_t high = b->at + (ptrdiff_t)(b->items - 1) * b->layout->extent + b->layout->last;
    if (low < first) first = low;
    if (high > last) last = high;
  }
  *end = last;
  return first;
}

static ptrdiff_t buffer_origin(const Buffer* buffer, const Spec* s) {
  ptrdiff_t end = 0;
  const ptrdiff_t first = bounds(buffer, &end);
  /* Round up, then shift: addresses aligned for the type but not always for a vector register. */
  const ptrdiff_t origin = (kGuardBytes - first + 63) / 64 * 64;
  return origin + 16 * (ptrdiff_t)(hash(s->seed, (uint64_t)s->group->rank, 77, 0) % 4);
}

static void buffer_prepare(Buffer* buffer, const Spec* s, bool receives) {
  ptrdiff_t end = 0;
  bounds(buffer, &end);
  const ptrdiff_t origin = buffer_origin(buffer, s);
  buffer->bytes = (size_t)(origin + end) + kGuardBytes;
  buffer->is_on_device = on_device(s, receives);
  buffer->expected = take(buffer->bytes);
  buffer->ignored = take(buffer->bytes);
  for (size_t i = 0; i < buffer->bytes; i += 8) {
    const uint64_t noise = hash(s->seed, (uint64_t)s->group->rank, i, receives ? 5 : 6);
    const size_t left = buffer->bytes - i;
    memcpy(buffer->expected + i, &noise, left < 8 ? left : 8);
  }
  for (int i = 0; i < buffer->blocks; ++i) {
    const Block* b = &buffer->block[i];
    if (b->before) walk_block(b, buffer->expected, origin, kPut, (unsigned char*)b->before);
  }
  buffer->memory = memory_allocate(buffer->is_on_device, buffer->bytes);
  memory_write(buffer->is_on_device, buffer->memory, buffer->expected, buffer->bytes);
  for (int i = 0; i < buffer->blocks; ++i) {
    const Block* b = &buffer->block[i];
    if (b->after) walk_block(b, buffer->expected, origin, kPut, (unsigned char*)b->after);
    if (b->loose) walk_block(b, buffer->ignored, origin, kIgnore, NULL);
    if (b->after || b->loose) ignore_padding(b, buffer->ignored, origin);
  }
  buffer->address = buffer->memory + origin;
  /* An empty buffer may be NULL. */
  if (end == 0 && s->seed % 2 == 0) buffer->address = NULL;
}

/* Two results that mean the same: any non-zero "true", and the sign of a complex product's zero,
 * which depends on the order of evaluation. */
static void canonicalise(const Spec* s, const Block* block, unsigned char* image,
                         ptrdiff_t origin) {
  const Operation op = s->operation;
  const Element* element = block->layout->element;
  const bool truth = op == kLand || op == kLor || op == kLxor;
  const bool zero_sign = op == kProd && element->is_complex;
  if (!is_reduction(s->collective) || !block->after || (!truth && !zero_sign)) return;
  const size_t elements = block->items * (size_t)block->layout->units;
  unsigned char* stream = take(elements * element->packed);
  walk_block(block, image, origin, kGet, stream);
  for (size_t i = 0; i < elements; ++i) {
    unsigned char* one = stream + i * element->packed;
    for (int p = 0; p < element->parts; ++p) {
      const unsigned size = element->part[p].size;
      bool nonzero = false;
      for (unsigned k = 0; k < size; ++k) {
        const bool sign_byte = zero_sign && k + 1 == size;
        nonzero = nonzero || (sign_byte ? one[k] & 0x7f : one[k]);
      }
      if (truth || !nonzero) memset(one, 0, size);
      if (truth && nonzero) one[0] = 1;
      one += size;
    }
  }
  walk_block(block, image, origin, kPut, stream);
}

static void print_bytes(char* text, size_t size, const unsigned char* bytes, size_t count) {
  size_t n = 0;
  for (size_t i = 0; i < count && n + 3 < size; ++i) {
    n += (size_t)snprintf(text + n, size - n, "%02x", bytes[i]);
  }
}

/* True when every byte is as expected. */
static bool buffer_check(Buffer* buffer, const Spec* s, bool receives) {
  const ptrdiff_t origin = buffer_origin(buffer, s);
  unsigned char* got = take(buffer->bytes);
  memory_read(buffer->is_on_device, got, buffer->memory, buffer->bytes);
  for (int i = 0; i < buffer->blocks; ++i) {
    canonicalise(s, &buffer->block[i], got, origin);
    canonicalise(s, &buffer->block[i], buffer->expected, origin);
  }
  if (receives && options.sabotage == world.rank && checks > 10) {
    options.sabotage = -1;
    got[buffer->bytes - 1] ^= 0x10;
  }
  size_t first = 0;
  size_t wrong = 0;
  for (size_t i = buffer->bytes; i-- > 0;) {
    if (got[i] != buffer->expected[i] && !buffer->ignored[i]) {
      first = i;
      ++wrong;
    }
  }
  if (wrong == 0) return true;
  const ptrdiff_t byte = (ptrdiff_t)first - origin;
  const ptrdiff_t extent = s->element ? s->element->extent : 1;
  const size_t shown = buffer->bytes - first < 16 ? buffer->bytes - first : 16;
  char want[40] = "";
  char have[40] = "";
  char what[512];
  print_bytes(want, sizeof want, buffer->expected + first, shown);
  print_bytes(have, sizeof have, got + first, shown);
  describe(what, sizeof what, s);
  failed(
      "%s: %s buffer in %s memory: %zu bytes differ, first at byte %td (index %td)%s: "
      "expected %s, got %s",
      what, receives ? "receive" : "send", buffer->is_on_device ? options.memory : "host", wrong,
      byte, byte / extent,
      byte < 0 || byte >= (ptrdiff_t)buffer->bytes - origin - kGuardBytes
          ? " in a guard zone or gap"
          : "",
      want, have);
  return false;
}

/* The reference. */

static bool equal_counts(const Spec* s) {
  return !is_vector(s->collective) || s->pattern == kDense;
}

static bool pairwise(Collective c) { return c == kAlltoallv || c == kAlltoallw; }

/* Elements of the block that goes from one rank to another; (j, j) is rank j's in forms with one
 * count per rank. */
static size_t block_elements(const Spec* s, int from, int to) {
  if (equal_counts(s)) return s->count;
  if (pairwise(s->collective) && s->in_place && from > to) { /* Must be symmetric. */
    const int swap = from;
    from = to;
    to = swap;
  }
  if (s->pattern == kZeros) return (from + to) / 2 % 2 == 0 && from % 2 == 0 ? 0 : s->count;
  const size_t multiple = s->send_shape || s->receive_shape ? kUnitMultiple : 1;
  const size_t steps = s->count / multiple;
  return multiple * (hash(s->seed, (uint64_t)from, (uint64_t)to, 9) % (steps + 1));
}

/* alltoallw: each pair of ranks has its own type. */
static const Element* pair_element(const Spec* s, int from, int to) {
  if (s->collective != kAlltoallw) return s->element;
  static const char* const names[] = {"MPI_INT", "MPI_DOUBLE", "MPI_SHORT", "record", "MPI_BYTE"};
  if (s->in_place && from > to) {
    const int swap = from;
    from = to;
    to = swap;
  }
  const uint64_t pick = hash(s->seed, (uint64_t)from, (uint64_t)to, 10) % 5;
  return element_named(names[pick]);
}

static Shape pick_shape(const Spec* s, int shape, uint64_t salt) {
  if (shape != kOwnShapes) return (Shape)shape;
  return (Shape)(hash(s->seed, (uint64_t)s->group->rank, salt, 11) % kShapeCount);
}

/* What `from` sends to `to`: random bytes. */
static const unsigned char* payload(const Spec* s, int from, int to, size_t bytes) {
  unsigned char* stream = take(bytes + 8);
  const uint64_t key = hash(s->seed, (uint64_t)from, (uint64_t)to, 12);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = (key + i) * 0x9e3779b97f4a7c15u ^ key >> 17;
    const uint64_t mixed = word ^ word >> 29;
    memcpy(stream + i, &mixed, 8);
  }
  return stream;
}

/* Elements [first, first + count) of the vectors of ranks 0..last, combined in rank order. */
static const unsigned char* reduced(const Spec* s, int from_rank, int to_rank, size_t first,
                                    size_t count) {
  const Element* element = s->element;
  unsigned char* stream = take(count * element->packed);
  for (size_t i = 0; i < count; ++i) {
    Value value = value_of(s->operation, element, s->seed, from_rank, first + i);
    for (int rank = from_rank + 1; rank <= to_rank; ++rank) {
      value = combine(s->operation, element, value,
                      value_of(s->operation, element, s->seed, rank, first + i));
    }
    encode(element, value, stream + i * element->packed);
  }
  return stream;
}

/* One call. */

/* The arguments, wide enough for both forms. */
typedef struct {
  const void* send;
  void* receive;
  MPI_Count send_count;
  MPI_Count receive_count;
  MPI_Datatype send_type;
  MPI_Datatype receive_type;
  MPI_Count* send_counts;
  MPI_Count* receive_counts;
  MPI_Aint* send_at; /* Displacements: in extents, in bytes for alltoallw. */
  MPI_Aint* receive_at;
  MPI_Datatype* send_types;
  MPI_Datatype* receive_types;
} Arguments;

static int* narrow_counts(const MPI_Count* wide, int n) {
  if (!wide) return NULL;
  int* narrow = take((size_t)n * sizeof *narrow);
  for (int i = 0; i < n; ++i) narrow[i] = (int)wide[i];
  return narrow;
}

static int* narrow_displacements(const MPI_Aint* wide, int n) {
  if (!wide) return NULL;
  int* narrow = take((size_t)n * sizeof *narrow);
  for (int i = 0; i < n; ++i) narrow[i] = (int)wide[i];
  return narrow;
}

#if HAVE_LARGE
static int call_large(const Spec* s, const Arguments* a, MPI_Op op) {
  const MPI_Comm comm = s->group->comm;
  switch (s->collective) {
    case kBarrier:
      return MPI_Barrier(comm);
    case kBcast:
      return MPI_Bcast_c(a->receive, a->receive_count, a->receive_type, s->root, comm);
    case kGather:
      return MPI_Gather_c(a->send, a->send_count, a->send_type, a->receive, a->receive_count,
                          a->receive_type, s->root, comm);
    case kGatherv:
      return MPI_Gatherv_c(a->send, a->send_count, a->send_type, a->receive, a->receive_counts,
                           a->receive_at, a->receive_type, s->root, comm);
    case kScatter:
      return MPI_Scatter_c(a->send, a->send_count, a->send_type, a->receive, a->receive_count,
                           a->receive_type, s->root, comm);
    case kScatterv:
      return MPI_Scatterv_c(a->send, a->send_counts, a->send_at, a->send_type, a->receive,
                            a->receive_count, a->receive_type, s->root, comm);
    case kAllgather:
      return MPI_Allgather_c(a->send, a->send_count, a->send_type, a->receive, a->receive_count,
                             a->receive_type, comm);
    case kAllgatherv:
      return MPI_Allgatherv_c(a->send, a->send_count, a->send_type, a->receive, a->receive_counts,
                              a->receive_at, a->receive_type, comm);
    case kAlltoall:
      return MPI_Alltoall_c(a->send, a->send_count, a->send_type, a->receive, a->receive_count,
                            a->receive_type, comm);
    case kAlltoallv:
      return MPI_Alltoallv_c(a->send, a->send_counts, a->send_at, a->send_type, a->receive,
                             a->receive_counts, a->receive_at, a->receive_type, comm);
    case kAlltoallw:
      return MPI_Alltoallw_c(a->send, a->send_counts, a->send_at, a->send_types, a->receive,
                             a->receive_counts, a->receive_at, a->receive_types, comm);
    case kReduce:
      return MPI_Reduce_c(a->send, a->receive, a->send_count, a->send_type, op, s->root, comm);
    case kAllreduce:
      return MPI_Allreduce_c(a->send, a->receive, a->send_count, a->send_type, op, comm);
    case kReduceScatter:
      return MPI_Reduce_scatter_c(a->send, a->receive, a->receive_counts, a->send_type, op, comm);
    case kReduceScatterBlock:
      return MPI_Reduce_scatter_block_c(a->send, a->receive, a->receive_count, a->send_type, op,
                                        comm);
    case kScan:
      return MPI_Scan_c(a->send, a->receive, a->send_count, a->send_type, op, comm);
    default:
      return MPI_Exscan_c(a->send, a->receive, a->send_count, a->send_type, op, comm);
  }
}
#endif

static int call(const Spec* s, const Arguments* a) {
  const MPI_Comm comm = s->group->comm;
  const MPI_Op op =
      is_reduction(s->collective) ? operation_handle(s->operation, s->large) : MPI_OP_NULL;
#if HAVE_LARGE
  if (s->large) return call_large(s, a, op);
#endif
  const int n = s->group->size;
  const int* send_counts = narrow_counts(a->send_counts, n);
  const int* receive_counts = narrow_counts(a->receive_counts, n);
  const int* send_at = narrow_displacements(a->send_at, n);
  const int* receive_at = narrow_displacements(a->receive_at, n);
  const int send_count = (int)a->send_count;
  const int receive_count = (int)a->receive_count;
  switch (s->collective) {
    case kBarrier:
      return MPI_Barrier(comm);
    case kBcast:
      return MPI_Bcast(a->receive, receive_count, a->receive_type, s->root, comm);
    case kGather:
      return MPI_Gather(a->send, send_count, a->send_type, a->receive, receive_count,
                        a->receive_type, s->root, comm);
    case kGatherv:
      return MPI_Gatherv(a->send, send_count, a->send_type, a->receive, receive_counts, receive_at,
                         a->receive_type, s->root, comm);
    case kScatter:
      return MPI_Scatter(a->send, send_count, a->send_type, a->receive, receive_count,
                         a->receive_type, s->root, comm);
    case kScatterv:
      return MPI_Scatterv(a->send, send_counts, send_at, a->send_type, a->receive, receive_count,
                          a->receive_type, s->root, comm);
    case kAllgather:
      return MPI_Allgather(a->send, send_count, a->send_type, a->receive, receive_count,
                           a->receive_type, comm);
    case kAllgatherv:
      return MPI_Allgatherv(a->send, send_count, a->send_type, a->receive, receive_counts,
                            receive_at, a->receive_type, comm);
    case kAlltoall:
      return MPI_Alltoall(a->send, send_count, a->send_type, a->receive, receive_count,
                          a->receive_type, comm);
    case kAlltoallv:
      return MPI_Alltoallv(a->send, send_counts, send_at, a->send_type, a->receive, receive_counts,
                           receive_at, a->receive_type, comm);
    case kAlltoallw:
      return MPI_Alltoallw(a->send, send_counts, send_at, a->send_types, a->receive, receive_counts,
                           receive_at, a->receive_types, comm);
    case kReduce:
      return MPI_Reduce(a->send, a->receive, send_count, a->send_type, op, s->root, comm);
    case kAllreduce:
      return MPI_Allreduce(a->send, a->receive, send_count, a->send_type, op, comm);
    case kReduceScatter:
      return MPI_Reduce_scatter(a->send, a->receive, receive_counts, a->send_type, op, comm);
    case kReduceScatterBlock:
      return MPI_Reduce_scatter_block(a->send, a->receive, receive_count, a->send_type, op, comm);
    case kScan:
      return MPI_Scan(a->send, a->receive, send_count, a->send_type, op, comm);
    default:
      return MPI_Exscan(a->send, a->receive, send_count, a->send_type, op, comm);
  }
}

/* What a rank may pass where an argument is not significant. Never 1 or -1: some MPI_IN_PLACE. */
static void set_insignificant_receive(const Spec* s, Arguments* a) {
  const bool garbage = s->seed % 3 == 0;
  a->receive = garbage ? (void*)(uintptr_t)0x40 : NULL;
  a->receive_count = garbage ? 12345 : 0;
  a->receive_type = garbage ? MPI_INT : MPI_DATATYPE_NULL;
}

static void set_insignificant_send(const Spec* s, Arguments* a) {
  const bool garbage = s->seed % 3 == 0;
  a->send = garbage ? (void*)(uintptr_t)0x40 : NULL;
  a->send_count = garbage ? 12345 : 0;
  a->send_type = garbage ? MPI_INT : MPI_DATATYPE_NULL;
}

static MPI_Aint* displacements(const Spec* s, const Buffer* buffer) {
  MPI_Aint* at = take((size_t)buffer->blocks * sizeof *at);
  for (int i = 0; i < buffer->blocks; ++i) {
    const Block* b = &buffer->block[i];
    at[i] = s->collective == kAlltoallw ? b->at : b->at / b->layout->extent;
  }
  return at;
}

static MPI_Count* item_counts(const Buffer* buffer) {
  MPI_Count* counts = take((size_t)buffer->blocks * sizeof *counts);
  for (int i = 0; i < buffer->blocks; ++i) counts[i] = (MPI_Count)buffer->block[i].items;
  return counts;
}

static MPI_Datatype* types(const Buffer* buffer) {
  MPI_Datatype* list = take((size_t)buffer->blocks * sizeof *list);
  for (int i = 0; i < buffer->blocks; ++i) list[i] = buffer->block[i].layout->type;
  return list;
}

/* Gives the blocks their places. alltoallw displaces in bytes, everything else in extents. On one
 * rank it stays at 0: Open MPI 5.0 multiplies the bytes by the extent there. */
static void place_blocks(const Spec* s, Buffer* buffer, bool many) {
  ptrdiff_t at = 0;
  if (s->collective == kAlltoallw && s->group->size == 1) return;
  const bool gaps = many && is_vector(s->collective) && s->pattern != kDense;
  for (int k = 0; k < buffer->blocks; ++k) {
    const int i = gaps && s->pattern == kDescend ? buffer->blocks - 1 - k : k;
    Block* b = &buffer->block[i];
    const ptrdiff_t extent = b->layout->extent;
    if (s->collective == kAlltoallw) at = (at + 63) / 16 * 16 + (b->layout->first < 0 ? 64 : 0);
    if (gaps) at += extent * (ptrdiff_t)(hash(s->seed, (uint64_t)i, 13, 0) % 3);
    b->at = at;
    at += extent * (ptrdiff_t)b->items;
  }
}

static Buffer new_buffer(int blocks) {
  return (Buffer){.block = take((size_t)blocks * sizeof(Block)), .blocks = blocks};
}

typedef struct {
  Buffer send;
  Buffer receive;
  Arguments arguments;
  Layout* layout; /* To be freed. */
  int layouts;
} Job;

static const Layout* job_layout(Job* job, const Element* element, Shape shape) {
  Layout* layout = &job->layout[job->layouts++];
  *layout = layout_make(element, shape);
  return layout;
}

/* Data movement: what goes out of the send buffer's blocks and into the receive buffer's. */
static void set_up_movement(const Spec* s, Job* job) {
  const int rank = s->group->rank;
  const int size = s->group->size;
  const Collective c = s->collective;
  const bool is_root = rank == s->root;
  const bool many_out = (c == kScatter || c == kScatterv) ? is_root : c >= kAlltoall;
  const bool many_in = (c == kGather || c == kGatherv) ? is_root : c >= kAllgather;
  const bool sends = c == kScatter || c == kScatterv ? is_root : c != kBcast;
  const bool receives = c == kGather || c == kGatherv ? is_root : true;
  const Shape out = pick_shape(s, s->send_shape, 1);
  const Shape in = pick_shape(s, s->receive_shape, 2);
  const bool rooted_in_place = s->in_place && has_root(c);
  const bool in_place_here = s->in_place && (!rooted_in_place || is_root);

  if (sends) {
    const Layout* common = c == kAlltoallw ? NULL : job_layout(job, s->element, out);
    job->send = new_buffer(many_out ? size : 1);
    for (int i = 0; i < job->send.blocks; ++i) {
      const int from = many_out && !pairwise(c) ? i : rank;
      const int to = many_out ? i : rank;
      Block* b = &job->send.block[i];
      b->layout = common ? common : job_layout(job, pair_element(s, rank, i), out);
      const size_t elements = block_elements(s, from, to);
      b->items = elements / (size_t)b->layout->units;
      b->before = payload(s, rank, many_out ? i : 0, elements * b->layout->element->packed);
    }
    place_blocks(s, &job->send, many_out);
  }
  if (receives) {
    const Layout* common = c == kAlltoallw ? NULL : job_layout(job, s->element, in);
    job->receive = new_buffer(many_in ? size : 1);
    for (int i = 0; i < job->receive.blocks; ++i) {
      const int from = c == kBcast || c == kScatter || c == kScatterv ? s->root : i;
      const int to = pairwise(c) ? rank : i;
      Block* b = &job->receive.block[i];
      b->layout = common ? common : job_layout(job, pair_element(s, i, rank), in);
      const size_t elements = many_in ? block_elements(s, i, to) : block_elements(s, rank, rank);
      const size_t bytes = elements * b->layout->element->packed;
      const bool to_each = c == kScatter || c == kScatterv || c >= kAlltoall;
      b->items = elements / (size_t)b->layout->units;
      b->after = payload(s, from, to_each ? rank : 0, bytes);
      if (c == kBcast && is_root) b->before = b->after;
      if (in_place_here) {
        if (c >= kAlltoall) b->before = payload(s, rank, i, bytes);
        if (c < kAlltoall && i == rank) b->before = b->after;
      }
    }
    place_blocks(s, &job->receive, many_in);
  }

  Arguments* a = &job->arguments;
  set_insignificant_send(s, a);
  set_insignificant_receive(s, a);
  const bool scatter_in_place = in_place_here && (c == kScatter || c == kScatterv);
  if (sends) {
    buffer_prepare(&job->send, s, false);
    if (!in_place_here || scatter_in_place) {
      a->send = job->send.address;
      a->send_count = (MPI_Count)job->send.block[0].items;
      a->send_type = job->send.block[0].layout->type;
      if (many_out) {
        a->send_counts = item_counts(&job->send);
        a->send_at = displacements(s, &job->send);
        a->send_types = types(&job->send);
      }
    } else {
      a->send = MPI_IN_PLACE;
    }
  }
  if (receives) {
    if (scatter_in_place) {
      job->receive.blocks = 0;
      buffer_prepare(&job->receive, s, true);
      a->receive = MPI_IN_PLACE;
      return;
    }
    buffer_prepare(&job->receive, s, true);
    a->receive = job->receive.address;
    a->receive_count = (MPI_Count)job->receive.block[0].items;
    a->receive_type = job->receive.block[0].layout->type;
    if (many_in) {
      a->receive_counts = item_counts(&job->receive);
      a->receive_at = displacements(s, &job->receive);
      a->receive_types = types(&job->receive);
    }
  }
}

static void set_up_reduction(const Spec* s, Job* job) {
  const int rank = s->group->rank;
  const int size = s->group->size;
  const Collective c = s->collective;
  const bool scatters = c == kReduceScatter || c == kReduceScatterBlock;
  const bool receives = c != kReduce || rank == s->root;
  const bool in_place_here = s->in_place && receives;
  Arguments* a = &job->arguments;

  size_t total = s->count;
  size_t first = 0;
  size_t mine = s->count;
  if (scatters) {
    a->receive_counts = take((size_t)size * sizeof *a->receive_counts);
    total = 0;
    for (int i = 0; i < size; ++i) {
      const size_t elements = block_elements(s, i, i);
      if (i == rank) {
        first = total;
        mine = elements;
      }
      a->receive_counts[i] = (MPI_Count)elements;
      total += elements;
    }
  }
  const Layout* layout = job_layout(job, s->element, kPlain);
  const unsigned char* own = reduced(s, rank, rank, 0, total);
  job->send = new_buffer(1);
  job->send.block[0] = (Block){.layout = layout, .items = total, .before = own};

  const int last = c == kScan ? rank : c == kExscan ? rank - 1 : size - 1;
  job->receive = new_buffer(2);
  Block* result = &job->receive.block[0];
  Block* rest = &job->receive.block[1];
  *result = (Block){.layout = layout, .items = mine};
  *rest = (Block){.layout = layout};
  if (last >= 0) result->after = reduced(s, 0, last, first, mine);
  if (c == kExscan && rank == 0) result->loose = true;
  if (in_place_here) {
    result->before = own;
    if (scatters) {
      /* The input is longer than the result; what MPI leaves behind the result is open. */
      result->before = NULL;
      rest->at = 0;
      rest->items = total;
      rest->before = own;
      rest->loose = true;
    }
  }
  if (!receives) job->receive.blocks = 0;

  buffer_prepare(&job->send, s, false);
  buffer_prepare(&job->receive, s, true);
  if (in_place_here && scatters) {
    /* The result lies inside the loose block: compare it all the same. */
    const ptrdiff_t origin = buffer_origin(&job->receive, s);
    const Element* element = s->element;
    memset(job->receive.ignored + origin, 0, mine * (size_t)element->extent);
    ignore_padding(result, job->receive.ignored, origin);
    walk_block(result, job->receive.expected, origin, kPut, (unsigned char*)result->after);
  }
  a->send = in_place_here ? MPI_IN_PLACE : job->send.address;
  a->receive = job->receive.address;
  if (!receives) set_insignificant_receive(s, a);
  a->send_count = (MPI_Count)s->count;
  a->receive_count = (MPI_Count)s->count;
  a->send_type = layout->type;
}

static void check(const Spec* given) {
  Spec s = *given;
  ++call_number;
  s.seed = hash(options.seed, call_number, (uint64_t)s.collective, 1);
  if (!HAVE_LARGE) s.large = false;
  if (!has_in_place(s.collective)) s.in_place = false;
#ifdef OPEN_MPI
  /* Open MPI 5.0 picks allgatherv's algorithm from the local types and hangs when they differ. */
  if (s.collective == kAllgatherv && s.send_shape == kOwnShapes) s.send_shape = kGaps;
  if (s.collective == kAllgatherv && s.receive_shape == kOwnShapes) s.receive_shape = kReversed;
#endif
  describe(current, sizeof current, &s);
  if (options.verbose) fprintf(stderr, "%s\n", current);
  if (options.watchdog_s) alarm(options.watchdog_s);

  Job job = {.layout = take((size_t)(2 * s.group->size + 2) * sizeof(Layout))};
  if (is_movement(s.collective)) set_up_movement(&s, &job);
  if (is_reduction(s.collective)) set_up_reduction(&s, &job);
  memory_before_call((unsigned)call_number);
  const int code = call(&s, &job.arguments);
  const bool left_alone = memory_left_alone();

  ++checks;
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    failed("%s: returned %d: %s", current, code, text);
  } else if (!left_alone) {
    failed("%s: the application's current device was changed", current);
  } else if (s.collective != kBarrier) {
    const bool receive_right = !job.receive.memory || buffer_check(&job.receive, &s, true);
    if (receive_right && job.send.memory) buffer_check(&job.send, &s, false);
  }
  if (job.send.memory) memory_free(job.send.is_on_device, job.send.memory);
  if (job.receive.memory) memory_free(job.receive.is_on_device, job.receive.memory);
  for (int i = 0; i < job.layouts; ++i) layout_free(&job.layout[i]);
  release_all();
}

/* Parts. */

/* Every type with every operation it has. */
static void part_matrix(const Group* g, int round) {
  static const Collective list[] = {kAllreduce, kReduce,        kScan,
                                    kExscan,    kReduceScatter, kReduceScatterBlock};
  static const size_t counts[] = {3, 1, 17, 129};
  unsigned pair = (unsigned)round;
  for (int e = 0; e < element_count(); ++e) {
    const Element* element = element_at(e);
    for (int op = 0; op < kOpCount; ++op) {
      if (!(element->operations >> op & 1u)) continue;
      ++pair;
      for (unsigned c = 0; c < 6; ++c) {
        if (!options.deep && c != 0 && (pair + c) % 5 != 0) continue;
        for (unsigned k = 0; k < (options.deep ? 4 : 1); ++k) {
          check(&(Spec){.collective = list[c],
                        .group = g,
                        .element = element,
                        .operation = (Operation)op,
                        .count = counts[(k + (unsigned)round) % 4],
                        .root = (int)(pair % (unsigned)g->size),
                        .in_place = (pair + k) % 3 == 0,
                        .large = (pair + c + k) % 2 == 0});
        }
      }
    }
  }
}

/* Every type through the collectives that only move data. */
static void part_types(const Group* g, int round) {
  for (int e = 0; e < element_count(); ++e) {
    for (int c = kBcast; c <= kAlltoallv; ++c) {
      const int turn = e + c + round;
      if (!options.deep && turn % 4 != 0) continue;
      check(&(Spec){.collective = (Collective)c,
                    .group = g,
                    .element = element_at(e),
                    .count = 5,
                    .root = turn % g->size,
                    .in_place = turn % 3 == 0,
                    .large = turn / 4 % 2 == 0,
                    .pattern = (Pattern)(turn % kPatternCount)});
    }
  }
}

/* Counts from nothing to 256 KiB, in place and not, both forms. */
static void part_counts(const Group* g, int round) {
  static const char* const names[] = {"MPI_INT", "MPI_DOUBLE", "MPI_FLOAT"};
  static const size_t counts[] = {0, 1, 7, 101, 4097, 65536};
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (int k = 0; k < 6; ++k) {
      for (int variant = 0; variant < 4; ++variant) {
        const int turn = c + k + variant + round;
        check(&(Spec){.collective = (Collective)c,
                      .group = g,
                      .element = element_named(names[turn % 3]),
                      .operation = (Operation)(turn % 4),
                      .count = c >= kAllgather && c <= kAlltoallw && k == 5
                                   ? counts[k] / (size_t)g->size + 1
                                   : counts[k],
                      .root = turn % g->size,
                      .in_place = variant & 1,
                      .large = variant & 2});
      }
    }
  }
}

static void part_roots(const Group* g, int round) {
  for (int c = 0; c < kCollectiveCount; ++c) {
    if (!has_root((Collective)c)) continue;
    for (int root = 0; root < g->size; ++root) {
      for (int variant = 0; variant < 2; ++variant) {
        check(&(Spec){.collective = (Collective)c,
                      .group = g,
                      .element = element_named("MPI_INT"),
                      .operation = kSum,
                      .count = variant ? 1000 : 7,
                      .root = root,
                      .in_place = (root + variant + round) % 2 == 0,
                      .large = (root + c) % 2 == 0,
                      .pattern = (Pattern)((root + c) % kPatternCount)});
      }
    }
  }
}

/* v- and w-forms: holes, empty blocks, blocks in reverse order. */
static void part_vectors(const Group* g, int round) {
  static const size_t counts[] = {1, 12, 1000};
  for (int c = 0; c < kCollectiveCount; ++c) {
    if (!is_vector((Collective)c)) continue;
    for (int pattern = 0; pattern < kPatternCount; ++pattern) {
      for (int k = 0; k < 3; ++k) {
        for (int in_place = 0; in_place < 2; ++in_place) {
          check(&(Spec){.collective = (Collective)c,
                        .group = g,
                        .element = element_named(k % 2 ? "MPI_DOUBLE" : "MPI_INT"),
                        .operation = kMax,
                        .count = counts[k],
                        .root = (pattern + k) % g->size,
                        .in_place = in_place,
                        .large = (pattern + k + in_place + round) % 2 == 0,
                        .pattern = (Pattern)pattern});
        }
      }
    }
  }
}

/* Derived types, the same on all ranks, different for sending and receiving, and different on each
 * rank with equal signatures. */
static void part_derived(const Group* g, int round) {
  static const char* const names[] = {"MPI_INT", "record", "MPI_LONG_DOUBLE", "MPI_BYTE"};
  for (int c = kBcast; c <= kAlltoallw; ++c) {
    for (int out = 0; out <= kOwnShapes; ++out) {
      for (int in = 0; in <= kOwnShapes; ++in) {
        const int turn = c + out + in + round;
        const bool interesting = out == in || out == kOwnShapes || in == kOwnShapes;
        if (!options.deep && (interesting ? turn % 2 : turn % 7) != 0) continue;
        check(&(Spec){.collective = (Collective)c,
                      .group = g,
                      .element = element_named(names[turn % 4]),
                      .count = (size_t)kUnitMultiple * (turn % 5 == 0 ? 40 : 2),
                      .root = turn % g->size,
                      .in_place = turn % 3 == 0 && c < kAlltoall,
                      .large = turn / 2 % 2 == 0,
                      .pattern = (Pattern)(turn % kPatternCount),
                      .send_shape = out,
                      .receive_shape = in});
      }
    }
  }
}

static void part_user(const Group* g, int round) {
  static const char* const names[] = {"affine", "affine-gap", "MPI_INT"};
  static const size_t counts[] = {1, 5, 1000, 0};
  for (int c = kReduce; c < kCollectiveCount; ++c) {
    for (int e = 0; e < 3; ++e) {
      for (int op = kUserAdd; op <= kUserCompose; ++op) {
        const Element* element = element_named(names[e]);
        if (!(element->operations >> op & 1u)) continue;
        for (int k = 0; k < 4; ++k) {
          const int turn = c + e + op + k + round;
          check(&(Spec){.collective = (Collective)c,
                        .group = g,
                        .element = element,
                        .operation = (Operation)op,
                        .count = counts[k],
                        .root = turn % g->size,
                        .in_place = turn % 2 == 0,
                        .large = turn / 2 % 2 == 0,
                        .pattern = (Pattern)(turn % kPatternCount)});
        }
      }
    }
  }
}

/* One call of every collective. */
static void tour(const Group* g, int turn) {
  for (int c = 0; c < kCollectiveCount; ++c) {
    check(&(Spec){.collective = (Collective)c,
                  .group = g,
                  .element = element_named((c + turn) % 2 ? "MPI_FLOAT" : "MPI_INT"),
                  .operation = (c + turn) % 3 ? kSum : kMin,
                  .count = turn % 2 ? 9 : 3000,
                  .root = turn % g->size,
                  .in_place = (c + turn) % 3 == 0,
                  .large = turn % 2 == 0,
                  .pattern = (Pattern)(turn % kPatternCount)});
  }
}

/* Random everything; the choice is drawn equally on every rank. */
static void part_fuzz(const Group* g, int round) {
  const int calls = options.deep ? 2000 : 150;
  for (int i = 0; i < calls; ++i) {
    uint64_t word = hash(options.seed, (uint64_t)i, (uint64_t)round, 21);
    uint64_t more = hash(options.seed, (uint64_t)i, (uint64_t)round, 22);
    Spec s = {.collective = (Collective)(word % kCollectiveCount), .group = g};
    word >>= 8;
    s.element = element_at((int)(word % (uint64_t)element_count()));
    if (is_reduction(s.collective)) {
      while (s.element->operations == 0) {
        s.element = element_at((int)(++word % (uint64_t)element_count()));
      }
      s.operation = (Operation)(more % kOpCount);
      while (!(s.element->operations >> s.operation & 1u)) {
        s.operation = (Operation)((s.operation + 1) % kOpCount);
      }
    }
    word >>= 8;
    s.count = (size_t)(more >> 8) % (1u << (word % 14));
    s.root = (int)((word >> 8) % (uint64_t)g->size);
    s.in_place = word >> 20 & 1u;
    s.large = word >> 21 & 1u;
    s.pattern = (Pattern)(word >> 22 & 3u);
    if (is_movement(s.collective) && (word >> 24 & 3u) == 0) {
      s.count = s.count / kUnitMultiple * kUnitMultiple;
      s.send_shape = (int)((more >> 32) % (kOwnShapes + 1));
      s.receive_shape = (int)((more >> 40) % (kOwnShapes + 1));
      if (s.collective >= kAlltoall) s.in_place = false;
    }
    check(&s);
  }
}

/* Small calls in a row, so that --mixed every meets each order of memory kinds. The kinds of other
 * mixes repeat after a few calls, and without a mix there is one. */
static void part_mixed(const Group* g, int round) {
  static const Collective list[] = {kAllreduce, kBcast, kAlltoall, kAllgather, kReduceScatterBlock};
  const uint64_t sets = (uint64_t)1 << (g->size < 4 ? g->size : 4);
  const bool repeats = options.mix != kEvery && options.mix != kRandom;
  const uint64_t pairs = repeats && sets * sets > 32 ? 32 : sets * sets;
  call_number += call_number % 2; /* Pairs of calls begin with an even number. */
  --call_number;
  for (uint64_t i = 0; i < 2 * pairs; ++i) {
    check(&(Spec){.collective = list[i % 5 == 0 ? (i / 5 + (uint64_t)round) % 5 : 0],
                  .group = g,
                  .element = element_named("MPI_INT"),
                  .operation = kSum,
                  .count = i % 3 ? 5 : 5000,
                  .root = (int)(i % (uint64_t)g->size),
                  .in_place = i % 7 == 0});
  }
}

/* Nobody leaves a barrier before everybody has entered. All ranks share the machine's clock. */
static void part_barrier(const Group* g, int round) {
  for (int late = 0; late < g->size; ++late) {
    struct timespec now;
    if (g->rank == late) nanosleep(&(struct timespec){.tv_nsec = 3000000 + round}, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t entered = now.tv_sec * 1000000000LL + now.tv_nsec;
    expect(MPI_Barrier(g->comm) == MPI_SUCCESS, "barrier");
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t left = now.tv_sec * 1000000000LL + now.tv_nsec;
    int64_t last_entered = 0;
    MPI_Allreduce(&entered, &last_entered, 1, MPI_INT64_T, MPI_MAX, g->comm);
    expect(left >= last_entered, "a rank left the barrier before the last one entered");
  }
}

static Group group_of(MPI_Comm comm, const char* name) {
  Group g = {.comm = comm, .name = name};
  MPI_Comm_rank(comm, &g.rank);
  MPI_Comm_size(comm, &g.size);
  return g;
}

/* Ranks of different communicators count their calls apart; afterwards all agree again. */
static void part_split(const Group* g, int round) {
  const uint64_t start = call_number;
  for (int kind = 0; kind < 3; ++kind) {
    static const char* const names[] = {"odd/even", "reversed", "uneven"};
    const int color = kind == 0 ? g->rank % 2 : kind == 1 ? 0 : g->rank == 0;
    MPI_Comm comm;
    MPI_Comm_split(g->comm, color, kind == 1 ? -g->rank : g->rank, &comm);
    const Group part = group_of(comm, names[kind]);
    tour(&part, kind + round);
    MPI_Comm_free(&comm);
  }
  tour(&lone, round);
  tour(&lone, round + 1);
  MPI_Comm grid;
  MPI_Cart_create(g->comm, 1, &g->size, (const int[]){1}, 0, &grid);
  const Group cart = group_of(grid, "cart");
  tour(&cart, round);
  MPI_Comm_free(&grid);
  call_number = start + 1000;
  tour(g, round);
}

/* Communicators come and go; what one leaves behind must not hurt the others. */
static void part_lifetime(const Group* g, int round) {
  enum { kAlive = 5 };
  MPI_Comm comm[kAlive];
  for (int i = 0; i < kAlive; ++i) MPI_Comm_dup(i ? comm[i - 1] : g->comm, &comm[i]);
  for (int use = 0; use < 4 * kAlive; ++use) {
    const Group one = group_of(comm[use * 3 % kAlive], "one of several duplicates");
    check(&(Spec){.collective = use % 2 ? kAllreduce : kAllgather,
                  .group = &one,
                  .element = element_named("MPI_DOUBLE"),
                  .operation = kSum,
                  .count = (size_t)(use * 100 + 1)});
  }
  for (int i = 0; i < kAlive; ++i) {
    const int victim = (i * 2 + 1) % kAlive;
    MPI_Comm_free(&comm[victim]);
    for (int other = 0; other < kAlive; ++other) {
      if (comm[other] == MPI_COMM_NULL) continue;
      const Group survivor = group_of(comm[other], "a survivor");
      check(&(Spec){.collective = kAllreduce,
                    .group = &survivor,
                    .element = element_named("MPI_INT"),
                    .operation = kSum,
                    .count = 3000});
    }
  }
  for (int i = 0; i < 10 + round; ++i) {
    MPI_Comm fresh;
    MPI_Comm_dup(g->comm, &fresh);
    const Group fleeting = group_of(fresh, "a fleeting duplicate");
    check(&(Spec){.collective = i % 2 ? kBcast : kAllreduce,
                  .group = &fleeting,
                  .element = element_named("MPI_INT"),
                  .operation = kMax,
                  .count = 4097});
    MPI_Comm_free(&fresh);
  }
  tour(g, round);
}

/* Intercommunicators are the MPI library's alone: host buffers, whatever --memory says. */
static void part_inter(const Group* g, int round) {
  if (g->size < 2) return;
  const int side = g->rank % 2;
  MPI_Comm local;
  MPI_Comm inter;
  MPI_Comm_split(g->comm, side, g->rank, &local);
  MPI_Intercomm_create(local, 0, g->comm, 1 - side, 17, &inter);
  int local_rank = 0;
  int remote_size = 0;
  MPI_Comm_rank(inter, &local_rank);
  MPI_Comm_remote_size(inter, &remote_size);

  long values[3] = {0, 0, 0};
  int root = side == 0 ? (local_rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
  if (root == MPI_ROOT) values[0] = values[1] = values[2] = 4711 + round;
  expect(MPI_Bcast(values, 3, MPI_LONG, root, inter) == MPI_SUCCESS, "intercommunicator bcast");
  if (side == 1 || root == MPI_ROOT) {
    expect(values[0] == 4711 + round && values[2] == 4711 + round, "intercommunicator bcast value");
  }

  long mine = g->rank + 1;
  long sum = -1;
  long expected = 0;
  for (int r = 1 - side; r < g->size; r += 2) expected += r + 1;
  expect(MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, inter) == MPI_SUCCESS && sum == expected,
         "intercommunicator allreduce: the other side's sum");

  long* gathered = take((size_t)remote_size * sizeof *gathered);
  bool right = MPI_Allgather(&mine, 1, MPI_LONG, gathered, 1, MPI_LONG, inter) == MPI_SUCCESS;
  for (int i = 0; i < remote_size; ++i) right = right && gathered[i] == 2 * i + 1 - side + 1;
  expect(right, "intercommunicator allgather: the other side's values");
  expect(MPI_Barrier(inter) == MPI_SUCCESS, "intercommunicator barrier");
  release_all();
  MPI_Comm_free(&inter);
  MPI_Comm_free(&local);
  tour(g, round);
}

static int handler_calls;

static void count_error(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  (void)code;
  ++handler_calls;
}

/* Wrong arguments must give the class that the library itself gives (native.h asks it), through the
 * communicator's error handler, once. All of these are refused before anything is sent. (A negative
 * count or a null type in allreduce is not among them: MPICH 5.0 crashes.) */
static void part_errors(const Group* g, int round) {
  MPI_Comm comm;
  MPI_Errhandler counting;
  MPI_Comm_dup(g->comm, &comm);
  MPI_Comm_create_errhandler(count_error, &counting);
  const bool device = memory_has_device();
  int* data = memory_allocate(device, 64 * sizeof(int));
  int* result = memory_allocate(device, 64 * sizeof(int) * (size_t)g->size);
  for (int counted = 0; counted < 2; ++counted) {
    MPI_Comm_set_errhandler(comm, counted ? counting : MPI_ERRORS_RETURN);
    for (int wrong = 0; wrong < 9; ++wrong) {
      int code[2] = {MPI_SUCCESS, MPI_SUCCESS};
      int class[2] = {MPI_SUCCESS, MPI_SUCCESS};
      handler_calls = 0;
      for (int native = 1; native >= 0; --native) {
        if (!native) handler_calls = 0;
/* The same call through the preload library, or straight to the MPI library. */
#define CALL(name, ...) (native ? NATIVE(name)(__VA_ARGS__) : name(__VA_ARGS__))
        switch (wrong) {
          case 0:
            code[native] = CALL(MPI_Bcast, data, 4, MPI_INT, g->size, comm);
            break;
          case 1:
            code[native] = CALL(MPI_Bcast, data, -1, MPI_INT, 0, comm);
            break;
          case 2:
            code[native] = CALL(MPI_Allgather, data, -1, MPI_INT, result, -1, MPI_INT, comm);
            break;
          case 3:
            code[native] = CALL(MPI_Scatter, data, 1, MPI_INT, result, 1, MPI_INT, -7, comm);
            break;
          case 4:
            code[native] = CALL(MPI_Allreduce, data, result, 4, MPI_INT, MPI_OP_NULL, comm);
            break;
          case 5:
            code[native] = CALL(MPI_Reduce, data, result, 4, MPI_INT, MPI_SUM, -3, comm);
            break;
          case 6:
            code[native] = CALL(MPI_Allreduce, data, result, 4, MPI_DOUBLE, MPI_BAND, comm);
            break;
          case 7:
            code[native] =
                CALL(MPI_Gather, data, 4, MPI_INT, result, 4, MPI_INT, g->size + 7, comm);
            break;
          default:
            code[native] = CALL(MPI_Alltoall, data, -1, MPI_INT, result, -1, MPI_INT, comm);
        }
#undef CALL
        MPI_Error_class(code[native], &class[native]);
      }
      ++checks;
      /* After a user's handler some return success, others the code: only the call counts. */
      if (!counted && (code[0] == MPI_SUCCESS || class[0] != class[1])) {
        failed("wrong arguments %d: error class %d, the library itself gives %d", wrong, class[0],
               class[1]);
      }
      if (counted && handler_calls != 1) {
        failed("wrong arguments %d: %d calls of the error handler instead of one", wrong,
               handler_calls);
      }
    }
  }
  memory_free(device, data);
  memory_free(device, result);
  const Group after = group_of(comm, "a communicator that has seen errors");
  tour(&after, round);
  MPI_Errhandler_free(&counting);
  MPI_Comm_free(&comm);
}

/* One element of 1.25 GiB with a gap behind its first half. */
static MPI_Datatype large_element(size_t doubles) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  const int lengths[2] = {(int)(doubles / 2), (int)(doubles / 2)};
  const MPI_Aint offsets[2] = {0, (MPI_Aint)((doubles / 2 + 1) * sizeof(double))};
  const MPI_Datatype types[2] = {MPI_DOUBLE, MPI_DOUBLE};
  MPI_Type_create_struct(2, lengths, offsets, types, &type);
  MPI_Type_commit(&type);
  return type;
}

/* More than 2^31 bytes: by type with a count that an int holds, and by count with the _c form.
 * Verified in pieces, with no mirror of the whole. */
static void part_huge(const Group* g, int round) {
  enum { kPiece = 1 << 20 };
  if (!options.huge) return;
  const size_t count = ((size_t)1 << 28) + 5; /* Doubles: 2 GiB and 40 bytes. */
  const size_t element = (size_t)5 << 25;
  MPI_Datatype large = large_element(element);
  const bool device = on_device(&(Spec){.group = g}, true);
  double* piece = malloc(kPiece * sizeof *piece);
  double* data = memory_allocate(device, count * sizeof *data);
  for (int call = 0; call < 4; ++call) {
    if (call == 2 && !HAVE_LARGE) continue;
    for (size_t at = 0; at < count; at += kPiece) {
      const size_t n = count - at < kPiece ? count - at : kPiece;
      for (size_t i = 0; i < n; ++i) {
        const bool arrives = call == 0 || (call == 3 && at + i <= element && at + i != element / 2);
        piece[i] = arrives && g->rank != 0 ? -1 : (double)(at + i + (size_t)round);
      }
      memory_write(device, data + at, piece, n * sizeof *piece);
    }
    int code = MPI_SUCCESS;
    if (call == 0) code = MPI_Bcast(data, (int)count, MPI_DOUBLE, 0, g->comm);
    if (call == 1) {
      code = MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_DOUBLE, MPI_SUM, g->comm);
    }
#if HAVE_LARGE
    if (call == 2) {
      code = MPI_Bcast_c(data, (MPI_Count)(count * sizeof *data), MPI_BYTE, g->size - 1, g->comm);
    }
#endif
    if (call == 3) code = MPI_Bcast(data, 1, large, 0, g->comm);
    expect(code == MPI_SUCCESS, "more than 2^31 bytes: return code");
    const double factor = call == 1 ? g->size : 1;
    bool right = true;
    for (size_t at = 0; at < count; at += kPiece) {
      const size_t n = count - at < kPiece ? count - at : kPiece;
      memory_read(device, piece, data + at, n * sizeof *piece);
      for (size_t i = 0; i < n; ++i) {
        right = right && piece[i] == factor * (double)(at + i + (size_t)round);
      }
    }
    expect(right, "more than 2^31 bytes: values");
  }
  MPI_Type_free(&large);
  memory_free(device, data);
  free(piece);
}

static const struct {
  const char* name;
  void (*run)(const Group*, int round);
} parts[] = {
    {"barrier", part_barrier}, {"matrix", part_matrix}, {"types", part_types},
    {"counts", part_counts},   {"roots", part_roots},   {"vectors", part_vectors},
    {"derived", part_derived}, {"user", part_user},     {"mixed", part_mixed},
    {"fuzz", part_fuzz},       {"split", part_split},   {"lifetime", part_lifetime},
    {"inter", part_inter},     {"errors", part_errors}, {"huge", part_huge},
};
enum { kPartCount = sizeof parts / sizeof parts[0] };

static bool wanted(const char* part) {
  if (!options.only) return true;
  const size_t length = strlen(part);
  for (const char* at = options.only; *at;) {
    const size_t word = strcspn(at, ",");
    if (word == length && strncmp(at, part, length) == 0) return true;
    at += word + (at[word] == ',');
  }
  return false;
}

/* Main. */

static void usage(FILE* out) {
  fprintf(out,
          "collectives [options]\n"
          "  --memory host|hostdevice|cuda|hip   where buffers live (host)\n"
          "  --mixed none|even|odd|alternate|random:SEED|every|rootonly|sendonly|recvonly\n"
          "                     which ranks and buffers are on the device (none: all are)\n"
          "  --same-device      every rank uses device 0\n"
          "  --only LIST        parts, comma separated:");
  for (int i = 0; i < kPartCount; ++i) fprintf(out, " %s", parts[i].name);
  fprintf(out,
          "\n  --deep             every combination\n"
          "  --huge             also more than 2^31 bytes\n"
          "  --seed N           (1)\n"
          "  --rounds N         repeat with other combinations (1)\n"
          "  --watchdog S       say where and exit 75 when one call takes longer (0: never)\n"
          "  --sabotage RANK    corrupt one result on that rank: the run must fail\n"
          "  --verbose          print every call\n");
}

static bool parse_mix(const char* text) {
  for (int i = 0; i < kMixCount; ++i) {
    const size_t length = strlen(mix_names[i]);
    if (strncmp(text, mix_names[i], length) != 0) continue;
    if (text[length] != '\0' && !(i == kRandom && text[length] == ':')) continue;
    options.mix = (Mix)i;
    if (text[length] == ':') options.mix_seed = strtoull(text + length + 1, NULL, 0);
    return true;
  }
  return false;
}

static bool parse_options(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    bool takes_value = true;
    if (strcmp(name, "--same-device") == 0 || strcmp(name, "--deep") == 0 ||
        strcmp(name, "--huge") == 0 || strcmp(name, "--verbose") == 0) {
      takes_value = false;
      options.same_device |= name[2] == 's';
      options.deep |= name[2] == 'd';
      options.huge |= name[2] == 'h';
      options.verbose |= name[2] == 'v';
    } else if (!value) {
      return false;
    } else if (strcmp(name, "--memory") == 0) {
      options.memory = value;
    } else if (strcmp(name, "--mixed") == 0) {
      if (!parse_mix(value)) return false;
    } else if (strcmp(name, "--only") == 0) {
      options.only = value;
    } else if (strcmp(name, "--seed") == 0) {
      options.seed = strtoull(value, NULL, 0);
    } else if (strcmp(name, "--rounds") == 0) {
      options.rounds = atoi(value);
    } else if (strcmp(name, "--sabotage") == 0) {
      options.sabotage = atoi(value);
    } else if (strcmp(name, "--watchdog") == 0) {
      options.watchdog_s = (unsigned)atoi(value);
    } else {
      return false;
    }
    i += takes_value;
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
  world = group_of(MPI_COMM_WORLD, "world");
  lone = group_of(MPI_COMM_SELF, "self");
  bool known = parse_options(argc, argv);
  if (options.only) {
    bool any = false;
    for (int i = 0; i < kPartCount; ++i) any = any || wanted(parts[i].name);
    known = known && any;
  }
  if (!known) {
    if (world.rank == 0) usage(stderr);
    MPI_Finalize();
    return 2;
  }
  signal(SIGALRM, on_alarm);
  memory_open(options.memory, rank_on_node(), options.same_device);
  elements_open();
  /* A failing collective is a failed check with its text, not the end of the run. */
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);

  for (int round = 0; round < options.rounds; ++round) {
    for (int i = 0; i < kPartCount; ++i) {
      if (!wanted(parts[i].name)) continue;
      snprintf(current, sizeof current, "part %s", parts[i].name);
      if (options.watchdog_s) alarm(options.watchdog_s);
      parts[i].run(&world, round);
    }
  }
  elements_close();
  long mine[2] = {checks, failures};
  long total[2] = {0, 0};
  snprintf(current, sizeof current, "the final count");
  MPI_Allreduce(mine, total, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (failures > total[1]) total[1] = failures; /* The count came through Tutti, too. */
  MPI_Finalize();
  alarm(0);
  if (world.rank == 0) {
    printf("collectives: %ld checks, %ld failed\n", total[0], total[1]);
    fflush(stdout);
  }
  free(arena);
  return total[1] != 0 || total[0] == 0;
}
