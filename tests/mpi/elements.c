/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "elements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { kMaxElements = 96, kLongDoubleBytes = sizeof(long double) == 16 ? 10 : sizeof(long double) };

static Element table[kMaxElements];
static int table_size;
static MPI_Op user_op[kOpCount][2];

uint64_t hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  const uint64_t words[4] = {a, b, c, d};
  uint64_t state = 0x243f6a8885a308d3u;
  for (int i = 0; i < 4; ++i) {
    state = (state ^ words[i]) + 0x9e3779b97f4a7c15u;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    state ^= state >> 31;
  }
  return state;
}

/* Operations by class, MPI 5.0 section 6.9.2. */
enum {
  kArithmetic = 1u << kSum | 1u << kProd | 1u << kMin | 1u << kMax,
  kLogical = 1u << kLand | 1u << kLor | 1u << kLxor,
  kBitwise = 1u << kBand | 1u << kBor | 1u << kBxor,
  kLocation = 1u << kMinloc | 1u << kMaxloc,
  kComplexOps = 1u << kSum | 1u << kProd,
};

const char* operation_name(Operation operation) {
  static const char* const names[kOpCount] = {
      "sum", "prod", "min",    "max",    "land",     "lor",        "lxor",        "band",
      "bor", "bxor", "minloc", "maxloc", "user-add", "user-blend", "user-compose"};
  return names[operation];
}

/* User-defined operations.
 * The affine element is two uint32 (slope, offset), 8 bytes apart from the next, or 12 in its twin,
 * whose offset stands behind a gap of 4 bytes. The extent tells which one MPI hands over. */

static uint32_t load32(const unsigned char* from) {
  uint32_t value;
  memcpy(&value, from, sizeof value);
  return value;
}

static void store32(unsigned char* to, uint32_t value) { memcpy(to, &value, sizeof value); }

static void user_add(const unsigned char* in, unsigned char* inout, MPI_Count length) {
  for (MPI_Count i = 0; i < length; ++i) {
    store32(inout + 4 * i, load32(in + 4 * i) + load32(inout + 4 * i));
  }
}

static void user_affine(const unsigned char* in, unsigned char* inout, MPI_Count length,
                        MPI_Datatype type, bool compose) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(type, &lower, &extent);
  const ptrdiff_t second = extent - 4;
  for (MPI_Count i = 0; i < length; ++i, in += extent, inout += extent) {
    const uint32_t slope = load32(in);
    const uint32_t offset = load32(in + second);
    if (compose) {
      store32(inout + second, slope * load32(inout + second) + offset);
      store32(inout, slope * load32(inout));
    } else {
      store32(inout + second, offset ^ load32(inout + second));
      store32(inout, slope + load32(inout));
    }
  }
}

static void add_int(void* in, void* inout, int* length, MPI_Datatype* type) {
  (void)type;
  user_add(in, inout, *length);
}
static void blend_int(void* in, void* inout, int* length, MPI_Datatype* type) {
  user_affine(in, inout, *length, *type, false);
}
static void compose_int(void* in, void* inout, int* length, MPI_Datatype* type) {
  user_affine(in, inout, *length, *type, true);
}
#if MPI_VERSION >= 4
static void add_large(void* in, void* inout, MPI_Count* length, MPI_Datatype* type) {
  (void)type;
  user_add(in, inout, *length);
}
static void blend_large(void* in, void* inout, MPI_Count* length, MPI_Datatype* type) {
  user_affine(in, inout, *length, *type, false);
}
static void compose_large(void* in, void* inout, MPI_Count* length, MPI_Datatype* type) {
  user_affine(in, inout, *length, *type, true);
}
#endif

static void open_user_operations(void) {
  MPI_Op_create(add_int, 1, &user_op[kUserAdd][0]);
  MPI_Op_create(blend_int, 1, &user_op[kUserBlend][0]);
  MPI_Op_create(compose_int, 0, &user_op[kUserCompose][0]);
#if MPI_VERSION >= 4
  MPI_Op_create_c(add_large, 1, &user_op[kUserAdd][1]);
  MPI_Op_create_c(blend_large, 1, &user_op[kUserBlend][1]);
  MPI_Op_create_c(compose_large, 0, &user_op[kUserCompose][1]);
#else
  for (int i = kUserAdd; i <= kUserCompose; ++i) user_op[i][1] = user_op[i][0];
#endif
}

