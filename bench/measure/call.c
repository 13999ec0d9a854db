/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One collective call: which elements go where, and the reference. Everything the checker
 * knows stands in the segments that call_init lays out; they follow the MPI standard's definition
 * of each collective (MPI 4.1, chapter 6) and nothing measured.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"

enum { kIterationStep = 31, kRankStep = 17, kPoison = 0xa5 };

struct collective {
  const char* name;
  enum collective_id id;
  bool reduces;
  bool runs_ahead;
  bool blocks; /* `bytes` is block x ranks. */
};

static const struct collective kCollectives[] = {
    {"barrier", kBarrier, false, false, false},
    {"bcast", kBcast, false, true, false},
    {"gather", kGather, false, true, true},
    {"gatherv", kGatherv, false, true, true},
    {"scatter", kScatter, false, true, true},
    {"scatterv", kScatterv, false, true, true},
    {"allgather", kAllgather, false, false, true},
    {"allgatherv", kAllgatherv, false, false, true},
    {"alltoall", kAlltoall, false, false, true},
    {"alltoallv", kAlltoallv, false, false, true},
    {"alltoallw", kAlltoallw, false, false, true},
    {"reduce", kReduce, true, true, false},
    {"allreduce", kAllreduce, true, false, false},
    {"reduce_scatter", kReduceScatter, true, false, true},
    {"reduce_scatter_block", kReduceScatterBlock, true, false, true},
    {"scan", kScan, true, true, false},
    {"exscan", kExscan, true, true, false},
};

const struct collective* find_collective(const char* name) {
  for (size_t i = 0; i < sizeof kCollectives / sizeof *kCollectives; ++i)
    if (strcmp(kCollectives[i].name, name) == 0) return &kCollectives[i];
  return NULL;
}

const char* collective_name(const struct collective* collective) { return collective->name; }
bool collective_reduces(const struct collective* collective) { return collective->reduces; }
bool collective_runs_ahead(const struct collective* collective) { return collective->runs_ahead; }
enum collective_id collective_id(const struct collective* collective) { return collective->id; }

bool collective_has_in_place(const struct collective* collective) {
  return collective->id != kBarrier && collective->id != kBcast;
}

int collective_reduce_ranks(const struct collective* collective, int rank, int ranks) {
  if (collective->id == kScan) return rank + 1;
  if (collective->id == kExscan) return rank;
  return ranks;
}

size_t collective_bytes(const struct call_options* options, size_t bytes) {
  if (options->collective->id == kBarrier) return 0;
  const size_t unit =
      options->type->bytes * (options->collective->blocks ? (size_t)options->ranks : 1);
  return (bytes + unit - 1) / unit * unit;
}

/* Elements of the block with index `i` (i + j for a pair of ranks). */
static int block_count(int block, int i, bool uneven) {
  if (!uneven) return block;
  return i % 3 == 0 ? block / 2 : i % 3 == 1 ? block : block + block / 2;
}

static void* allocate(size_t count, size_t bytes) {
  void* memory = calloc(count ? count : 1, bytes);
  if (!memory) fail("out of memory");
  return memory;
}

static int checked_int(size_t value) {
  if (value > INT_MAX) fail("a count or displacement of %zu does not fit MPI's int", value);
  return (int)value;
}

static void add(struct call* call, size_t at, size_t count, int source, size_t from) {
  call->segments[call->segment_count++] = (struct segment){at, count, source, from};
}

/* Counts and displacements of blocks laid out one after the other; returns the extent. */
static size_t lay_out(int ranks, int first, int step, int block, bool uneven, bool hole,
                      int* counts, int* displs) {
  size_t at = 0;
  for (int i = 0; i < ranks; ++i) {
    counts[i] = block_count(block, first + step * i, uneven);
    displs[i] = checked_int(at);
    at += (size_t)counts[i] + (hole ? 1 : 0);
  }
  return at;
}

static void init_gather(struct call* call, bool everywhere, bool uneven) {
  const size_t extent =
      lay_out(call->ranks, 0, 1, call->count, uneven, uneven, call->recv_counts, call->recv_displs);
  const bool receives = everywhere || call->rank == call->root;
  call->in_place = call->in_place && receives;
  call->sends = !call->in_place;
  call->recv_input = call->in_place;
  call->recv_output = receives;
  call->send_count = (size_t)call->recv_counts[call->rank];
  call->recv_count = receives ? extent : 0;
  for (int r = 0; receives && r < call->ranks; ++r)
    add(call, (size_t)call->recv_displs[r], (size_t)call->recv_counts[r], r, 0);
}

