/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What MPI promises beyond one plain call: results over several pieces of a buffer, buffers that
 * share a base address, types that only MPI 4 can make, hints, attributes, sessions, odd types,
 * displacements below the buffer's address, failures of one rank, handles that come back. Each
 * case was a defect once. Every element of every buffer is compared, those between the blocks too,
 * and every return code.
 *
 * Usage: semantics --case NAME|all [--memory host|hostdevice|cuda|hip] [--fail SYMBOL]
 *        [--victim RANK]
 *   all      each case that needs neither a start of its own nor a failure
 *   failure, barrier, agreement  (cuda's double only) SYMBOL of the driver fails on rank RANK in
 * one call Last line: "semantics: N checks, M failed", or "semantics: skipped: WHY".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "native.h"

#define HAVE_MPI_4 (MPI_VERSION >= 4)

enum { kWatchdogSeconds = 45, kMaxRanks = 16, kCount = 1000 };

typedef struct {
  MPI_Comm comm;
  int rank;
  int ranks;
} Group;

static Group world;
static long checks;
static long failures;
static const char* skipped; /* Why the case cannot be. */
static char current[256] = "start";

static struct {
  const char* name;
  const char* memory;
  const char* fail;
  int victim;
} options = {.name = "", .memory = "host", .fail = ""};

/* What is being checked. */

static void begin(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(current, sizeof current, format, arguments);
  va_end(arguments);
}

static void failed(const char* format, ...) {
  enum { kMaxPrinted = 12 };
  if (++failures > kMaxPrinted) return;
  va_list arguments;
  va_start(arguments, format);
  flockfile(stderr);
  fprintf(stderr, "FAILED %s, rank %d of %d: ", current, world.rank, world.ranks);
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "%s\n", failures == kMaxPrinted ? " (further failures are only counted)" : "");
  funlockfile(stderr);
  va_end(arguments);
}

static void expect(bool condition, const char* what) {
  ++checks;
  if (!condition) failed("%s", what);
}

static void expect_success(int code) {
  ++checks;
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  failed("returned %d: %s", code, text);
}

static void on_alarm(int signal_number) {
  (void)signal_number;
  const char head[] = "FAILED no progress in ";
  if (write(2, head, sizeof head - 1) < 0 || write(2, current, strlen(current)) < 0 ||
      write(2, "\n", 1) < 0) {
    _exit(75);
  }
  _exit(75);
}

/* Buffers of doubles, with what each must hold after the call. */

typedef struct {
  bool on_device;
  size_t count;
  double* memory; /* What MPI gets. */
  double* before;
  double* after; /* NAN: anything. */
} Buffer;

static Buffer make_buffer(bool on_device, size_t count) {
  Buffer buffer = {.on_device = on_device, .count = count};
  buffer.memory = memory_allocate(on_device, count * sizeof(double));
  buffer.before = memory_allocate(false, count * sizeof(double));
  buffer.after = memory_allocate(false, count * sizeof(double));
  for (size_t i = 0; i < count; ++i) {
    buffer.before[i] = buffer.after[i] = -1000.0 - (double)(i % 97);
  }
  return buffer;
}

/* Content before the call, which the call leaves alone unless something else is expected. */
static void put(Buffer* buffer, size_t index, double value) {
  buffer->before[index] = buffer->after[index] = value;
}

static void load(const Buffer* buffer) {
  memory_write(buffer->on_device, buffer->memory, buffer->before, buffer->count * sizeof(double));
}

static void compare(const Buffer* buffer, const char* name) {
  ++checks;
  double* got = memory_allocate(false, buffer->count * sizeof(double));
  memory_read(buffer->on_device, got, buffer->memory, buffer->count * sizeof(double));
  for (size_t i = 0; i < buffer->count; ++i) {
    if (isnan(buffer->after[i]) || got[i] == buffer->after[i]) continue;
    failed("%s buffer, index %zu of %zu is %.17g instead of %.17g", name, i, buffer->count, got[i],
           buffer->after[i]);
    break;
  }
  memory_free(false, got);
}

static void drop(Buffer* buffer) {
  memory_free(buffer->on_device, buffer->memory);
  memory_free(false, buffer->before);
  memory_free(false, buffer->after);
}

/* Communicators. */

static Group group_of(MPI_Comm comm) {
  Group group = {.comm = comm};
  MPI_Comm_rank(comm, &group.rank);
  MPI_Comm_size(comm, &group.ranks);
  return group;
}

/* A duplicate of MPI_COMM_WORLD that returns errors. */
static Group returning(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return group_of(comm);
}

/* Regular collectives: blocks of equal size. */

typedef enum {
  kBcast,
  kGather,
  kScatter,
  kAllgather,
  kAlltoall,
  kReduce,
  kAllreduce,
  kScan,
  kExscan,
  kReduceScatterBlock,
  kRegularCount,
} Regular;

static const char* const regular_names[kRegularCount] = {
    "bcast",  "gather",    "scatter", "allgather", "alltoall",
    "reduce", "allreduce", "scan",    "exscan",    "reduce_scatter_block"};

static bool has_root(Regular c) { return c <= kScatter || c == kReduce; }

/* One item is `unit` doubles, `step` apart; items are `extent` doubles apart. */
typedef struct {
  MPI_Datatype type;
  size_t unit;
  size_t step;
  size_t extent;
} Layout;

static Layout plain(void) { return (Layout){MPI_DOUBLE, 1, 1, 1}; }

typedef struct {
  Regular collective;
  Group group;
  Layout layout;
  int count; /* Items per block. */
  int root;
  bool in_place; /* On the root only, where there is one. */
  bool device_send;
  bool device_receive;
} Spec;

static bool is_root(const Spec* s) { return s->group.rank == s->root; }

/* Blocks that this rank passes in, and those that it gets. */
static int sent_blocks(const Spec* s) {
  switch (s->collective) {
    case kBcast:
      return is_root(s) ? 1 : 0;
    case kScatter:
      return is_root(s) ? s->group.ranks : 0;
    case kAlltoall:
    case kReduceScatterBlock:
      return s->group.ranks;
    default:
      return 1;
  }
}

static int received_blocks(const Spec* s) {
  switch (s->collective) {
    case kBcast:
      return is_root(s) ? 0 : 1;
    case kGather:
      return is_root(s) ? s->group.ranks : 0;
    case kReduce:
      return is_root(s) ? 1 : 0;
    case kAllgather:
    case kAlltoall:
      return s->group.ranks;
    default:
      return 1;
  }
}

/* Sums of these are exact in a double. */
static double value(int from, int block, size_t index) {
  return 1e8 * (from + 1) + 1e6 * block + (double)index;
}

static double sum(int first, int end, int block, size_t index) {
  double total = 0;
  for (int from = first; from < end; ++from) total += value(from, block, index);
  return total;
}

static double result(const Spec* s, int block, size_t index) {
  const int me = s->group.rank;
  switch (s->collective) {
    case kBcast:
      return value(s->root, 0, index);
    case kGather:
    case kAllgather:
      return value(block, 0, index);
    case kScatter:
      return value(s->root, me, index);
    case kAlltoall:
      return value(block, me, index);
    case kScan:
      return sum(0, me + 1, 0, index);
    case kExscan:
      return me == 0 ? NAN : sum(0, me, 0, index);
    case kReduceScatterBlock:
      return sum(0, s->group.ranks, me, index);
    default:
      return sum(0, s->group.ranks, 0, index);
  }
}

static size_t block_doubles(const Spec* s) { return (size_t)s->count * s->layout.extent; }

static size_t place(const Spec* s, int block, size_t index) {
  const Layout* l = &s->layout;
  return (size_t)block * block_doubles(s) + index / l->unit * l->extent + index % l->unit * l->step;
}

static void put_sent(const Spec* s, Buffer* buffer, int first_block) {
  for (int block = 0; block < sent_blocks(s); ++block) {
    for (size_t i = 0; i < (size_t)s->count * s->layout.unit; ++i) {
      put(buffer, place(s, first_block + block, i), value(s->group.rank, block, i));
    }
  }
}

static void put_expected(const Spec* s, Buffer* buffer) {
  for (int block = 0; block < received_blocks(s); ++block) {
    for (size_t i = 0; i < (size_t)s->count * s->layout.unit; ++i) {
      buffer->after[place(s, block, i)] = result(s, block, i);
    }
  }
}

/* Whether this rank passes MPI_IN_PLACE. */
static bool passes_in_place(const Spec* s) {
  return s->in_place && s->collective != kBcast && (!has_root(s->collective) || is_root(s));
}

