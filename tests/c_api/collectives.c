/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Every collective of the C API on 1 to 8 ranks, which are processes of one machine, against the
 * definition: elements are computed from rank and position alone.
 *
 *   collectives [--ranks N] [--memory host|host-device|cuda] [--blocking] [--streams] [--time]
 *              [--direct]
 *
 * --memory cuda takes a GPU for each rank (exit status 77 when there are too few) and also checks a
 * graph that the program captures. --blocking, --streams: only calls of that kind; host memory has
 * no streams. --time: microseconds of an allreduce, waited for and queued. --direct: our kernels
 * must run here, so that no call may be refused; on the host device they always do.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"
#include "ranks.h"
#include "tutti/tutti.h"

enum { COUNT_MAX = 70001, RANKS_MAX = 8, GUARD = 64 };
static const int64_t kCounts[] = {0, 1, 7, 1000, COUNT_MAX};
static const unsigned char kUntouched = 0xA5;

static struct {
  int ranks;
  enum memory_kind kind;
  int blocking;
  int streams;
  int time;
  int direct;
  int shares_gpus; /* Under MPS. */
} options = {2, MEMORY_HOST, 0, 0, 0, 0, 0};

static int rank, ranks;
static tutti_comm_t* comm;
static void* send_buffer;
static void* recv_buffer;
static char *send_host, *recv_host, *result_host, *expected_host;
static size_t buffer_bytes;
static long checked;
static long refused; /* What no plan for streams carries. */

#define FAIL(...)                       \
  do {                                  \
    fprintf(stderr, "rank %d: ", rank); \
    fprintf(stderr, __VA_ARGS__);       \
    fprintf(stderr, "\n");              \
    exit(1);                            \
  } while (0)

static void must(tutti_status_t status, const char* what) {
  if (status != TUTTI_OK) {
    FAIL("%s: status %d: %s", what, (int)status, tutti_error_string(comm));
  }
}

/* ---- Elements ------------------------------------------------------------------------------- */

struct reduction {
  tutti_type_t type;
  tutti_op_t op;
  size_t bytes;
};
static const struct reduction kReductions[] = {
    {TUTTI_INT32, TUTTI_SUM, 4},        {TUTTI_FLOAT32, TUTTI_SUM, 4},
    {TUTTI_FLOAT64, TUTTI_MAX, 8},      {TUTTI_FLOAT64, TUTTI_SUM, 8},
    {TUTTI_UINT8, TUTTI_BXOR, 1},       {TUTTI_INT64, TUTTI_PROD, 8},
    {TUTTI_FLOAT16, TUTTI_SUM, 2},      {TUTTI_BFLOAT16, TUTTI_MIN, 2},
    {TUTTI_INT32_INT, TUTTI_MINLOC, 8}, {TUTTI_LOGICAL32, TUTTI_LAND, 4},
    {TUTTI_FLOAT32, TUTTI_AVG, 4},
};

/* Whether NCCL and RCCL have it. */
static int is_in_ccl(const struct reduction* of) {
  return of->type != TUTTI_LOGICAL32 && of->type != TUTTI_INT32_INT && of->op != TUTTI_BXOR;
}

/* What rank `from` gives to a reduction; small, so that every type holds every result. */
static int64_t part(int from, int64_t i) { return (from * 3 + i) % 5 + (i % 11 == 0 ? 0 : 1); }

static int64_t reduced(tutti_op_t op, int64_t i) {
  int64_t result = part(0, i);
  for (int from = 1; from < ranks; ++from) {
    const int64_t next = part(from, i);
    switch (op) {
      case TUTTI_SUM:
      case TUTTI_AVG:
        result += next;
        break;
      case TUTTI_PROD:
        result *= next;
        break;
      case TUTTI_MAX:
        result = next > result ? next : result;
        break;
      case TUTTI_MIN:
      case TUTTI_MINLOC:
        result = next < result ? next : result;
        break;
      case TUTTI_BXOR:
        result ^= next;
        break;
      default:
        result = result != 0 && next != 0;
        break;
    }
  }
  return result;
}

static int first_with(int64_t value, int64_t i) {
  int from = 0;
  while (part(from, i) != value) {
    ++from;
  }
  return from;
}

