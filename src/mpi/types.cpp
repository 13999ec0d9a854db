// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/types.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cwchar>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fnv1a.hpp"
#include "mpi/library.hpp"
#include "mpi/pmpi.hpp"
#include "mpi/probes.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using select::DataType;
using select::ReduceOp;

namespace {

template <class Value>
class HandleTable {
 public:
  void add(std::uintptr_t handle, Value value) {
    if (handle != 0) {
      entries_.emplace_back(handle, value);
    }
  }
  void finish() {
    // The first of two equal handles wins: a library may alias one type to another.
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  const Value* find(std::uintptr_t handle) const {
    auto at = std::lower_bound(entries_.begin(), entries_.end(), handle,
                               [](const auto& entry, std::uintptr_t h) { return entry.first < h; });
    return at != entries_.end() && at->first == handle ? &at->second : nullptr;
  }

 private:
  std::vector<std::pair<std::uintptr_t, Value>> entries_;
};

struct NamedType {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  Candidates candidates = {DataType::kOther, DataType::kOther};
  Meaning meaning = {};
  std::uint64_t dense_bytes = 0;  ///< Of an element without gaps; 0: it may have some.
};

/// In the order of their names here, the same on every rank; handles may be addresses.
std::vector<NamedType> g_named;
HandleTable<std::size_t> g_types;
HandleTable<ReduceOp> g_ops;

NamedType* find_named(MPI_Datatype type) {
  const std::size_t* const found = g_types.find(handle_bits(type));
  return found == nullptr ? nullptr : &g_named[*found];
}

Candidates integer(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return {is_signed ? DataType::kInt8 : DataType::kUint8, DataType::kOther};
    case 2:
      return {is_signed ? DataType::kInt16 : DataType::kUint16, DataType::kOther};
    case 4:
      return {is_signed ? DataType::kInt32 : DataType::kUint32, DataType::kOther};
    case 8:
      return {is_signed ? DataType::kInt64 : DataType::kUint64, DataType::kOther};
    default:
      return {DataType::kOther, DataType::kOther};
  }
}
Candidates either_sign(std::size_t bytes) {
  return {integer(bytes, true)[0], integer(bytes, false)[0]};
}

MPI_Count size_of_type(MPI_Datatype type) {
  MPI_Count size = 0;
  return pmpi.Type_size_x(type, &size) == MPI_SUCCESS ? size : 0;
}

void add_type(MPI_Datatype type, Candidates candidates, std::uint64_t dense_bytes) {
  NamedType named{
      .type = type, .candidates = candidates, .meaning = {}, .dense_bytes = dense_bytes};
  named.meaning.fill(candidates[0]);
  g_types.add(handle_bits(type), g_named.size());
  g_named.push_back(named);
}
void add_number(MPI_Datatype type, Candidates candidates) {
  add_type(type, candidates, select::size_of(candidates[0]));
}
void add_one(MPI_Datatype type, DataType value) { add_number(type, {value, DataType::kOther}); }
void add_pair(MPI_Datatype type, DataType value) { add_type(type, {value, DataType::kOther}, 0); }

/// Of a type that not every build of a library has (Fortran, C++): its size is asked for, never
/// assumed, and a null type asks nothing.
template <class Choose>
void add_optional(MPI_Datatype type, const Choose& choose) {
  if (type == MPI_DATATYPE_NULL || handle_bits(type) == 0) {
    return;
  }
  const Candidates candidates = choose(size_of_type(type));
  const bool is_dense = candidates[0] != DataType::kOther && !select::is_pair(candidates[0]);
  add_type(type, candidates, is_dense ? select::size_of(candidates[0]) : 0);
}

void add_c_types() {
  add_number(MPI_CHAR, either_sign(1));
  add_number(MPI_WCHAR, either_sign(sizeof(wchar_t)));
  add_number(MPI_SIGNED_CHAR, integer(1, true));
  add_number(MPI_UNSIGNED_CHAR, integer(1, false));
  add_number(MPI_BYTE, {DataType::kByte, DataType::kUint8});
  add_one(MPI_PACKED, DataType::kByte);
  add_number(MPI_SHORT, integer(sizeof(short), true));
  add_number(MPI_UNSIGNED_SHORT, integer(sizeof(short), false));
  add_number(MPI_INT, integer(sizeof(int), true));
  add_number(MPI_UNSIGNED, integer(sizeof(int), false));
  add_number(MPI_LONG, integer(sizeof(long), true));
  add_number(MPI_UNSIGNED_LONG, integer(sizeof(long), false));
  add_number(MPI_LONG_LONG_INT, integer(sizeof(long long), true));
  add_number(MPI_UNSIGNED_LONG_LONG, integer(sizeof(long long), false));
  add_number(MPI_INT8_T, integer(1, true));
  add_number(MPI_INT16_T, integer(2, true));
  add_number(MPI_INT32_T, integer(4, true));
  add_number(MPI_INT64_T, integer(8, true));
  add_number(MPI_UINT8_T, integer(1, false));
  add_number(MPI_UINT16_T, integer(2, false));
  add_number(MPI_UINT32_T, integer(4, false));
  add_number(MPI_UINT64_T, integer(8, false));
  add_number(MPI_AINT, either_sign(sizeof(MPI_Aint)));
  add_number(MPI_OFFSET, either_sign(sizeof(MPI_Offset)));
  add_number(MPI_COUNT, either_sign(sizeof(MPI_Count)));
  add_one(MPI_FLOAT, DataType::kFloat32);
  add_one(MPI_DOUBLE, DataType::kFloat64);
  add_one(MPI_C_COMPLEX, DataType::kComplex64);
  add_one(MPI_C_FLOAT_COMPLEX, DataType::kComplex64);
  add_one(MPI_C_DOUBLE_COMPLEX, DataType::kComplex128);
  add_one(MPI_C_BOOL, DataType::kBool);
  add_pair(MPI_SHORT_INT, DataType::kInt16Int);
  add_pair(MPI_2INT, DataType::kInt32Int);
  add_pair(MPI_LONG_INT, sizeof(long) == 8 ? DataType::kInt64Int : DataType::kInt32Int);
  add_pair(MPI_FLOAT_INT, DataType::kFloat32Int);
  add_pair(MPI_DOUBLE_INT, DataType::kFloat64Int);
#ifdef MPIX_C_FLOAT16
  add_one(MPIX_C_FLOAT16, DataType::kFloat16);
#endif
#ifdef MPIX_BFLOAT16
  add_one(MPIX_BFLOAT16, DataType::kBfloat16);
#endif
}

void add_optional_types() {
  auto whole = [](MPI_Count size) { return integer(static_cast<std::size_t>(size), true); };
  auto one_of = [](std::initializer_list<DataType> types) {
    return [types = std::vector<DataType>(types)](MPI_Count size) {
      for (const DataType type : types) {
        if (select::size_of(type) == static_cast<Bytes>(size)) {
          return Candidates{type, DataType::kOther};
        }
      }
      return Candidates{DataType::kOther, DataType::kOther};
    };
  };
  auto real = one_of({DataType::kFloat16, DataType::kFloat32, DataType::kFloat64});
  auto complex = one_of({DataType::kComplex64, DataType::kComplex128});
  // Of one byte and of eight as the integer that true and false are.
  auto logical = [](MPI_Count size) {
    return size == 4 ? Candidates{DataType::kLogical32, DataType::kInt32}
                     : integer(static_cast<std::size_t>(size), true);
  };
  add_optional(MPI_CXX_BOOL, one_of({DataType::kBool}));
  add_optional(MPI_CXX_FLOAT_COMPLEX, complex);
  add_optional(MPI_CXX_DOUBLE_COMPLEX, complex);
  add_optional(MPI_CHARACTER, [](MPI_Count size) { return either_sign(size == 1 ? 1 : 0); });
  for (MPI_Datatype type : {MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8}) {
    add_optional(type, whole);
  }
  for (MPI_Datatype type : {MPI_REAL, MPI_REAL4, MPI_REAL8, MPI_DOUBLE_PRECISION}) {
    add_optional(type, real);
  }
#ifdef MPI_REAL2
  add_optional(MPI_REAL2, real);
#endif
  for (MPI_Datatype type : {MPI_COMPLEX, MPI_COMPLEX8, MPI_COMPLEX16, MPI_DOUBLE_COMPLEX}) {
    add_optional(type, complex);
  }
  add_optional(MPI_LOGICAL, logical);
#ifdef MPI_LOGICAL1
  for (MPI_Datatype type : {MPI_LOGICAL1, MPI_LOGICAL2, MPI_LOGICAL4, MPI_LOGICAL8}) {
    add_optional(type, logical);
  }
#endif
  add_optional(MPI_2INTEGER, one_of({DataType::kInt32Int}));
  add_optional(MPI_2REAL, one_of({DataType::kFloat32Pair}));
  add_optional(MPI_2DOUBLE_PRECISION, one_of({DataType::kFloat64Pair}));
}

void add_ops() {
  auto add_op = [](MPI_Op op, ReduceOp value) { g_ops.add(handle_bits(op), value); };
  add_op(MPI_SUM, ReduceOp::kSum);
  add_op(MPI_PROD, ReduceOp::kProd);
  add_op(MPI_MIN, ReduceOp::kMin);
  add_op(MPI_MAX, ReduceOp::kMax);
  add_op(MPI_LAND, ReduceOp::kLand);
  add_op(MPI_LOR, ReduceOp::kLor);
  add_op(MPI_LXOR, ReduceOp::kLxor);
  add_op(MPI_BAND, ReduceOp::kBand);
  add_op(MPI_BOR, ReduceOp::kBor);
  add_op(MPI_BXOR, ReduceOp::kBxor);
  add_op(MPI_MINLOC, ReduceOp::kMinloc);
  add_op(MPI_MAXLOC, ReduceOp::kMaxloc);
  g_ops.finish();
}

}  // namespace

