// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks that share a GPU, seen from kernels that wait for each other: whether they run side by side
// at all (NVIDIA's multi-process service, MPS), and how many blocks each may have so that all fit.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runners/direct/host_process.hpp"

namespace tutti::engine {

struct GpuOfRank {
  std::string identity;           ///< Equal for ranks that share it.
  int concurrent_processors = 0;  ///< As device::Api's.
  runners::HostProcess process{};
};

/// Whether two of these ranks have the same GPU.
bool share_gpus(std::span<const GpuOfRank> gpus);
/// Whether two of these ranks have the same GPU and are one process.
bool share_gpus_in_process(std::span<const GpuOfRank> gpus);

/// Why kernels of these ranks may not wait for each other, of the first pair in rank order; empty:
/// they may.
std::string sharing_refusal(std::span<const GpuOfRank> gpus);

/// Blocks that a launch of any of these ranks may have where it may have `most` on a GPU of its
/// own. Two kernels of each rank fit on the GPU then, of one block a processor.
std::uint32_t shared_blocks_max(std::span<const GpuOfRank> gpus, std::uint32_t most);

}  // namespace tutti::engine