/* A small whole number as a float of 16 bits. */
static uint16_t half(int64_t value, int mantissa_bits, int bias) {
  if (value == 0) {
    return 0;
  }
  int exponent = 0;
  while (value >> (exponent + 1) != 0) {
    ++exponent;
  }
  const uint64_t fraction =
      ((uint64_t)value << mantissa_bits >> exponent) & ((1u << mantissa_bits) - 1);
  return (uint16_t)((uint64_t)(exponent + bias) << mantissa_bits | fraction);
}

static void put(char* to, tutti_type_t type, int64_t i, int64_t value, int index) {
  switch (type) {
    case TUTTI_LOGICAL32: {
      const int32_t v = value != 0;
      memcpy(to + i * 4, &v, 4);
      break;
    }
    case TUTTI_INT32: {
      const int32_t v = (int32_t)value;
      memcpy(to + i * 4, &v, 4);
      break;
    }
    case TUTTI_FLOAT32: {
      const float v = (float)value;
      memcpy(to + i * 4, &v, 4);
      break;
    }
    case TUTTI_FLOAT64: {
      const double v = (double)value;
      memcpy(to + i * 8, &v, 8);
      break;
    }
    case TUTTI_UINT8:
      to[i] = (char)value;
      break;
    case TUTTI_INT64:
      memcpy(to + i * 8, &value, 8);
      break;
    case TUTTI_FLOAT16: {
      const uint16_t v = half(value, 10, 15);
      memcpy(to + i * 2, &v, 2);
      break;
    }
    case TUTTI_BFLOAT16: {
      const uint16_t v = half(value, 7, 127);
      memcpy(to + i * 2, &v, 2);
      break;
    }
    default: {
      const int32_t v[2] = {(int32_t)value, index};
      memcpy(to + i * 8, v, 8);
      break;
    }
  }
}

static void put_reduced(char* to, const struct reduction* of, int64_t at, int64_t from,
                        int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = reduced(of->op, from + i);
    put(to, of->type, at + i, value, of->op == TUTTI_MINLOC ? first_with(value, from + i) : 0);
  }
}

/* What rank `from` has at position i of a collective that moves data; int32. */
static int32_t moved(int from, int64_t i) { return (int32_t)(from * 1000003 + i * 7 + 1); }

static void put_moved(char* to, int64_t at, int from, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t value = moved(from, first + i);
    memcpy(to + (at + i) * 4, &value, 4);
  }
}

/* Blocks of v-forms: of rank r, with a gap of one element before each. */
static int64_t block(int of, int64_t count) { return count == 0 ? 0 : count + of; }
static int64_t block_at(int of, int64_t count) {
  int64_t at = 1;
  for (int r = 0; r < of; ++r) {
    at += block(r, count) + 1;
  }
  return at;
}

/* ---- One call ------------------------------------------------------------------------------- */

static void* call_stream = TUTTI_BLOCKING;

/* Fills send_host, recv_host and expected_host (whole recv buffer; from recv_host when `keep`). */
static void prepare(void) {
  memset(send_host, kUntouched, buffer_bytes);
  memset(recv_host, kUntouched, buffer_bytes);
}

static void upload(void) {
  void* const stream = call_stream == TUTTI_BLOCKING ? NULL : call_stream;
  memory_fill(send_buffer, send_host, buffer_bytes, stream);
  memory_fill(recv_buffer, recv_host, buffer_bytes, stream);
  if (call_stream == TUTTI_BLOCKING) {
    stream_wait(NULL);
  }
}

/* `in`: which buffer holds the result. */
static void compare(tutti_status_t status, void* in, const char* what, int64_t count,
                    int in_place) {
  must(status, what);
  void* const stream = call_stream == TUTTI_BLOCKING ? NULL : call_stream;
  if (call_stream != TUTTI_BLOCKING && options.kind != MEMORY_CUDA) {
    must(tutti_comm_wait(comm), what); /* No stream of the program's to wait for. */
  }
  memory_read(result_host, in, buffer_bytes, stream);
  stream_wait(stream);
  for (size_t i = 0; i < buffer_bytes; ++i) {
    if (result_host[i] != expected_host[i]) {
      FAIL("%s of %lld%s on %s: byte %zu is %d, not %d", what, (long long)count,
           in_place ? " in place" : "", call_stream == TUTTI_BLOCKING ? "no stream" : "a stream", i,
           result_host[i], expected_host[i]);
    }
  }
  ++checked;
}

