// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Copies into memory of GPUs for one engine's wires: each GPU has a stream of its own, where the
// pieces that have come together are copied by one kernel (device::ScatterCopy), and an event for
// each launch that may be under way. Where there is no such kernel, or its memory cannot be shown
// to GPUs, by one copy each.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "device/scatter_copy.hpp"
#include "wire/device_copies.hpp"

namespace tutti::net {

class GpuCopies : public wire::DeviceCopies {
 public:
  explicit GpuCopies(std::shared_ptr<device::Api> api) : api_(std::move(api)) {}
  ~GpuCopies() override;
  GpuCopies(const GpuCopies&) = delete;
  GpuCopies& operator=(const GpuCopies&) = delete;

  int device_of(const void* memory) override;
  std::span<std::byte> trial_memory() override;
  Status prepare(const void* memory) override;
  std::string shortfall(int device) override;
  void add_source(std::span<std::byte> memory) override;
  void remove_source(std::span<std::byte> memory) override;
  Result<std::uint64_t> start(int device, std::span<const Piece> pieces) override;
  State state(std::uint64_t copies) override;

  /// Whether start() makes one launch of it all.
  bool has_kernel(int device);

 private:
  /// Launches of one GPU under way. While these run, more pieces come, and go together.
  static constexpr std::size_t kLaunchesMax = 4;
  static constexpr std::size_t kTrialBytes = 64 << 10;

  struct Launch {
    device::Event event = nullptr;
    device::ScatterPiece* pieces = nullptr;  ///< Pinned, kPiecesMax of them.
    bool is_under_way = false;
  };
  struct Gpu {
    device::ScatterCopy scatter;
    bool has_kernel = false;
    std::string why_none;  ///< Without one.
    device::Stream stream = nullptr;
    device::ScatterPiece* pieces = nullptr;  ///< Of all launches.
    std::array<Launch, kLaunchesMax> launches;
  };
  struct Source {
    std::span<std::byte> memory;
    bool is_shown = false;  ///< To GPUs.
    std::string why_not;    ///< Where that has failed.
  };

  Result<std::unique_ptr<Gpu>> make(int device);
  void end(Gpu& gpu);
  void show_sources(int device);
  bool are_sources_shown();
  Gpu* find(int device);
  Status queue(Gpu& gpu, Launch& launch, std::span<const Piece> pieces);

  std::shared_ptr<device::Api> api_;
  std::mutex prepare_mutex_;  ///< One prepare() at a time.
  std::mutex mutex_;          ///< Of gpus_ and sources_. Held for moments alone.
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::vector<Source> sources_;
  void* trial_ = nullptr;  ///< Of trial_memory().
};

}  // namespace tutti::net
