/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What ranks put in their buffers, where a collective takes it, and whether it got there; without
 * MPI. For all measured programs: type.c (types and the data pattern), call.c (layout, reference).
 *
 * Units: counts and displacements in elements, sizes in bytes.
 */
#ifndef TUTTI_BENCH_CONTENT_H_
#define TUTTI_BENCH_CONTENT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prints "tutti-measure: <text>" on stderr and ends the job with exit status 2. The program's. */
void fail(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- type.c ---- */

enum kind { kSigned, kUnsigned, kHalf, kBrain, kFloat };

struct type {
  const char* name;
  size_t bytes;   /* One element. */
  int parts;      /* 2: complex. */
  enum kind kind; /* Of one part. */
  int index;      /* In the table of types. */
};

enum op { kSum, kProd, kMin, kMax };

/* NULL: no such type; kTypeNames lists them. */
const struct type* find_type(const char* name);
extern const char kTypeNames[];
/* False: no such operation. */
bool find_op(const char* name, enum op* op);

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
  enum op op;
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
  struct segment* segments;
  int segment_count;
};

struct call_options {
  const struct collective* collective;
  const struct type* type;
  enum op op;
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
/* Writes the input of iteration `t` and poisons the output. Host pointers. */
void call_fill(const struct call* call, const struct pattern* pattern, size_t t, void* send,
               void* recv);
/* Number of wrong elements in the output of iteration `t`. Host pointer. */
size_t call_verify(const struct call* call, const struct pattern* pattern, size_t t,
                   const void* recv);

/* The collectives by number. */
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

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_BENCH_CONTENT_H_ */