static void check_reductions(int64_t count, int in_place) {
  for (size_t k = 0; k < sizeof kReductions / sizeof kReductions[0]; ++k) {
    const struct reduction* const of = &kReductions[k];
    char what[64];
    for (int form = 0; form < 4; ++form) {
      const int root = (int)k % ranks;
      const int64_t share = count / ranks;
      int64_t counts[RANKS_MAX];
      int64_t input = count;
      int64_t own_at = 0;
      for (int r = 0; r < ranks; ++r) {
        counts[r] = form == 3 ? (r == 0 ? count - share * (ranks - 1) : share) : share;
        own_at += form == 3 && r < rank ? counts[r] : 0;
      }
      input = form == 2 ? share * ranks : count;
      snprintf(what, sizeof what, "reduction form %d type %d op %d", form, (int)of->type,
               (int)of->op);
      prepare();
      const int has_input_in_recv = in_place && (form != 1 || rank == root);
      for (int64_t i = 0; i < input; ++i) {
        const int64_t whole = of->op == TUTTI_AVG ? ranks : 1; /* So that averages are, too. */
        put(has_input_in_recv ? recv_host : send_host, of->type, i, whole * part(rank, i), rank);
      }
      memcpy(expected_host, recv_host, buffer_bytes);
      const void* const send = has_input_in_recv ? TUTTI_IN_PLACE : send_buffer;
      tutti_status_t status = TUTTI_OK;
      upload();
      switch (form) {
        case 0:
          put_reduced(expected_host, of, 0, 0, count);
          status = tutti_allreduce(comm, send, recv_buffer, count, of->type, of->op, call_stream);
          break;
        case 1:
          if (rank == root) {
            put_reduced(expected_host, of, 0, 0, count);
          }
          status = tutti_reduce(comm, send, rank == root ? recv_buffer : NULL, count, of->type,
                                of->op, root, call_stream);
          break;
        case 2:
          put_reduced(expected_host, of, 0, share * rank, share);
          status = tutti_reduce_scatter_block(comm, send, recv_buffer, share, of->type, of->op,
                                              call_stream);
          break;
        default:
          put_reduced(expected_host, of, 0, own_at, counts[rank]);
          status =
              tutti_reduce_scatter(comm, send, recv_buffer, counts, of->type, of->op, call_stream);
      }
      if (status == TUTTI_ERROR_UNSUPPORTED && call_stream != TUTTI_BLOCKING && !is_in_ccl(of)) {
        ++refused; /* Where our kernels cannot run: not a matter of this rank alone. */
        continue;
      }
      if (in_place && form >= 2) {
        /* MPI leaves open what the rest of the buffer holds. */
        const size_t kept = (size_t)(form == 2 ? share : counts[rank]) * of->bytes;
        must(status, what);
        must(tutti_comm_wait(comm), what);
        memory_read(result_host, recv_buffer, buffer_bytes, NULL);
        stream_wait(NULL);
        if (memcmp(result_host, expected_host, kept) != 0) {
          FAIL("%s of %lld in place is wrong", what, (long long)count);
        }
        ++checked;
      } else {
        compare(status, recv_buffer, what, count, in_place);
      }
    }
  }
}

