/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Every predefined datatype, every predefined operation, every collective: what a call through
 * Tutti leaves in memory against what the MPI library itself leaves there (native.h), bit for bit;
 * where the library refuses a pair, so must the call. Also types made of one predefined type.
 * Prints the plan of every call that had none of ours:
 *
 *   mpi MPI_LONG_DOUBLE sum allreduce
 *
 *   types [--memory KIND] [--elements N] [--seed S]
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "blocking.h"
#include "memory.h"
#include "native.h"

enum { kRanksMax = 16, kTypesMax = 128 };

/* What the bytes of an element are, so that values can be chosen that every order of combining
 * gives the same result for. */
typedef enum { kInteger, kReal, kComplex, kTruth, kValueIndex, kOpaque } Kind;

typedef struct {
  const char* name;
  MPI_Datatype type;
  Kind kind;
  int value_bytes; /* Of a number, or of the value of a pair. */
  int index_at;    /* Of a pair. */
  bool real_value; /* Of a pair. */
  bool is_ours;    /* Made here: to be freed. */
  bool moves_only; /* A library ends the process when it reduces it. */
  int units;       /* Predefined elements in one of a derived type. */
  int unit_bytes;  /* From one of these to the next. */
} Type;

static Type types[kTypesMax];
static int type_count;
static int rank;
static int ranks;
static MPI_Comm ours;
static MPI_Comm theirs;
static bool on_device;
static long checks;
static long failed;
static uint64_t seed = 1;

static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + a;
  const uint64_t words[2] = {b, c};
  for (int i = 0; i < 2; ++i) {
    state = (state ^ (state >> 30) ^ words[i]) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    state ^= state >> 31;
  }
  return state;
}

/* --- The types ------------------------------------------------------------------------------- */

static Type* add(const char* name, MPI_Datatype type, Kind kind, int value_bytes) {
  if (type == MPI_DATATYPE_NULL) return NULL;
  int size = 0;
  if (PMPI_Type_size(type, &size) != MPI_SUCCESS || size <= 0) return NULL;
  if (type_count == kTypesMax) abort();
  Type* added = &types[type_count++];
  *added = (Type){.name = name, .type = type, .kind = kind, .value_bytes = value_bytes};
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_extent(type, &lower, &extent);
  added->units = 1;
  added->unit_bytes = (int)extent;
  if (value_bytes == 0) {
    added->value_bytes = kind == kComplex ? size / 2 : size;
  }
  return added;
}

static void add_pair(const char* name, MPI_Datatype type, int value_bytes, bool real_value,
                     int index_at) {
  Type* added = add(name, type, kValueIndex, value_bytes);
  if (!added) return;
  added->real_value = real_value;
  added->index_at = index_at;
}

#define ADD(type, kind) add(#type, type, kind, 0)
#define PAIR(type, bytes, real, at) add_pair(#type, type, bytes, real, at)

