/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that an MPI refuses, or that are legal and odd, each followed by calls that are right. What
 * the refused call returns is printed, to be compared with what the same program prints without the
 * preload; the calls after it must give right results, whatever carries them.
 *
 * Usage: refused [--memory KIND] [--calls alike|one] [--only NUMBER] [--apart]
 *                [--churn N] [--live N] [--far] [--known] [--again] [--lost] [--alone] [--first]
 *                [--uneven] [--threads]
 *   --calls  alike: wrong on every rank (default); one: at the root, or on one rank, alone.
 *   --apart  each call is the first of a communicator of its own.
 *   --churn  instead: N communicators, one after the other, each with an allreduce, a call that is
 *            refused or odd, another allreduce. Memory must not grow.
 *   --live   instead: as many communicators as there may be at once, at most N, each with calls.
 *   --again  instead: rooted collectives with aliased buffers; a root that is refused calls again
 *            with a buffer of its own, or in place; its peers call once.
 *   --lost   instead: a root makes such a call again after calls of another communicator.
 *   --alone  instead: a root makes such calls alone, and its peers make none (MPICH refuses them).
 *   --first  the same on fresh communicators.
 *   --uneven instead: a root of a gather that takes less from itself than it has.
 *   --known  instead: a call that was made often, with a root that is none on any rank, where one
 *            rank has looked at another communicator meanwhile.
 *   --threads  with MPI_THREAD_MULTIPLE.
 *   --far    instead: v-forms whose displacements are far apart.
 * Lines: "NAME: class on rank 0, class on rank 1, ...".
 * Last line: "refused: N checks, W failed" summed over the ranks.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "memory.h"
#include "native.h"

enum { kRanksMax = 32, kCount = 600, kBlock = kCount * kRanksMax };

static int rank, ranks;
static bool on_device;
static long checks, wrong;
static int *in, *out; /* 2 * kBlock elements each. */
static int* mirror;
static MPI_Datatype uncommitted;
static MPI_Op not_commuting;

static void expect(bool condition, const char* what, const char* where) {
  ++checks;
  if (condition) return;
  ++wrong;
  fprintf(stderr, "FAILED on rank %d: %s: %s\n", rank, where, what);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void first_in(void* a, void* b, int* count, MPI_Datatype* type) {
  (void)a, (void)b, (void)count, (void)type;
}

/* Arrays of the v-forms. */
static int counts[kRanksMax], displs[kRanksMax], byte_displs[kRanksMax], negative[kRanksMax];
static MPI_Datatype types[kRanksMax];

/* Three calls that are right, with their results. */
static void right_calls(MPI_Comm comm, int salt, const char* where) {
  const int n = kCount;
  for (int i = 0; i < n * ranks; ++i) mirror[i] = salt + 100 * rank + i;
  memory_write(on_device, in, mirror, sizeof(int) * (size_t)(n * ranks));
  int code = MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm);
  expect(code == MPI_SUCCESS, "an allreduce after it fails", where);
  memory_read(on_device, mirror, out, sizeof(int) * (size_t)n);
  bool good = true;
  for (int i = 0; i < n && code == MPI_SUCCESS; ++i) {
    good = good && mirror[i] == ranks * (salt + i) + 100 * (ranks * (ranks - 1) / 2);
  }
  expect(good, "an allreduce after it is wrong", where);
  code = MPI_Alltoall(in, n, MPI_INT, out, n, MPI_INT, comm);
  expect(code == MPI_SUCCESS, "an alltoall after it fails", where);
  memory_read(on_device, mirror, out, sizeof(int) * (size_t)(n * ranks));
  good = true;
  for (int i = 0; i < n * ranks && code == MPI_SUCCESS; ++i) {
    good = good && mirror[i] == salt + 100 * (i / n) + rank * n + i % n;
  }
  expect(good, "an alltoall after it is wrong", where);
  const int root = ranks - 1;
  code = MPI_Bcast(rank == root ? in : out, n, MPI_INT, root, comm);
  expect(code == MPI_SUCCESS, "a bcast after it fails", where);
  memory_read(on_device, mirror, rank == root ? in : out, sizeof(int) * (size_t)n);
  good = true;
  for (int i = 0; i < n && code == MPI_SUCCESS; ++i)
    good = good && mirror[i] == salt + 100 * root + i;
  expect(good, "a bcast after it is wrong", where);
  code = MPI_Allgatherv(in, n, MPI_INT, out, counts, displs, MPI_INT, comm);
  expect(code == MPI_SUCCESS, "an allgatherv after it fails", where);
  memory_read(on_device, mirror, out, sizeof(int) * (size_t)(n * ranks));
  good = true;
  for (int i = 0; i < n * ranks && code == MPI_SUCCESS; ++i) {
    good = good && mirror[i] == salt + 100 * (i / n) + i % n;
  }
  expect(good, "an allgatherv after it is wrong", where);
}