static void init_scatter(struct call* call, bool uneven) {
  const size_t extent =
      lay_out(call->ranks, 0, 1, call->count, uneven, uneven, call->send_counts, call->send_displs);
  const bool is_root = call->rank == call->root;
  call->in_place = call->in_place && is_root;
  call->sends = is_root;
  call->recv_output = !call->in_place;
  call->send_count = is_root ? extent : 0;
  call->recv_count = (size_t)call->send_counts[call->rank];
  if (call->recv_output)
    add(call, 0, call->recv_count, call->root, (size_t)call->send_displs[call->rank]);
}

static void init_alltoall(struct call* call, bool uneven) {
  /* count(i, j) is count(j, i), so the send and receive layouts of a rank are the same. */
  const size_t extent = lay_out(call->ranks, call->rank, 1, call->count, uneven, uneven,
                                call->send_counts, call->send_displs);
  memcpy(call->recv_counts, call->send_counts, (size_t)call->ranks * sizeof(int));
  memcpy(call->recv_displs, call->send_displs, (size_t)call->ranks * sizeof(int));
  call->sends = !call->in_place;
  call->recv_input = call->in_place;
  call->recv_output = true;
  call->send_count = call->recv_count = extent;
  int* counts = allocate((size_t)call->ranks, sizeof(int));
  int* displs = allocate((size_t)call->ranks, sizeof(int));
  for (int r = 0; r < call->ranks; ++r) {
    lay_out(call->ranks, r, 1, call->count, uneven, uneven, counts, displs);
    add(call, (size_t)call->recv_displs[r], (size_t)call->recv_counts[r], r,
        (size_t)displs[call->rank]);
    if (call->collective->id == kAlltoallw)
      call->send_offsets[r] = call->recv_offsets[r] =
          checked_int((size_t)call->send_displs[r] * call->type->bytes);
  }
  free(counts);
  free(displs);
}

static void init_reduce_scatter(struct call* call, bool uneven) {
  const size_t extent =
      lay_out(call->ranks, 0, 1, call->count, uneven, false, call->recv_counts, call->recv_displs);
  call->sends = !call->in_place;
  call->recv_input = call->in_place;
  call->recv_output = true;
  call->send_count = extent;
  call->recv_count = call->in_place ? extent : (size_t)call->recv_counts[call->rank];
  add(call, 0, (size_t)call->recv_counts[call->rank], -1, (size_t)call->recv_displs[call->rank]);
}

static void init_vector(struct call* call) {
  const enum collective_id id = call->collective->id;
  const bool is_root = call->rank == call->root;
  const size_t count = (size_t)call->count;
  if (id == kBarrier) return;
  call->recv_count = count;
  if (id == kBcast) {
    call->in_place = false;
    call->recv_input = is_root;
    call->recv_output = !is_root;
    if (!is_root) add(call, 0, count, call->root, 0);
    return;
  }
  call->in_place = call->in_place && (id != kReduce || is_root);
  call->sends = !call->in_place;
  call->recv_input = call->in_place;
  call->recv_output = !(id == kReduce && !is_root) && !(id == kExscan && call->rank == 0);
  call->send_count = count;
  if (call->recv_output) add(call, 0, count, -1, 0);
}

void call_init(struct call* call, const struct call_options* options, size_t bytes) {
  const size_t ranks = (size_t)options->ranks;
  const size_t total = bytes / options->type->bytes;
  *call = (struct call){.collective = options->collective,
                        .type = options->type,
                        .op = options->op,
                        .rank = options->rank,
                        .ranks = options->ranks,
                        .root = options->root,
                        .in_place = options->in_place,
                        .bytes = bytes};
  call->count = checked_int(options->collective->blocks ? total / ranks : total);
  call->send_counts = allocate(ranks, sizeof(int));
  call->send_displs = allocate(ranks, sizeof(int));
  call->recv_counts = allocate(ranks, sizeof(int));
  call->recv_displs = allocate(ranks, sizeof(int));
  call->send_offsets = allocate(ranks, sizeof(int));
  call->recv_offsets = allocate(ranks, sizeof(int));
  call->segments = allocate(ranks, sizeof(struct segment));
  switch (options->collective->id) {
    case kGather:
      init_gather(call, false, false);
      break;
    case kGatherv:
      init_gather(call, false, options->uneven);
      break;
    case kAllgather:
      init_gather(call, true, false);
      break;
    case kAllgatherv:
      init_gather(call, true, options->uneven);
      break;
    case kScatter:
      init_scatter(call, false);
      break;
    case kScatterv:
      init_scatter(call, options->uneven);
      break;
    case kAlltoall:
      init_alltoall(call, false);
      break;
    case kAlltoallv:
    case kAlltoallw:
      init_alltoall(call, options->uneven);
      break;
    case kReduceScatter:
      init_reduce_scatter(call, options->uneven);
      break;
    case kReduceScatterBlock:
      init_reduce_scatter(call, false);
      break;
    default:
      init_vector(call);
      break;
  }
}