/* Fills the receive buffer of a rank that passes MPI_IN_PLACE. */
static void put_in_place(const Spec* s, Buffer* receive) {
  const bool own_block = s->collective == kGather || s->collective == kAllgather;
  put_sent(s, receive, own_block ? s->group.rank : 0);
  if (s->collective != kReduceScatterBlock) return;
  /* MPI leaves open what becomes of the other blocks. */
  for (size_t i = block_doubles(s); i < receive->count; ++i) receive->after[i] = NAN;
}

static int call_regular(const Spec* s, void* send, void* receive) {
  const MPI_Comm comm = s->group.comm;
  const MPI_Datatype type = s->layout.type;
  const int n = s->count;
  const int root = s->root;
  switch (s->collective) {
    case kBcast:
      return MPI_Bcast(is_root(s) ? send : receive, n, type, root, comm);
    case kGather:
      return MPI_Gather(send, n, type, receive, n, type, root, comm);
    case kScatter:
      /* The buffer that gives way in place is the receiving one. */
      return MPI_Scatter(send, n, type, receive, n, type, root, comm);
    case kAllgather:
      return MPI_Allgather(send, n, type, receive, n, type, comm);
    case kAlltoall:
      return MPI_Alltoall(send, n, type, receive, n, type, comm);
    case kReduce:
      return MPI_Reduce(send, receive, n, type, MPI_SUM, root, comm);
    case kAllreduce:
      return MPI_Allreduce(send, receive, n, type, MPI_SUM, comm);
    case kScan:
      return MPI_Scan(send, receive, n, type, MPI_SUM, comm);
    case kExscan:
      return MPI_Exscan(send, receive, n, type, MPI_SUM, comm);
    default:
      return MPI_Reduce_scatter_block(send, receive, n, type, MPI_SUM, comm);
  }
}

static void check_regular(const Spec* s) {
  begin("%s of %d items of %zu doubles%s, root %d, %s to %s", regular_names[s->collective],
        s->count, s->layout.unit, s->in_place ? " in place" : "", s->root,
        s->device_send ? "device" : "host", s->device_receive ? "device" : "host");
  const size_t room = (size_t)s->group.ranks * block_doubles(s);
  Buffer send = make_buffer(s->device_send, room);
  Buffer receive = make_buffer(s->device_receive, room);
  void* passed_send = send.memory;
  void* passed_receive = receive.memory;
  if (!passes_in_place(s)) {
    put_sent(s, &send, 0);
    put_expected(s, &receive);
  } else if (s->collective == kScatter) {
    put_sent(s, &send, 0);
    passed_receive = MPI_IN_PLACE;
  } else {
    put_in_place(s, &receive);
    put_expected(s, &receive);
    passed_send = MPI_IN_PLACE;
  }
  load(&send);
  load(&receive);
  expect_success(call_regular(s, passed_send, passed_receive));
  compare(&send, "send");
  compare(&receive, "receive");
  drop(&send);
  drop(&receive);
}

/* From the first and to the last rank, in place and not. */
static void check_forms(Spec spec) {
  const int roots = has_root(spec.collective) && spec.group.ranks > 1 ? 2 : 1;
  for (int r = 0; r < roots; ++r) {
    spec.root = r == 0 ? 0 : spec.group.ranks - 1;
    for (int in_place = 0; in_place < (spec.collective == kBcast ? 1 : 2); ++in_place) {
      spec.in_place = in_place;
      check_regular(&spec);
    }
  }
}

/* A few collectives of few bytes and of many, to see that a communicator works. */
static void check_group(Group group, bool on_device) {
  const Regular some[] = {kAllreduce, kBcast, kAllgather};
  const int counts[] = {3, 3000};
  for (int c = 0; c < 3; ++c) {
    for (int n = 0; n < 2; ++n) {
      const Spec spec = {.collective = some[c],
                         .group = group,
                         .layout = plain(),
                         .count = counts[n],
                         .root = group.ranks - 1,
                         .device_send = on_device,
                         .device_receive = on_device};
      check_regular(&spec);
    }
  }
}

/* The prefix reductions, whose ranks each want another result, over many pieces. */
static void case_exscan(void) {
  const int counts[] = {1, 513, 5000, 50000};
  Spec spec = {
      .group = returning(), .layout = plain(), .device_send = true, .device_receive = true};
  for (int n = 0; n < 4; ++n) {
    spec.count = counts[n];
    for (spec.collective = kScan; spec.collective <= kExscan; ++spec.collective) check_forms(spec);
  }
  MPI_Comm_free(&spec.group.comm);
}

/* Every regular collective, over several pieces that end within a block. */
static void case_regular(void) {
  const int counts[] = {1300, 5000};
  Spec spec = {.group = returning(), .layout = plain()};
  for (int kinds = 0; kinds < (memory_has_device() ? 4 : 1); ++kinds) {
    spec.device_send = kinds % 2 == 0;
    spec.device_receive = kinds < 2;
    for (int n = 0; n < 2; ++n) {
      spec.count = counts[n];
      for (spec.collective = 0; spec.collective < kRegularCount; ++spec.collective) {
        check_forms(spec);
      }
    }
  }
  MPI_Comm_free(&spec.group.comm);
}

/* Three doubles do not divide an MPI's segments: a rank that copies the buffer elsewhere must cut
 * the message where its peers do. */
static void case_oddtypes(void) {
  const int counts[] = {100, 1607, 4300};
  const Regular movements[] = {kBcast, kGather, kScatter, kAllgather, kAlltoall};
  Spec spec = {.group = returning(), .layout = {.unit = 3, .step = 1, .extent = 3}};
  MPI_Type_contiguous(3, MPI_DOUBLE, &spec.layout.type);
  MPI_Type_commit(&spec.layout.type);
  for (int odd = 0; odd < (memory_has_device() ? 2 : 1); ++odd) {
    spec.device_send = spec.device_receive = spec.group.rank % 2 == odd;
    for (int n = 0; n < 3; ++n) {
      spec.count = counts[n];
      for (int c = 0; c < 5; ++c) {
        spec.collective = movements[c];
        check_forms(spec);
      }
    }
  }
  MPI_Type_free(&spec.layout.type);
  MPI_Comm_free(&spec.group.comm);
}

/* Types of Fortran's kinds by precision and range, alone and in others: the library's own, which
 * nobody may free. The error handler stays the default one. */
static void case_fortran(void) {
  MPI_Datatype real = MPI_DATATYPE_NULL;
  MPI_Type_create_f90_real(15, MPI_UNDEFINED, &real);
  const Regular movements[] = {kBcast, kAllgather, kAlltoall};
  for (int i = 0; i < 12; ++i) {
    const size_t unit = i % 2 == 0 ? 3 : 1;
    Spec spec = {
        .group = world, .layout = {real, unit, 1, unit}, .collective = movements[i / 2 % 3]};
    spec.count = 500;
    spec.device_send = spec.device_receive = i < 6;
    if (unit > 1) {
      MPI_Type_contiguous((int)unit, real, &spec.layout.type);
      MPI_Type_commit(&spec.layout.type);
    }
    check_regular(&spec);
    if (unit > 1) MPI_Type_free(&spec.layout.type);
  }
}

/* A type of absolute addresses, with which MPI_BOTTOM is the buffer. */
static void case_bottom(void) {
  Group group = returning();
  Buffer buffer = make_buffer(true, kCount);
  for (size_t i = 1; i + 1 < buffer.count; ++i) {
    buffer.after[i] = value(0, 0, i);
    if (group.rank == 0) put(&buffer, i, value(0, 0, i));
  }
  load(&buffer);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Aint address = 0;
  MPI_Get_address(buffer.memory + 1, &address);
  MPI_Type_create_hindexed(1, (const int[]){kCount - 2}, &address, MPI_DOUBLE, &type);
  MPI_Type_commit(&type);
  begin("bcast from MPI_BOTTOM");
  expect_success(MPI_Bcast(MPI_BOTTOM, 1, type, 0, group.comm));
  compare(&buffer, "only");
  MPI_Type_free(&type);
  drop(&buffer);
  MPI_Comm_free(&group.comm);
}

/* Under TUTTI_STRICT, where no call can be carried as it is wished: each is an error, and none runs
 * another way. */
static void check_refused(MPI_Comm comm) {
  int in = 1;
  int out = -1;
  begin("calls that cannot be as they are wished");
  expect(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS && out == -1,
         "an allreduce went another way");
  expect(MPI_Bcast(&in, 1, MPI_INT, 0, comm) != MPI_SUCCESS, "a bcast went another way");
  expect(MPI_Barrier(comm) != MPI_SUCCESS, "a barrier went another way");
}