/* Wrong on every rank. Null: there is no such number. */
static const char* call_alike(int number, MPI_Comm comm, int* code) {
  const int n = kCount;
  const MPI_Datatype none = MPI_DATATYPE_NULL;
  int* own = out + rank * n;
#define CALL(name, call) \
  *code = call;          \
  return name
  switch (number) {
    case 0:
      CALL("bcast of nothing of no type", MPI_Bcast(NULL, 0, none, 0, comm));
    case 1:
      CALL("bcast of no type", MPI_Bcast(out, n, none, 0, comm));
    case 2:
      CALL("bcast of -1", MPI_Bcast(out, -1, MPI_INT, 0, comm));
    case 3:
      CALL("bcast from -1", MPI_Bcast(out, n, MPI_INT, -1, comm));
    case 4:
      CALL("bcast from beyond", MPI_Bcast(out, n, MPI_INT, ranks, comm));
    case 5:
      CALL("bcast of an uncommitted type", MPI_Bcast(out, n, uncommitted, 0, comm));
    case 6:
      CALL("bcast of NULL", MPI_Bcast(NULL, n, MPI_INT, 0, comm));
    case 8:
      CALL("allreduce by no operation", MPI_Allreduce(in, out, n, MPI_INT, MPI_OP_NULL, comm));
    case 9:
      CALL("allreduce of no type", MPI_Allreduce(in, out, n, none, MPI_SUM, comm));
    case 10:
      CALL("allreduce of -1", MPI_Allreduce(in, out, -1, MPI_INT, MPI_SUM, comm));
    case 11:
      CALL("band of doubles", MPI_Allreduce(in, out, n / 2, MPI_DOUBLE, MPI_BAND, comm));
    case 12:
      CALL("sum of an uncommitted type", MPI_Allreduce(in, out, n, uncommitted, MPI_SUM, comm));
    case 13:
      CALL("allreduce of NULL", MPI_Allreduce(NULL, out, n, MPI_INT, MPI_SUM, comm));
    case 14:
      CALL("allreduce into NULL", MPI_Allreduce(in, NULL, n, MPI_INT, MPI_SUM, comm));
    case 15:
      CALL("allgather into NULL", MPI_Allgather(in, n, MPI_INT, NULL, n, MPI_INT, comm));
    case 16:
      CALL("allgather of no type", MPI_Allgather(in, n, none, out, n, MPI_INT, comm));
    case 17:
      CALL("allgather of -1", MPI_Allgather(in, -1, MPI_INT, out, n, MPI_INT, comm));
    case 18:
      CALL("alltoall of no type", MPI_Alltoall(in, n, none, out, n, MPI_INT, comm));
    case 19:
      CALL("gather to -1", MPI_Gather(in, n, MPI_INT, out, n, MPI_INT, -1, comm));
    case 20:
      CALL("scatter from beyond", MPI_Scatter(in, n, MPI_INT, out, n, MPI_INT, ranks, comm));
    case 21:
      CALL("reduce to beyond", MPI_Reduce(in, out, n, MPI_INT, MPI_SUM, ranks, comm));
    case 22:
      CALL("reduce by no operation", MPI_Reduce(in, out, n, MPI_INT, MPI_OP_NULL, 0, comm));
    case 23:
      CALL("reduce_scatter by no operation",
           MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_OP_NULL, comm));
    case 24:
      CALL("scan by no operation", MPI_Scan(in, out, n, MPI_INT, MPI_OP_NULL, comm));
    case 25:
      CALL("allgatherv of no type",
           MPI_Allgatherv(in, n, none, out, counts, displs, MPI_INT, comm));
    case 26:
      CALL("allgather of nothing of no type", MPI_Allgather(NULL, 0, none, NULL, 0, none, comm));
    case 27:
      CALL("allreduce of nothing of no type", MPI_Allreduce(NULL, NULL, 0, none, MPI_SUM, comm));
    /* Aliased. */
    case 30:
      CALL("aliased allreduce", MPI_Allreduce(out, out, n, MPI_INT, MPI_SUM, comm));
    case 32:
      CALL("aliased allgather, own block", MPI_Allgather(own, n, MPI_INT, out, n, MPI_INT, comm));
    case 34:
      CALL("aliased allgatherv, own block",
           MPI_Allgatherv(own, n, MPI_INT, out, counts, displs, MPI_INT, comm));
    case 35:
      CALL("aliased alltoall", MPI_Alltoall(out, n, MPI_INT, out, n, MPI_INT, comm));
    case 36:
      CALL("aliased alltoallv",
           MPI_Alltoallv(out, counts, displs, MPI_INT, out, counts, displs, MPI_INT, comm));
    case 37:
      CALL("aliased alltoallw",
           MPI_Alltoallw(out, counts, byte_displs, types, out, counts, byte_displs, types, comm));
    case 38:
      CALL("aliased scan", MPI_Scan(out, out, n, MPI_INT, MPI_SUM, comm));
    case 39:
      CALL("aliased exscan", MPI_Exscan(out, out, n, MPI_INT, MPI_SUM, comm));
    case 40:
      CALL("aliased reduce_scatter", MPI_Reduce_scatter(out, out, counts, MPI_INT, MPI_SUM, comm));
    case 41:
      CALL("aliased reduce_scatter_block",
           MPI_Reduce_scatter_block(out, out, n, MPI_INT, MPI_SUM, comm));
    case 46:
      CALL("aliased allgather of nothing", MPI_Allgather(out, 0, MPI_INT, out, 0, MPI_INT, comm));
    case 47:
      CALL("aliased allreduce of nothing", MPI_Allreduce(out, out, 0, MPI_INT, MPI_SUM, comm));
    case 49:
      CALL("aliased alltoall of another type",
           MPI_Alltoall(out, n, MPI_INT, out, 4 * n, MPI_BYTE, comm));
    case 51:
      CALL("aliased alltoall of one byte", MPI_Alltoall(out, 1, MPI_BYTE, out, 1, MPI_BYTE, comm));
    case 52:
      CALL("aliased allreduce by a function",
           MPI_Allreduce(out, out, n, MPI_INT, not_commuting, comm));
    case 53:
      CALL("aliased allreduce of 1", MPI_Allreduce(out, out, 1, MPI_INT, MPI_SUM, comm));
    default:
      return NULL;
  }
}