MPI_Op operation_handle(Operation operation, bool large) {
  switch (operation) {
    case kSum:
      return MPI_SUM;
    case kProd:
      return MPI_PROD;
    case kMin:
      return MPI_MIN;
    case kMax:
      return MPI_MAX;
    case kLand:
      return MPI_LAND;
    case kLor:
      return MPI_LOR;
    case kLxor:
      return MPI_LXOR;
    case kBand:
      return MPI_BAND;
    case kBor:
      return MPI_BOR;
    case kBxor:
      return MPI_BXOR;
    case kMinloc:
      return MPI_MINLOC;
    case kMaxloc:
      return MPI_MAXLOC;
    default:
      return user_op[operation][large];
  }
}

/* The table. */

/* Asks the library itself, through a call that Tutti does not wrap: some MPIs refuse a pair that
 * the standard allows (16-bit floats, Fortran types of a build without Fortran). */
static bool accepted(const Element* element, Operation operation) {
  _Alignas(16) unsigned char in[64] = {0};
  _Alignas(16) unsigned char inout[64] = {0};
  return MPI_Reduce_local(in, inout, 1, element->type, operation_handle(operation, false)) ==
         MPI_SUCCESS;
}

static Element* add(const char* name, MPI_Datatype type, ptrdiff_t extent, unsigned operations,
                    int parts, const Part* part) {
  if (type == MPI_DATATYPE_NULL) return NULL;
  Element element = {.name = name, .type = type, .parts = parts, .extent = extent};
  for (int i = 0; i < parts; ++i) {
    element.part[i] = part[i];
    element.packed += part[i].size;
  }
  MPI_Aint lower = 0;
  MPI_Aint real_extent = 0;
  if (MPI_Type_get_extent(type, &lower, &real_extent) != MPI_SUCCESS) return NULL;
  if (lower != 0 || real_extent != extent) return NULL;
  for (int i = 0; i < kOpCount; ++i) {
    if ((operations >> i & 1u) && accepted(&element, (Operation)i)) {
      element.operations |= 1u << i;
    }
  }
  if (table_size == kMaxElements) abort();
  table[table_size] = element;
  return &table[table_size++];
}

static void add_number(const char* name, MPI_Datatype type, Number number, unsigned size,
                       unsigned operations) {
  const unsigned significant = number == kLongDouble ? kLongDoubleBytes : size;
  add(name, type, size, operations, 1, &(Part){number, 0, significant, size - significant});
}

static void add_complex(const char* name, MPI_Datatype type, Number number, unsigned size) {
  const unsigned significant = number == kLongDouble ? kLongDoubleBytes : size;
  const Part parts[2] = {{number, 0, significant, size - significant},
                         {number, size, significant, size - significant}};
  Element* element = add(name, type, 2 * size, kComplexOps, 2, parts);
  if (element) element->is_complex = true;
}

static void add_pair(const char* name, MPI_Datatype type, Part value, Part index,
                     ptrdiff_t extent) {
  add(name, type, extent, kLocation, 2, (const Part[]){value, index});
}

#define NUMBER(type, number, size, operations) add_number(#type, type, number, size, operations)
#define COMPLEX(type, number, size) add_complex(#type, type, number, size)

