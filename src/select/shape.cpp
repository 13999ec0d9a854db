// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/shape.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace tutti::select {
namespace {

constexpr const char* kDataTypeNames[] = {
    "byte",        "int8",        "uint8",        "int16",        "uint16",
    "int32",       "uint32",      "int64",        "uint64",       "float16",
    "bfloat16",    "float32",     "float64",      "complex64",    "complex128",
    "bool",        "logical32",   "int16_int",    "int32_int",    "int64_int",
    "float32_int", "float64_int", "float32_pair", "float64_pair", "other"};
constexpr Bytes kDataTypeSizes[] = {1, 1,  1, 2, 2, 4, 4,  8, 8,  2, 2,  4, 8,
                                    8, 16, 1, 4, 8, 8, 16, 8, 16, 8, 16, 0};
static_assert(std::size(kDataTypeNames) == kDataTypeCount);
static_assert(std::size(kDataTypeSizes) == kDataTypeCount);

constexpr const char* kReduceOpNames[] = {"none", "sum",    "prod",   "min",  "max",
                                          "land", "lor",    "lxor",   "band", "bor",
                                          "bxor", "minloc", "maxloc", "avg",  "user"};
static_assert(std::size(kReduceOpNames) == kReduceOpCount);

constexpr const char* kMemoryNames[] = {"host", "device"};
constexpr const char* kOrderNames[] = {"blocking", "stream", "captured"};

/// Lower case, without an "mpi_" in front.
std::string plain(std::string_view name) {
  std::string result(name);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result.rfind("mpi_", 0) == 0 ? result.substr(4) : result;
}

std::string without_underscores(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  return text;
}

/// The enumerator whose name it is.
template <class Enum, std::size_t kCount>
std::optional<Enum> find(const char* const (&names)[kCount], const std::string& name) {
  auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) {
    return std::nullopt;
  }
  return static_cast<Enum>(found - std::begin(names));
}

}  // namespace

const char* to_string(Collective collective) {
  return kCollectiveNames[static_cast<std::size_t>(collective)];
}

std::optional<Collective> parse_collective(std::string_view name) {
  std::string wanted = without_underscores(plain(name));
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) {
    if (wanted == without_underscores(kCollectiveNames[i])) {
      return static_cast<Collective>(i);
    }
  }
  return std::nullopt;
}

bool has_size(Collective collective) {
  return collective != Collective::kBarrier && collective != Collective::kGatherv &&
         collective != Collective::kScatterv && collective != Collective::kAlltoallv &&
         collective != Collective::kAlltoallw;
}

const char* to_string(DataType type) { return kDataTypeNames[static_cast<std::size_t>(type)]; }

namespace {

struct Alias {
  const char* name;
  DataType type;
};
constexpr Alias kAliases[] = {
    {"fp16", DataType::kFloat16}, {"half", DataType::kFloat16},   {"bf16", DataType::kBfloat16},
    {"fp32", DataType::kFloat32}, {"float", DataType::kFloat32},  {"fp64", DataType::kFloat64},
    {"int", DataType::kInt32},    {"double", DataType::kFloat64},
};

}  // namespace

std::vector<std::string> other_data_type_names() {
  std::vector<std::string> names;
  for (const Alias& alias : kAliases) {
    names.emplace_back(alias.name);
  }
  return names;
}

std::optional<DataType> parse_data_type(std::string_view name) {
  std::string wanted = plain(name);
  for (const Alias& alias : kAliases) {
    if (wanted == alias.name) {
      return alias.type;
    }
  }
  return find<DataType>(kDataTypeNames, wanted);
}

Bytes size_of(DataType type) { return kDataTypeSizes[static_cast<std::size_t>(type)]; }

bool is_pair(DataType type) {
  return type >= DataType::kInt16Int && type <= DataType::kFloat64Pair;
}

bool is_defined(ReduceOp op, DataType type) {
  const bool is_complex = type == DataType::kComplex64 || type == DataType::kComplex128;
  const bool is_real = type == DataType::kFloat16 || type == DataType::kBfloat16 ||
                       type == DataType::kFloat32 || type == DataType::kFloat64;
  const bool is_integer = type >= DataType::kInt8 && type <= DataType::kUint64;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
      return is_integer || is_real || is_complex;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return is_integer || is_real;
    case ReduceOp::kLand:
    case ReduceOp::kLor:
    case ReduceOp::kLxor:
      return is_integer || type == DataType::kBool || type == DataType::kLogical32;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return is_integer || type == DataType::kByte;
    case ReduceOp::kMinloc:
    case ReduceOp::kMaxloc:
      return is_pair(type);
    default:
      return false;
  }
}

bool has_average(DataType type) {
  return type >= DataType::kFloat16 && type <= DataType::kComplex128;
}

const char* to_string(ReduceOp op) { return kReduceOpNames[static_cast<std::size_t>(op)]; }

std::optional<ReduceOp> parse_reduce_op(std::string_view name) {
  return find<ReduceOp>(kReduceOpNames, plain(name));
}

const char* to_string(Memory memory) { return kMemoryNames[static_cast<std::size_t>(memory)]; }

std::optional<Memory> parse_memory(std::string_view name) {
  return find<Memory>(kMemoryNames, plain(name));
}

const char* to_string(Order order) { return kOrderNames[static_cast<std::size_t>(order)]; }

std::optional<Order> parse_order(std::string_view name) {
  return find<Order>(kOrderNames, plain(name));
}

}  // namespace tutti::select