static void add_predefined(void) {
  ADD(MPI_CHAR, kInteger);
  ADD(MPI_SIGNED_CHAR, kInteger);
  ADD(MPI_UNSIGNED_CHAR, kInteger);
  ADD(MPI_BYTE, kInteger);
  ADD(MPI_PACKED, kInteger);
  ADD(MPI_WCHAR, kInteger);
  ADD(MPI_SHORT, kInteger);
  ADD(MPI_UNSIGNED_SHORT, kInteger);
  ADD(MPI_INT, kInteger);
  ADD(MPI_UNSIGNED, kInteger);
  ADD(MPI_LONG, kInteger);
  ADD(MPI_UNSIGNED_LONG, kInteger);
  ADD(MPI_LONG_LONG, kInteger);
  ADD(MPI_UNSIGNED_LONG_LONG, kInteger);
  ADD(MPI_INT8_T, kInteger);
  ADD(MPI_INT16_T, kInteger);
  ADD(MPI_INT32_T, kInteger);
  ADD(MPI_INT64_T, kInteger);
  ADD(MPI_UINT8_T, kInteger);
  ADD(MPI_UINT16_T, kInteger);
  ADD(MPI_UINT32_T, kInteger);
  ADD(MPI_UINT64_T, kInteger);
  ADD(MPI_AINT, kInteger);
  ADD(MPI_OFFSET, kInteger);
  ADD(MPI_COUNT, kInteger);
  ADD(MPI_FLOAT, kReal);
  ADD(MPI_DOUBLE, kReal);
  ADD(MPI_LONG_DOUBLE, kReal);
  ADD(MPI_C_BOOL, kTruth);
  ADD(MPI_C_FLOAT_COMPLEX, kComplex);
  ADD(MPI_C_DOUBLE_COMPLEX, kComplex);
  ADD(MPI_C_LONG_DOUBLE_COMPLEX, kComplex);
  ADD(MPI_CXX_BOOL, kTruth);
  ADD(MPI_CXX_FLOAT_COMPLEX, kComplex);
  ADD(MPI_CXX_DOUBLE_COMPLEX, kComplex);
  ADD(MPI_CXX_LONG_DOUBLE_COMPLEX, kComplex);
  ADD(MPI_CHARACTER, kInteger);
  ADD(MPI_LOGICAL, kTruth);
  ADD(MPI_INTEGER, kInteger);
  ADD(MPI_INTEGER1, kInteger);
  ADD(MPI_INTEGER2, kInteger);
  ADD(MPI_INTEGER4, kInteger);
  ADD(MPI_INTEGER8, kInteger);
  ADD(MPI_REAL, kReal);
  ADD(MPI_REAL4, kReal);
  ADD(MPI_REAL8, kReal);
  ADD(MPI_REAL16, kReal);
  ADD(MPI_DOUBLE_PRECISION, kReal);
  ADD(MPI_COMPLEX, kComplex);
  ADD(MPI_COMPLEX8, kComplex);
  ADD(MPI_COMPLEX16, kComplex);
  ADD(MPI_COMPLEX32, kComplex);
  ADD(MPI_DOUBLE_COMPLEX, kComplex);
#ifdef MPI_LOGICAL1
  ADD(MPI_LOGICAL1, kTruth);
  ADD(MPI_LOGICAL2, kTruth);
  ADD(MPI_LOGICAL4, kTruth);
  ADD(MPI_LOGICAL8, kTruth);
#endif
#ifdef MPI_INTEGER16
  ADD(MPI_INTEGER16, kInteger);
#endif
#ifdef MPI_REAL2
  ADD(MPI_REAL2, kReal);
#endif
#ifdef MPIX_C_FLOAT16
  ADD(MPIX_C_FLOAT16, kReal);
#endif
#ifdef MPIX_BFLOAT16
  /* Offered as a type, but MPICH 5.0 aborts in a reduction with it. */
  Type* brain = ADD(MPIX_BFLOAT16, kReal);
  if (brain) brain->moves_only = true;
#endif
  PAIR(MPI_SHORT_INT, 2, false, 4);
  PAIR(MPI_2INT, 4, false, 4);
  PAIR(MPI_LONG_INT, 8, false, 8);
  PAIR(MPI_FLOAT_INT, 4, true, 4);
  PAIR(MPI_DOUBLE_INT, 8, true, 8);
  PAIR(MPI_LONG_DOUBLE_INT, 16, true, 16);
  PAIR(MPI_2INTEGER, 4, false, 4);
  PAIR(MPI_2REAL, 4, true, 4);
  PAIR(MPI_2DOUBLE_PRECISION, 8, true, 8);
}

static void add_unnamed(const char* name, MPI_Datatype type, Kind kind, int units, int unit_bytes) {
  Type* added = add(name, type, kind, unit_bytes);
  if (!added) return;
  added->units = units;
  added->unit_bytes = unit_bytes;
  added->is_ours = true;
}

