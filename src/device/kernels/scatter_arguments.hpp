// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a launch of the kernel `scatter_copy` is told (device/kernels/scatter.hpp). Shared by the
// host side and the device side, as direct_arguments.hpp is.
#pragma once

#include "device/kernels/direct_arguments.hpp"

namespace tutti::device::kernels {

/// One copy: any addresses, any length, 0 too.
struct ScatterPiece {
  const void* source;
  void* destination;
  Wide bytes;
};

/// Threads of a block, on every GPU.
inline constexpr Word kScatterThreads = 256;
/// Pieces of a block at most: its threads fetch the words of all of them at once.
inline constexpr Word kScatterGroupMax = 64;
static_assert(kScatterGroupMax * (sizeof(ScatterPiece) / sizeof(Wide)) <= kScatterThreads);

/// Block b copies the pieces of group b >> split_shift, which are `group` consecutive ones,
/// together with the other 2^split_shift - 1 blocks of that group.
struct ScatterArguments {
  const ScatterPiece* pieces;
  Wide count;
  Word group;
  Word split_shift;
};

}  // namespace tutti::device::kernels