static void add_c_types(void) {
  const unsigned integer = kArithmetic | kLogical | kBitwise;
  const unsigned multi = kArithmetic | kBitwise;
  NUMBER(MPI_INT, kInt, 4, integer | 1u << kUserAdd);
  NUMBER(MPI_DOUBLE, kDouble, 8, kArithmetic);
  NUMBER(MPI_BYTE, kUint, 1, kBitwise);
  NUMBER(MPI_FLOAT, kFloat, 4, kArithmetic);
  NUMBER(MPI_CHAR, kOpaque, 1, 0);
  NUMBER(MPI_WCHAR, kOpaque, sizeof(wchar_t), 0);
  NUMBER(MPI_SIGNED_CHAR, kInt, 1, integer);
  NUMBER(MPI_UNSIGNED_CHAR, kUint, 1, integer);
  NUMBER(MPI_SHORT, kInt, 2, integer);
  NUMBER(MPI_UNSIGNED_SHORT, kUint, 2, integer);
  NUMBER(MPI_UNSIGNED, kUint, 4, integer);
  NUMBER(MPI_LONG, kInt, sizeof(long), integer);
  NUMBER(MPI_UNSIGNED_LONG, kUint, sizeof(long), integer);
  NUMBER(MPI_LONG_LONG, kInt, 8, integer);
  NUMBER(MPI_UNSIGNED_LONG_LONG, kUint, 8, integer);
  NUMBER(MPI_INT8_T, kInt, 1, integer);
  NUMBER(MPI_UINT8_T, kUint, 1, integer);
  NUMBER(MPI_INT16_T, kInt, 2, integer);
  NUMBER(MPI_UINT16_T, kUint, 2, integer);
  NUMBER(MPI_INT32_T, kInt, 4, integer);
  NUMBER(MPI_UINT32_T, kUint, 4, integer);
  NUMBER(MPI_INT64_T, kInt, 8, integer);
  NUMBER(MPI_UINT64_T, kUint, 8, integer);
  NUMBER(MPI_AINT, kInt, sizeof(MPI_Aint), multi);
  /* Signed by the standard; Open MPI's minimum and maximum take it as unsigned. */
  NUMBER(MPI_OFFSET, kInt, sizeof(MPI_Offset), kBitwise | 1u << kSum | 1u << kProd);
  NUMBER(MPI_COUNT, kInt, sizeof(MPI_Count), multi);
  NUMBER(MPI_LONG_DOUBLE, kLongDouble, sizeof(long double), kArithmetic);
  NUMBER(MPI_C_BOOL, kBool, sizeof(_Bool), kLogical);
  NUMBER(MPI_CXX_BOOL, kBool, sizeof(_Bool), kLogical);
  COMPLEX(MPI_C_FLOAT_COMPLEX, kFloat, 4);
  COMPLEX(MPI_C_DOUBLE_COMPLEX, kDouble, 8);
  COMPLEX(MPI_C_LONG_DOUBLE_COMPLEX, kLongDouble, sizeof(long double));
  COMPLEX(MPI_CXX_FLOAT_COMPLEX, kFloat, 4);
  COMPLEX(MPI_CXX_DOUBLE_COMPLEX, kDouble, 8);
  COMPLEX(MPI_CXX_LONG_DOUBLE_COMPLEX, kLongDouble, sizeof(long double));
#ifdef MPIX_C_FLOAT16
  NUMBER(MPIX_C_FLOAT16, kFloat16, 2, kArithmetic);
#endif
#ifdef MPIX_BFLOAT16
  /* Offered as a type, but MPICH 5.0 aborts in a reduction with it. */
  NUMBER(MPIX_BFLOAT16, kOpaque, 2, 0);
#endif
}

static void add_pairs(void) {
  const unsigned wide = sizeof(long double);
  const unsigned narrow = kLongDoubleBytes;
  const Part int4 = {kInt, 4, 4, 0};
  add_pair("MPI_FLOAT_INT", MPI_FLOAT_INT, (Part){kFloat, 0, 4, 0}, int4, 8);
  add_pair("MPI_DOUBLE_INT", MPI_DOUBLE_INT, (Part){kDouble, 0, 8, 0}, (Part){kInt, 8, 4, 4}, 16);
  add_pair("MPI_LONG_INT", MPI_LONG_INT, (Part){kInt, 0, 8, 0}, (Part){kInt, 8, 4, 4}, 16);
  add_pair("MPI_SHORT_INT", MPI_SHORT_INT, (Part){kInt, 0, 2, 2}, int4, 8);
  add_pair("MPI_LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT,
           (Part){kLongDouble, 0, narrow, wide - narrow}, (Part){kInt, wide, 4, wide - 4},
           2 * wide);
  add_pair("MPI_2INT", MPI_2INT, (Part){kInt, 0, 4, 0}, int4, 8);
  add_pair("MPI_2INTEGER", MPI_2INTEGER, (Part){kInt, 0, 4, 0}, int4, 8);
  add_pair("MPI_2REAL", MPI_2REAL, (Part){kFloat, 0, 4, 0}, (Part){kFloat, 4, 4, 0}, 8);
  add_pair("MPI_2DOUBLE_PRECISION", MPI_2DOUBLE_PRECISION, (Part){kDouble, 0, 8, 0},
           (Part){kDouble, 8, 8, 0}, 16);
}

