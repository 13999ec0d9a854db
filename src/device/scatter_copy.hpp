// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The scattered copy: many pieces, each from its own place to its own place, by one launch. Packets
// of a network land in bounce buffers; this brings the payloads of all that have come to where
// their messages belong. The kernel: device/kernels/scatter.hpp.
#pragma once

#include <cstddef>

#include "device/device.hpp"
#include "device/kernel_module.hpp"
#include "device/kernels/scatter_arguments.hpp"

namespace tutti::device {

using ScatterPiece = kernels::ScatterPiece;

/// How pieces are spread over blocks; 0: by their count.
struct ScatterTuning {
  kernels::Word group = 0;  ///< Pieces of a block, at most kernels::kScatterGroupMax.
  kernels::Word split = 0;  ///< Blocks that share the pieces of one, a power of two.
};

/// One launch for `count` pieces (at least one).
struct ScatterLaunch {
  kernels::ScatterArguments arguments;
  LaunchShape shape;
};
ScatterLaunch scatter_launch(const ScatterPiece* pieces, std::size_t count, int warp_threads,
                             const ScatterTuning& tuning = {});

/// For one device, by one thread at a time.
class ScatterCopy {
 public:
  /// For host memory, with the CPU: copies are over when copy() returns, the stream is not used.
  ScatterCopy() = default;
  /// For memory that kernels of `device` reach. Loads the kernel and runs it once, so that no later
  /// call waits for that. Errors: this build has no kernels for the device.
  static Result<ScatterCopy> create(Api& api, int device);

  /// Queues the copies: one launch, none for no pieces. `pieces` is memory that the kernel reads
  /// (Api::allocate_pinned, or the device's own) and stays as it is until the stream has passed the
  /// copies, whose order is not defined. Sources and destinations have any alignment and length and
  /// are memory of the device or pinned; no destination overlaps another piece. Bytes beside a
  /// source within its aligned 16 are read, too, and ignored.
  Status copy(Stream stream, const ScatterPiece* pieces, std::size_t count);

  /// Where the defaults come from (bench/micro/scatter_copy.cpp).
  void set_tuning(const ScatterTuning& tuning) { tuning_ = tuning; }
  /// "sm_90", "ptx", "gfx942"; "" where the device brings its kernels along, and on the CPU.
  const std::string& target() const { return module_.target(); }
  /// What else the module holds, for comparison. Errors: the CPU has no kernels.
  Result<Function> find(const char* kernel) const;

  ScatterCopy(ScatterCopy&& other) noexcept;
  ScatterCopy& operator=(ScatterCopy&& other) noexcept;
  ScatterCopy(const ScatterCopy&) = delete;
  ScatterCopy& operator=(const ScatterCopy&) = delete;
  /// No copy may be queued any more.
  ~ScatterCopy() { end(); }

 private:
  Status warm_up(int device);
  Status launch(Stream stream, ScatterLaunch& launch);
  void end();

  Api* api_ = nullptr;  ///< Null: the CPU copies.
  KernelModule module_;
  Function function_ = nullptr;
  Launcher launcher_ = nullptr;  ///< Null: launched anew each time.
  ScatterTuning tuning_;
};

}  // namespace tutti::device