/* Types without a name that are one predefined type in order, and Fortran's by precision. */
static void add_derived(void) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  PMPI_Type_contiguous(3, MPI_FLOAT, &type);
  PMPI_Type_commit(&type);
  add_unnamed("contiguous(3, MPI_FLOAT)", type, kReal, 3, 4);
  PMPI_Type_dup(MPI_CHAR, &type);
  add_unnamed("dup(MPI_CHAR)", type, kInteger, 1, 1);
  PMPI_Type_create_resized(MPI_DOUBLE, 0, 8, &type);
  PMPI_Type_commit(&type);
  add_unnamed("resized(MPI_DOUBLE)", type, kReal, 1, 8);
  PMPI_Type_contiguous(2, MPI_INT, &inner);
  PMPI_Type_create_resized(inner, 0, 8, &type);
  PMPI_Type_free(&inner);
  PMPI_Type_commit(&type);
  add_unnamed("resized(contiguous(2, MPI_INT))", type, kInteger, 2, 4);
  if (MPI_REAL != MPI_DATATYPE_NULL && PMPI_Type_create_f90_real(6, 30, &type) == MPI_SUCCESS) {
    add("f90_real(6, 30)", type, kReal, 0);
  }
  if (PMPI_Type_create_f90_real(15, 300, &type) == MPI_SUCCESS) {
    add("f90_real(15, 300)", type, kReal, 0);
  }
  if (PMPI_Type_create_f90_complex(6, 30, &type) == MPI_SUCCESS) {
    add("f90_complex(6, 30)", type, kComplex, 0);
  }
  for (int digits = 2; digits <= 18; digits += digits < 4 ? 2 : 5) {
    static const char* const names[] = {"f90_integer(2)", "f90_integer(4)", "f90_integer(9)",
                                        "f90_integer(14)"};
    if (digits <= 14 && PMPI_Type_create_f90_integer(digits, &type) == MPI_SUCCESS) {
      add(names[digits == 2 ? 0 : digits == 4 ? 1 : digits == 9 ? 2 : 3], type, kInteger, 0);
    }
  }
}

/* --- Values ----------------------------------------------------------------------------------- */

static const char* const op_names[] = {"sum",  "prod", "min", "max",  "land",   "lor",
                                       "lxor", "band", "bor", "bxor", "minloc", "maxloc"};
enum { kSum, kProd, kMin, kMax, kLand, kLor, kLxor, kBand, kBor, kBxor, kMinloc, kMaxloc, kOps };
static MPI_Op ops[kOps];

static void put_real(unsigned char* at, int bytes, int64_t value) {
  if (bytes == 2) {
    static const uint16_t halves[4] = {0x0000, 0x3c00, 0x4000, 0xbc00}; /* 0, 1, 2, -1. */
    memcpy(at, &halves[(uint64_t)value % 4], 2);
  } else if (bytes == 4) {
    const float number = (float)value;
    memcpy(at, &number, 4);
  } else if (bytes == 8) {
    const double number = (double)value;
    memcpy(at, &number, 8);
  } else {
    const long double number = (long double)value;
    memcpy(at, &number, 10);
  }
}

/* Sums of 8 ranks and products of two stay in range in one byte, signed or not: beyond it the
 * libraries differ from themselves (Open MPI's vector code saturates, its scalar code wraps). */
static int64_t value_of(int op, Kind kind, uint64_t random, int from) {
  if (kind == kTruth) return (int64_t)(random % 2);
  switch (op) {
    case kSum:
      return (int64_t)(random % 12);
    case kProd:
      return from < 3 ? (int64_t)(random % 4) : 1;
    case kLand:
    case kLor:
    case kLxor:
      return (int64_t)(random % 3) * 2;
    case kMin:
    case kMax:
      return kind == kInteger ? (int64_t)random : (int64_t)(random % 2000) - 1000;
    case kMinloc:
    case kMaxloc:
      return (int64_t)(random % 5) - 2;
    default:
      return (int64_t)random;
  }
}

static void fill(const Type* type, int op, int from, int count, unsigned char* bytes) {
  const int elements = count * type->units;
  for (int i = 0; i < elements; ++i) {
    unsigned char* at = bytes + (size_t)i * (size_t)type->unit_bytes;
    const uint64_t random = mixed((uint64_t)from * 131 + (uint64_t)op, (uint64_t)i, 7);
    const int64_t value = value_of(op, type->kind, random, from);
    memset(at, 0, (size_t)type->unit_bytes);
    switch (type->kind) {
      case kReal:
        put_real(at, type->value_bytes, op < 0 ? (int64_t)(random % 1000) : value);
        break;
      case kComplex: /* No part of a product is zero, whose sign the order of combining decides. */
        put_real(at, type->value_bytes, 1 + (int64_t)((uint64_t)value % 3));
        put_real(at + type->value_bytes, type->value_bytes,
                 op == kProd && from > 0 ? 0 : 1 + (int64_t)(random >> 40) % 3);
        break;
      case kValueIndex: {
        const int32_t index = (int32_t)(random >> 33) % 100;
        if (type->real_value) {
          put_real(at, type->value_bytes, value % 50);
        } else {
          memcpy(at, &value, (size_t)type->value_bytes);
        }
        if (type->real_value && strncmp(type->name, "MPI_2", 5) == 0) {
          put_real(at + type->index_at, type->value_bytes, index);
        } else {
          memcpy(at + type->index_at, &index, 4);
        }
        break;
      }
      default:
        if (type->value_bytes <= 8) {
          memcpy(at, &value, (size_t)type->value_bytes);
        } else {
          memcpy(at, &value, 8);
        }
    }
  }
}

