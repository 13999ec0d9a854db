// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The kernels as functions of the host device. The direct ones: the protocol's own code, with a CPU
// thread that does one warp after the other. That order is no deadlock: warps wait for the same
// warp of other ranks only, and every rank takes its warps in the same order.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "device/kernels/direct.hpp"
#include "device/kernels/direct_kernels.hpp"
#include "device/kernels/scatter.hpp"
#include "support/host_device/host_module.hpp"

namespace tutti::device::kernels {
namespace {

using Wire = Lines;

constexpr std::size_t kArgumentBytes[] = {sizeof(DirectArguments)};

template <auto kBody>
void run(const HostBlock& block, void** arguments) {
  const auto& a = *static_cast<const DirectArguments*>(arguments[0]);
  for (Word warp = 0; warp < a.warps; ++warp) {
    kBody(a, block.index[0] * a.warps + warp, 0);
  }
  Hardware::fence_system();
  if (a.done != nullptr) {
    Hardware::put_word(a.done + block.index[0], a.sequence);
  }
  count_launch(a);
}

constexpr std::size_t kScatterBytes[] = {sizeof(ScatterArguments)};

void scatter_copy(const HostBlock& block, void** arguments) {
  const auto& a = *static_cast<const ScatterArguments*>(arguments[0]);
  const ScatterShare share(a, block.index[0]);
  if (share.part != 0) {
    return;  // The first of those that share the pieces copies them all.
  }
  for (const ScatterPiece *piece = a.pieces + share.first, *end = piece + share.count; piece != end;
       ++piece) {
    if (piece->bytes != 0) {
      std::memcpy(piece->destination, piece->source, piece->bytes);
    }
  }
}

void nothing(const DirectArguments& /*arguments*/, Word /*warp*/, Word /*lane*/) {}

#define TUTTI_PARENTHESES(...) __VA_ARGS__
#define TUTTI_KERNEL(name, body) {#name, &run<&TUTTI_PARENTHESES body>, kArgumentBytes, 1},
constexpr HostFunction kFunctions[] = {
    TUTTI_DIRECT_KERNELS{"empty", &run<&nothing>, kArgumentBytes, 1},
    {"scatter_copy", &scatter_copy, kScatterBytes, 1}};

}  // namespace
}  // namespace tutti::device::kernels

namespace tutti::device {

const HostModule& host_kernels() {
  static constexpr HostModule kModule{
      .functions = kernels::kFunctions,
      .function_count = static_cast<int>(std::size(kernels::kFunctions))};
  return kModule;
}

const HostFunction& host_kernel(const char* name) {
  return *std::find_if(
      std::begin(kernels::kFunctions), std::end(kernels::kFunctions),
      [name](const HostFunction& function) { return std::strcmp(function.name, name) == 0; });
}

}  // namespace tutti::device
