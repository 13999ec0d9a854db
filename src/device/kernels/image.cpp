// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// One device image: all kernels for one kind of GPU. Compiled without a standard library, by
// any clang that knows the target; cmake/device_images.py says how.
//
// TUTTI_WIRE: Lines or Packets.
#include "device/kernels/direct.hpp"
#include "device/kernels/direct_kernels.hpp"
#include "device/kernels/scatter.hpp"

#if defined(__NVPTX__)
// The most threads of a block stand in the PTX: device_images.py puts them there.
#define TUTTI_GLOBAL extern "C" __attribute__((nvptx_kernel))
#elif defined(__AMDGCN__) && __clang_major__ >= 20
#define TUTTI_GLOBAL extern "C" __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(64, 512)))
#else
// Before 20, clang takes the size of a block for HIP's and OpenCL's kernels only.
#define TUTTI_GLOBAL extern "C" __attribute__((amdgpu_kernel))
#endif

namespace tutti::device::kernels {
namespace {

using Wire = TUTTI_WIRE;

/// After all warps: the block's results are visible to whoever sees its word. They are in memory of
/// this device, so the fence is the device's (docs/decisions/0016-a-fence-of-the-device.md).
TUTTI_INLINE void complete(const DirectArguments& arguments) {
  Hardware::block_barrier();
  if (Hardware::thread() == 0) {
    if (arguments.done != nullptr) {
      Hardware::fence_device();
      Hardware::put_word(arguments.done + Hardware::block(), arguments.sequence);
    }
    count_launch(arguments);
  }
}

}  // namespace

#define TUTTI_PARENTHESES(...) __VA_ARGS__
#define TUTTI_KERNEL(name, body)                                                                   \
  TUTTI_GLOBAL void name(DirectArguments arguments) {                                              \
    const Word warp = Hardware::block() * arguments.warps + Hardware::thread() / Hardware::kLanes; \
    TUTTI_PARENTHESES body(arguments, warp, Hardware::thread() % Hardware::kLanes);                \
    complete(arguments);                                                                           \
  }
TUTTI_DIRECT_KERNELS

#if defined(__NVPTX__)
// For GPUs that PCIe joins: the general kernels over packets.
TUTTI_KERNEL(packets_one_shot_any_8, (one_shot<Any, Packets, 8>))
TUTTI_KERNEL(packets_two_shot_any_8, (two_shot<Any, Packets, 8>))
TUTTI_KERNEL(packets_exchange_8, (exchange<Packets, 8>))
#endif

TUTTI_BLOCK_MEMORY Wide scatter_words[kScatterGroupMax * sizeof(ScatterPiece) / sizeof(Wide)];

/// The scattered copy, in blocks of kScatterThreads.
TUTTI_GLOBAL void scatter_copy(ScatterArguments arguments) {
  scatter(arguments, (Wide*)scatter_words);
}

/// Nothing but the word: what a launch and its completion cost (the floor of all the others).
TUTTI_GLOBAL void empty(DirectArguments arguments) { complete(arguments); }

}  // namespace tutti::device::kernels