/* --- Calls ------------------------------------------------------------------------------------ */

#define CALL(name, ...) \
  (native ? NATIVE(MPI_##name)(__VA_ARGS__, theirs) : MPI_##name(__VA_ARGS__, ours))

/* `count` elements a block; v-forms give rank r (count + r) of its own. */
static int call(bool native, Collective collective, MPI_Datatype type, MPI_Op op, int count,
                const void* send, void* recv) {
  int counts[kRanksMax];
  int displs[kRanksMax];
  int lengths[kRanksMax];
  int bytes[kRanksMax];
  MPI_Datatype each[kRanksMax];
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_extent(type, &lower, &extent);
  const int root = ranks - 1;
  for (int i = 0, at = 0; i < ranks; ++i) {
    counts[i] = count + i % 2;
    displs[i] = at;
    lengths[i] = count + (i + rank) % 2; /* As much one way as the other. */
    bytes[i] = i * (count + 1) * (int)extent;
    each[i] = type;
    at += count + 1;
  }
  switch (collective) {
    case kAllreduce:
      return CALL(Allreduce, send, recv, count, type, op);
    case kReduce:
      return CALL(Reduce, send, recv, count, type, op, root);
    case kReduceScatter:
      return CALL(Reduce_scatter, send, recv, counts, type, op);
    case kReduceScatterBlock:
      return CALL(Reduce_scatter_block, send, recv, count, type, op);
    case kScan:
      return CALL(Scan, send, recv, count, type, op);
    case kExscan:
      return CALL(Exscan, send, recv, count, type, op);
    case kBcast:
      return CALL(Bcast, recv, count, type, root);
    case kGather:
      return CALL(Gather, send, count, type, recv, count, type, root);
    case kGatherv:
      return CALL(Gatherv, send, counts[rank], type, recv, counts, displs, type, root);
    case kScatter:
      return CALL(Scatter, send, count, type, recv, count, type, root);
    case kScatterv:
      return CALL(Scatterv, send, counts, displs, type, recv, counts[rank], type, root);
    case kAllgather:
      return CALL(Allgather, send, count, type, recv, count, type);
    case kAllgatherv:
      return CALL(Allgatherv, send, counts[rank], type, recv, counts, displs, type);
    case kAlltoall:
      return CALL(Alltoall, send, count, type, recv, count, type);
    case kAlltoallv:
      return CALL(Alltoallv, send, lengths, displs, type, recv, lengths, displs, type);
    default:
      return CALL(Alltoallw, send, lengths, bytes, each, recv, lengths, bytes, each);
  }
}

static int class_of(int code) {
  int error_class = code;
  MPI_Error_class(code, &error_class);
  return error_class;
}

/* The plan of the last call: ours, or the MPI library's own. */
static bool was_native(void) {
  MPI_Info info = MPI_INFO_NULL;
  char plan[128] = "";
  int found = 0;
  if (MPI_Comm_get_info(ours, &info) != MPI_SUCCESS) return true;
  MPI_Info_get(info, "tutti_plan_used", (int)sizeof plan - 1, plan, &found);
  MPI_Info_free(&info);
  return !found || strncmp(plan, "mpi", 3) == 0;
}

static void check(bool ok, const Type* type, int op, Collective collective, const char* what) {
  ++checks;
  if (ok) return;
  ++failed;
  fprintf(stderr, "FAILED %s %s %s on rank %d: %s\n", type->name, op < 0 ? "-" : op_names[op],
          collective_names[collective], rank, what);
}

/* What lies between and behind the parts of a pair is no data. */
static void clear_padding(const Type* type, unsigned char* bytes, size_t length) {
  if (type->kind != kValueIndex) return;
  const bool real_index = strncmp(type->name, "MPI_2", 5) == 0 && type->real_value;
  const int value_end = type->value_bytes == 16 ? 10 : type->value_bytes;
  const int index_end = type->index_at + (real_index ? type->value_bytes : 4);
  for (size_t i = 0; i < length; ++i) {
    const int at = (int)(i % (size_t)type->unit_bytes);
    if ((at >= value_end && at < type->index_at) || at >= index_end) bytes[i] = 0;
  }
}

/* False: the library refuses. */
static bool compare(const Type* type, int op, Collective collective, int count) {
  const size_t element = (size_t)type->unit_bytes * (size_t)type->units;
  const size_t bytes = element * (size_t)(count + 1) * (size_t)ranks;
  unsigned char* send = calloc(1, bytes);
  unsigned char* recv = calloc(1, bytes);
  unsigned char* expected = calloc(1, bytes);
  unsigned char* got = calloc(1, bytes);
  if (!send || !recv || !expected || !got) abort();
  const MPI_Op operation = op < 0 ? MPI_OP_NULL : ops[op];
  fill(type, op, rank, (count + 1) * ranks, send);
  fill(type, op, rank, (count + 1) * ranks, recv);
  memcpy(expected, recv, bytes);
  const int native_code = call(true, collective, type->type, operation, count, send, expected);
  void* const our_send = memory_allocate(on_device, bytes);
  void* const our_recv = memory_allocate(on_device, bytes);
  memory_write(on_device, our_send, send, bytes);
  memory_write(on_device, our_recv, recv, bytes);
  const int code = call(false, collective, type->type, operation, count, our_send, our_recv);
  memory_read(on_device, got, our_recv, bytes);
  check(class_of(code) == class_of(native_code), type, op, collective,
        native_code == MPI_SUCCESS ? "an error where the library has none"
                                   : "another error than the library's");
  if (code == MPI_SUCCESS && native_code == MPI_SUCCESS) {
    clear_padding(type, got, bytes);
    clear_padding(type, expected, bytes);
    check(memcmp(got, expected, bytes) == 0, type, op, collective, "another result");
    if (rank == 0 && was_native()) {
      printf("mpi %s %s %s\n", type->name, op < 0 ? "-" : op_names[op],
             collective_names[collective]);
    }
  }
  memory_free(on_device, our_send);
  memory_free(on_device, our_recv);
  free(send);
  free(recv);
  free(expected);
  free(got);
  return native_code == MPI_SUCCESS;
}

int main(int argc, char** argv) {
  const char* memory = "host";
  int elements = 9;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--memory") == 0) memory = argv[i + 1];
    if (strcmp(argv[i], "--elements") == 0) elements = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
  }
  MPI_Init(&argc, &argv);
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > kRanksMax) MPI_Abort(MPI_COMM_WORLD, 64);
  memory_open(memory, rank, false);
  on_device = memory_has_device();
  PMPI_Comm_dup(MPI_COMM_WORLD, &theirs);
  PMPI_Comm_dup(MPI_COMM_WORLD, &ours);
  /* MPI_COMM_WORLD and MPI_COMM_SELF keep MPI_ERRORS_ARE_FATAL: nothing may be raised there. */
  PMPI_Comm_set_errhandler(theirs, MPI_ERRORS_RETURN);
  PMPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN);
  memcpy(ops,
         (MPI_Op[kOps]){MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND,
                        MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC},
         sizeof ops);
  add_predefined();
  add_derived();
  for (int t = 0; t < type_count; ++t) {
    for (int collective = kBcast; collective < kReduce; ++collective) {
      compare(&types[t], -1, (Collective)collective, elements);
    }
    for (int op = 0; op < kOps && !types[t].moves_only; ++op) {
      for (int collective = kReduce; collective < kCollectiveCount; ++collective) {
        if (!compare(&types[t], op, (Collective)collective, elements)) break;
      }
    }
  }
  for (int t = 0; t < type_count; ++t) {
    if (types[t].is_ours) PMPI_Type_free(&types[t].type);
  }
  long all[2] = {checks, failed};
  NATIVE(MPI_Allreduce)(MPI_IN_PLACE, all, 2, MPI_LONG, MPI_SUM, theirs);
  PMPI_Comm_free(&ours);
  PMPI_Comm_free(&theirs);
  if (rank == 0) printf("types: %ld checks, %ld failed\n", all[0], all[1]);
  fflush(stdout);
  MPI_Finalize();
  return all[1] != 0;
}
