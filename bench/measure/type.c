/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Types and the data pattern. Value of rank r's element i in iteration t: table[(i + 31 t + 17 r)
 * mod kPeriod]; so a reduction's result has a table of its own and checking is comparing memory.
 */
#include <stdlib.h>
#include <string.h>

#include "content.h"

enum { kRankStep = 17 };

const char kTypeNames[] =
    "int8 .. uint64, float16, bfloat16, float32, float64, complex64, complex128";

const struct type* find_type(const char* name) {
  static const struct type types[] = {
      {"int8", 1, 1, kSigned, 0},      {"uint8", 1, 1, kUnsigned, 1},
      {"int16", 2, 1, kSigned, 2},     {"uint16", 2, 1, kUnsigned, 3},
      {"int32", 4, 1, kSigned, 4},     {"uint32", 4, 1, kUnsigned, 5},
      {"int64", 8, 1, kSigned, 6},     {"uint64", 8, 1, kUnsigned, 7},
      {"float32", 4, 1, kFloat, 8},    {"float64", 8, 1, kFloat, 9},
      {"complex64", 8, 2, kFloat, 10}, {"complex128", 16, 2, kFloat, 11},
      {"float16", 2, 1, kHalf, 12},    {"bfloat16", 2, 1, kBrain, 13},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i)
    if (strcmp(types[i].name, name) == 0) return &types[i];
  return NULL;
}

bool find_op(const char* name, enum op* op) {
  const char* const names[] = {"sum", "prod", "min", "max"};
  for (int i = 0; i < 4; ++i) {
    if (strcmp(names[i], name) == 0) {
      *op = (enum op)i;
      return true;
    }
  }
  return false;
}

/* Non-negative integers below 2^31 only. */
static void encode_part(const struct type* type, uint32_t value, unsigned char* out) {
  const size_t bytes = type->bytes / (size_t)type->parts;
  if (type->kind == kSigned || type->kind == kUnsigned) {
    const uint64_t wide = value; /* Little endian; the low bytes, as wrapping arithmetic gives. */
    memcpy(out, &wide, bytes);
  } else if (type->kind == kFloat && bytes == 8) {
    const double wide = value;
    memcpy(out, &wide, 8);
  } else {
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    if (type->kind == kFloat) {
      memcpy(out, &bits, 4);
      return;
    }
    uint16_t half = (uint16_t)(bits >> 16); /* bfloat16: exact below 256. */
    if (type->kind == kHalf)                /* Re-bias 127 -> 15; exact up to 2048. */
      half = value == 0 ? 0 : (uint16_t)((((bits >> 23) - 112) << 10) | ((bits >> 13) & 0x3ff));
    memcpy(out, &half, 2);
  }
}

static uint32_t scramble(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

/* Values below the result keep every partial result exact. */
static uint32_t value_limit(const struct type* type, bool reduction, enum op op) {
  const bool narrow = type->bytes == 1 || type->kind == kHalf || type->kind == kBrain;
  if (reduction && op == kProd) return 2;
  if (reduction && op == kSum) return narrow ? 4 : 16;
  return narrow ? 127 : 30000;
}

static uint32_t value_of(int rank, size_t x, uint32_t limit, bool product) {
  const uint32_t value = scramble((uint32_t)((x + (size_t)rank * kRankStep) % kPeriod) + 1) % limit;
  if (!product) return value;
  return rank < 6 ? value + 1 : 1; /* At most 2^6, whatever the number of ranks. */
}

static void encode(const struct type* type, const uint32_t part[2], size_t x,
                   unsigned char* table) {
  const size_t bytes = type->bytes / (size_t)type->parts;
  for (int p = 0; p < (type->parts == 2 ? 2 : 1); ++p)
    encode_part(type, part[p], table + x * type->bytes + (size_t)p * bytes);
}

static uint32_t combine(enum op op, uint32_t a, uint32_t b) {
  switch (op) {
    case kSum:
      return a + b;
    case kProd:
      return a * b;
    case kMin:
      return a < b ? a : b;
    case kMax:
      return a > b ? a : b;
  }
  return 0;
}

void pattern_init(struct pattern* pattern, const struct type* type, bool reduction, enum op op,
                  int rank, int reduce_ranks) {
  const uint32_t limit = value_limit(type, reduction, op);
  const bool product = reduction && op == kProd;
  pattern->type = type;
  pattern->input = malloc(kPeriod * type->bytes);
  pattern->own = malloc(kPeriod * type->bytes);
  pattern->reference = malloc(kPeriod * type->bytes);
  if (!pattern->input || !pattern->own || !pattern->reference) fail("out of memory");
  for (size_t x = 0; x < kPeriod; ++x) {
    /* The imaginary part is another column of the table; 0 in products. */
    uint32_t parts[2] = {value_of(0, x, limit, product),
                         product ? 0 : value_of(0, x + 5, limit, 0)};
    encode(type, parts, x, pattern->input);
    const uint32_t own[2] = {value_of(rank, x, limit, product),
                             product ? 0 : value_of(rank, x + 5, limit, 0)};
    encode(type, own, x, pattern->own);
    for (int r = 1; reduction && r < reduce_ranks; ++r) {
      parts[0] = combine(op, parts[0], value_of(r, x, limit, product));
      parts[1] = product ? 0 : combine(op, parts[1], value_of(r, x + 5, limit, 0));
    }
    encode(type, parts, x, pattern->reference);
  }
}

void pattern_free(struct pattern* pattern) {
  free(pattern->input);
  free(pattern->own);
  free(pattern->reference);
}