static void case_refused(void) {
  Group group = returning();
  check_refused(group.comm);
  MPI_Comm_free(&group.comm);
}

/* A hint that nobody can read. */
static void case_hint(void) {
  Group group = returning();
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "tutti_plan", "no-such-plan");
  MPI_Comm_set_info(group.comm, info);
  MPI_Info_free(&info);
  check_refused(group.comm);
  MPI_Comm_free(&group.comm);
}

/* Types of large counts, which the calls that ask for a type's contents with int cannot look into.
 * The error handler stays the default one: no error may be raised on the way either. */
#if HAVE_MPI_4
static Layout large_layout(int form) {
  Layout layout = {.unit = form == 0 ? 3 : 2, .step = form == 0 ? 1 : 2, .extent = 3};
  if (form == 0) {
    MPI_Type_contiguous_c(3, MPI_DOUBLE, &layout.type);
  } else if (form == 1) {
    MPI_Type_vector_c(2, 1, 2, MPI_DOUBLE, &layout.type);
  } else {
    const MPI_Count lengths[2] = {1, 1};
    const MPI_Count offsets[2] = {0, 2 * sizeof(double)};
    const MPI_Datatype types[2] = {MPI_DOUBLE, MPI_DOUBLE};
    MPI_Type_create_struct_c(2, lengths, offsets, types, &layout.type);
  }
  MPI_Type_commit(&layout.type);
  return layout;
}

static void case_largetypes(void) {
  const int counts[] = {10, 2000};
  const Regular movements[] = {kBcast, kAllgather, kGather};
  for (int form = 0; form < 3; ++form) {
    Spec spec = {.group = world, .layout = large_layout(form)};
    for (int i = 0; i < 12; ++i) {
      spec.collective = movements[i % 3];
      spec.count = counts[i / 3 % 2];
      spec.device_send = spec.device_receive = i / 6 == 0;
      check_regular(&spec);
    }
    MPI_Type_free(&spec.layout.type);
  }
}
#else
static void case_largetypes(void) { skipped = "this MPI has no types of large counts"; }
#endif

/* Collectives with a block per peer. */

typedef enum {
  kGatherv,
  kScatterv,
  kAllgatherv,
  kAlltoallv,
  kAlltoallw,
  kIrregularCount
} Irregular;

static const char* const irregular_names[kIrregularCount] = {"gatherv", "scatterv", "allgatherv",
                                                             "alltoallv", "alltoallw"};

typedef struct {
  double* base;
  int counts[kMaxRanks];
  int displacements[kMaxRanks];
} Side;

typedef struct {
  Irregular collective;
  Group group;
  int root;
  Side send;
  Side receive;
} Vector;

static int call_alltoallw(Vector* v) {
  MPI_Datatype types[kMaxRanks];
  int from[kMaxRanks];
  int to[kMaxRanks];
  for (int peer = 0; peer < v->group.ranks; ++peer) {
    types[peer] = MPI_DOUBLE;
    from[peer] = v->send.displacements[peer] * (int)sizeof(double);
    to[peer] = v->receive.displacements[peer] * (int)sizeof(double);
  }
  return MPI_Alltoallw(v->send.base, v->send.counts, from, types, v->receive.base,
                       v->receive.counts, to, types, v->group.comm);
}

/* Where there is one block only, it is the first one of its side. */
static int call_vector(Vector* v) {
  const MPI_Comm comm = v->group.comm;
  const MPI_Datatype type = MPI_DOUBLE;
  Side* s = &v->send;
  Side* r = &v->receive;
  double* first_sent = s->base + s->displacements[0];
  double* first_received = r->base + r->displacements[0];
  switch (v->collective) {
    case kGatherv:
      return MPI_Gatherv(first_sent, s->counts[0], type, r->base, r->counts, r->displacements, type,
                         v->root, comm);
    case kScatterv:
      return MPI_Scatterv(s->base, s->counts, s->displacements, type, first_received, r->counts[0],
                          type, v->root, comm);
    case kAllgatherv:
      return MPI_Allgatherv(first_sent, s->counts[0], type, r->base, r->counts, r->displacements,
                            type, comm);
    case kAlltoallv:
      return MPI_Alltoallv(s->base, s->counts, s->displacements, type, r->base, r->counts,
                           r->displacements, type, comm);
    default:
      return call_alltoallw(v);
  }
}

/* Blocks on each side of this rank; 0: its arguments are not significant. */
static int blocks_sent(const Vector* v) {
  if (v->collective == kScatterv) return v->group.rank == v->root ? v->group.ranks : 0;
  return v->collective == kGatherv || v->collective == kAllgatherv ? 1 : v->group.ranks;
}

static int blocks_received(const Vector* v) {
  if (v->collective == kGatherv) return v->group.rank == v->root ? v->group.ranks : 0;
  return v->collective == kScatterv ? 1 : v->group.ranks;
}

/* The number of the block that `from` has for `to`. */
static int block_for(const Vector* v, int to) {
  return v->collective == kGatherv || v->collective == kAllgatherv ? 0 : to;
}

/* Elements that `from` has for `to`. */
typedef int Amount(const Vector* v, int from, int to);

/* Differs with the sender, and with the receiver where it may. */
static int many(const Vector* v, int from, int to) {
  return 700 * (from + 1) + 13 * block_for(v, to);
}
static int few(const Vector* v, int from, int to) { return from + 1 + block_for(v, to); }

/* Only the others have something, and only for the root where each peer has a block. */
static int to_root(const Vector* v, int from, int to) {
  const bool has_one_block = v->collective == kGatherv || v->collective == kAllgatherv;
  return from != v->root && (has_one_block || to == v->root) ? 300 : 0;
}

/* Sets the counts of both sides and lays the blocks one after the other, in rising or falling
 * order, from `send_at` and `receive_at` on. */
static void lay_out(Vector* v, Amount* amount, int send_at, int receive_at, int direction) {
  const int me = v->group.rank;
  for (int peer = 0; peer < v->group.ranks; ++peer) {
    const bool scatters = v->collective == kScatterv;
    v->send.counts[peer] = amount(v, me, peer);
    v->receive.counts[peer] = amount(v, scatters ? v->root : peer, me);
    if (direction < 0) send_at -= v->send.counts[peer];
    if (direction < 0) receive_at -= v->receive.counts[peer];
    v->send.displacements[peer] = send_at;
    v->receive.displacements[peer] = receive_at;
    if (direction > 0) send_at += v->send.counts[peer];
    if (direction > 0) receive_at += v->receive.counts[peer];
  }
}

static void put_blocks(const Vector* v, Buffer* buffer) {
  for (int block = 0; block < blocks_sent(v); ++block) {
    const ptrdiff_t at = v->send.base - buffer->memory + v->send.displacements[block];
    for (int i = 0; i < v->send.counts[block]; ++i) {
      put(buffer, (size_t)(at + i), value(v->group.rank, block, (size_t)i));
    }
  }
}

static void expect_blocks(const Vector* v, Buffer* buffer) {
  for (int block = 0; block < blocks_received(v); ++block) {
    const int from = v->collective == kScatterv ? v->root : block;
    const ptrdiff_t at = v->receive.base - buffer->memory + v->receive.displacements[block];
    for (int i = 0; i < v->receive.counts[block]; ++i) {
      buffer->after[at + i] = value(from, block_for(v, v->group.rank), (size_t)i);
    }
  }
}

/* `receive` may be `send`. */
static void check_vector(Vector* v, Buffer* send, Buffer* receive, const char* what) {
  begin("%s, %s, root %d, %s to %s", irregular_names[v->collective], what, v->root,
        send->on_device ? "device" : "host", receive->on_device ? "device" : "host");
  put_blocks(v, send);
  expect_blocks(v, receive);
  load(send);
  if (receive != send) load(receive);
  expect_success(call_vector(v));
  compare(send, receive == send ? "only" : "send");
  if (receive != send) compare(receive, "receive");
}

enum { kSideRoom = kMaxRanks * 1000 }; /* For up to 4 ranks of many(). */

/* Both sides in one buffer, told apart by the displacements alone. */
static void check_shared_base(Vector v, Amount* amount) {
  Buffer buffer = make_buffer(true, 2 * kSideRoom);
  v.send.base = v.receive.base = buffer.memory;
  lay_out(&v, amount, 0, kSideRoom, 1);
  check_vector(&v, &buffer, &buffer, "one base for both sides");
  drop(&buffer);
}

