/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The variant "nccl": the program calls NCCL or RCCL itself, as a user would, one call and one
 * stream synchronisation per measured call. Source of prototypes and enumerators: nccl.h of 2.18.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "measure.h"

typedef struct {
  char bytes[128]; /* NCCL_UNIQUE_ID_BYTES */
} unique_id;

static struct {
  int (*version)(int*);
  int (*unique_id)(unique_id*);
  int (*init)(void**, int, unique_id, int);
  int (*destroy)(void*);
  const char* (*error)(int);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*allreduce)(const void*, void*, size_t, int, int, void*, void*);
  int (*broadcast)(const void*, void*, size_t, int, int, void*, void*);
  int (*reduce)(const void*, void*, size_t, int, int, int, void*, void*);
  int (*allgather)(const void*, void*, size_t, int, void*, void*);
  int (*reduce_scatter)(const void*, void*, size_t, int, int, void*, void*);
  int (*send)(const void*, size_t, int, int, void*, void*);
  int (*recv)(void*, size_t, int, int, void*, void*);
} ccl;

static void* g_comm;
static void* g_stream;

enum { kNcclUint8 = 1 };

static void check(int code, const char* what) {
  if (code != 0) fail("%s: %s", what, ccl.error ? ccl.error(code) : "failed");
}

static void load(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  if (!symbol) fail("the NCCL library has no %s", name);
  memcpy(function, &symbol, sizeof symbol);
}

/* ncclDataType_t of one part; -1: NCCL has none. */
static int ccl_type(const struct type* type) {
  const size_t bytes = type->bytes / (size_t)type->parts;
  switch (type->kind) {
    case kSigned:
      return bytes == 1 ? 0 : bytes == 4 ? 2 : bytes == 8 ? 4 : -1;
    case kUnsigned:
      return bytes == 1 ? 1 : bytes == 4 ? 3 : bytes == 8 ? 5 : -1;
    case kHalf:
      return 6;
    case kFloat:
      return bytes == 4 ? 7 : 8;
    case kBrain:
      return 9;
  }
  return -1;
}

const char* ccl_refusal(const struct call* call, enum op op) {
  const enum collective_id id = collective_id(call->collective);
  if (id == kBarrier || id == kScan || id == kExscan) return "NCCL has no such collective";
  if (collective_reduces(call->collective)) {
    if (ccl_type(call->type) < 0) return "NCCL does not reduce this type";
    if (call->type->parts == 2 && op != kSum) return "NCCL has no complex types";
  }
  const bool moves_blocks = id == kAlltoall || id == kAlltoallv || id == kAlltoallw;
  if (call->in_place && (moves_blocks || id == kReduceScatter || id == kReduceScatterBlock))
    return "NCCL's in-place call is laid out differently";
  if (id == kReduceScatter)
    for (int r = 1; r < call->ranks; ++r)
      if (call->recv_counts[r] != call->recv_counts[0]) return "NCCL has equal blocks only";
  return NULL;
}

void ccl_init(const char* path, MPI_Comm comm, struct ccl_info* info) {
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL)
                       : open_first((const char* const[]){"libnccl.so.2", "librccl.so.1", NULL});
  if (!library)
    fail("variant nccl: %s; remedy: --ccl-library PATH",
         path ? dlerror() : "neither libnccl.so.2 nor librccl.so.1 can be loaded");
  load(library, "ncclGetErrorString", &ccl.error);
  load(library, "ncclGetVersion", &ccl.version);
  load(library, "ncclGetUniqueId", &ccl.unique_id);
  load(library, "ncclCommInitRank", &ccl.init);
  load(library, "ncclCommDestroy", &ccl.destroy);
  load(library, "ncclGroupStart", &ccl.group_start);
  load(library, "ncclGroupEnd", &ccl.group_end);
  load(library, "ncclAllReduce", &ccl.allreduce);
  load(library, "ncclBroadcast", &ccl.broadcast);
  load(library, "ncclReduce", &ccl.reduce);
  load(library, "ncclAllGather", &ccl.allgather);
  load(library, "ncclReduceScatter", &ccl.reduce_scatter);
  load(library, "ncclSend", &ccl.send);
  load(library, "ncclRecv", &ccl.recv);
  Dl_info where;
  int version = 0, rank = 0, ranks = 0;
  void* symbol = dlsym(library, "ncclGetVersion");
  if (dladdr(symbol, &where) && where.dli_fname)
    snprintf(info->path, sizeof info->path, "%s", where.dli_fname);
  check(ccl.version(&version), "ncclGetVersion");
  snprintf(info->version, sizeof info->version, "%d.%d.%d", version / 10000, version / 100 % 100,
           version % 100);
  unique_id id = {{0}};
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  if (rank == 0) check(ccl.unique_id(&id), "ncclGetUniqueId");
  MPI_Bcast(&id, (int)sizeof id, MPI_BYTE, 0, comm);
  g_stream = memory_stream();
  check(ccl.init(&g_comm, ranks, id, rank), "ncclCommInitRank");
}