/* Wrong at the root, or on rank 1, alone. */
static const char* call_one(int number, MPI_Comm comm, int* code) {
  const int n = kCount;
  const bool root = rank == 0;
  const bool hit = rank == 1 % ranks;
  const MPI_Datatype none = MPI_DATATYPE_NULL;
  switch (number) {
    case 0:
      CALL("gather, aliased", MPI_Gather(out, n, MPI_INT, out, n, MPI_INT, 0, comm));
    case 1:
      CALL("gatherv, aliased", MPI_Gatherv(out, n, MPI_INT, out, counts, displs, MPI_INT, 0, comm));
    case 2:
      CALL("scatter, aliased", MPI_Scatter(out, n, MPI_INT, out, n, MPI_INT, 0, comm));
    case 3:
      CALL("scatterv, aliased",
           MPI_Scatterv(out, counts, displs, MPI_INT, out, n, MPI_INT, 0, comm));
    case 4:
      CALL("reduce, aliased", MPI_Reduce(out, out, n, MPI_INT, MPI_SUM, 0, comm));
    case 5:
      CALL("gather of no type at the root",
           MPI_Gather(in, n, MPI_INT, out, n, root ? none : MPI_INT, 0, comm));
    case 6:
      CALL("gather of -1 at the root",
           MPI_Gather(in, n, MPI_INT, out, root ? -1 : n, MPI_INT, 0, comm));
    case 7:
      CALL("scatter of no type at the root",
           MPI_Scatter(in, n, root ? none : MPI_INT, out, n, MPI_INT, 0, comm));
    case 8:
      CALL("scatterv of -1 at the root",
           MPI_Scatterv(in, root ? negative : counts, displs, MPI_INT, out, n, MPI_INT, 0, comm));
    case 9:
      CALL("gatherv of -1 at the root",
           MPI_Gatherv(in, n, MPI_INT, out, root ? negative : counts, displs, MPI_INT, 0, comm));
    case 10:
      CALL("bcast of no type at the root", MPI_Bcast(out, n, root ? none : MPI_INT, 0, comm));
    case 11:
      CALL("reduce to NULL at the root",
           MPI_Reduce(in, root ? NULL : out, n, MPI_INT, MPI_SUM, 0, comm));
    case 12:
      CALL("allreduce of -1 on one rank",
           MPI_Allreduce(in, out, hit ? -1 : n, MPI_INT, MPI_SUM, comm));
    case 13:
      CALL("allgather of no type on one rank",
           MPI_Allgather(in, n, hit ? none : MPI_INT, out, n, MPI_INT, comm));
    case 14:
      CALL("alltoall, aliased on one rank",
           MPI_Alltoall(hit ? out : in, n, MPI_INT, out, n, MPI_INT, comm));
    case 15:
      CALL("allreduce, aliased on one rank",
           MPI_Allreduce(hit ? out : in, out, n, MPI_INT, MPI_SUM, comm));
    case 16:
      CALL("bcast of no type on one rank", MPI_Bcast(out, n, hit ? none : MPI_INT, 0, comm));
    case 17:
      CALL("gather of no type on one rank",
           MPI_Gather(in, n, hit ? none : MPI_INT, out, n, MPI_INT, 0, comm));
    case 18:
      CALL("allgatherv of -1 on one rank",
           MPI_Allgatherv(in, n, MPI_INT, out, hit ? negative : counts, displs, MPI_INT, comm));
    case 19:
      CALL("alltoallv of -1 on one rank",
           MPI_Alltoallv(in, hit ? negative : counts, displs, MPI_INT, out, counts, displs, MPI_INT,
                         comm));
    case 20:
      CALL("reduce in place on one rank",
           MPI_Reduce(hit ? MPI_IN_PLACE : in, out, n, MPI_INT, MPI_SUM, 0, comm));
    case 21:
      CALL("allgather, aliased", MPI_Allgather(out, n, MPI_INT, out, n, MPI_INT, comm));
    case 22:
      CALL("allgatherv, aliased",
           MPI_Allgatherv(out, n, MPI_INT, out, counts, displs, MPI_INT, comm));
    case 23:
      CALL("bcast of an uncommitted type at the root",
           MPI_Bcast(out, n, root ? uncommitted : MPI_INT, 0, comm));
    default:
      return NULL;
  }
}

