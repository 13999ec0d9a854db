/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Times one collective over a range of sizes for several variants of the same call.
 *
 * Method: for each size the variants take turns in one job, a block of calls each, the order
 * rotated from round to round; a barrier stands before each block, and before each call where a
 * rank may run ahead of the others (bcast, gather, scan, ...). A call's latency is the longest of
 * its ranks' times; a row has the calls' median, 99th percentile, least and most (report.c). With
 * --check every element of every variant's output is compared before and
 * after the timed calls, in both cases with the output poisoned first.
 *
 * Output (rank 0, stdout): JSON Lines: one header, rows as they are ready, {"progress": 0..1}.
 * Exit status: 0; 1: wrong elements; 2: bad usage or a failure.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "report.h"

/* Clocks and connections come up during the first size, which would otherwise look slow. */
static const double kFirstWarmUpSeconds = 0.2;
static const double kBlockWarmUpSeconds = 0.003;
enum { kMaxVariants = 32, kMaxHints = 16, kMaxRounds = 20 };

enum variant_kind {
  kMpi,    /* The MPI call on the buffers as they are. */
  kStaged, /* Copy to host memory, MPI call, copy back: what a user must do without GPU support. */
  kCcl,    /* NCCL or RCCL called by the program itself. */
  kFloor,  /* No call: what any costs before its work. */
};

struct variant {
  char* name;
  enum variant_kind kind;
  int hint_count;
  char* keys[kMaxHints];
  char* values[kMaxHints];
  MPI_Comm comm;
  const char* refused; /* Not measured, because. */
};

struct options {
  const char *collective, *type, *op, *memory, *ccl_library, *report_info;
  size_t begin, end, factor;
  int root, iterations, warmup;
  double time_cap_s; /* Per size. */
  bool in_place, uneven, check;
  int barrier; /* -1: as the collective needs; 0: each block; 1: each call. */
  int variant_count;
  struct variant variants[kMaxVariants];
  struct variant harness; /* Hints of the communicator for barriers and results. */
};

/* Everything one size needs; buffers are as large as the largest size. */
struct bench {
  struct options options;
  MPI_Comm harness;
  int rank, ranks;
  enum memory memory;
  enum op op;
  struct call_options call_options;
  struct pattern pattern;
  void *send, *recv;             /* What the variants get. */
  void *host_send, *host_recv;   /* For filling and checking; the same as above on the host. */
  void *stage_send, *stage_recv; /* Page-locked, for kStaged. */
  bool barrier_each_call;
  size_t check_count;
};

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "tutti-measure: %s\n", text);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 2);
  exit(2);
}

/* ---- options ---- */

static char* copy_text(const char* text, size_t length) {
  char* copy = malloc(length + 1);
  if (!copy) fail("out of memory");
  memcpy(copy, text, length);
  copy[length] = '\0';
  return copy;
}

/* "key=value[;key=value]" */
static void parse_hints(struct variant* variant, const char* text) {
  while (*text) {
    const size_t length = strcspn(text, ";");
    const char* equals = memchr(text, '=', length);
    if (!equals || variant->hint_count == kMaxHints) fail("bad info hints: %s", text);
    variant->keys[variant->hint_count] = copy_text(text, (size_t)(equals - text));
    variant->values[variant->hint_count++] =
        copy_text(equals + 1, length - (size_t)(equals - text) - 1);
    text += length + (text[length] == ';');
  }
}

/* "name[:hints],..." */
static void parse_variants(struct options* options, const char* text) {
  while (*text) {
    const size_t length = strcspn(text, ",");
    const size_t name = strcspn(text, ":,");
    if (options->variant_count == kMaxVariants || name == 0) fail("bad variants: %s", text);
    struct variant* variant = &options->variants[options->variant_count++];
    variant->name = copy_text(text, name);
    variant->kind = strcmp(variant->name, "staged") == 0 ? kStaged
                    : strcmp(variant->name, "nccl") == 0 ? kCcl
                                                         : kMpi;
    if (name < length) {
      char* hints = copy_text(text + name + 1, length - name - 1);
      parse_hints(variant, hints);
      free(hints);
    }
    text += length + (text[length] == ',');
  }
}