/* The root has nothing to send and names its receive buffer there; then an ordinary call. */
static void check_empty_send(Vector v) {
  Buffer send = make_buffer(true, kSideRoom);
  Buffer receive = make_buffer(true, kSideRoom);
  const bool is_receiver = v.group.rank == v.root;
  v.send.base = is_receiver ? receive.memory : send.memory;
  v.receive.base = receive.memory;
  lay_out(&v, to_root, 0, 0, 1);
  check_vector(&v, &send, &receive, "nothing sent from the receive buffer");
  drop(&send);
  drop(&receive);
  send = make_buffer(true, kSideRoom);
  receive = make_buffer(true, kSideRoom);
  v.send.base = send.memory;
  v.receive.base = receive.memory;
  lay_out(&v, few, 0, 0, 1);
  check_vector(&v, &send, &receive, "after an empty send");
  drop(&send);
  drop(&receive);
}

static void case_aliased(void) {
  Vector v = {.group = returning()};
  for (v.root = 0; v.root<v.group.ranks; v.root += v.group.ranks> 1 ? v.group.ranks - 1 : 1) {
    for (v.collective = 0; v.collective < kIrregularCount; ++v.collective) {
      check_shared_base(v, few);
      check_shared_base(v, many);
      if (v.collective != kScatterv) check_empty_send(v);
    }
  }
  MPI_Comm_free(&v.group.comm);
}

/* Displacements below the address that MPI gets, which lies within the buffer. */
static void case_negative(void) {
  Vector v = {.group = returning()};
  for (int kinds = 0; kinds < (memory_has_device() ? 4 : 1); ++kinds) {
    for (v.collective = 0; v.collective < kIrregularCount; ++v.collective) {
      for (int n = 0; n < 2; ++n) {
        Buffer send = make_buffer(kinds % 2 == 0, 2 * kSideRoom);
        Buffer receive = make_buffer(kinds < 2, 2 * kSideRoom);
        v.send.base = send.memory + kSideRoom;
        v.receive.base = receive.memory + kSideRoom;
        lay_out(&v, n == 0 ? few : many, 0, 0, -1);
        check_vector(&v, &send, &receive, "negative displacements");
        drop(&send);
        drop(&receive);
      }
    }
  }
  MPI_Comm_free(&v.group.comm);
}

/* Hints. */

static const char kKindsKey[] = "mpi_assert_memory_alloc_kinds";

/* With the hint on rank 0, or on all; empty elsewhere, as ranks may. */
static MPI_Info kinds_info(const char* kinds, bool everywhere) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  if (everywhere || world.rank == 0) MPI_Info_set(info, kKindsKey, kinds);
  return info;
}

static void set_kinds(Group group, const char* kinds, bool everywhere) {
  begin("set_info of %s on %s", kinds, everywhere ? "all" : "rank 0");
  MPI_Info info = kinds_info(kinds, everywhere);
  expect_success(MPI_Comm_set_info(group.comm, info));
  MPI_Info_free(&info);
}

/* A communicator made with the hint. */
static Group make_with_kinds(bool by_split, const char* kinds, bool everywhere) {
  begin("%s with %s on %s", by_split ? "split_type" : "dup_with_info", kinds,
        everywhere ? "all" : "rank 0");
  MPI_Info info = kinds_info(kinds, everywhere);
  MPI_Comm comm = MPI_COMM_NULL;
  expect_success(
      by_split ? MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world.rank, info, &comm)
               : MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
  MPI_Info_free(&info);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return group_of(comm);
}

static bool says_kinds(Group group) {
  MPI_Info info = MPI_INFO_NULL;
  char text[64] = "";
  int found = 0;
  MPI_Comm_get_info(group.comm, &info);
  MPI_Info_get(info, kKindsKey, sizeof text - 1, text, &found);
  MPI_Info_free(&info);
  return found;
}

/* What a rank asserts about its own buffers holds for the calls after it. */
static void case_info(void) {
  const bool hinted_is_host = world.rank != 0;
  Group group = returning();
  check_group(group, true);
  set_kinds(group, "mpi,system", false);
  check_group(group, hinted_is_host);
  check_group(group, false);
  set_kinds(group, "mpi,system", true);
  check_group(group, false);
  MPI_Comm_free(&group.comm);

  bool said[2] = {false, false};
  for (int by_split = 0; by_split < 2; ++by_split) {
    for (int everywhere = 0; everywhere < 2; ++everywhere) {
      group = make_with_kinds(by_split, "mpi,system", everywhere);
      if (everywhere) said[by_split] = says_kinds(group);
      check_group(group, everywhere ? false : hinted_is_host);
      if (memory_has_device()) {
        set_kinds(group, "mpi,system,cuda:device", everywhere);
        check_group(group, true);
      }
      MPI_Comm_free(&group.comm);
    }
  }
  begin("get_info");
  expect(said[0] == said[1], "a hint is kept by dup_with_info or by split_type alone");
}

/* Attributes. */

static int copies;
static int deletions;

static int refuse_copy(MPI_Comm comm, int keyval, void* extra, void* in, void* out, int* flag) {
  (void)comm;
  (void)keyval;
  (void)extra;
  (void)in;
  (void)out;
  *flag = 0;
  ++copies;
  return MPI_ERR_OTHER;
}

static int count_deletion(MPI_Comm comm, int keyval, void* attribute, void* extra) {
  (void)comm;
  (void)keyval;
  (void)attribute;
  (void)extra;
  ++deletions;
  return MPI_SUCCESS;
}

static void check_attribute(Group group, int keyval) {
  begin("an attribute that cannot be copied");
  void* got = NULL;
  int found = 0;
  copies = deletions = 0;
  MPI_Comm_set_attr(group.comm, keyval, &deletions);
  check_group(group, true);
  check_group(group, false);
  begin("an attribute that cannot be copied");
  MPI_Comm_get_attr(group.comm, keyval, (void*)&got, &found);
  expect(found && got == &deletions, "the attribute changed");
  expect(copies == 0, "a collective copied the attribute");
  expect(deletions == 0, "a collective deleted an attribute");
  MPI_Comm_delete_attr(group.comm, keyval);
  expect(deletions == 1, "the attribute was not deleted once");
}

static void case_attributes(void) {
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(refuse_copy, count_deletion, &keyval, NULL);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, world.ranks - world.rank, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  check_attribute(group_of(comm), keyval);
  MPI_Comm_free(&comm);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_attribute(world, keyval);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_free_keyval(&keyval);
}

/* Handles that come back. */