static const char* call(bool alike, int number, MPI_Comm comm, int* code) {
  return alike ? call_alike(number, comm, code) : call_one(number, comm, code);
}

static MPI_Comm returning(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  if (MPI_Comm_dup(MPI_COMM_WORLD, &comm) != MPI_SUCCESS) return MPI_COMM_NULL;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

/* Each call on each rank, and what comes after it. */
static void report(const char* name, int code, double seconds) {
  int mine = MPI_SUCCESS;
  int classes[kRanksMax];
  if (code != MPI_SUCCESS) MPI_Error_class(code, &mine);
  NATIVE(MPI_Gather)(&mine, 1, MPI_INT, classes, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  printf("%s:", name);
  for (int peer = 0; peer < ranks; ++peer) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(classes[peer], text, &length);
    text[strcspn(text, ":,")] = '\0';
    printf("%s %s", peer ? "," : "", classes[peer] == MPI_SUCCESS ? "well" : text);
  }
  printf("\n");
  if (seconds > 1) fprintf(stderr, "slow: %s: %.1f s\n", name, seconds);
  fflush(stdout);
}

/* Open MPI follows a null buffer, MPICH a null type or negative count of a reduction: the process
 * may end. */
#ifdef OPEN_MPI
static bool ends_the_process(int number) { return number == 6 || (number >= 13 && number <= 15); }
#else
static bool ends_the_process(int number) { return number == 9 || number == 10 || number == 27; }
#endif

static void all_calls(bool alike, int only, bool apart) {
  MPI_Comm comm = returning();
  for (int number = 0; number < 100; ++number) {
    if (only >= 0 && number != only) continue;
    if (!apart) right_calls(comm, number, "before the first");
    for (int i = 0; i < 2 * kBlock; ++i) mirror[i] = i;
    memory_write(on_device, in, mirror, sizeof(int) * 2 * kBlock);
    memory_write(on_device, out, mirror, sizeof(int) * 2 * kBlock);
    int code = MPI_SUCCESS;
    if (alike && ends_the_process(number)) continue;
    const double start = now();
    const char* name = call(alike, number, comm, &code);
    if (!name) continue;
    report(name, code, now() - start);
    right_calls(comm, number, name);
    right_calls(comm, number + 1, name);
    if (apart) {
      MPI_Comm_free(&comm);
      comm = returning();
    }
  }
  MPI_Comm_free(&comm);
}

/* What the root has of its call. */
static int call_rooted(int number, int root, int n, void* send, void* recv, MPI_Comm comm) {
  switch (number) {
    case 0:
      return MPI_Gather(send, n, MPI_INT, recv, n, MPI_INT, root, comm);
    case 1:
      return MPI_Gatherv(send, n, MPI_INT, recv, counts, displs, MPI_INT, root, comm);
    case 2:
      return MPI_Scatter(send, n, MPI_INT, recv, n, MPI_INT, root, comm);
    case 3:
      return MPI_Scatterv(send, counts, displs, MPI_INT, recv, n, MPI_INT, root, comm);
    default:
      return MPI_Reduce(send, recv, n, MPI_INT, MPI_SUM, root, comm);
  }
}

/* On all ranks, `salt` in what they send. `alias`: the root's buffers are one at first, and its
 * second call, if the first is refused, has another buffer or MPI_IN_PLACE. */
static void rooted_call(int number, int root, bool alias, bool in_place, int salt, MPI_Comm comm) {
  static const char* const names[] = {"gather", "gatherv", "scatter", "scatterv", "reduce"};
  const int n = kCount;
  const bool scatters = number == 2 || number == 3;
  const bool blocks = number < 2;
  for (int i = 0; i < n * ranks; ++i) mirror[i] = salt + 1000 * rank + i;
  memory_write(on_device, in, mirror, sizeof(int) * (size_t)(n * ranks));
  int* send = in;
  int* recv = out;
  int code = MPI_SUCCESS;
  bool is_refused = false;
  if (alias && rank == root) {
    /* Of a gather the own block lies where it is received, of a scatter where it is sent from. */
    int* const one = scatters ? in : out;
    int* const own = number == 4 ? one : one + root * n;
    if (!scatters) memory_write(on_device, own, mirror, sizeof(int) * (size_t)n);
    code = call_rooted(number, root, n, scatters ? in : own, scatters ? own : out, comm);
    is_refused = code != MPI_SUCCESS;
    send = scatters ? in : own;
    recv = scatters ? own : out;
    if (is_refused && in_place) {
      send = scatters ? in : MPI_IN_PLACE;
      recv = scatters ? MPI_IN_PLACE : out;
    } else if (is_refused && scatters) {
      recv = out;
    } else if (is_refused) {
      send = in;
    }
  }
  const bool makes = !alias || rank != root || is_refused;
  if (makes) code = call_rooted(number, root, n, send, recv, comm);
  expect(code == MPI_SUCCESS, "the call that is right fails", names[number]);
  if (code != MPI_SUCCESS || !(scatters || rank == root)) return;
  int* const result = recv == MPI_IN_PLACE ? in + root * n : recv;
  const int elements = blocks ? n * ranks : n;
  memory_read(on_device, mirror, result, sizeof(int) * (size_t)elements);
  bool good = true;
  for (int i = 0; i < elements; ++i) {
    const int wanted = blocks     ? salt + 1000 * (i / n) + i % n
                       : scatters ? salt + 1000 * root + rank * n + i
                                  : ranks * (salt + i) + 1000 * (ranks * (ranks - 1) / 2);
    good = good && mirror[i] == wanted;
  }
  expect(good, "the call that is right has another result", names[number]);
}

/* A call with one buffer in place of a root's two. */
static void refused_call(int number, MPI_Comm comm) {
  int* const own = number == 4 ? out : out + rank * kCount;
  const bool scatters = number == 2 || number == 3;
  const int code =
      call_rooted(number, rank, kCount, scatters ? out : own, scatters ? own : out, comm);
  expect(code != MPI_SUCCESS, "a call that aliases passes", "alone");
}

/* As natively: the peers make none of the calls that a root makes and that are refused there. The
 * next one in shared memory is one that every rank waits in, or one in which the root waits for
 * nobody. */
static void alone(void) {
  const bool is_native = getenv("TUTTI_GATHER") == NULL || *getenv("TUTTI_GATHER") == 'n';
  /* Of other roots' calls that are native and remembered MPI alone finds what is wrong. */
  for (int root = 0; root < (is_native ? 1 : ranks); ++root) {
    for (int refused = 1; refused <= 6; ++refused) {
      MPI_Comm comm = returning();
      right_calls(comm, refused, "alone"); /* Once what they need is set up. */
      for (int i = 0; i < 4; ++i) {
        rooted_call(refused % 5, root, false, false, i, comm);
        for (int number = 0; number < refused && rank == root; ++number) {
          refused_call(number % 5, comm);
          if (refused <= 3 && i == 2) refused_call(number % 5, comm);
        }
        if (refused <= 3 && i == 3) refused_call(0, comm); /* Each rank the root of its own. */
        if (i % 2 == 0) rooted_call(refused % 5, root, false, false, 7 * i + 1, comm);
        right_calls(comm, i, "alone");
      }
      MPI_Comm_free(&comm);
    }
  }
}

/* Alone, and each the first of its class on its communicator, on whose memory the ranks of a job
 * with GPUs agree. What follows is a call on which they agree, one on which they do not, or the
 * end. */
static void first(void) {
  for (int next = 0; next < 3; ++next) {
    for (int refused = 1; refused <= 5; refused += 2) {
      MPI_Comm comm = returning();
      int one = 1;
      MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, comm); /* What sets it up needs all. */
      for (int number = 0; number < refused && rank == 0; ++number) refused_call(number, comm);
      if (next == 1) MPI_Barrier(comm);
      for (int i = 0; i < 3 && next < 2; ++i) {
        if (refused < 5)
          rooted_call(refused, 0, false, false, i, comm); /* None like a refused one. */
        right_calls(comm, i, "first");
      }
      MPI_Comm_free(&comm);
    }
  }
}