static const char kUsage[] =
    "usage: tutti-measure --collective NAME [options]\n"
    "  --collective NAME    any of MPI's 17 blocking collectives, e.g. allreduce\n"
    "  --begin, --end SIZE  smallest and largest size (4, 1M); --factor N between sizes (2)\n"
    "  --type T --op OP     float32, sum; --root RANK\n"
    "  --memory M           host | device | hostdevice\n"
    "  --in-place --uneven  MPI_IN_PLACE; unequal blocks with holes in v-forms\n"
    "  --check              compare every element\n"
    "  --iterations N --warmup N --time-cap SECONDS   per size; default by size, 5, 10\n"
    "  --barrier call|block before each call or each block of calls\n"
    "  --variants LIST      name[:key=value[;key=value]],...: communicators with these info "
    "hints;\n"
    "                       'staged' copies through host memory itself, 'nccl' calls NCCL itself\n"
    "  --harness HINTS      info hints of the communicator for barriers and results\n"
    "  --report-info KEY    report this info hint of each variant's communicator\n"
    "  --ccl-library PATH   the NCCL or RCCL of the variant 'nccl'\n";

static void parse_options(int argc, char** argv, struct options* o) {
  static const struct option long_options[] = {
      {"collective", 1, NULL, 'C'},  {"begin", 1, NULL, 'b'},    {"end", 1, NULL, 'e'},
      {"factor", 1, NULL, 'f'},      {"type", 1, NULL, 't'},     {"op", 1, NULL, 'o'},
      {"root", 1, NULL, 'r'},        {"memory", 1, NULL, 'm'},   {"in-place", 0, NULL, 'p'},
      {"uneven", 0, NULL, 'u'},      {"check", 0, NULL, 'c'},    {"iterations", 1, NULL, 'i'},
      {"warmup", 1, NULL, 'w'},      {"time-cap", 1, NULL, 'T'}, {"barrier", 1, NULL, 'B'},
      {"variants", 1, NULL, 'v'},    {"harness", 1, NULL, 'H'},  {"report-info", 1, NULL, 'R'},
      {"ccl-library", 1, NULL, 'L'}, {"help", 0, NULL, 'h'},     {NULL, 0, NULL, 0}};
  *o = (struct options){.type = "float32",
                        .op = "sum",
                        .memory = "host",
                        .begin = 4,
                        .end = 1 << 20,
                        .factor = 2,
                        .warmup = 5,
                        .time_cap_s = 10,
                        .barrier = -1};
  int c;
  while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
    switch (c) {
      case 'C':
        o->collective = optarg;
        break;
      case 'b':
        o->begin = parse_size("--begin", optarg);
        break;
      case 'e':
        o->end = parse_size("--end", optarg);
        break;
      case 'f':
        o->factor = parse_size("--factor", optarg);
        break;
      case 't':
        o->type = optarg;
        break;
      case 'o':
        o->op = optarg;
        break;
      case 'r':
        o->root = (int)parse_size("--root", optarg);
        break;
      case 'm':
        o->memory = optarg;
        break;
      case 'p':
        o->in_place = true;
        break;
      case 'u':
        o->uneven = true;
        break;
      case 'c':
        o->check = true;
        break;
      case 'i':
        o->iterations = (int)parse_size("--iterations", optarg);
        break;
      case 'w':
        o->warmup = (int)parse_size("--warmup", optarg);
        break;
      case 'T':
        o->time_cap_s = atof(optarg);
        break;
      case 'B':
        o->barrier = strcmp(optarg, "call") == 0;
        break;
      case 'v':
        parse_variants(o, optarg);
        break;
      case 'H':
        parse_hints(&o->harness, optarg);
        break;
      case 'R':
        o->report_info = optarg;
        break;
      case 'L':
        o->ccl_library = optarg;
        break;
      default:
        fail("%s", kUsage);
    }
  }
  if (!o->collective || optind != argc) fail("%s", kUsage);
  if (o->factor < 2 || o->begin > o->end) fail("sizes: begin <= end and factor >= 2 are needed");
  if (o->variant_count == 0) parse_variants(o, "native");
}