static MPI_Comm make_one(int round) {
  MPI_Comm comm = MPI_COMM_NULL;
  if (round % 3 == 0) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  } else if (round % 3 == 1) {
    /* Every rank has another number. */
    MPI_Comm_split(MPI_COMM_WORLD, 0, world.ranks - world.rank, &comm);
  } else {
    /* Other peers: pairs, and one alone. */
    MPI_Comm_split(MPI_COMM_WORLD, world.rank / 2, 0, &comm);
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

/* MPI may give a new communicator the handle of one that was freed: nothing of that one may be
 * left. */
static void case_reuse(void) {
  MPI_Comm freed = MPI_COMM_NULL;
  int reused = 0;
  for (int round = 0; round < 9; ++round) {
    MPI_Comm comm = make_one(round);
    reused += comm == freed;
    freed = comm;
    check_group(group_of(comm), round % 2 == 0);
    if (round % 4 == 3) {
      MPI_Comm_disconnect(&comm);
    } else {
      MPI_Comm_free(&comm);
    }
    expect(comm == MPI_COMM_NULL, "a freed communicator's handle is not null");
  }
  begin("reuse");
  expect(reused > 0, "no handle came back: nothing was tested");
}

/* Failures of one rank. */

enum { kFailureCalls = 7, kFaultyCall = 3 };

static struct {
  void (*fail)(const char* spec);
  long (*calls)(const char* symbol);
} driver;

static bool find_driver_knobs(void) {
  void* fail = dlsym(RTLD_DEFAULT, "tutti_fake_fail");
  void* calls = dlsym(RTLD_DEFAULT, "tutti_fake_calls");
  memcpy(&driver.fail, &fail, sizeof fail);
  memcpy(&driver.calls, &calls, sizeof calls);
  return fail && calls;
}

/* The allreduce of one call; in the faulty one the victim's own part is in host memory, so that it
 * has to bring it to the device before its peers' work can begin. All calls are of one size: its
 * next call would fit to the one that its peers are still in. */
static void one_failure_call(Group group, int call) {
  const bool is_faulty = call == kFaultyCall;
  const bool is_hit = is_faulty && group.rank == options.victim;
  begin("call %d while %s fails on rank %d", call, options.fail, options.victim);
  const size_t count = kCount;
  Buffer send = make_buffer(!is_hit, count);
  Buffer receive = make_buffer(!is_hit, count);
  for (size_t i = 0; i < count; ++i) {
    put(&send, i, value(group.rank, call, i));
    receive.after[i] = sum(0, group.ranks, call, i);
  }
  load(&send);
  load(&receive);
  if (is_hit) driver.fail(options.fail);
  const int code =
      MPI_Allreduce(send.memory, receive.memory, (int)count, MPI_DOUBLE, MPI_SUM, group.comm);
  if (is_hit) {
    expect(driver.calls(options.fail) > 0, "the failing call was not reached: nothing was tested");
    driver.fail("");
    expect(code != MPI_SUCCESS, "MPI_SUCCESS although it could not be");
  }
  if (call < kFaultyCall) expect_success(code);
  if (code == MPI_SUCCESS) compare(&receive, "receive");
  compare(&send, "send");
  drop(&send);
  drop(&receive);
}

/* Every later call ends, with an error or with the right result. */
static void case_failure(void) {
  if (!find_driver_knobs()) {
    expect(false, "no fake of the driver is loaded");
    return;
  }
  Group group = returning();
  for (int call = 0; call < kFailureCalls; ++call) one_failure_call(group, call);
  begin("the end of a communicator that failed");
  MPI_Comm_free(&group.comm);
}

/* A bcast of which the victim has to bring its part from the device or to it, and cannot. */
static int faulty_bcast(Group group, Buffer* buffer, int root) {
  const bool is_hit = group.rank == options.victim;
  if (is_hit) driver.fail(options.fail);
  const int code = MPI_Bcast(buffer->memory, (int)buffer->count, MPI_DOUBLE, root, group.comm);
  if (is_hit) {
    expect(driver.calls(options.fail) > 0, "the failing call was not reached: nothing was tested");
    driver.fail("");
    expect(code != MPI_SUCCESS, "MPI_SUCCESS although it could not be");
  }
  return code;
}

/* The root fails before it has sent. The others wait for it, and what it does next is a barrier:
 * its messages must not pass for those of the bcast. */
static void case_barrier(void) {
  if (!find_driver_knobs()) {
    expect(false, "no fake of the driver is loaded");
    return;
  }
  Group group = returning();
  Buffer buffer = make_buffer(true, kCount);
  begin("a barrier before the failure");
  load(&buffer);
  expect_success(MPI_Barrier(group.comm));
  begin("bcast while %s fails on its root %d", options.fail, options.victim);
  expect(faulty_bcast(group, &buffer, options.victim) != MPI_SUCCESS,
         "MPI_SUCCESS although the root sent nothing");
  begin("a barrier after the failure");
  expect(MPI_Barrier(group.comm) != MPI_SUCCESS, "MPI_SUCCESS on a communicator that failed");
  drop(&buffer);
  MPI_Comm_free(&group.comm);
}

/* The victim fails when all has been sent, so that its peers go on. Their next calls need what it
 * will not say any more: first that of one that failed, then that of one whose arguments were
 * refused. */
static void case_agreement(void) {
  if (!find_driver_knobs()) {
    expect(false, "no fake of the driver is loaded");
    return;
  }
  Group group = returning();
  const bool is_hit = group.rank == options.victim;
  const int root = options.victim == 0 ? 1 : 0;
  Buffer few = make_buffer(true, kCount);
  Buffer many = make_buffer(true, 16 * kCount);
  load(&few);
  load(&many);
  begin("bcast while %s fails on rank %d, that receives", options.fail, options.victim);
  const int code = faulty_bcast(group, &few, root);
  if (!is_hit) expect_success(code);
  begin("a call of another size after it");
  const int next = MPI_Bcast(many.memory, (int)many.count, MPI_DOUBLE, root, group.comm);
  expect(next != MPI_SUCCESS, "MPI_SUCCESS on a communicator that failed");
  MPI_Comm_free(&group.comm);

  group = returning();
  begin("alltoallv with a negative count on rank %d", options.victim);
  int counts[kMaxRanks];
  int displacements[kMaxRanks];
  for (int peer = 0; peer < group.ranks; ++peer) {
    counts[peer] = is_hit ? -1 : 1;
    displacements[peer] = peer;
  }
  expect(MPI_Alltoallv(few.memory, counts, displacements, MPI_DOUBLE, many.memory, counts,
                       displacements, MPI_DOUBLE, group.comm) != MPI_SUCCESS,
         "MPI_SUCCESS although it could not be");
  MPI_Comm_free(&group.comm);
  drop(&few);
  drop(&many);
}

/* The application captures a stream in another thread; what this one asks of the driver would end
 * that, but for its having said otherwise. Calls that MPI carries and such as are packed. */
static void case_capture(void) {
  enum { kItems = 100, kCalls = 3 };
  int (*create)(void**, unsigned) = NULL;
  void (*capture)(void*, int) = NULL;
  void* symbols[2] = {dlsym(RTLD_DEFAULT, "cuStreamCreate"),
                      dlsym(RTLD_DEFAULT, "tutti_fake_capture")};
  memcpy(&create, &symbols[0], sizeof create);
  memcpy(&capture, &symbols[1], sizeof capture);
  void* stream = NULL;
  if (!create || !capture || create(&stream, 1) != 0) {
    expect(false, "no fake of the driver is loaded, or no stream of it");
    return;
  }
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  MPI_Type_vector(kItems, 1, 2, MPI_DOUBLE, &gaps);
  MPI_Type_commit(&gaps);
  Group group = returning();
  for (int call = 0; call < kCalls; ++call) {
    begin("bcast %d beside a capture", call);
    Buffer buffer = make_buffer(true, 2 * kItems);
    for (size_t i = 0; i < buffer.count; ++i) {
      put(&buffer, i, value(group.rank, call, i));
      buffer.after[i] = value(i % 2 == 0 ? 0 : group.rank, call, i);
    }
    load(&buffer);
    capture(stream, 1);
    const int code = MPI_Bcast(buffer.memory, 1, gaps, 0, group.comm);
    capture(stream, 0);
    expect_success(code);
    compare(&buffer, "bcast");
    drop(&buffer);
  }
  MPI_Comm_free(&group.comm);
  MPI_Type_free(&gaps);
}

/* Rank 0 sends more than rank 1 receives, where a broadcast has steps. What breaks a step on one
 * rank breaks the communicator there: its peers may be in the steps that come after. Rank 0, which
 * sees no error, makes no other call. All are of one class, whose memory the ranks agree on in its
 * calls 1, 2, 4 and 8. */
static void case_truncated(void) {
  enum { kLong = 15, kShort = 11, kTruncated = 5 };
  Group group = returning();
  Buffer buffer = make_buffer(false, kLong);
  for (int call = 1; call <= kTruncated + group.rank; ++call) {
    begin("bcast %d, of which number %d is too long for rank 1", call, kTruncated);
    const int count = call == kTruncated && group.rank == 0 ? kLong : kShort;
    const int code = MPI_Bcast(buffer.memory, count, MPI_DOUBLE, 0, group.comm);
    expect((code != MPI_SUCCESS) == (group.rank == 1 && call >= kTruncated),
           "errors are not where they belong");
  }
  drop(&buffer);
  MPI_Comm_free(&group.comm);
}

/* Arguments that MPI forbids but not every library looks at. All ranks are wrong at once, so that
 * nobody waits. */
typedef struct {
  double* data;
  double* result;
  int ones[kMaxRanks];
  int negative[kMaxRanks]; /* One of them. */
  int displacements[kMaxRanks];
  MPI_Datatype types[kMaxRanks];
  MPI_Datatype null[kMaxRanks]; /* One of them. */
  MPI_Datatype none[kMaxRanks]; /* All of them no types. */
} Wrong;

enum { kWrongInPlace = 12, kWrongType = 16, kWrongCount = 18 };

/* What the library says of MPI_IN_PLACE where it is none; of allreduce both say MPI_ERR_BUFFER. */
#ifdef OPEN_MPI
enum { kMisplaced = MPI_ERR_ARG };
#else
enum { kMisplaced = MPI_ERR_BUFFER };
#endif

static int call_wrong(int number, Wrong* w, Group group, int* expected) {
  const MPI_Comm comm = group.comm;
  const MPI_Datatype type = MPI_DOUBLE;
  const bool root = group.rank == 0;
  void* here = MPI_IN_PLACE;
  int* zero = w->displacements;
  *expected = number < 6 ? MPI_ERR_COUNT : number < 9 ? kMisplaced : MPI_ERR_ARG;
  if (number == kWrongInPlace) *expected = MPI_ERR_BUFFER;
  if (number > kWrongInPlace) *expected = kMisplaced;
  if (number >= kWrongType) *expected = MPI_ERR_TYPE;
  switch (number) {
    case 0:
      return MPI_Alltoallv(w->data, w->ones, zero, type, w->result, w->negative, zero, type, comm);
    case 1:
      return MPI_Alltoallv(w->data, w->negative, zero, type, w->result, w->ones, zero, type, comm);
    case 2:
      return MPI_Alltoallw(w->data, w->ones, zero, w->types, w->result, w->negative, zero, w->types,
                           comm);
    case 3:
      return MPI_Allgatherv(w->data, 1, type, w->result, w->negative, zero, type, comm);
    case 4:
      return MPI_Gatherv(w->data, root ? 1 : -1, type, w->result, w->negative, zero, type, 0, comm);
    case 5:
      return MPI_Reduce_scatter(w->data, w->result, w->negative, type, MPI_SUM, comm);
    case 6:
      *expected = root ? MPI_ERR_COUNT : kMisplaced;
      return MPI_Gatherv(root ? w->data : here, 1, type, w->result, w->negative, zero, type, 0,
                         comm);
    case 7:
      *expected = root ? MPI_ERR_COUNT : kMisplaced;
      return MPI_Scatterv(w->data, w->negative, zero, type, root ? w->result : here, 1, type, 0,
                          comm);
    case 8:
      return MPI_Alltoallv(w->data, w->ones, zero, type, here, w->ones, zero, type, comm);
    case 9:
      *expected = MPI_ERR_TYPE;
      return MPI_Alltoallw(w->data, w->ones, zero, w->types, w->result, w->ones, zero, w->null,
                           comm);
    case 10:
      return MPI_Reduce_scatter(w->data, w->result, NULL, type, MPI_SUM, comm);
    case 11:
      return MPI_Alltoallv(w->data, NULL, zero, type, w->result, w->ones, zero, type, comm);
    case kWrongInPlace:
      return MPI_Allreduce(w->data, here, 1, type, MPI_SUM, comm);
    case kWrongInPlace + 1:
      return MPI_Reduce(w->data, here, 1, type, MPI_SUM, group.rank, comm);
    case kWrongInPlace + 2:
      return MPI_Reduce_scatter_block(w->data, here, 1, type, MPI_SUM, comm);
    case kWrongInPlace + 3:
      return MPI_Scan(w->data, here, 1, type, MPI_SUM, comm);
    case kWrongType: /* Whose layout is asked for where a plan of ours needs it, not before. */
      return MPI_Alltoallw(w->data, w->ones, zero, w->none, w->result, w->ones, zero, w->none,
                           comm);
    default:
      return MPI_Alltoallw(here, NULL, NULL, NULL, w->result, w->ones, zero, w->none, comm);
  }
}

static void case_wrong(void) {
  /* No communicator is asked for a type's layout: MPI raises that error on one of these. */
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  Buffer data = make_buffer(true, kMaxRanks);
  Buffer result = make_buffer(true, kMaxRanks);
  load(&data);
  load(&result);
  Wrong w = {.data = data.memory, .result = result.memory};
  for (int peer = 0; peer < world.ranks; ++peer) {
    w.ones[peer] = 1;
    w.negative[peer] = peer == world.ranks - 1 ? -1 : 1;
    w.types[peer] = MPI_DOUBLE;
    w.null[peer] = peer == world.ranks - 1 ? MPI_DATATYPE_NULL : MPI_DOUBLE;
    w.none[peer] = (MPI_Datatype)0;
  }
  for (int number = 0; number < kWrongCount; ++number) {
    begin("wrong arguments %d", number);
    Group group = returning();
    int expected = MPI_SUCCESS;
    int class = MPI_SUCCESS;
    MPI_Error_class(call_wrong(number, &w, group, &expected), &class);
    expect(class == expected, "not the error class that belongs to it");
    MPI_Comm_free(&group.comm);
  }
  compare(&data, "send");
  compare(&result, "receive");
  drop(&data);
  drop(&result);
  begin("another communicator after wrong arguments");
  Group group = returning();
  check_group(group, true);
  MPI_Comm_free(&group.comm);
}

/* Arguments that are wrong in call number kWrongCall, on the victim or on all. */
static void one_wrong_alltoallv(bool goes_on) {
  enum { kWrongCall = 2, kCalls = 5 };
  Group group = returning();
  for (int call = 0; call < kCalls; ++call) {
    begin("alltoallv %d, of which number %d is wrong on rank %d", call, kWrongCall,
          options.victim < 0 ? group.rank : options.victim);
    const bool is_hit = options.victim < 0 || group.rank == options.victim;
    double sent[kMaxRanks];
    double received[kMaxRanks];
    int counts[kMaxRanks];
    int displacements[kMaxRanks];
    for (int peer = 0; peer < group.ranks; ++peer) {
      sent[peer] = value(group.rank, call, (size_t)peer);
      received[peer] = NAN;
      counts[peer] = 1;
      displacements[peer] = peer;
    }
    if (call == kWrongCall && is_hit) counts[0] = -1;
    const int code = MPI_Alltoallv(sent, counts, displacements, MPI_DOUBLE, received, counts,
                                   displacements, MPI_DOUBLE, group.comm);
    if (call < kWrongCall) expect_success(code);
    if (is_hit) {
      expect((code == MPI_SUCCESS) == (goes_on ? call != kWrongCall : call < kWrongCall),
             goes_on ? "errors are not where they belong" : "the communicator goes on");
    }
    for (int peer = 0; peer < group.ranks && code == MPI_SUCCESS; ++peer) {
      expect(received[peer] == value(peer, call, (size_t)group.rank),
             "MPI_SUCCESS with what belongs to another call");
    }
  }
  begin("the end of a communicator after wrong arguments");
  MPI_Comm_free(&group.comm);
}

/* The victim has no part in the call and must not take what its peers say in it for what they say
 * in the next. */
static void case_alone(void) { one_wrong_alltoallv(false); }

/* A call that would have been MPI's own, or in shared memory, where the peers hear of it, is
 * nothing more than an error of that call. */
static void case_alike(void) { one_wrong_alltoallv(true); }

/* A receive that its rank has given up. Rank 1's bcasts end before rank 0 has begun its own: what
 * that then sends must be written neither to the buffer, which is the application's again, nor to
 * where a type with gaps was packed, which carries the bcast on the other communicator. */
static void case_late(void) {
  enum { kPackedCount = 1 << 16, kAgreedCalls = 2 };
  const double mark = 222;
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  MPI_Type_vector(kPackedCount, 1, 2, MPI_DOUBLE, &gaps);
  MPI_Type_commit(&gaps);
  for (int packed = 0; packed < 2; ++packed) {
    begin("bcast of a rank that comes late, %s", packed ? "with gaps" : "without gaps");
    const MPI_Datatype type = packed ? gaps : MPI_DOUBLE;
    const int count = packed ? 1 : kCount;
    const Group late = returning();
    const Group well = returning();
    Buffer given_up = make_buffer(false, 2 * kPackedCount);
    Buffer other = make_buffer(false, 2 * kPackedCount);
    for (int call = 0; call < kAgreedCalls; ++call) {
      MPI_Bcast(given_up.memory, count, type, 0, late.comm);
      MPI_Bcast(other.memory, count, type, 1, well.comm);
    }
    for (size_t i = 0; i < given_up.count; ++i) {
      put(&given_up, i, world.rank == 0 ? 111 : -1);
      put(&other, i, world.rank == 1 ? mark : -1);
    }
    load(&given_up);
    load(&other);
    if (world.rank == 1) {
      expect(MPI_Bcast(given_up.memory, count, type, 0, late.comm) != MPI_SUCCESS,
             "MPI_SUCCESS although nothing was sent");
      load(&given_up); /* The memory is the application's again. */
    }
    NATIVE(MPI_Barrier)(MPI_COMM_WORLD);
    if (world.rank == 0) {
      MPI_Bcast(given_up.memory, count, type, 0, late.comm); /* An error or not: it has sent. */
      for (size_t i = 0; i < (packed ? 2 * (size_t)kPackedCount : kCount); ++i) {
        if (!packed || i % 2 == 0) other.after[i] = mark;
      }
    } else {
      usleep(1000 * 1000); /* Far from nothing, and on a busy machine from the time-out, of 4 s. */
    }
    expect_success(MPI_Bcast(other.memory, count, type, 1, well.comm));
    NATIVE(MPI_Barrier)(MPI_COMM_WORLD);
    compare(&given_up, "given up");
    compare(&other, "other");
    drop(&given_up);
    drop(&other);
    MPI_Comm late_comm = late.comm;
    MPI_Comm well_comm = well.comm;
    MPI_Comm_free(&late_comm);
    MPI_Comm_free(&well_comm);
  }
  MPI_Type_free(&gaps);
}

/* The communicators of a plan's steps are split at its first call, to which the victim, whose
 * arguments were refused, does not come. */
static void case_scopes(void) {
  MPI_Info info = kinds_info("system", true);
  Group group = returning();
  MPI_Comm_set_info(group.comm, info);
  MPI_Info_free(&info);
  begin("allgatherv with a negative count on rank %d", options.victim);
  double sent = 1;
  double received[kMaxRanks];
  int counts[kMaxRanks];
  int displacements[kMaxRanks] = {0};
  for (int peer = 0; peer < group.ranks; ++peer) counts[peer] = 1;
  if (group.rank == options.victim) {
    counts[0] = -1;
    expect(MPI_Allgatherv(&sent, 1, MPI_DOUBLE, received, counts, displacements, MPI_DOUBLE,
                          group.comm) != MPI_SUCCESS,
           "MPI_SUCCESS although it could not be");
  } else {
    expect(MPI_Bcast(&sent, 1, MPI_DOUBLE, 0, group.comm) != MPI_SUCCESS,
           "MPI_SUCCESS although the steps could not be set up");
  }
  MPI_Comm_free(&group.comm);
}

static int handled;

static void free_comm(MPI_Comm* comm, int* code, ...) {
  (void)code;
  ++handled;
  MPI_Comm freed = *comm;
  MPI_Comm_free(&freed);
}

/* An error handler that frees the communicator whose call was refused. */
static void case_freeing(void) {
  MPI_Errhandler frees = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(free_comm, &frees);
  for (int is_later = 0; is_later < 2; ++is_later) {
    begin("alltoallv with a negative count, whose error frees the communicator, %s",
          is_later ? "later" : "first");
    Group group = returning();
    MPI_Comm_set_errhandler(group.comm, frees);
    double data[kMaxRanks] = {0};
    double result[kMaxRanks];
    int counts[kMaxRanks];
    int displacements[kMaxRanks] = {0};
    for (int peer = 0; peer < group.ranks; ++peer) counts[peer] = 1;
    if (is_later) {
      expect_success(MPI_Alltoallv(data, counts, displacements, MPI_DOUBLE, result, counts,
                                   displacements, MPI_DOUBLE, group.comm));
    }
    handled = 0; /* MPICH returns MPI_SUCCESS after a handler of the application. */
    counts[0] = -1;
    MPI_Alltoallv(data, counts, displacements, MPI_DOUBLE, result, counts, displacements,
                  MPI_DOUBLE, group.comm);
    expect(handled == 1, "the handler was not called once");
  }
  MPI_Errhandler_free(&frees);
  begin("another communicator after those that were freed");
  Group group = returning();
  check_group(group, true);
  MPI_Comm_free(&group.comm);
}

static void count_error(MPI_Comm* comm, int* code, ...) {
  (void)comm, (void)code;
  ++handled;
}

/* MPICH returns MPI_SUCCESS after such a handler. What the root has sent in the bcast that the
 * victim was refused in must not be the victim's next one. */
static void case_handled(void) {
  enum { kWrongCall = 1, kCalls = 4 };
  MPI_Errhandler counts = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(count_error, &counts);
  Group group = returning();
  MPI_Comm_set_errhandler(group.comm, counts);
  handled = 0;
  for (int call = 0; call < kCalls; ++call) {
    begin("bcast %d, of which number %d is wrong on rank %d, with an error handler", call,
          kWrongCall, options.victim);
    const bool is_hit = group.rank == options.victim;
    double data[kCount];
    for (int i = 0; i < kCount; ++i) data[i] = group.rank == 0 ? value(0, call, (size_t)i) : NAN;
    const int before = handled;
    MPI_Bcast(data, is_hit && call == kWrongCall ? -1 : kCount, MPI_DOUBLE, 0, group.comm);
    const bool is_error = handled > before;
    if (call < kWrongCall) expect(!is_error, "an error before there was one");
    if (is_hit) expect(is_error == (call >= kWrongCall), "the communicator goes on");
    if (is_error) expect(handled == before + 1, "the handler was not called once");
    for (int i = 0; !is_error && i < kCount; ++i) {
      expect(data[i] == value(0, call, (size_t)i), "right, with what belongs to another call");
    }
  }
  MPI_Comm_free(&group.comm);
  MPI_Errhandler_free(&counts);
}

/* Memory that runs out in the middle of a call: the next malloc of this thread has none. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
static _Thread_local bool starves;

extern void* __libc_malloc(size_t bytes);

__attribute__((visibility("default"))) void* malloc(size_t bytes) {
  if (!starves) return __libc_malloc(bytes);
  starves = false;
  return NULL;
}

static void case_memory(void) {
  enum { kStarved = 3 };
  Group group = returning();
  double data[kMaxRanks] = {0};
  double result[kMaxRanks] = {0};
  int counts[kMaxRanks];
  int displacements[kMaxRanks];
  for (int peer = 0; peer < group.ranks; ++peer) {
    counts[peer] = 1;
    displacements[peer] = peer;
  }
  for (int call = 1; call <= kStarved + 1; ++call) {
    begin("alltoallv %d, without memory from number %d on", call, kStarved);
    starves = call == kStarved;
    const int code = MPI_Alltoallv(data, counts, displacements, MPI_DOUBLE, result, counts,
                                   displacements, MPI_DOUBLE, group.comm);
    expect(!starves, "no memory was asked for: nothing was tested");
    starves = false;
    expect((code == MPI_SUCCESS) == (call < kStarved), "errors are not where they belong");
  }
  MPI_Comm_free(&group.comm);
}

/* A rank that fails between the steps of a bcast leaves what its peers have sent it. New
 * communicators must not meet it. */
static void case_stale(void) {
  enum { kStarved = 3, kNew = 4, kSent = 4 };
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  MPI_Type_vector(kSent, 1, 2, MPI_DOUBLE, &gaps);
  MPI_Type_commit(&gaps);
  Group group = returning();
  double data[2 * kSent];
  for (size_t i = 0; i < 2 * kSent; ++i) data[i] = 7000;
  for (int call = 1; call <= kStarved; ++call) {
    begin("bcast %d, of which number %d fails on rank 1", call, kStarved);
    starves = call == kStarved && group.rank == 1;
    const bool is_hit = starves;
    const int code = MPI_Bcast(data, 1, gaps, 0, group.comm);
    expect(!starves, "no memory was asked for: nothing was tested");
    starves = false;
    expect((code != MPI_SUCCESS) == is_hit, "errors are not where they belong");
  }
  NATIVE(MPI_Barrier)(MPI_COMM_WORLD);
  MPI_Comm_free(&group.comm);
  MPI_Type_free(&gaps);
  for (int number = 0; number < kNew; ++number) {
    begin("new communicator %d after one that failed", number);
    group = returning();
    for (size_t i = 0; i < kSent; ++i) data[i] = group.rank == 0 ? number : -1;
    expect_success(NATIVE(MPI_Bcast)(data, kSent, MPI_DOUBLE, 0, group.comm));
    expect(data[0] == number, "a message of the communicator that failed");
  }
}
#else
static void case_memory(void) { skipped = "malloc is not to be replaced here"; }
static void case_stale(void) { skipped = "malloc is not to be replaced here"; }
static bool starves;
#endif

/* Both ends of a block that do not agree on its length. A rank sees it of its own block, at once;
 * of a block from another when a message has come. */
enum { kUnequalCount = 5 };

static int call_unequal(int number, double* data, double* result, Group group) {
  int sent[kMaxRanks];
  int received[kMaxRanks];
  int displacements[kMaxRanks];
  for (int peer = 0; peer < group.ranks; ++peer) {
    sent[peer] = received[peer] = 2;
    displacements[peer] = 4 * peer;
  }
  sent[group.rank] = 4;
  received[group.rank] = 3;
  switch (number) {
    case 0:
      return MPI_Alltoallv(data, sent, displacements, MPI_DOUBLE, result, received, displacements,
                           MPI_DOUBLE, group.comm);
    case 1:
      return MPI_Allgatherv(data, kCount, MPI_DOUBLE, result, sent, displacements, MPI_DOUBLE,
                            group.comm);
    case 2:
      return MPI_Allgather(data, 4, MPI_DOUBLE, result, 3, MPI_DOUBLE, group.comm);
    case 3:
      return MPI_Bcast(data, group.rank == 0 ? 8 : 9, MPI_DOUBLE, 0, group.comm);
    default:
      return MPI_Bcast(data, group.rank == 0 ? 9 : 8, MPI_DOUBLE, 0, group.comm);
  }
}

/* In shared memory, where the others hear of it, a wrong call is nothing more than that. */
static bool is_direct(const char* variable) {
  const char* plan = getenv(variable);
  return plan != NULL && strncmp(plan, "direct", 6) == 0;
}

static void case_unequal(void) {
  const char* variables[] = {"TUTTI_ALLTOALLV", "TUTTI_ALLGATHERV", "TUTTI_ALLGATHER"};
  for (int number = 0; number < kUnequalCount; ++number) {
    begin("unequal counts %d", number);
    Group group = returning();
    Buffer data = make_buffer(false, kCount);
    Buffer result = make_buffer(false, kCount);
    load(&data);
    load(&result);
    const bool is_seen = number < 3 || group.rank != 0;
    const int code = call_unequal(number, data.memory, result.memory, group);
    expect((code != MPI_SUCCESS) == is_seen, "an error where none belongs, or none where it does");
    if (number < 3) compare(&result, "receive");
    if (is_seen) {
      const bool goes_on = number < 3 && is_direct(variables[number]);
      expect((MPI_Barrier(group.comm) == MPI_SUCCESS) == goes_on,
             goes_on ? "a call after the wrong one fails" : "the communicator goes on");
    }
    drop(&data);
    drop(&result);
    MPI_Comm_free(&group.comm);
  }
}

/* Large-count functions under an MPI that has none, whose displacements are ints: one that is too
 * far must be refused, and nothing be written elsewhere, which -1 is. */
static void case_far(void) {
  typedef int Gatherv(const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*,
                      const MPI_Aint*, MPI_Datatype, int, MPI_Comm);
  typedef int Alltoallv(const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*,
                        const MPI_Count*, const MPI_Aint*, MPI_Datatype, MPI_Comm);
  enum { kGuard = 8 };
  void* symbols[2] = {dlsym(RTLD_DEFAULT, "MPI_Gatherv_c"), dlsym(RTLD_DEFAULT, "MPI_Alltoallv_c")};
  if (native_symbol("PMPI_Gatherv_c") || !symbols[0]) {
    skipped = "not a library without large counts behind one with them";
    return;
  }
  Gatherv* gatherv = NULL;
  Alltoallv* alltoallv = NULL;
  memcpy(&gatherv, &symbols[0], sizeof gatherv);
  memcpy(&alltoallv, &symbols[1], sizeof alltoallv);
  Group group = group_of(MPI_COMM_SELF); /* Nobody waits for a rank that was refused. */
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  for (int call = 0; call < 4; ++call) {
    const bool far = call % 2 == 0;
    begin("%s with a displacement over 2^31 of %s", call < 2 ? "gatherv" : "alltoallv",
          far ? "a byte" : "nothing");
    unsigned char memory[2 * kGuard];
    memset(memory, 7, sizeof memory);
    const unsigned char sent = 100;
    const MPI_Count count = far;
    const MPI_Aint here = 0;
    const MPI_Aint there = ((MPI_Aint)1 << 31) + 1;
    const int code = call < 2 ? gatherv(&sent, count, MPI_BYTE, memory + kGuard, &count, &there,
                                        MPI_BYTE, 0, group.comm)
                              : alltoallv(&sent, &count, &here, MPI_BYTE, memory + kGuard, &count,
                                          &there, MPI_BYTE, group.comm);
    expect((code != MPI_SUCCESS) == far, "an error where none belongs, or none where it does");
    bool untouched = true;
    for (size_t i = 0; i < sizeof memory; ++i) untouched = untouched && memory[i] == 7;
    expect(untouched, "memory before the buffer or in it was written");
  }
  begin("alltoallv without memory for its counts");
  const MPI_Count none = 0;
  const MPI_Aint here = 0;
  starves = true;
  const int code =
      alltoallv(NULL, &none, &here, MPI_BYTE, NULL, &none, &here, MPI_BYTE, group.comm);
  expect(starves || code != MPI_SUCCESS, "MPI_SUCCESS although there was no memory");
  starves = false;
}

/* Sessions. */

static void finish(MPI_Comm comm, long total[2]) {
  const long mine[2] = {checks, failures};
  begin("the sum of the failures");
  NATIVE(MPI_Allreduce)(mine, total, 2, MPI_LONG, MPI_SUM, comm);
}

/* Without MPI_Init. */
#if HAVE_MPI_4
static void case_sessions(long total[2]) {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &all);
  MPI_Comm_create_from_group(all, "tutti.semantics", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
  world = group_of(comm);
  memory_open(options.memory, world.rank, false);
  check_group(world, true);
  check_group(world, false);
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(comm, &copy);
  check_group(group_of(copy), true);
  MPI_Comm_free(&copy);
  begin("sessions");
  int initialized = 1;
  MPI_Initialized(&initialized);
  expect(!initialized, "MPI_Initialized is true after a session alone");
  finish(comm, total);
  MPI_Comm_free(&comm);
  MPI_Group_free(&all);
  MPI_Session_finalize(&session);
}
#else
static void case_sessions(long total[2]) {
  (void)total;
  skipped = "this MPI has no sessions";
}
#endif

/* The programme. */

typedef struct {
  const char* name;
  void (*run)(void);
  bool in_all;
} Case;

static const Case cases[] = {
    {"exscan", case_exscan, true},
    {"regular", case_regular, true},
    {"aliased", case_aliased, true},
    {"negative", case_negative, true},
    {"oddtypes", case_oddtypes, true},
    {"info", case_info, true},
    {"attributes", case_attributes, true},
    {"reuse", case_reuse, true},
    {"largetypes", case_largetypes, false},
    {"failure", case_failure, false},
    {"far", case_far, false},
    {"bottom", case_bottom, true},
    {"refused", case_refused, false},
    {"hint", case_hint, false},
    {"unequal", case_unequal, false},
    {"memory", case_memory, false},
    {"wrong", case_wrong, false},
    {"alone", case_alone, false},
    {"alike", case_alike, false},
    {"late", case_late, false},
    {"scopes", case_scopes, false},
    {"freeing", case_freeing, false},
    {"handled", case_handled, false},
    {"stale", case_stale, false},
    {"fortran", case_fortran, true},
    {"capture", case_capture, false},
    {"barrier", case_barrier, false},
    {"agreement", case_agreement, false},
    {"truncated", case_truncated, false},
};

static bool parse(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--case") == 0) {
      options.name = argv[i + 1];
    } else if (strcmp(argv[i], "--memory") == 0) {
      options.memory = argv[i + 1];
    } else if (strcmp(argv[i], "--fail") == 0) {
      options.fail = argv[i + 1];
    } else if (strcmp(argv[i], "--victim") == 0) {
      options.victim = atoi(argv[i + 1]);
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && options.name[0] != '\0';
}

static void run_cases(long total[2]) {
  const bool all = strcmp(options.name, "all") == 0;
  world = group_of(MPI_COMM_WORLD);
  if (world.ranks > 4) {
    fprintf(stderr, "semantics: at most 4 ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  memory_open(options.memory, world.rank, false);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    if (all ? cases[i].in_all : strcmp(options.name, cases[i].name) == 0) cases[i].run();
  }
  finish(MPI_COMM_WORLD, total);
}

int main(int argc, char** argv) {
  if (!parse(argc, argv)) {
    fprintf(stderr, "usage: semantics --case NAME [--memory KIND] [--fail SYMBOL] [--victim N]\n");
    return 2;
  }
  signal(SIGALRM, on_alarm);
  alarm(kWatchdogSeconds);
  long total[2] = {0, 0};
  if (strcmp(options.name, "sessions") == 0) {
    case_sessions(total);
  } else {
    MPI_Init(&argc, &argv);
    run_cases(total);
    MPI_Finalize();
  }
  if (world.rank == 0 && skipped) printf("semantics: skipped: %s\n", skipped);
  if (world.rank == 0 && !skipped) {
    printf("semantics: %ld checks, %ld failed\n", total[0], total[1]);
  }
  if (skipped) return 0;
  return failures != 0 || total[1] != 0 || total[0] == 0;
}