/* Pairwise exchange of byte blocks: gather, scatter and the alltoall family. */
static void exchange(const struct call* c, const char* send, char* recv) {
  const size_t b = c->type->bytes;
  const enum collective_id id = collective_id(c->collective);
  const bool gathers = id == kGather || id == kGatherv || id == kAllgatherv;
  const bool scatters = id == kScatter || id == kScatterv;
  check(ccl.group_start(), "ncclGroupStart");
  for (int r = 0; r < c->ranks; ++r) {
    if (gathers) {
      const size_t at = (size_t)c->recv_displs[r] * b;
      const char* own = c->in_place ? recv + (size_t)c->recv_displs[c->rank] * b : send;
      if (id == kAllgatherv || r == c->root)
        check(ccl.send(own, (size_t)c->recv_counts[c->rank] * b, kNcclUint8, r, g_comm, g_stream),
              "ncclSend");
      if (id == kAllgatherv || c->rank == c->root)
        check(ccl.recv(recv + at, (size_t)c->recv_counts[r] * b, kNcclUint8, r, g_comm, g_stream),
              "ncclRecv");
    } else if (scatters) {
      const size_t at = (size_t)c->send_displs[r] * b;
      if (c->rank == c->root && !(c->in_place && r == c->rank))
        check(ccl.send(send + at, (size_t)c->send_counts[r] * b, kNcclUint8, r, g_comm, g_stream),
              "ncclSend");
    } else {
      const size_t at = (size_t)c->send_displs[r] * b;
      const size_t bytes = (size_t)c->send_counts[r] * b;
      check(ccl.send(send + at, bytes, kNcclUint8, r, g_comm, g_stream), "ncclSend");
      check(ccl.recv(recv + at, bytes, kNcclUint8, r, g_comm, g_stream), "ncclRecv");
    }
  }
  if (scatters && !c->in_place)
    check(
        ccl.recv(recv, (size_t)c->send_counts[c->rank] * b, kNcclUint8, c->root, g_comm, g_stream),
        "ncclRecv");
  check(ccl.group_end(), "ncclGroupEnd");
}

void ccl_run(const struct call* c, enum op op, const void* send, void* recv) {
  static const int ops[] = {[kSum] = 0, [kProd] = 1, [kMin] = 3, [kMax] = 2};
  const void* in = c->in_place ? recv : send;
  const size_t b = c->type->bytes;
  const size_t n = (size_t)c->count * (size_t)c->type->parts;
  const int type = ccl_type(c->type);
  switch (collective_id(c->collective)) {
    case kAllreduce:
      check(ccl.allreduce(in, recv, n, type, ops[op], g_comm, g_stream), "ncclAllReduce");
      break;
    case kReduce:
      check(ccl.reduce(in, recv, n, type, ops[op], c->root, g_comm, g_stream), "ncclReduce");
      break;
    case kBcast:
      check(ccl.broadcast(recv, recv, (size_t)c->count * b, kNcclUint8, c->root, g_comm, g_stream),
            "ncclBroadcast");
      break;
    case kAllgather: {
      const size_t block = (size_t)c->count * b;
      const void* own = c->in_place ? (const char*)recv + (size_t)c->rank * block : send;
      check(ccl.allgather(own, recv, block, kNcclUint8, g_comm, g_stream), "ncclAllGather");
      break;
    }
    case kReduceScatter:
    case kReduceScatterBlock:
      check(ccl.reduce_scatter(in, recv, n, type, ops[op], g_comm, g_stream), "ncclReduceScatter");
      break;
    default:
      exchange(c, send, recv);
      break;
  }
  memory_stream_wait(g_stream);
}

void ccl_finish(void) {
  if (g_comm) check(ccl.destroy(g_comm), "ncclCommDestroy");
}
