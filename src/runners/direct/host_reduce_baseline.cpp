// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reductions of host memory, compiled for any processor.
#include "runners/direct/host_reduce_kernels.hpp"

namespace tutti::runners {
namespace {

template <class T>
void divide_plain(void* data, std::uint64_t count, int divisor) {
  auto* const values = static_cast<typename Loose<T>::Type*>(data);
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] = values[i] / static_cast<T>(divisor);
  }
}

template <class Format>
void divide_widened(void* data, std::uint64_t count, int divisor) {
  auto* const values = static_cast<Loose16*>(data);
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] = Format::narrow(Format::widen(values[i]) / static_cast<float>(divisor));
  }
}

}  // namespace

void divide(void* data, std::uint64_t count, select::DataType type, int divisor) {
  switch (type) {
    case DataType::kFloat16:
      return divide_widened<Float16>(data, count, divisor);
    case DataType::kBfloat16:
      return divide_widened<Bfloat16>(data, count, divisor);
    case DataType::kFloat32:
      return divide_plain<float>(data, count, divisor);
    case DataType::kComplex64:
      return divide_plain<float>(data, 2 * count, divisor);
    case DataType::kFloat64:
      return divide_plain<double>(data, count, divisor);
    case DataType::kComplex128:
      return divide_plain<double>(data, 2 * count, divisor);
    default:
      return;
  }
}

ReduceFunction reduce_baseline(select::DataType type, select::ReduceOp op) {
  return kernel_of(type, op);
}

}  // namespace tutti::runners