void load_types() {
  g_named.clear();
  add_c_types();
  add_optional_types();
  g_types.finish();
  add_ops();
}

std::uint64_t ask_library_types() {
  static std::once_flag asked;
  static Fnv1a hash;
  std::call_once(asked, [] {
    // What the standard lets nobody reduce is the library's alone, until it has said what it does.
    for (MPI_Datatype type : {MPI_CHAR, MPI_WCHAR, MPI_CHARACTER, MPI_PACKED}) {
      if (NamedType* const named = find_named(type); named != nullptr) {
        named->meaning.fill(DataType::kOther);
      }
    }
    ask_alone([](MPI_Comm alone) {
      for (NamedType& named : g_named) {
        ask_meaning(alone, named.type, named.candidates, &named.meaning);
      }
      ask_aliasing_errors(alone);
    });
    for (const NamedType& named : g_named) {
      for (const DataType meaning : named.meaning) {
        hash.add_word(static_cast<std::uint64_t>(meaning));
      }
    }
  });
  return hash.value();
}

bool is_predefined_type(MPI_Datatype type) { return g_types.find(handle_bits(type)) != nullptr; }

ReduceOp reduce_op(MPI_Op op) {
  const ReduceOp* found = g_ops.find(handle_bits(op));
  return found != nullptr ? *found : ReduceOp::kUser;
}