static void check_movements(int64_t count, int in_place) {
  int64_t counts[RANKS_MAX], displs[RANKS_MAX], pair_counts[RANKS_MAX], pair_displs[RANKS_MAX];
  for (int r = 0; r < ranks; ++r) {
    counts[r] = block(r, count / ranks);
    displs[r] = block_at(r, count / ranks);
  }
  for (int root = 0; root < ranks; ++root) {
    const int64_t share = count / ranks;
    prepare();
    if (rank == root) {
      put_moved(recv_host, 0, root, 0, count);
    }
    memcpy(expected_host, recv_host, buffer_bytes);
    put_moved(expected_host, 0, root, 0, count);
    upload();
    compare(tutti_bcast(comm, recv_buffer, count, TUTTI_INT32, root, call_stream), recv_buffer,
            "bcast", count, 0);

    const int is_root_in_place = in_place && rank == root;
    prepare(); /* gather */
    put_moved(is_root_in_place ? recv_host + share * rank * 4 : send_host, 0, rank, 0, share);
    memcpy(expected_host, recv_host, buffer_bytes);
    for (int r = 0; r < ranks && rank == root; ++r) {
      put_moved(expected_host, r * share, r, 0, share);
    }
    upload();
    compare(tutti_gather(comm, is_root_in_place ? TUTTI_IN_PLACE : send_buffer,
                         rank == root ? recv_buffer : NULL, share, TUTTI_INT32, root, call_stream),
            recv_buffer, "gather", count, in_place);

    prepare(); /* gatherv */
    put_moved(is_root_in_place ? recv_host + displs[rank] * 4 : send_host, 0, rank, 0,
              counts[rank]);
    memcpy(expected_host, recv_host, buffer_bytes);
    for (int r = 0; r < ranks && rank == root; ++r) {
      put_moved(expected_host, displs[r], r, 0, counts[r]);
    }
    upload();
    compare(tutti_gatherv(comm, is_root_in_place ? TUTTI_IN_PLACE : send_buffer, counts[rank],
                          rank == root ? recv_buffer : NULL, rank == root ? counts : NULL,
                          rank == root ? displs : NULL, TUTTI_INT32, root, call_stream),
            recv_buffer, "gatherv", count, in_place);

    prepare(); /* scatter: in place the root's block stays in its send buffer */
    if (rank == root) {
      put_moved(send_host, 0, root, 0, share * ranks);
    }
    memcpy(expected_host, recv_host, buffer_bytes);
    if (!is_root_in_place) {
      put_moved(expected_host, 0, root, share * rank, share);
    }
    upload();
    compare(tutti_scatter(comm, rank == root ? send_buffer : NULL,
                          is_root_in_place ? TUTTI_IN_PLACE : recv_buffer, share, TUTTI_INT32, root,
                          call_stream),
            recv_buffer, "scatter", count, in_place);

    prepare(); /* scatterv */
    for (int r = 0; r < ranks && rank == root; ++r) {
      put_moved(send_host, displs[r], root, r * 5, counts[r]);
    }
    memcpy(expected_host, recv_host, buffer_bytes);
    if (!is_root_in_place) {
      put_moved(expected_host, 0, root, rank * 5, counts[rank]);
    }
    upload();
    compare(tutti_scatterv(comm, rank == root ? send_buffer : NULL, rank == root ? counts : NULL,
                           rank == root ? displs : NULL,
                           is_root_in_place ? TUTTI_IN_PLACE : recv_buffer, counts[rank],
                           TUTTI_INT32, root, call_stream),
            recv_buffer, "scatterv", count, in_place);
  }

  const int64_t share = count / ranks;
  prepare(); /* allgather */
  put_moved(in_place ? recv_host + share * rank * 4 : send_host, 0, rank, 0, share);
  memcpy(expected_host, recv_host, buffer_bytes);
  for (int r = 0; r < ranks; ++r) {
    put_moved(expected_host, r * share, r, 0, share);
  }
  upload();
  compare(tutti_allgather(comm, in_place ? TUTTI_IN_PLACE : send_buffer, recv_buffer, share,
                          TUTTI_INT32, call_stream),
          recv_buffer, "allgather", count, in_place);

  prepare(); /* allgatherv */
  put_moved(in_place ? recv_host + displs[rank] * 4 : send_host, 0, rank, 0, counts[rank]);
  memcpy(expected_host, recv_host, buffer_bytes);
  for (int r = 0; r < ranks; ++r) {
    put_moved(expected_host, displs[r], r, 0, counts[r]);
  }
  upload();
  compare(tutti_allgatherv(comm, in_place ? TUTTI_IN_PLACE : send_buffer, counts[rank], recv_buffer,
                           counts, displs, TUTTI_INT32, call_stream),
          recv_buffer, "allgatherv", count, in_place);

  prepare(); /* alltoall */
  for (int r = 0; r < ranks; ++r) {
    put_moved(in_place ? recv_host : send_host, r * share, rank, r * 11, share);
  }
  memcpy(expected_host, recv_host, buffer_bytes);
  for (int r = 0; r < ranks; ++r) {
    put_moved(expected_host, r * share, r, rank * 11, share);
  }
  upload();
  compare(tutti_alltoall(comm, in_place ? TUTTI_IN_PLACE : send_buffer, recv_buffer, share,
                         TUTTI_INT32, call_stream),
          recv_buffer, "alltoall", count, in_place);

  prepare(); /* alltoallv: between r and s go share + r + s elements, both ways */
  int64_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    pair_counts[r] = share == 0 ? 0 : share + r + rank;
    pair_displs[r] = at;
    at += pair_counts[r] + 1;
    put_moved(in_place ? recv_host : send_host, pair_displs[r], rank, r * 13, pair_counts[r]);
  }
  memcpy(expected_host, recv_host, buffer_bytes);
  for (int r = 0; r < ranks; ++r) {
    put_moved(expected_host, pair_displs[r], r, rank * 13, pair_counts[r]);
  }
  upload();
  compare(tutti_alltoallv(comm, in_place ? TUTTI_IN_PLACE : send_buffer,
                          in_place ? NULL : pair_counts, in_place ? NULL : pair_displs, recv_buffer,
                          pair_counts, pair_displs, TUTTI_INT32, call_stream),
          recv_buffer, "alltoallv", count, in_place);
  must(tutti_barrier(comm, call_stream), "barrier");
}