/* A root that takes less from itself than it has: an error of that call alone, its peers have sent.
 */
static void uneven(void) {
  for (int i = 0; i < 8; ++i) {
    MPI_Comm comm = returning();
    right_calls(comm, i, "uneven");
    const int root = i % ranks;
    const int code =
        MPI_Gather(in, kCount, MPI_INT, out, rank == root ? 1 : kCount, MPI_INT, root, comm);
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    expect(class == MPI_ERR_TRUNCATE || rank != root, "an uneven own block passes", "uneven");
    rooted_call(0, root, false, false, i, comm);
    right_calls(comm, i, "uneven");
    MPI_Comm_free(&comm);
  }
}

/* A root makes its call again when its peers' memory has served another communicator since: as
 * natively, or an error of that call. */
static void lost(void) {
  for (int i = 0; i < 20; ++i) {
    MPI_Comm comm = returning();
    MPI_Comm other = returning();
    right_calls(comm, i, "lost");
    right_calls(other, i, "lost");
    const int n = kCount;
    for (int j = 0; j < n * ranks; ++j) mirror[j] = i + 1000 * rank + j;
    memory_write(on_device, in, mirror, sizeof(int) * (size_t)(n * ranks));
    memory_write(on_device, out, mirror, sizeof(int) * (size_t)n);
    int code = MPI_Gather(rank == 0 ? out : in, n, MPI_INT, out, n, MPI_INT, 0, comm);
    if (code != MPI_SUCCESS) {
      /* Behind the back of the others, who go on to what comes next. */
      const struct timespec while_they_go_on = {.tv_sec = 0, .tv_nsec = 30 * 1000 * 1000};
      if (i % 2 == 0) nanosleep(&while_they_go_on, NULL);
      code = MPI_Gather(in, n, MPI_INT, out, n, MPI_INT, 0, comm);
      bool good = true;
      memory_read(on_device, mirror, out, sizeof(int) * (size_t)(n * ranks));
      for (int j = 0; j < n * ranks; ++j) {
        good = good && mirror[j] == i + 1000 * (j / n) + j % n;
      }
      expect(good || code != MPI_SUCCESS, "a gather made too late is wrong", "lost");
    }
    right_calls(other, i, "lost");
    right_calls(comm, i, "lost");
    MPI_Comm_free(&comm);
    MPI_Comm_free(&other);
  }
}

