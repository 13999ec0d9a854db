/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the collectives are checked with: the predefined types, the operations each allows, values
 * whose result does not depend on the order of evaluation, and derived types built on them.
 *
 * A value is a pair of integers, and a reference result is computed in integers, then encoded. So
 * the reference shares no arithmetic with MPI or NCCL, and results are compared bit for bit: the
 * values are chosen small enough that every floating-point sum is exact.
 *
 * A buffer's content is described by its *stream*: the significant bytes in type-map order, without
 * padding and gaps. Streams of equal type signature are equal whatever the layout.
 */
#ifndef TUTTI_TESTS_MPI_ELEMENTS_H_
#define TUTTI_TESTS_MPI_ELEMENTS_H_

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Number; real and imaginary part; value and location; slope and offset of an affine map. */
typedef struct {
  int64_t a;
  int64_t b;
} Value;

typedef enum {
  kOpaque, /**< Data movement only. */
  kInt,
  kUint,
  kBool,
  kFloat16,
  kBfloat16,
  kFloat,
  kDouble,
  kLongDouble,
} Number;

/** One number inside an element. */
typedef struct {
  Number number;
  unsigned offset;  /**< Bytes from the element's start. */
  unsigned size;    /**< Significant bytes. */
  unsigned padding; /**< Bytes behind it that MPI may copy or leave: not compared where received. */
} Part;

typedef enum {
  kSum,
  kProd,
  kMin,
  kMax,
  kLand,
  kLor,
  kLxor,
  kBand,
  kBor,
  kBxor,
  kMinloc,
  kMaxloc,
  kUserAdd,     /**< User-defined, commutative, on a predefined type. */
  kUserBlend,   /**< User-defined, commutative, on a derived type. */
  kUserCompose, /**< User-defined, not commutative, on a derived type. */
  kOpCount,
} Operation;

enum { kMaxParts = 3 };

/** A basic type, or a derived type that is used as one. */
typedef struct Element {
  const char* name;
  MPI_Datatype type;
  unsigned operations; /**< Bit set of Operation that MPI allows and this library accepts. */
  bool is_complex;
  int parts;
  Part part[kMaxParts];
  size_t packed; /**< Bytes of one element in a stream. */
  ptrdiff_t extent;
  const struct Element* twin; /**< Equal signature, other layout; NULL when there is none. */
} Element;

/** Makes the table: types this MPI has with the expected size, operations that it accepts. */
void elements_open(void);
void elements_close(void);
int element_count(void);
/** `index` below element_count(). */
const Element* element_at(int index);
/** NULL when this MPI lacks it. */
const Element* element_named(const char* name);

const char* operation_name(Operation operation);
/** `large`: created by the MPI-4 call where there is one. Predefined operations: the same. */
MPI_Op operation_handle(Operation operation, bool large);

/** The value of element `index` on `rank`; any rank can compute every rank's. */
Value value_of(Operation operation, const Element* element, uint64_t seed, int rank, size_t index);
/** `left` comes from the lower ranks. */
Value combine(Operation operation, const Element* element, Value left, Value right);
/** Writes element->packed bytes. */
void encode(const Element* element, Value value, unsigned char* stream);

/** How elements are laid out in a buffer. */
typedef enum {
  kPlain,
  kContiguous,
  kGaps,     /**< Vector with gaps. */
  kReversed, /**< Indexed, last first. */
  kResized,  /**< Extent twice the element's. */
  kStruct,   /**< Struct with a gap in front and between. */
  kNegative, /**< Data in front of the buffer's address. */
  kTwin,     /**< The element's twin; plain when it has none. */
  kShapeCount,
} Shape;

enum { kMaxUnits = 3, kUnitMultiple = 6 };

/** One item of `type` holds `units` elements. kUnitMultiple is a multiple of every `units`. */
typedef struct {
  MPI_Datatype type;
  bool owned;
  const Element* element;
  int units;
  ptrdiff_t offset[kMaxUnits]; /**< Bytes from the item's origin, in type-map order. */
  ptrdiff_t extent;
  ptrdiff_t first; /**< First significant byte of an item, relative to its origin. */
  ptrdiff_t last;  /**< One past the last. */
} Layout;

const char* shape_name(Shape shape);
Layout layout_make(const Element* element, Shape shape);
void layout_free(Layout* layout);

/** splitmix64 over up to four words: the only source of randomness, equal on all ranks. */
uint64_t hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

#endif /* TUTTI_TESTS_MPI_ELEMENTS_H_ */
