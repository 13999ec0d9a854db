// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What Api::load_module takes as the image of the host device: a table of plain functions that
// stands in the program, where a GPU's image is a cubin or a code object.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::device {

/// "tuttihst"; tells a table from a device image that was passed by mistake.
inline constexpr std::uint64_t kHostModuleMagic = 0x7474756874747573ULL;

/// What a kernel knows about the block it runs. The threads of a block are the kernel's own loop.
struct HostBlock {
  unsigned grid[3];   ///< Blocks in the launch.
  unsigned block[3];  ///< Threads in a block.
  unsigned index[3];  ///< This block.
  void* shared;       ///< LaunchShape::shared_bytes bytes, zero at the start of each block.
  unsigned shared_bytes;
};

/// `arguments[i]` points at a copy of argument i, taken when the launch was queued.
using HostKernel = void (*)(const HostBlock& block, void** arguments);

struct HostFunction {
  const char* name;
  HostKernel kernel;
  /// Bytes of each argument: a launch is asynchronous, so their values are copied.
  const std::size_t* argument_bytes;
  int argument_count;
};

/// Blocks of a launch run one after the other, x fastest: a kernel in which one block waits for
/// another of the same launch never ends.
struct HostModule {
  std::uint64_t magic = kHostModuleMagic;
  const HostFunction* functions = nullptr;
  int function_count = 0;
};

/// Our kernels (kernels.cpp).
const HostModule& host_kernels();
/// One of them.
const HostFunction& host_kernel(const char* name);

}  // namespace tutti::device