/* ---- output ---- */

static void print_header(const struct bench* b, int nodes, int ranks_per_node,
                         const struct memory_info* memory, const struct ccl_info* ccl,
                         double least_us) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0, major = 0, minor = 0;
  char* names = b->rank == 0 ? malloc((size_t)b->ranks * sizeof memory->name) : NULL;
  MPI_Gather(memory->name, sizeof memory->name, MPI_CHAR, names, sizeof memory->name, MPI_CHAR, 0,
             b->harness);
  if (b->rank != 0) return;
  MPI_Get_library_version(version, &length);
  MPI_Get_version(&major, &minor);
  printf("{\"header\": true");
  print_field("mpi", version);
  printf(", \"mpi_standard\": \"%d.%d\", \"ranks\": %d, \"nodes\": %d, \"ranks_per_node\": %d",
         major, minor, b->ranks, nodes, ranks_per_node);
  print_field("collective", collective_name(b->call_options.collective));
  print_field("type", b->call_options.type->name);
  print_field("op", collective_reduces(b->call_options.collective) ? b->options.op : "none");
  print_field("memory", b->options.memory);
  printf(", \"in_place\": %s, \"device_count\": %d", b->options.in_place ? "true" : "false",
         memory->device_count);
  print_field("device_api", memory->api);
  print_field("driver", memory->driver);
  printf(", \"devices\": [");
  for (int r = 0; r < b->ranks && memory->ordinal >= 0; ++r) {
    printf(r ? ", " : "");
    print_text(names + (size_t)r * sizeof memory->name);
  }
  printf("]");
  if (least_us > 0) printf(", \"floor_us\": %.3f", least_us);
  print_field("ccl_library", ccl->path);
  print_field("ccl_version", ccl->version);
  printf("}\n");
  for (int v = 0; v < b->options.variant_count; ++v) {
    const struct variant* variant = &b->options.variants[v];
    if (!variant->refused) continue;
    printf("{\"skipped\": ");
    print_text(variant->name);
    print_field("reason", variant->refused);
    printf("}\n");
  }
  fflush(stdout);
  free(names);
}

static void print_row(const struct bench* b, const struct variant* variant, size_t bytes,
                      double* samples_us, int count, size_t wrong) {
  char used[MPI_MAX_INFO_VAL] = "";
  int found = 0;
  if (b->options.report_info && variant->kind == kMpi) {
    MPI_Info info;
    MPI_Comm_get_info(variant->comm, &info);
    MPI_Info_get(info, b->options.report_info, sizeof used - 1, used, &found);
    MPI_Info_free(&info);
  }
  if (b->rank != 0) return;
  begin_row(bytes, variant->name);
  if (found) print_field("plan_used", used);
  end_row(samples_us, count, b->options.check, wrong);
}

/* ---- measuring ---- */

static MPI_Comm make_comm(const struct variant* variant) {
  MPI_Comm comm;
  MPI_Info info;
  if (variant->hint_count == 0) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return comm;
  }
  MPI_Info_create(&info);
  for (int h = 0; h < variant->hint_count; ++h)
    MPI_Info_set(info, variant->keys[h], variant->values[h]);
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Info_free(&info);
  return comm;
}

static void run_once(const struct bench* b, const struct call* call,
                     const struct variant* variant) {
  const size_t unit = call ? call->type->bytes : 0;
  switch (variant->kind) {
    case kFloor:
      memory_floor_call();
      break;
    case kMpi:
      call_mpi(call, b->send, b->recv, variant->comm);
      break;
    case kCcl:
      ccl_run(call, b->op, b->send, b->recv);
      break;
    case kStaged:
      if (call->sends) memory_to_host(b->stage_send, b->send, call->send_count * unit);
      if (call->recv_input) memory_to_host(b->stage_recv, b->recv, call->recv_count * unit);
      call_mpi(call, b->stage_send, b->stage_recv, variant->comm);
      if (call->recv_output) memory_to_device(b->recv, b->stage_recv, call->recv_count * unit);
      break;
  }
}