static void again(void) {
  for (int number = 0; number < 5; ++number) {
    for (int root = 0; root < ranks; ++root) {
      for (int in_place = 0; in_place < 2; ++in_place) {
        MPI_Comm comm = returning();
        /* First, and when the preload knows the call. */
        for (int i = 0; i < 6; ++i) {
          if (i > 3) rooted_call(number, root, false, false, 7 * i + 3, comm);
          rooted_call(number, root, true, in_place, 7 * i, comm);
          rooted_call(number, root, false, false, 7 * i + 1, comm);
          rooted_call((number + 1) % 5, root, true, in_place, 7 * i + 2, comm);
          right_calls(comm, i, "again");
          MPI_Barrier(comm);
        }
        MPI_Comm_free(&comm);
      }
    }
  }
}

static long resident_kib(void) {
  char line[256];
  long kib = 0;
  FILE* file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
  }
  if (file) fclose(file);
  return kib;
}

static void churn(int times, int only) {
  long before = 0;
  for (int i = 0; i < times; ++i) {
    if (i == times / 4) before = resident_kib();
    MPI_Comm comm = returning();
    if (comm == MPI_COMM_NULL) {
      expect(false, "no communicator can be made any more", "churn");
      fprintf(stderr, "refused: after %d communicators\n", i);
      break;
    }
    int one = 1;
    int sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    expect(sum == ranks, "an allreduce is wrong", "churn");
    int code = MPI_SUCCESS;
    const int number = only >= 0 ? only : i % 30;
    if (!ends_the_process(number)) call_alike(number, comm, &code);
    sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    expect(sum == ranks, "an allreduce after it is wrong", "churn");
    MPI_Comm_free(&comm);
  }
  const long grown = resident_kib() - before;
  if (rank == 0) printf("churn: grew by %ld KiB over %d communicators\n", grown, times - times / 4);
  expect(grown < 4096, "memory grows", "churn");
}