/* Sizes are those of every Fortran compiler's defaults on the machines we know; a library built
 * otherwise, or without Fortran, has another extent, and the type is left out. */
static void add_fortran_types(void) {
  const unsigned integer = kArithmetic | kBitwise;
  NUMBER(MPI_INTEGER, kInt, 4, integer);
  NUMBER(MPI_REAL, kFloat, 4, kArithmetic);
  NUMBER(MPI_DOUBLE_PRECISION, kDouble, 8, kArithmetic);
  NUMBER(MPI_CHARACTER, kOpaque, 1, 0);
  NUMBER(MPI_LOGICAL, kBool, 4, kLogical);
  COMPLEX(MPI_COMPLEX, kFloat, 4);
  COMPLEX(MPI_DOUBLE_COMPLEX, kDouble, 8);
  NUMBER(MPI_INTEGER1, kInt, 1, integer);
  NUMBER(MPI_INTEGER2, kInt, 2, integer);
  NUMBER(MPI_INTEGER4, kInt, 4, integer);
  NUMBER(MPI_INTEGER8, kInt, 8, integer);
  NUMBER(MPI_REAL4, kFloat, 4, kArithmetic);
  NUMBER(MPI_REAL8, kDouble, 8, kArithmetic);
  COMPLEX(MPI_COMPLEX8, kFloat, 4);
  COMPLEX(MPI_COMPLEX16, kDouble, 8);
  /* REAL16 is the 80-bit format in some builds: six bytes of it are padding there. */
  add("MPI_REAL16", MPI_REAL16, 16, 0, 1, &(Part){kOpaque, 0, 10, 6});
  add("MPI_COMPLEX32", MPI_COMPLEX32, 32, 0, 2,
      (const Part[]){{kOpaque, 0, 10, 6}, {kOpaque, 16, 10, 6}});
}

static MPI_Datatype make_struct(int parts, const int* lengths, const MPI_Aint* at,
                                const MPI_Datatype* types, MPI_Aint extent) {
  MPI_Datatype bare;
  MPI_Datatype resized;
  MPI_Type_create_struct(parts, lengths, at, types, &bare);
  MPI_Type_create_resized(bare, 0, extent, &resized);
  MPI_Type_commit(&resized);
  MPI_Type_free(&bare);
  return resized;
}

static void add_derived_types(void) {
  const MPI_Datatype two[2] = {MPI_UINT32_T, MPI_UINT32_T};
  const int one[2] = {1, 1};
  const unsigned user = 1u << kUserBlend | 1u << kUserCompose;
  Element* affine = add("affine", make_struct(2, one, (const MPI_Aint[]){0, 4}, two, 8), 8, user, 2,
                        (const Part[]){{kUint, 0, 4, 0}, {kUint, 4, 4, 0}});
  Element* affine_gap = add("affine-gap", make_struct(2, one, (const MPI_Aint[]){0, 8}, two, 12),
                            12, user, 2, (const Part[]){{kUint, 0, 4, 0}, {kUint, 8, 4, 0}});
  affine->twin = affine_gap;
  affine_gap->twin = affine;

  const MPI_Datatype three[3] = {MPI_INT32_T, MPI_CHAR, MPI_DOUBLE};
  const int lengths[3] = {1, 3, 1};
  Element* record =
      add("record", make_struct(3, lengths, (const MPI_Aint[]){0, 4, 8}, three, 16), 16, 0, 3,
          (const Part[]){{kOpaque, 0, 4, 0}, {kOpaque, 4, 3, 0}, {kOpaque, 8, 8, 0}});
  Element* shuffled =
      add("record-shuffled", make_struct(3, lengths, (const MPI_Aint[]){8, 12, 0}, three, 24), 24,
          0, 3, (const Part[]){{kOpaque, 8, 4, 0}, {kOpaque, 12, 3, 0}, {kOpaque, 0, 8, 0}});
  record->twin = shuffled;
  shuffled->twin = record;
}

