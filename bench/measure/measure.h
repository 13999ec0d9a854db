/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * tutti-measure: an ordinary MPI program that times blocking collectives. It knows nothing of
 * Tutti: the info hints that tell its communicators apart come from the command line.
 *
 * Files: measure.c (options, timing loop, output), type.c (types and the data pattern), call.c (one
 * collective call: layout, invocation, reference), memory.c (host, CUDA, HIP), raw_ccl.c (the
 * variant that calls NCCL or RCCL itself).
 *
 * Units: counts and displacements in elements, sizes in bytes, times in microseconds (`_us`) or
 * seconds (`_s`).
 */
#ifndef TUTTI_BENCH_MEASURE_H_
#define TUTTI_BENCH_MEASURE_H_

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Prints "tutti-measure: <text>" on stderr and aborts the job with exit status 2. */
void fail(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- type.c ---- */

enum kind { kSigned, kUnsigned, kHalf, kBrain, kFloat };

struct type {
  const char* name;
  size_t bytes;   /* One element. */
  int parts;      /* 2: complex. */
  enum kind kind; /* Of one part. */
  MPI_Datatype mpi;
};

enum op { kSum, kProd, kMin, kMax };

/* NULL: no such type, or this MPI has none (see *reason). */
const struct type* find_type(const char* name, const char** reason);
/* False: no such operation. */
bool find_op(const char* name, enum op* op, MPI_Op* mpi);

/* Elements repeat after kPeriod, a prime, so that no block size aligns with it. */
enum { kPeriod = 1021 };

/* What ranks put in their buffers. Sums and products of all ranks are exact in every type (sums of
 * bfloat16 up to 85 ranks). */
struct pattern {
  const struct type* type;
  unsigned char* input;     /* kPeriod elements: what rank 0 holds. */
  unsigned char* own;       /* kPeriod elements: what this rank holds. */
  unsigned char* reference; /* kPeriod elements: the reduction over ranks 0 .. reduce_ranks - 1. */
};

void pattern_init(struct pattern* pattern, const struct type* type, bool reduction, enum op op,
                  int rank, int reduce_ranks);
void pattern_free(struct pattern* pattern);

/* ---- call.c ---- */

/* A run of output elements and where its values come from. */
struct segment {
  size_t at;    /* First element in the receive buffer. */
  size_t count; /* Elements. */
  int source;   /* Rank whose input it is; -1: the reduction. */
  size_t from;  /* First element of the source's input. */
};

struct call {
  const struct collective* collective;
  const struct type* type;
  MPI_Op op;
  int rank, ranks, root;
  bool in_place;     /* This rank passes MPI_IN_PLACE. */
  bool sends;        /* The send buffer is read. */
  bool recv_input;   /* The receive buffer is read. */
  bool recv_output;  /* The receive buffer is written. */
  size_t bytes;      /* As reported: a vector, or one rank's block x ranks. */
  int count;         /* Elements of the vector or of a block. */
  size_t send_count; /* Extent of the send buffer, elements. */
  size_t recv_count; /* Extent of the receive buffer, elements. */
  int *send_counts, *send_displs, *recv_counts, *recv_displs;
  int *send_offsets, *recv_offsets; /* Displacements in bytes, for alltoallw. */
  MPI_Datatype* types;
  struct segment* segments;
  int segment_count;
};

struct call_options {
  const struct collective* collective;
  const struct type* type;
  MPI_Op op;
  int rank, ranks, root;
  bool in_place;
  bool uneven; /* v-forms and reduce_scatter: unequal blocks, with a hole after each in v-forms. */
};

/* NULL: no such collective. */
const struct collective* find_collective(const char* name);
const char* collective_name(const struct collective* collective);
bool collective_reduces(const struct collective* collective);
/* Calls may return on one rank before others have begun (bcast, gather, scan, ...). */
bool collective_runs_ahead(const struct collective* collective);
bool collective_has_in_place(const struct collective* collective);
/* Ranks 0 .. result - 1 enter this rank's output. */
int collective_reduce_ranks(const struct collective* collective, int rank, int ranks);
/* The size a call of about `bytes` really has: a multiple of the element, and of the ranks. */
size_t collective_bytes(const struct call_options* options, size_t bytes);

void call_init(struct call* call, const struct call_options* options, size_t bytes);
void call_free(struct call* call);
/* One blocking MPI call; the buffers are where the variant wants them. */
void call_mpi(const struct call* call, const void* send, void* recv, MPI_Comm comm);
/* Writes the input of iteration `t` and poisons the output. Host pointers. */
void call_fill(const struct call* call, const struct pattern* pattern, size_t t, void* send,
               void* recv);
/* Number of wrong elements in the output of iteration `t`. Host pointer. */
size_t call_verify(const struct call* call, const struct pattern* pattern, size_t t,
                   const void* recv);

/* The collectives by number, for raw_ccl.c. */
enum collective_id {
  kBarrier,
  kBcast,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kAllgather,
  kAllgatherv,
  kAlltoall,
  kAlltoallv,
  kAlltoallw,
  kReduce,
  kAllreduce,
  kReduceScatter,
  kReduceScatterBlock,
  kScan,
  kExscan
};
enum collective_id collective_id(const struct collective* collective);

/* ---- memory.c ---- */

enum memory { kHost, kDevice, kHostDevice };

struct memory_info {
  const char* api;  /* "cuda", "hip", "host-device", "host". */
  char name[128];   /* Of this rank's device. */
  char driver[32];  /* "13.0"; empty: unknown. */
  int ordinal;      /* This rank's device; -1: none. */
  int device_count; /* Devices this process sees. */
};

/* Chooses this rank's device (local rank modulo device count). Fails with a message. */
void memory_init(enum memory memory, int local_rank, struct memory_info* info);
void* memory_alloc(size_t bytes);
/* Host memory for copies to and from the device: page-locked where there is a device. */
void* memory_alloc_pinned(size_t bytes);
/* Blocking copies; plain copies for host memory. */
void memory_to_device(void* device, const void* host, size_t bytes);
void memory_to_host(void* host, const void* device, size_t bytes);
/* A stream for raw_ccl.c; NULL for host memory. */
void* memory_stream(void);
void memory_stream_wait(void* stream);
/* dlopen of the first that exists; NULL: none. */
void* open_first(const char* const* names);

/* ---- raw_ccl.c ---- */

struct ccl_info {
  char path[512];
  char version[32];
};

/* Why the library's own call cannot carry `call`; NULL when it can. */
const char* ccl_refusal(const struct call* call, enum op op);
/* Loads the library (`path` or the usual names) and makes a communicator. Collective. */
void ccl_init(const char* path, MPI_Comm comm, struct ccl_info* info);
/* One call, complete when it returns. */
void ccl_run(const struct call* call, enum op op, const void* send, void* recv);
void ccl_finish(void);

#endif /* TUTTI_BENCH_MEASURE_H_ */