/* In use, of what malloc has given. */
static long heap_bytes(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  return (long)mallinfo2().uordblks;
#else
  return 1024 * resident_kib();
#endif
}

static void live(int most) {
  MPI_Comm* comms = malloc(sizeof *comms * (size_t)most);
  int made = 0;
  const long before = heap_bytes();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (; made < most; ++made) {
    if ((comms[made] = returning()) == MPI_COMM_NULL) break;
    for (int call_number = 0; call_number < 2; ++call_number) {
      int one[64] = {1};
      int sum[64] = {0};
      const int code = MPI_Allreduce(one, sum, 64, MPI_INT, MPI_SUM, comms[made]);
      expect(code == MPI_SUCCESS && sum[0] == ranks, "an allreduce is wrong", "live");
      if (wrong > 0) break;
    }
    if (wrong > 0) break;
  }
  if (rank == 0) {
    printf("live: %d communicators, %ld bytes each\n", made,
           (heap_bytes() - before) / (made ? made : 1));
  }
  for (int i = 0; i < made; ++i) {
    int one = 1;
    int sum = 0;
    const int code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comms[i]);
    expect(code == MPI_SUCCESS && sum == ranks, "an allreduce at the end is wrong", "live");
    MPI_Comm_free(&comms[i]);
  }
  free(comms);
}

/* Blocks of a few elements over gigabytes of addresses, with hardly more memory to be had than the
 * blocks need. */
static void known(void) {
  MPI_Comm comm = returning();
  for (int turn = 0; turn < 50; ++turn) {
    for (int i = 0; i < 20; ++i) {
      int value = rank == i % ranks ? 7 * turn + i : -1;
      MPI_Bcast(&value, 1, MPI_INT, i % ranks, comm);
      expect(value == 7 * turn + i, "a bcast is wrong", "known");
    }
    int one = 1;
    int sum = 0;
    if (rank == turn % ranks) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    expect(MPI_Bcast(&one, 1, MPI_INT, 99, comm) != MPI_SUCCESS, "a wrong root passes", "known");
  }
  MPI_Comm_free(&comm);
}

static void far_apart(void) {
  enum { kFew = 100 };
  const size_t gap = (size_t)3 << 28; /* Elements: 3 GiB. */
  const size_t elements = gap * (size_t)(ranks - 1) + kFew;
  int* const spread = memory_allocate(on_device, elements * sizeof *spread);
  long in_use = 0;
  char line[256];
  FILE* file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) sscanf(line, "VmData: %ld", &in_use);
  if (file) fclose(file);
  const struct rlimit limit = {(rlim_t)in_use * 1024 + ((rlim_t)1 << 30), RLIM_INFINITY};
  setrlimit(RLIMIT_DATA, &limit);
  MPI_Comm comm = returning();
  MPI_Datatype wide = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)(gap * sizeof(int)), &wide);
  MPI_Type_commit(&wide);
  int few[kRanksMax];
  int far[kRanksMax];
  for (int peer = 0; peer < kRanksMax; ++peer) {
    few[peer] = kFew;
    far[peer] = (int)((size_t)peer * gap);
  }
  for (int number = 0; number < 4; ++number) {
    const char* const names[] = {"far allgatherv", "far gatherv", "far alltoallv", "wide gather"};
    const int block = number == 3 ? 1 : kFew;
    for (int i = 0; i < kFew * ranks; ++i) mirror[i] = 1000 * rank + i + number;
    memory_write(on_device, in, mirror, sizeof(int) * (size_t)(kFew * ranks));
    for (int i = 0; i < kFew; ++i) mirror[i] = -1;
    for (int peer = 0; peer < ranks; ++peer) {
      memory_write(on_device, spread + (size_t)peer * gap, mirror, sizeof(int) * kFew);
    }
    int code = MPI_SUCCESS;
    if (number == 0) code = MPI_Allgatherv(in, kFew, MPI_INT, spread, few, far, MPI_INT, comm);
    if (number == 1) code = MPI_Gatherv(in, kFew, MPI_INT, spread, few, far, MPI_INT, 0, comm);
    if (number == 2) {
      int near[kRanksMax];
      for (int peer = 0; peer < kRanksMax; ++peer) near[peer] = peer * kFew;
      code = MPI_Alltoallv(in, few, near, MPI_INT, spread, few, far, MPI_INT, comm);
    }
    if (number == 3) code = MPI_Gather(in, 1, MPI_INT, spread, 1, wide, 0, comm);
    expect(code == MPI_SUCCESS, "it fails", names[number]);
    for (int peer = 0; peer < ranks && (rank == 0 || number % 2 == 0); ++peer) {
      memory_read(on_device, mirror, spread + (size_t)peer * gap, sizeof(int) * kFew);
      bool good = true;
      for (int i = 0; i < kFew; ++i) {
        const int wanted = 1000 * peer + i + number + (number == 2 ? rank * kFew : 0);
        good = good && mirror[i] == (i < block ? wanted : -1);
      }
      expect(good, "it is wrong", names[number]);
    }
  }
  MPI_Type_free(&wide);
  MPI_Comm_free(&comm);
  memory_free(on_device, spread);
}