/* ---- Order, graphs, time -------------------------------------------------------------------- */

/* Calls in place on two streams in turn, none waited for: each must see the one before. */
static void check_order(void* first, void* second) {
  enum { STEPS = 12, COUNT = 5000 };
  prepare();
  for (int64_t i = 0; i < COUNT; ++i) {
    put(recv_host, TUTTI_FLOAT64, i, rank + 1, 0);
  }
  memcpy(expected_host, recv_host, buffer_bytes);
  int64_t sum = (int64_t)ranks * (ranks + 1) / 2;
  for (int step = 1; step < STEPS; ++step) {
    sum *= ranks;
  }
  for (int64_t i = 0; i < COUNT; ++i) {
    put(expected_host, TUTTI_FLOAT64, i, sum, 0);
  }
  call_stream = first;
  upload();
  stream_wait(first);
  for (int step = 0; step < STEPS; ++step) {
    must(tutti_allreduce(comm, TUTTI_IN_PLACE, recv_buffer, COUNT, TUTTI_FLOAT64, TUTTI_SUM,
                         step % 2 == 0 ? first : second),
         "a chain of allreduces");
  }
  call_stream = second; /* The last step's. */
  compare(TUTTI_OK, recv_buffer, "a chain of allreduces", COUNT, 1);
}

/* A graph of the program's with an allreduce in it, launched three times; or the reason why not. */
static void check_capture(void* stream) {
  enum { COUNT = 30000 };
  const int launches = graph_launches_max() < 3 ? graph_launches_max() : 3;
  prepare();
  for (int64_t i = 0; i < COUNT; ++i) {
    put(recv_host, TUTTI_FLOAT64, i, rank + 1, 0);
  }
  memcpy(expected_host, recv_host, buffer_bytes);
  call_stream = stream;
  upload();
  stream_wait(stream);
  capture_begin(stream);
  const tutti_status_t status =
      tutti_allreduce(comm, TUTTI_IN_PLACE, recv_buffer, COUNT, TUTTI_FLOAT64, TUTTI_SUM, stream);
  void* const graph = capture_end(stream);
  if (status == TUTTI_ERROR_UNSUPPORTED) {
    graph_destroy(graph);
    if (rank == 0) {
      printf("capture refused: %s\n", tutti_error_string(comm));
    }
    must(tutti_comm_status(comm), "after a refused capture");
    return;
  }
  must(status, "a captured allreduce");
  if (graph == NULL) {
    FAIL("what was captured is no graph");
  }
  int64_t sum = (int64_t)ranks * (ranks + 1) / 2;
  for (int launch = 0; launch < launches; ++launch) {
    graph_launch(graph, stream);
    sum *= launch == 0 ? 1 : ranks;
  }
  for (int64_t i = 0; i < COUNT; ++i) {
    put(expected_host, TUTTI_FLOAT64, i, sum, 0);
  }
  compare(TUTTI_OK, recv_buffer, "a graph with an allreduce", COUNT, 1);
  graph_destroy(graph); /* Before the communicator, which would wait for it. */
  if (rank == 0) {
    printf("capture: a graph with an allreduce was launched %d times\n", launches);
  }
}