/* One call with fresh input and poisoned output; wrong elements of this rank. */
static size_t check_once(struct bench* b, const struct call* call, const struct variant* variant) {
  const size_t unit = call->type->bytes;
  const size_t t = ++b->check_count;
  call_fill(call, &b->pattern, t, b->host_send, b->host_recv);
  if (b->host_send != b->send) {
    memory_to_device(b->send, b->host_send, call->send_count * unit);
    memory_to_device(b->recv, b->host_recv, call->recv_count * unit);
  }
  if (b->stage_recv && call->recv_count > 0) {
    /* With holes in the output a staged call copies them back: give it the same poison. */
    memory_to_host(b->stage_recv, b->recv, call->recv_count * unit);
  }
  run_once(b, call, variant);
  if (b->host_recv != b->recv) {
    memset(b->host_recv, 0, call->recv_count * unit);
    memory_to_host(b->host_recv, b->recv, call->recv_count * unit);
  }
  return call_verify(call, &b->pattern, t, b->host_recv);
}

static void time_block(const struct bench* b, const struct call* call,
                       const struct variant* variant, double* samples_us, int calls) {
  MPI_Barrier(b->harness);
  for (int i = 0; i < calls; ++i) {
    if (b->barrier_each_call && i > 0) MPI_Barrier(b->harness);
    const double start_s = MPI_Wtime();
    run_once(b, call, variant);
    samples_us[i] = (MPI_Wtime() - start_s) * 1e6;
  }
}

/* At least so many calls and `least_s`, within a quarter of the time cap. */
static void warm_up(const struct bench* b, const struct call* call, const struct variant* variant,
                    int calls, double least_s) {
  const double start_s = MPI_Wtime();
  for (int i = 0;; ++i) {
    const double elapsed_s = MPI_Wtime() - start_s;
    int stop = (i >= calls && elapsed_s >= least_s) || elapsed_s > b->options.time_cap_s / 4;
    MPI_Bcast(&stop, 1, MPI_INT, 0, b->harness);
    if (stop) return;
    run_once(b, call, variant);
  }
}

/* Rounds of blocks until `iterations` or the time cap; returns the calls timed per variant. */
static int time_rounds(const struct bench* b, const struct call* call, double** samples_us,
                       int iterations) {
  const int rounds = iterations < kMaxRounds ? iterations : kMaxRounds;
  const int variants = b->options.variant_count;
  const double start_s = MPI_Wtime();
  int done = 0;
  for (int round = 0; round < rounds; ++round) {
    const int block = (iterations - done + rounds - round - 1) / (rounds - round);
    for (int k = 0; k < variants; ++k) {
      /* Every variant follows every other equally often: two communicators of one library slow
         each other's next calls. */
      const int at = (k + round / 2) % variants, v = round % 2 ? variants - 1 - at : at;
      const struct variant* variant = &b->options.variants[v];
      if (variant->refused) continue;
      /* GPUs that waited for the staging of the variant before are slow at first. */
      if (b->memory == kDevice) warm_up(b, call, variant, 0, kBlockWarmUpSeconds);
      time_block(b, call, variant, samples_us[v] + done, block);
    }
    done += block;
    int stop = MPI_Wtime() - start_s > b->options.time_cap_s;
    MPI_Bcast(&stop, 1, MPI_INT, 0, b->harness);
    if (stop) break;
  }
  return done;
}

/* Warmed up and timed as a plan is, each call as long as its slowest rank's. The median; 0: no
 * device, or no way. Collective. */
static double floor_us(const struct bench* b) {
  enum { kBlocks = 15, kCalls = 20, kAll = kBlocks * kCalls };
  static const struct variant floor = {.kind = kFloor};
  int ready = b->memory == kDevice && memory_floor_init();
  MPI_Allreduce(MPI_IN_PLACE, &ready, 1, MPI_INT, MPI_MIN, b->harness);
  if (!ready) return 0;
  double samples_us[kAll], longest_us[kAll];
  warm_up(b, NULL, &floor, b->options.warmup, kFirstWarmUpSeconds);
  for (int i = 0; i < kAll; i += kCalls) time_block(b, NULL, &floor, samples_us + i, kCalls);
  MPI_Allreduce(samples_us, longest_us, kAll, MPI_DOUBLE, MPI_MAX, b->harness);
  return sort_samples(longest_us, kAll);
}