int main(int argc, char** argv) {
  int wanted = MPI_THREAD_SINGLE;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--threads") == 0) wanted = MPI_THREAD_MULTIPLE;
  }
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > kRanksMax) {
    fprintf(stderr, "refused: %d ranks; remedy: at most %d\n", ranks, kRanksMax);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const char* memory = "host";
  bool alike = true;
  bool apart = false;
  bool is_far = false;
  bool is_known = false;
  bool is_again = false;
  bool is_lost = false;
  bool is_alone = false;
  bool is_first = false;
  bool is_uneven = false;
  int only = -1;
  int churn_times = 0;
  int live_most = 0;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--apart") == 0) apart = true;
    if (strcmp(argv[i], "--far") == 0) is_far = true;
    if (strcmp(argv[i], "--known") == 0) is_known = true;
    if (strcmp(argv[i], "--again") == 0) is_again = true;
    if (strcmp(argv[i], "--lost") == 0) is_lost = true;
    if (strcmp(argv[i], "--alone") == 0) is_alone = true;
    if (strcmp(argv[i], "--first") == 0) is_first = true;
    if (strcmp(argv[i], "--uneven") == 0) is_uneven = true;
    if (i + 1 == argc) break;
    if (strcmp(argv[i], "--memory") == 0) memory = argv[i + 1];
    if (strcmp(argv[i], "--calls") == 0) alike = strcmp(argv[i + 1], "alike") == 0;
    if (strcmp(argv[i], "--only") == 0) only = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--churn") == 0) churn_times = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--live") == 0) live_most = atoi(argv[i + 1]);
  }
  memory_open(memory, rank, false);
  on_device = memory_has_device();
  /* The other ranks' calls of a type, or of none, are raised where no communicator is known. */
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  in = memory_allocate(on_device, sizeof(int) * 2 * kBlock);
  out = memory_allocate(on_device, sizeof(int) * 2 * kBlock);
  mirror = malloc(sizeof(int) * 2 * kBlock);
  for (int peer = 0; peer < kRanksMax; ++peer) {
    counts[peer] = kCount;
    displs[peer] = peer * kCount;
    byte_displs[peer] = displs[peer] * (int)sizeof(int);
    negative[peer] = peer == 0 ? -1 : kCount;
    types[peer] = MPI_INT;
  }
  MPI_Type_contiguous(1, MPI_INT, &uncommitted);
  MPI_Op_create(first_in, 0, &not_commuting);
  if (churn_times > 0) {
    churn(churn_times, only);
  } else if (live_most > 0) {
    live(live_most);
  } else if (is_far) {
    far_apart();
  } else if (is_alone) {
    alone();
  } else if (is_first) {
    first();
  } else if (is_uneven) {
    uneven();
  } else if (is_lost) {
    lost();
  } else if (is_again) {
    again();
  } else if (is_known) {
    known();
  } else {
    all_calls(alike, only, apart);
  }
  MPI_Op_free(&not_commuting);
  MPI_Type_free(&uncommitted);
  memory_free(on_device, in);
  memory_free(on_device, out);
  free(mirror);
  const long mine[2] = {checks, wrong};
  long total[2] = {0};
  NATIVE(MPI_Reduce)(mine, total, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("refused: %ld checks, %ld failed\n", total[0], total[1]);
  MPI_Finalize();
  return wrong != 0;
}