namespace {

/// Made by a large-count constructor (MPI_Type_contiguous_c): asking for its envelope in ints is an
/// error, which MPI would raise in the application.
bool has_large_counts(MPI_Datatype type) {
  using EnvelopeLarge = int(MPI_Datatype, MPI_Count*, MPI_Count*, MPI_Count*, MPI_Count*, int*);
  static auto* const envelope =
      reinterpret_cast<EnvelopeLarge*>(mpi_symbol("PMPI_Type_get_envelope_c"));
  MPI_Count integers = 0;
  MPI_Count addresses = 0;
  MPI_Count counts = 0;
  MPI_Count types = 0;
  int combiner = 0;
  return envelope != nullptr &&
         (envelope(type, &integers, &addresses, &counts, &types, &combiner) != MPI_SUCCESS ||
          counts != 0);
}

/// Whether a type is the library's own: it has no contents, and whoever meets it in the contents of
/// another may not free it. MPI 4.1 section 5.1.13; the last combiner came with 4.1.
bool is_predefined(int combiner) {
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  if (combiner == MPI_COMBINER_VALUE_INDEX) {
    return true;
  }
#endif
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_INTEGER ||
         combiner == MPI_COMBINER_F90_REAL || combiner == MPI_COMBINER_F90_COMPLEX;
}

Candidates f90_candidates(int combiner, MPI_Count size) {
  switch (combiner) {
    case MPI_COMBINER_F90_REAL:
      return {size == 4   ? DataType::kFloat32
              : size == 8 ? DataType::kFloat64
                          : DataType::kOther,
              DataType::kOther};
    case MPI_COMBINER_F90_COMPLEX:
      return {size == 8    ? DataType::kComplex64
              : size == 16 ? DataType::kComplex128
                           : DataType::kOther,
              DataType::kOther};
    case MPI_COMBINER_F90_INTEGER:
      return either_sign(static_cast<std::size_t>(size));
    default:
      return {DataType::kOther, DataType::kOther};
  }
}

/// A type that MPI_Type_create_f90_* has made, which lives as long as MPI does; null: it is none.
/// The library is asked about it when it is first reduced: the libraries compared equal before.
const NamedType* f90_type(MPI_Datatype type) {
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  if (type == MPI_DATATYPE_NULL || has_large_counts(type) ||
      pmpi.Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS) {
    return nullptr;
  }
  const Candidates candidates = f90_candidates(combiner, size_of_type(type));
  if (candidates[0] == DataType::kOther) {
    return nullptr;
  }
  static std::mutex mutex;
  static std::map<std::uintptr_t, NamedType> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace(
      handle_bits(type),
      NamedType{.type = type, .candidates = candidates, .meaning = {}, .dense_bytes = 0});
  if (is_new) {
    found->second.meaning.fill(candidates[0]);
    ask_alone(
        [&](MPI_Comm alone) { ask_meaning(alone, type, candidates, &found->second.meaning); });
  }
  return &found->second;
}

/// Whether a derived type is its bytes in order. Equal size and extents are not enough: an
/// indexed type may list its blocks backwards. So only constructors that keep order count.
bool is_in_order(MPI_Datatype type, int depth) {
  constexpr int kDepthMax = 16;
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  if (depth > kDepthMax || has_large_counts(type) ||
      pmpi.Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS) {
    return false;
  }
  if (is_predefined(combiner)) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    return pmpi.Type_get_extent(type, &lower, &extent) == MPI_SUCCESS && lower == 0 &&
           extent == static_cast<MPI_Aint>(size_of_type(type));
  }
  if (types != 1 || (combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS &&
                     combiner != MPI_COMBINER_RESIZED)) {
    return false;
  }
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  if (combiner == MPI_COMBINER_RESIZED &&
      (pmpi.Type_get_extent(type, &lower, &extent) != MPI_SUCCESS || lower != 0 ||
       extent != static_cast<MPI_Aint>(size_of_type(type)))) {
    return false;
  }
  std::vector<int> ints(static_cast<std::size_t>(integers) + 1);
  std::vector<MPI_Aint> aints(static_cast<std::size_t>(addresses) + 1);
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  if (pmpi.Type_get_contents(type, integers, addresses, 1, ints.data(), aints.data(), &inner) !=
      MPI_SUCCESS) {
    return false;
  }
  const bool in_order = is_in_order(inner, depth + 1);
  // Contents hand out a new handle of a derived type.
  int inner_combiner = 0;
  if (pmpi.Type_get_envelope(inner, &integers, &addresses, &types, &inner_combiner) ==
          MPI_SUCCESS &&
      !is_predefined(inner_combiner)) {
    pmpi.Type_free(&inner);
  }
  return in_order;
}

}  // namespace

