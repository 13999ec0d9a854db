// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "device/scatter_copy.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tutti::device {
namespace {

using kernels::Wide;
using kernels::Word;

/// Blocks up to which a launch is all under way at once, on GPUs of 100 and more processors.
constexpr Wide kBlocksAtOnce = 512;
/// Up to that many, fewer pieces get several blocks each. The lengths are not known here: four help
/// one of 64 KiB (5.9 us -> 4.3 us), and more cost a short one more than that (H200,
/// bench/scatter_copy.py --sweep).
constexpr Wide kSplitBlocks = 16;
constexpr Word kSplitMax = 4;
/// Pieces of a block where there are enough of them: one for each warp of 32 threads.
constexpr Wide kGroup = 8;
/// With more pieces than these blocks take in groups of kGroup, groups grow: so many pieces are
/// short, and blocks that copy little cost more to start than to run.
constexpr Wide kBlocksOfGroups = 8192;
/// What every GPU can be given in one dimension of a grid (AMD: 2^32 threads).
constexpr Wide kBlocksMax = (Wide{1} << 32) / kernels::kScatterThreads - 1;

constexpr Wide divide_up(Wide value, Wide by) { return (value + by - 1) / by; }

}  // namespace

ScatterLaunch scatter_launch(const ScatterPiece* pieces, std::size_t count, int warp_threads,
                             const ScatterTuning& tuning) {
  Wide group = std::clamp<Wide>(divide_up(count, kBlocksAtOnce), 1, kGroup);
  group = std::clamp<Wide>(divide_up(count, kBlocksOfGroups), group, kernels::kScatterGroupMax);
  Word split = 1;
  if (count < kSplitBlocks) {
    split = std::min(kSplitMax, static_cast<Word>(std::bit_floor(kSplitBlocks / count)));
  }
  if (tuning.group != 0) {
    group = std::min(tuning.group, kernels::kScatterGroupMax);
  }
  if (tuning.split != 0) {
    split = tuning.split;
  }
  const Wide blocks = divide_up(count, group) * split;
  ScatterLaunch launch{.arguments = {.pieces = pieces,
                                     .count = count,
                                     .group = static_cast<Word>(group),
                                     .split_shift = static_cast<Word>(std::countr_zero(split))},
                       .shape = {}};
  launch.shape.grid[0] = static_cast<unsigned>(std::min(blocks, kBlocksMax + 1));
  launch.shape.block[0] = warp_threads == 1 ? 1 : kernels::kScatterThreads;
  return launch;
}

Result<ScatterCopy> ScatterCopy::create(Api& api, int device) {
  ScatterCopy result;
  result.api_ = &api;
  TUTTI_ASSIGN_OR_RETURN(result.module_, KernelModule::load(api, device));
  TUTTI_ASSIGN_OR_RETURN(result.function_, result.module_.find("scatter_copy"));
  TUTTI_RETURN_IF_ERROR(result.warm_up(device));
  return result;
}

Status ScatterCopy::warm_up(int device) {
  ScatterLaunch nothing = scatter_launch(nullptr, 1, api_->warp_threads());
  nothing.arguments.count = 0;
  void* arguments[] = {&nothing.arguments};
  // What costs less than a launch may be missing.
  const Result<Launcher> launcher =
      api_->create_launcher(function_, device, nothing.shape, arguments);
  launcher_ = launcher.ok() ? *launcher : nullptr;
  TUTTI_ASSIGN_OR_RETURN(const Stream stream, api_->create_stream(device));
  Status status = launch(stream, nothing);
  if (status.ok()) {
    status = api_->wait_stream(stream);
  }
  const Status destroyed = api_->destroy_stream(stream);
  return status.ok() ? destroyed : status;
}

Status ScatterCopy::copy(Stream stream, const ScatterPiece* pieces, std::size_t count) {
  if (api_ == nullptr) {
    for (std::size_t i = 0; i < count; ++i) {
      if (pieces[i].bytes != 0) {
        std::memcpy(pieces[i].destination, pieces[i].source, pieces[i].bytes);
      }
    }
    return {};
  }
  if (count == 0) {
    return {};
  }
  ScatterLaunch all = scatter_launch(pieces, count, api_->warp_threads(), tuning_);
  if (all.shape.grid[0] > kBlocksMax) {
    return Status(ErrorCode::kInvalidArgument, "scattered copy: " + std::to_string(count) +
                                                   " pieces are more than a launch takes");
  }
  return launch(stream, all);
}

Status ScatterCopy::launch(Stream stream, ScatterLaunch& launch) {
  void* arguments[] = {&launch.arguments};
  return launcher_ != nullptr ? api_->launch_again(launcher_, launch.shape, stream, arguments)
                              : api_->launch(function_, launch.shape, stream, arguments);
}

ScatterCopy::ScatterCopy(ScatterCopy&& other) noexcept { *this = std::move(other); }

ScatterCopy& ScatterCopy::operator=(ScatterCopy&& other) noexcept {
  if (this != &other) {
    end();
    api_ = std::exchange(other.api_, nullptr);
    module_ = std::move(other.module_);
    function_ = std::exchange(other.function_, nullptr);
    launcher_ = std::exchange(other.launcher_, nullptr);
    tuning_ = other.tuning_;
  }
  return *this;
}

Result<Function> ScatterCopy::find(const char* kernel) const {
  if (api_ == nullptr) {
    return Status(ErrorCode::kUnsupported, "scattered copy: the CPU copies without kernels");
  }
  return module_.find(kernel);
}

void ScatterCopy::end() {
  if (launcher_ != nullptr) {
    const Status ignored = api_->destroy_launcher(std::exchange(launcher_, nullptr));
    static_cast<void>(ignored);
  }
}

}  // namespace tutti::device
