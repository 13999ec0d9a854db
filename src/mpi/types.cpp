// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/types.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "mpi/pmpi.hpp"

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
  DataType reduction = DataType::kOther;
};

HandleTable<NamedType> g_types;
HandleTable<ReduceOp> g_ops;

DataType integer(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return is_signed ? DataType::kInt8 : DataType::kUint8;
    case 2:
      return is_signed ? DataType::kInt16 : DataType::kUint16;
    case 4:
      return is_signed ? DataType::kInt32 : DataType::kUint32;
    case 8:
      return is_signed ? DataType::kInt64 : DataType::kUint64;
    default:
      return DataType::kOther;
  }
}

MPI_Count size_of_type(MPI_Datatype type) {
  MPI_Count size = 0;
  return pmpi.Type_size_x(type, &size) == MPI_SUCCESS ? size : 0;
}

}  // namespace

void load_types() {
  // Fortran types exist only where the library was built with Fortran: their size is asked for,
  // never assumed, and a null type asks nothing.
  auto add = [](MPI_Datatype type, DataType value) { g_types.add(handle_bits(type), {value}); };
  auto add_fortran = [&](MPI_Datatype type, auto choose) {
    if (type != MPI_DATATYPE_NULL && handle_bits(type) != 0) {
      add(type, choose(size_of_type(type)));
    }
  };
  add(MPI_SIGNED_CHAR, DataType::kInt8);
  add(MPI_UNSIGNED_CHAR, DataType::kUint8);
  add(MPI_BYTE, DataType::kByte);
  add(MPI_SHORT, integer(sizeof(short), true));
  add(MPI_UNSIGNED_SHORT, integer(sizeof(short), false));
  add(MPI_INT, integer(sizeof(int), true));
  add(MPI_UNSIGNED, integer(sizeof(int), false));
  add(MPI_LONG, integer(sizeof(long), true));
  add(MPI_UNSIGNED_LONG, integer(sizeof(long), false));
  add(MPI_LONG_LONG_INT, integer(sizeof(long long), true));
  add(MPI_UNSIGNED_LONG_LONG, integer(sizeof(long long), false));
  add(MPI_INT8_T, DataType::kInt8);
  add(MPI_INT16_T, DataType::kInt16);
  add(MPI_INT32_T, DataType::kInt32);
  add(MPI_INT64_T, DataType::kInt64);
  add(MPI_UINT8_T, DataType::kUint8);
  add(MPI_UINT16_T, DataType::kUint16);
  add(MPI_UINT32_T, DataType::kUint32);
  add(MPI_UINT64_T, DataType::kUint64);
  add(MPI_AINT, integer(sizeof(MPI_Aint), true));
  add(MPI_OFFSET, integer(sizeof(MPI_Offset), true));
  add(MPI_COUNT, integer(sizeof(MPI_Count), true));
  add(MPI_FLOAT, DataType::kFloat32);
  add(MPI_DOUBLE, DataType::kFloat64);
  add(MPI_C_COMPLEX, DataType::kComplex64);
  add(MPI_C_FLOAT_COMPLEX, DataType::kComplex64);
  add(MPI_C_DOUBLE_COMPLEX, DataType::kComplex128);
  add(MPI_C_BOOL, DataType::kBool);
  add(MPI_SHORT_INT, DataType::kInt16Int);
  add(MPI_2INT, DataType::kInt32Int);
  add(MPI_LONG_INT, sizeof(long) == 8 ? DataType::kInt64Int : DataType::kInt32Int);
  add(MPI_FLOAT_INT, DataType::kFloat32Int);
  add(MPI_DOUBLE_INT, DataType::kFloat64Int);
#ifdef MPIX_C_FLOAT16
  add(MPIX_C_FLOAT16, DataType::kFloat16);
#endif
#ifdef MPIX_BFLOAT16
  add(MPIX_BFLOAT16, DataType::kBfloat16);
#endif
  auto fortran_integer = [](MPI_Count size) {
    return integer(static_cast<std::size_t>(size), true);
  };
  auto fortran_real = [](MPI_Count size) {
    return size == 4 ? DataType::kFloat32 : size == 8 ? DataType::kFloat64 : DataType::kOther;
  };
  auto fortran_complex = [](MPI_Count size) {
    return size == 8 ? DataType::kComplex64 : size == 16 ? DataType::kComplex128 : DataType::kOther;
  };
  add_fortran(MPI_INTEGER, fortran_integer);
  add_fortran(MPI_INTEGER1, fortran_integer);
  add_fortran(MPI_INTEGER2, fortran_integer);
  add_fortran(MPI_INTEGER4, fortran_integer);
  add_fortran(MPI_INTEGER8, fortran_integer);
  add_fortran(MPI_REAL, fortran_real);
  add_fortran(MPI_REAL4, fortran_real);
  add_fortran(MPI_REAL8, fortran_real);
  add_fortran(MPI_DOUBLE_PRECISION, fortran_real);
  add_fortran(MPI_COMPLEX, fortran_complex);
  add_fortran(MPI_COMPLEX8, fortran_complex);
  add_fortran(MPI_COMPLEX16, fortran_complex);
  add_fortran(MPI_DOUBLE_COMPLEX, fortran_complex);
  auto of_size = [](MPI_Count wanted, DataType type) {
    return [=](MPI_Count size) { return size == wanted ? type : DataType::kOther; };
  };
  add_fortran(MPI_LOGICAL, of_size(4, DataType::kLogical32));
  add_fortran(MPI_2INTEGER, of_size(8, DataType::kInt32Int));
  add_fortran(MPI_2REAL, of_size(8, DataType::kFloat32Pair));
  add_fortran(MPI_2DOUBLE_PRECISION, of_size(16, DataType::kFloat64Pair));
  g_types.finish();

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

DataType data_type(MPI_Datatype type) {
  const NamedType* named = g_types.find(handle_bits(type));
  return named != nullptr ? named->reduction : DataType::kOther;
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
  if (types != 1 || (combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS)) {
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

bool type_layout(MPI_Datatype type, TypeLayout* layout) {
  if (type == MPI_DATATYPE_NULL) {
    return false;
  }
  if (const NamedType* named = g_types.find(handle_bits(type));
      named != nullptr && named->reduction != DataType::kOther &&
      !select::is_pair(named->reduction)) {
    const auto bytes = static_cast<std::int64_t>(select::size_of(named->reduction));
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