void elements_open(void) {
  open_user_operations();
  /* Refused types and pairs are left out of the table; they must not end the program. */
  MPI_Errhandler saved;
  MPI_Errhandler saved_self;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &saved);
  MPI_Comm_get_errhandler(MPI_COMM_SELF, &saved_self);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  add_c_types();
  add_pairs();
  add_fortran_types();
  add_derived_types();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, saved);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, saved_self);
  MPI_Errhandler_free(&saved);
  MPI_Errhandler_free(&saved_self);
}

void elements_close(void) {
  for (int i = kUserAdd; i <= kUserCompose; ++i) {
    if (MPI_VERSION >= 4) MPI_Op_free(&user_op[i][1]);
    MPI_Op_free(&user_op[i][0]);
  }
  for (int i = 0; i < table_size; ++i) {
    if (strncmp(table[i].name, "MPI", 3) != 0) MPI_Type_free(&table[i].type);
  }
}

int element_count(void) { return table_size; }
const Element* element_at(int index) { return &table[index]; }

const Element* element_named(const char* name) {
  for (int i = 0; i < table_size; ++i) {
    if (strcmp(table[i].name, name) == 0) return &table[i];
  }
  return NULL;
}

/* Values. */

static int64_t truncated(uint64_t bits, Number number, unsigned size) {
  if (size >= 8) return (int64_t)bits;
  const unsigned shift = 64 - 8 * size;
  if (number == kInt) return (int64_t)(bits << shift) >> shift;
  return (int64_t)(bits << shift >> shift);
}

/* -2^bits < value < 2^bits. */
static int64_t symmetric(uint64_t random, int bits) {
  const int64_t bound = (int64_t)1 << bits;
  return (int64_t)(random % (uint64_t)(2 * bound - 1)) - (bound - 1);
}

/* Sums over up to 31 ranks stay exact. */
static int64_t sum_value(const Part* part, uint64_t random) {
  switch (part->number) {
    case kInt:
      return symmetric(random, 8 * (int)part->size - 6);
    case kFloat16:
      return symmetric(random, 6);
    case kBfloat16:
      return symmetric(random, 3);
    case kFloat:
      return symmetric(random, 18);
    case kDouble:
      return symmetric(random, 40);
    case kLongDouble:
      return symmetric(random, 50);
    default:
      /* Wide unsigned sums wrap. Narrow ones may not overflow: Open MPI's vector code saturates. */
      if (part->size <= 2) return (int64_t)(random % ((uint64_t)1 << (8 * part->size - 5)));
      return truncated(random, kUint, part->size);
  }
}

/* The whole range the type holds exactly: wrong signedness or precision shows. */
static int64_t extreme_value(const Part* part, uint64_t random) {
  switch (part->number) {
    case kFloat16:
      return symmetric(random, 11);
    case kBfloat16:
      return symmetric(random, 8);
    case kFloat:
      return symmetric(random, 24);
    case kDouble:
      return symmetric(random, 53);
    case kLongDouble:
      return symmetric(random, 62);
    default:
      return truncated(random, part->number, part->size);
  }
}

/* Units, and a factor of two (or 1+i) on every third rank: eight bits suffice for 18 ranks. */
static Value product_value(const Element* element, uint64_t random, int rank, size_t index) {
  const bool doubling = ((size_t)rank + index) % 3 == 0;
  if (element->is_complex) {
    if (doubling) return (Value){1, 1};
    const int64_t sign = random & 1u ? 1 : -1;
    return random & 2u ? (Value){sign, 0} : (Value){0, sign};
  }
  if (element->part[0].number == kUint) return (Value){doubling ? 2 : 3, 0};
  return (Value){(doubling ? 2 : 1) * (random & 1u ? 1 : -1), 0};
}