/* Returns the wrong elements of all ranks and variants. */
static size_t measure_size(struct bench* b, size_t bytes, bool is_first) {
  struct call call;
  call_init(&call, &b->call_options, bytes);
  const int variants = b->options.variant_count;
  const int iterations =
      b->options.iterations > 0 ? b->options.iterations : default_iterations(bytes);
  double* samples_us[kMaxVariants] = {NULL};
  uint64_t wrong[kMaxVariants] = {0}, all_wrong[kMaxVariants] = {0};
  for (int v = 0; v < variants; ++v) {
    const struct variant* variant = &b->options.variants[v];
    samples_us[v] = calloc((size_t)iterations, sizeof(double));
    if (!samples_us[v]) fail("out of memory");
    if (variant->refused) continue;
    if (b->options.check) wrong[v] += check_once(b, &call, variant);
    warm_up(b, &call, variant, b->options.warmup, is_first ? kFirstWarmUpSeconds : 0);
  }
  const int timed = time_rounds(b, &call, samples_us, iterations);
  for (int v = 0; v < variants; ++v)
    if (b->options.check && !b->options.variants[v].refused)
      wrong[v] += check_once(b, &call, &b->options.variants[v]);
  MPI_Allreduce(wrong, all_wrong, variants, MPI_UINT64_T, MPI_SUM, b->harness);
  size_t total = 0;
  for (int v = 0; v < variants; ++v) {
    double* longest = malloc((size_t)timed * sizeof(double));
    if (!longest) fail("out of memory");
    MPI_Reduce(samples_us[v], longest, timed, MPI_DOUBLE, MPI_MAX, 0, b->harness);
    if (!b->options.variants[v].refused)
      print_row(b, &b->options.variants[v], bytes, longest, timed, (size_t)all_wrong[v]);
    total += (size_t)all_wrong[v];
    free(longest);
    free(samples_us[v]);
  }
  call_free(&call);
  return total;
}

/* ---- set-up ---- */

static void resolve(struct bench* b) {
  struct options* o = &b->options;
  struct call_options* c = &b->call_options;
  c->collective = find_collective(o->collective);
  if (!c->collective) fail("--collective %s: no such collective", o->collective);
  c->type = find_type(o->type);
  if (!c->type) fail("--type %s: no such type; types: %s", o->type, kTypeNames);
  const MPI_Datatype type = mpi_type(c->type);
  int type_bytes = 0;
  if (type != MPI_DATATYPE_NULL) MPI_Type_size(type, &type_bytes);
  if ((size_t)type_bytes != c->type->bytes)
    fail("--type %s: this MPI library has no such type", o->type);
  if (!find_op(o->op, &b->op)) fail("--op %s: sum, prod, min or max", o->op);
  c->op = b->op;
  if (collective_reduces(c->collective) && c->type->parts == 2 && b->op != kSum && b->op != kProd)
    fail("--op %s: complex numbers have no order", o->op);
  if (o->root >= b->ranks) fail("--root %d: there are %d ranks", o->root, b->ranks);
  if (o->in_place && !collective_has_in_place(c->collective))
    fail("--in-place: %s has no in-place form", o->collective);
  c->rank = b->rank;
  c->ranks = b->ranks;
  c->root = o->root;
  c->in_place = o->in_place;
  c->uneven = o->uneven;
  b->memory = strcmp(o->memory, "host") == 0         ? kHost
              : strcmp(o->memory, "device") == 0     ? kDevice
              : strcmp(o->memory, "hostdevice") == 0 ? kHostDevice
                                                     : (enum memory) - 1;
  if (b->memory == (enum memory) - 1) fail("--memory %s: host, device or hostdevice", o->memory);
  b->barrier_each_call = o->barrier >= 0 ? o->barrier : collective_runs_ahead(c->collective);
  if (collective_id(c->collective) == kBarrier) o->begin = o->end = 0;
}