void call_free(struct call* call) {
  free(call->send_counts);
  free(call->send_displs);
  free(call->recv_counts);
  free(call->recv_displs);
  free(call->send_offsets);
  free(call->recv_offsets);
  free(call->segments);
}

/* Elements from table row `row` on before the table repeats, at most `left`. */
static size_t run_length(size_t row, size_t left) {
  const size_t run = kPeriod - row % kPeriod;
  return run < left ? run : left;
}

static void write_pattern(const struct pattern* pattern, size_t row, size_t count, void* out) {
  const size_t bytes = pattern->type->bytes;
  for (size_t done = 0, run; done < count; done += run) {
    run = run_length(row + done, count - done);
    memcpy((char*)out + done * bytes, pattern->own + (row + done) % kPeriod * bytes, run * bytes);
  }
}

void call_fill(const struct call* call, const struct pattern* pattern, size_t t, void* send,
               void* recv) {
  const size_t bytes = call->type->bytes;
  const size_t row = t * kIterationStep;
  if (call->sends) write_pattern(pattern, row, call->send_count, send);
  if (call->recv_count > 0) memset(recv, kPoison, call->recv_count * bytes);
  if (!call->recv_input) return;
  const enum collective_id id = call->collective->id;
  if (id == kGather || id == kGatherv || id == kAllgather || id == kAllgatherv) {
    const size_t at = (size_t)call->recv_displs[call->rank];
    write_pattern(pattern, row, (size_t)call->recv_counts[call->rank], (char*)recv + at * bytes);
  } else {
    write_pattern(pattern, row, call->recv_count, recv);
  }
}

static size_t count_wrong(const unsigned char* got, const unsigned char* expected, size_t count,
                          size_t bytes) {
  if (memcmp(got, expected, count * bytes) == 0) return 0;
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i)
    wrong += memcmp(got + i * bytes, expected + i * bytes, bytes) != 0;
  return wrong;
}

/* Elements between segments, which the call must leave alone. */
static size_t count_touched(const unsigned char* got, size_t elements, size_t bytes) {
  size_t wrong = 0;
  for (size_t i = 0; i < elements; ++i) {
    bool touched = false;
    for (size_t b = 0; b < bytes; ++b) touched = touched || got[i * bytes + b] != kPoison;
    wrong += touched;
  }
  return wrong;
}

size_t call_verify(const struct call* call, const struct pattern* pattern, size_t t,
                   const void* recv) {
  const size_t bytes = call->type->bytes;
  const unsigned char* got = recv;
  size_t wrong = 0;
  size_t end = 0; /* Of the segments so far; they are in ascending order. */
  for (int s = 0; s < call->segment_count; ++s) {
    const struct segment* segment = &call->segments[s];
    const unsigned char* table = segment->source < 0 ? pattern->reference : pattern->input;
    size_t row = segment->from + t * kIterationStep;
    if (segment->source > 0) row += (size_t)segment->source * kRankStep;
    for (size_t done = 0, run; done < segment->count; done += run) {
      run = run_length(row + done, segment->count - done);
      wrong += count_wrong(got + (segment->at + done) * bytes,
                           table + (row + done) % kPeriod * bytes, run, bytes);
    }
    if (!call->recv_input && segment->at > end)
      wrong += count_touched(got + end * bytes, segment->at - end, bytes);
    end = segment->at + segment->count;
  }
  if (call->recv_output && !call->recv_input)
    wrong += count_touched(got + end * bytes, call->recv_count - end, bytes);
  return wrong;
}