Value value_of(Operation operation, const Element* element, uint64_t seed, int rank, size_t index) {
  const Part* part = element->part;
  const uint64_t random = hash(seed, (uint64_t)rank, index, 0);
  const uint64_t other = hash(seed, (uint64_t)rank, index, 1);
  switch (operation) {
    case kSum:
      return (Value){sum_value(part, random), element->is_complex ? sum_value(part + 1, other) : 0};
    case kProd:
      return product_value(element, random, rank, index);
    case kMin:
    case kMax:
      return (Value){extreme_value(part, random), 0};
    case kLand:
    case kLor:
    case kLxor: {
      /* True has many faces: 2 and 4 tell a logical "and" from a bitwise one. */
      static const int64_t faces[4] = {0, 1, 2, 4};
      const unsigned range = part->number == kBool ? 2 : 4;
      const bool rare = operation == kLor ? random % 8 != 0 : random % 8 == 0;
      if (operation == kLxor) return (Value){faces[other % range], 0};
      return (Value){rare ? 0 : faces[1 + other % (range - 1)], 0};
    }
    case kBand:
      return (Value){truncated(random | other, part->number, part->size), 0};
    case kBor:
      return (Value){truncated(random & other, part->number, part->size), 0};
    case kBxor:
      return (Value){truncated(random, part->number, part->size), 0};
    case kMinloc:
    case kMaxloc: /* Few values, so that ties occur. */
      return (Value){(int64_t)(random % 5) - 2, (int64_t)(other % 1000)};
    case kUserAdd:
      return (Value){sum_value(part, random), 0};
    default:
      return (Value){(int64_t)(random | 1u) & 0xffffffff, (int64_t)other & 0xffffffff};
  }
}

static bool less(const Element* element, int64_t left, int64_t right) {
  if (element->part[0].number == kUint) return (uint64_t)left < (uint64_t)right;
  return left < right;
}

Value combine(Operation operation, const Element* element, Value left, Value right) {
  switch (operation) {
    case kSum:
    case kUserAdd:
      return (Value){(int64_t)((uint64_t)left.a + (uint64_t)right.a), left.b + right.b};
    case kProd:
      if (!element->is_complex) return (Value){(int64_t)((uint64_t)left.a * (uint64_t)right.a), 0};
      return (Value){left.a * right.a - left.b * right.b, left.a * right.b + left.b * right.a};
    case kMin:
      return less(element, right.a, left.a) ? right : left;
    case kMax:
      return less(element, left.a, right.a) ? right : left;
    case kLand:
      return (Value){left.a && right.a, 0};
    case kLor:
      return (Value){left.a || right.a, 0};
    case kLxor:
      return (Value){!left.a != !right.a, 0};
    case kBand:
      return (Value){left.a & right.a, 0};
    case kBor:
      return (Value){left.a | right.a, 0};
    case kBxor:
      return (Value){left.a ^ right.a, 0};
    case kMinloc:
    case kMaxloc:
      if (left.a == right.a) return left.b < right.b ? left : right;
      return (left.a < right.a) == (operation == kMinloc) ? left : right;
    case kUserBlend:
      return (Value){(left.a + right.a) & 0xffffffff, left.b ^ right.b};
    default: { /* The composition: apply `right` first. */
      const uint32_t slope = (uint32_t)left.a;
      return (Value){(uint32_t)(slope * (uint32_t)right.a),
                     (uint32_t)(slope * (uint32_t)right.b + (uint32_t)left.b)};
    }
  }
}

/* |value| <= 2048. */
static uint16_t to_float16(int64_t value) {
  if (value == 0) return 0;
  const uint16_t sign = value < 0 ? 0x8000 : 0;
  uint32_t magnitude = (uint32_t)(value < 0 ? -value : value);
  int exponent = 25; /* Bias 15 plus 10 bits of fraction. */
  while (magnitude >= 2048) {
    magnitude >>= 1;
    ++exponent;
  }
  while (magnitude < 1024) {
    magnitude <<= 1;
    --exponent;
  }
  return (uint16_t)(sign | exponent << 10 | (magnitude & 1023u));
}

