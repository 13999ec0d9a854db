// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/gpu_sharing.hpp"

#include <algorithm>

#include "device/device.hpp"

namespace tutti::engine {
namespace {

std::uint32_t sharers_of(const GpuOfRank& own, std::span<const GpuOfRank> gpus) {
  return static_cast<std::uint32_t>(
      std::count_if(gpus.begin(), gpus.end(),
                    [&](const GpuOfRank& gpu) { return gpu.identity == own.identity; }));
}

}  // namespace

bool share_gpus(std::span<const GpuOfRank> gpus) {
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](const GpuOfRank& gpu) { return sharers_of(gpu, gpus) > 1; });
}

bool share_gpus_in_process(std::span<const GpuOfRank> gpus) {
  return std::any_of(gpus.begin(), gpus.end(), [&](const GpuOfRank& gpu) {
    return std::any_of(gpus.begin(), gpus.end(), [&](const GpuOfRank& other) {
      return &other != &gpu && other.identity == gpu.identity && other.process == gpu.process;
    });
  });
}

std::string sharing_refusal(std::span<const GpuOfRank> gpus) {
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      if (gpus[rank].identity == gpus[other].identity &&
          (gpus[rank].concurrent_processors == 0 || gpus[other].concurrent_processors == 0)) {
        return "ranks " + std::to_string(other) + " and " + std::to_string(rank) + " share " +
               gpus[rank].identity +
               ", which runs their kernels in turns, and these wait for each other; give each "
               "rank a GPU of its own or start NVIDIA's multi-process service";
      }
    }
  }
  return {};
}

std::uint32_t shared_blocks_max(std::span<const GpuOfRank> gpus, std::uint32_t most) {
  std::uint32_t blocks = most;
  for (const GpuOfRank& gpu : gpus) {
    const int processors = gpu.concurrent_processors;
    if (processors > 0 && processors != device::Api::kUnlimited) {
      const std::uint32_t sharers = sharers_of(gpu, gpus);
      blocks = std::min(
          {blocks, most / sharers, static_cast<std::uint32_t>(processors) / (2 * sharers)});
    }
  }
  return std::max(blocks, 1U);
}

}  // namespace tutti::engine