DataType data_type(MPI_Datatype type, ReduceOp op) {
  const NamedType* named = find_named(type);
  if (named == nullptr && op != ReduceOp::kUser) {
    named = f90_type(type);
  }
  return named != nullptr ? named->meaning[static_cast<std::size_t>(op)] : DataType::kOther;
}

bool type_layout(MPI_Datatype type, TypeLayout* layout) {
  if (type == MPI_DATATYPE_NULL) {
    return false;
  }
  if (const NamedType* named = find_named(type); named != nullptr && named->dense_bytes != 0) {
    const auto bytes = static_cast<std::int64_t>(named->dense_bytes);
    *layout = {static_cast<std::uint64_t>(bytes), bytes, 0, bytes, true};
    return true;
  }
  MPI_Count size = 0;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Aint true_lower = 0;
  MPI_Aint true_extent = 0;
  if (pmpi.Type_size_x(type, &size) != MPI_SUCCESS || size == MPI_UNDEFINED || size < 0 ||
      pmpi.Type_get_extent(type, &lower, &extent) != MPI_SUCCESS ||
      pmpi.Type_get_true_extent(type, &true_lower, &true_extent) != MPI_SUCCESS) {
    return false;
  }
  *layout = {static_cast<std::uint64_t>(size), extent, true_lower, true_extent, false};
  layout->dense = extent == size && true_extent == size && true_lower == 0 && lower == 0 &&
                  is_in_order(type, 0);
  return true;
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