static void encode_part(const Part* part, int64_t value, unsigned char* stream) {
  switch (part->number) {
    case kFloat16: {
      const uint16_t bits = to_float16(value);
      memcpy(stream, &bits, sizeof bits);
      break;
    }
    case kBfloat16: {
      const float wide = (float)value;
      memcpy(stream, (const unsigned char*)&wide + 2, 2); /* Little-endian: the upper half. */
      break;
    }
    case kFloat: {
      const float number = (float)value;
      memcpy(stream, &number, sizeof number);
      break;
    }
    case kDouble: {
      const double number = (double)value;
      memcpy(stream, &number, sizeof number);
      break;
    }
    case kLongDouble: {
      const long double number = (long double)value;
      memcpy(stream, &number, kLongDoubleBytes);
      break;
    }
    default:
      memcpy(stream, &value, part->size); /* Little-endian: the low bytes. */
  }
}

void encode(const Element* element, Value value, unsigned char* stream) {
  encode_part(&element->part[0], value.a, stream);
  if (element->parts > 1) encode_part(&element->part[1], value.b, stream + element->part[0].size);
}

/* Layouts. */

const char* shape_name(Shape shape) {
  static const char* const names[kShapeCount] = {"plain",   "contiguous", "vector",   "indexed",
                                                 "resized", "struct",     "negative", "twin"};
  return names[shape];
}

static void resize(MPI_Datatype* type, MPI_Aint lower, MPI_Aint extent) {
  MPI_Datatype bare = *type;
  MPI_Type_create_resized(bare, lower, extent, type);
  MPI_Type_free(&bare);
}

Layout layout_make(const Element* element, Shape shape) {
  if (shape == kTwin && element->twin) element = element->twin;
  const ptrdiff_t e = element->extent;
  Layout layout = {.type = element->type,
                   .owned = shape != kPlain && shape != kTwin,
                   .element = element,
                   .units = 1,
                   .extent = e};
  switch (shape) {
    case kContiguous:
      layout.units = 3;
      layout.offset[1] = e;
      layout.offset[2] = 2 * e;
      MPI_Type_contiguous(3, element->type, &layout.type);
      break;
    case kGaps:
      layout.units = 2;
      layout.offset[1] = 3 * e;
      MPI_Type_vector(2, 1, 3, element->type, &layout.type);
      break;
    case kReversed:
      layout.units = 3;
      layout.offset[0] = 2 * e;
      layout.offset[1] = e;
      MPI_Type_indexed(3, (const int[]){1, 1, 1}, (const int[]){2, 1, 0}, element->type,
                       &layout.type);
      break;
    case kResized:
      MPI_Type_create_resized(element->type, 0, 2 * e, &layout.type);
      break;
    case kStruct:
      layout.units = 2;
      layout.offset[0] = e;
      layout.offset[1] = 3 * e;
      MPI_Type_create_struct(2, (const int[]){1, 1}, (const MPI_Aint[]){e, 3 * e},
                             (const MPI_Datatype[]){element->type, element->type}, &layout.type);
      resize(&layout.type, 0, 5 * e);
      break;
    case kNegative:
      layout.units = 2;
      layout.offset[0] = -2 * e;
      layout.offset[1] = 0;
      MPI_Type_create_hindexed(2, (const int[]){1, 1}, (const MPI_Aint[]){-2 * e, 0}, element->type,
                               &layout.type);
      break;
    default:
      break;
  }
  if (layout.owned) {
    MPI_Type_commit(&layout.type);
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(layout.type, &lower, &extent);
    layout.extent = extent;
  }
  layout.first = PTRDIFF_MAX;
  layout.last = PTRDIFF_MIN;
  for (int i = 0; i < layout.units; ++i) {
    if (layout.offset[i] < layout.first) layout.first = layout.offset[i];
    if (layout.offset[i] + e > layout.last) layout.last = layout.offset[i] + e;
  }
  return layout;
}

void layout_free(Layout* layout) {
  if (layout->owned) MPI_Type_free(&layout->type);
  layout->owned = false;
}