static void allocate_buffers(struct bench* b) {
  struct call largest;
  call_init(&largest, &b->call_options, collective_bytes(&b->call_options, b->options.end));
  const size_t send = largest.send_count * largest.type->bytes;
  const size_t recv = largest.recv_count * largest.type->bytes;
  call_free(&largest);
  b->send = b->host_send = memory_alloc(send);
  b->recv = b->host_recv = memory_alloc(recv);
  bool staged = false;
  for (int v = 0; v < b->options.variant_count; ++v)
    staged = staged || b->options.variants[v].kind == kStaged;
  if (staged) {
    b->stage_send = memory_alloc_pinned(send);
    b->stage_recv = memory_alloc_pinned(recv);
  }
  if (b->memory == kDevice) {
    b->host_send = memory_alloc_pinned(send);
    b->host_recv = memory_alloc_pinned(recv);
  }
}

static void prepare_variants(struct bench* b, struct ccl_info* ccl) {
  struct call probe;
  call_init(&probe, &b->call_options, collective_bytes(&b->call_options, b->options.begin));
  bool has_ccl = false;
  for (int v = 0; v < b->options.variant_count; ++v) {
    struct variant* variant = &b->options.variants[v];
    if (variant->kind == kStaged && b->memory == kHost)
      variant->refused = "the buffers are in host memory";
    if (variant->kind == kCcl)
      variant->refused = b->memory == kDevice ? ccl_refusal(&probe, b->op)
                                              : "the buffers are not in device memory";
    has_ccl = has_ccl || (variant->kind == kCcl && !variant->refused);
    variant->comm = variant->kind == kCcl ? MPI_COMM_NULL : make_comm(variant);
  }
  call_free(&probe);
  if (has_ccl) ccl_init(b->options.ccl_library, b->harness, ccl);
}

static size_t measure_sizes(struct bench* b) {
  const struct options* o = &b->options;
  const double steps = size_steps(o->begin, o->end, o->factor);
  size_t wrong = 0, last = SIZE_MAX;
  double step = 0;
  for (size_t size = o->begin; size <= o->end; size = size == 0 ? 1 : size * o->factor) {
    const size_t bytes = collective_bytes(&b->call_options, size);
    if (bytes != last) /* Rounding may give a size twice. */
      wrong += measure_size(b, bytes, last == SIZE_MAX);
    last = bytes;
    ++step;
    if (b->rank == 0) print_progress(step < steps ? step / steps : 1);
    if (o->end == 0) break;
  }
  return wrong;
}

int main(int argc, char** argv) {
  static struct bench b;
  struct memory_info memory;
  struct ccl_info ccl = {"", ""};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
  parse_options(argc, argv, &b.options);
  resolve(&b);

  MPI_Comm node;
  int local_rank = 0, ranks_per_node = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local_rank);
  MPI_Comm_size(node, &ranks_per_node);
  MPI_Comm_free(&node);
  memory_init(b.memory, local_rank, &memory);

  b.harness = make_comm(&b.options.harness);
  int nodes = local_rank == 0;
  MPI_Allreduce(MPI_IN_PLACE, &nodes, 1, MPI_INT, MPI_SUM, b.harness);
  MPI_Allreduce(MPI_IN_PLACE, &ranks_per_node, 1, MPI_INT, MPI_MAX, b.harness);

  allocate_buffers(&b);
  pattern_init(&b.pattern, b.call_options.type, collective_reduces(b.call_options.collective), b.op,
               b.rank, collective_reduce_ranks(b.call_options.collective, b.rank, b.ranks));
  prepare_variants(&b, &ccl);
  print_header(&b, nodes, ranks_per_node, &memory, &ccl, floor_us(&b));
  const size_t wrong = measure_sizes(&b);

  ccl_finish();
  for (int v = 0; v < b.options.variant_count; ++v)
    if (b.options.variants[v].comm != MPI_COMM_NULL) MPI_Comm_free(&b.options.variants[v].comm);
  MPI_Comm_free(&b.harness);
  pattern_free(&b.pattern);
  MPI_Finalize();
  return wrong > 0 && b.rank == 0 ? 1 : 0;
}