/* What neither NCCL nor our kernels have in a graph cannot be captured, and that harms nothing. */
static void check_refused_capture(void* stream) {
  int64_t counts[RANKS_MAX], displs[RANKS_MAX];
  for (int r = 0; r < ranks; ++r) {
    counts[r] = 8;
    displs[r] = 8 * (int64_t)r;
  }
  call_stream = stream;
  capture_begin(stream);
  const tutti_status_t status = tutti_alltoallv(comm, TUTTI_IN_PLACE, NULL, NULL, recv_buffer,
                                                counts, displs, TUTTI_INT32, stream);
  graph_destroy(capture_end(stream));
  if (status != TUTTI_ERROR_UNSUPPORTED) {
    FAIL("a captured alltoallv in place gave %d: %s", (int)status, tutti_error_string(comm));
  }
  must(tutti_comm_status(comm), "after a refused capture");
  check_movements(64, 1);
}

/* A mistake of the program's that is found before the ranks meet. */
static void check_stream_of_another_gpu(void) {
  const tutti_status_t status = tutti_allreduce(comm, TUTTI_IN_PLACE, recv_buffer, 8, TUTTI_INT32,
                                                TUTTI_SUM, stream_make_on((rank + 1) % ranks));
  if (status != TUTTI_ERROR_INVALID_ARGUMENT ||
      strstr(tutti_error_string(comm), "the stream is of GPU") == NULL) {
    FAIL("a stream of another GPU gave %d: %s", (int)status, tutti_error_string(comm));
  }
  must(tutti_comm_status(comm), "after a stream of another GPU");
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void measure(void* stream) {
  enum { CALLS = 200 };
  for (int64_t count = 2; count <= COUNT_MAX; count *= 32) {
    double us[2] = {0, 0};
    for (int queued = 0; queued < 2; ++queued) {
      void* const how = queued ? stream : TUTTI_BLOCKING;
      for (int turn = 0; turn < 2; ++turn) { /* The first warms up. */
        must(tutti_barrier(comm, TUTTI_BLOCKING), "barrier");
        const double start = now_us();
        for (int call = 0; call < CALLS; ++call) {
          must(
              tutti_allreduce(comm, send_buffer, recv_buffer, count, TUTTI_FLOAT32, TUTTI_SUM, how),
              "allreduce");
        }
        must(tutti_comm_wait(comm), "wait");
        us[queued] = (now_us() - start) / CALLS;
      }
    }
    if (rank == 0) {
      printf("allreduce float32 sum, %8lld bytes: %8.1f us waited for, %8.1f us queued\n",
             (long long)count * 4, us[0], us[1]);
    }
  }
}

static void show_plan(const char* order, int64_t bytes) {
  char query[160];
  snprintf(
      query, sizeof query,
      "{\"collective\": \"allreduce\", \"bytes\": %lld, \"type\": \"float32\", \"op\": \"sum\", "
      "\"memory\": \"%s\", \"order\": \"%s\"}",
      (long long)bytes, options.kind == MEMORY_HOST ? "host" : "device", order);
  char* const text = tutti_comm_plan_json(comm, query);
  const char* const plan = strstr(text, "\"plan\":");
  const char* const end = plan == NULL ? NULL : strchr(plan, ',');
  printf("%d ranks, %lld bytes, %s: %.*s\n", ranks, (long long)bytes, order,
         end == NULL ? 80 : (int)(end - plan), end == NULL ? text : plan);
  tutti_free(text);
}

static int body(int own_rank, void* meeting) {
  rank = own_rank;
  ranks = options.ranks;
  memory_open(options.kind, rank);
  tutti_bootstrap_t bootstrap;
  meeting_bootstrap(meeting, rank, &bootstrap);
  if (tutti_comm_create(&bootstrap, NULL, &comm) != TUTTI_OK) {
    FAIL("create: %s", tutti_error_string(NULL));
  }
  buffer_bytes = ((size_t)COUNT_MAX + 2 * RANKS_MAX * RANKS_MAX + GUARD) * 8;
  send_buffer = memory_take(buffer_bytes);
  recv_buffer = memory_take(buffer_bytes);
  send_host = memory_take_host(buffer_bytes);
  recv_host = memory_take_host(buffer_bytes);
  result_host = memory_take_host(buffer_bytes);
  expected_host = memory_take_host(buffer_bytes);

  void* const own_stream = options.kind == MEMORY_HOST ? NULL : stream_make();
  void* const streams[] = {TUTTI_BLOCKING, own_stream, NULL};
  const size_t kinds = options.kind == MEMORY_HOST ? 1 : options.kind == MEMORY_CUDA ? 3 : 2;
  for (size_t s = 0; s < kinds; ++s) {
    if ((options.blocking && s > 0) || (options.streams && s == 0)) {
      continue;
    }
    for (size_t c = 0; c < sizeof kCounts / sizeof kCounts[0]; ++c) {
      for (int in_place = 0; in_place < 2; ++in_place) {
        call_stream = streams[s];
        check_reductions(kCounts[c], in_place);
        check_movements(kCounts[c], in_place);
      }
    }
  }
  if (options.kind != MEMORY_HOST && !options.blocking) {
    check_order(own_stream, stream_make());
    if (options.kind == MEMORY_CUDA && graph_launches_max() > 0) {
      check_capture(own_stream);
      check_refused_capture(own_stream);
    }
    if (options.kind == MEMORY_CUDA && ranks > 1 && !options.shares_gpus) {
      check_stream_of_another_gpu();
    }
  }
  if (options.time) {
    measure(options.kind == MEMORY_HOST ? TUTTI_BLOCKING : own_stream);
  }
  if (rank == 0) {
    show_plan("blocking", 4096);
    if (options.kind != MEMORY_HOST) {
      show_plan("stream", 4096);
      show_plan("stream", 64 << 20);
      show_plan("captured", 4096);
    }
    printf("%ld results of rank 0 are right, %ld calls were refused\n", checked, refused);
  }
  if (refused > 0 && (options.direct || options.kind == MEMORY_HOST_DEVICE)) {
    FAIL("%ld calls were refused, and our kernels carry all of them", refused);
  }
  must(tutti_barrier(comm, TUTTI_BLOCKING), "the last barrier");
  memory_give(send_buffer);
  memory_give(recv_buffer);
  must(tutti_comm_destroy(comm), "destroy");
  return 0;
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(argv[i], "--blocking") == 0) {
      options.blocking = 1;
    } else if (strcmp(argv[i], "--streams") == 0) {
      options.streams = 1;
    } else if (strcmp(argv[i], "--time") == 0) {
      options.time = 1;
    } else if (strcmp(argv[i], "--direct") == 0) {
      options.direct = 1;
    } else if (strcmp(argv[i], "--share") == 0) {
      options.shares_gpus = 1;
    } else if (strcmp(argv[i], "--ranks") == 0 && atoi(value) >= 1 && atoi(value) <= RANKS_MAX) {
      options.ranks = atoi(argv[++i]);
    } else if (strcmp(argv[i], "--memory") == 0 && strcmp(value, "host") == 0) {
      options.kind = MEMORY_HOST;
      ++i;
    } else if (strcmp(argv[i], "--memory") == 0 && strcmp(value, "host-device") == 0) {
      options.kind = MEMORY_HOST_DEVICE;
      ++i;
    } else if (strcmp(argv[i], "--memory") == 0 && strcmp(value, "cuda") == 0) {
      options.kind = MEMORY_CUDA;
      ++i;
    } else {
      fprintf(stderr,
              "usage: %s [--ranks 1..8] [--memory host|host-device|cuda] [--blocking] "
              "[--streams] [--time] [--direct] [--share]\n",
              argv[0]);
      return 2;
    }
  }
  if (options.kind == MEMORY_CUDA && !memory_has_gpus(options.ranks, options.shares_gpus)) {
    return 77;
  }
  return run_ranks(options.ranks, meeting_make(options.ranks), body, -1);
}
