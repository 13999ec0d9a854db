// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries a call on the MPI library's own collectives. Device buffers pass through pinned host
// memory when the MPI cannot read them; large regular calls are cut into chunks so that the copy
// of one chunk overlaps the collective of another. The cut depends only on what is equal on all
// ranks, so a rank with host buffers cuts the same way.
#pragma once

#include <atomic>

#include "runners/runner.hpp"
#include "runners/scratch.hpp"

namespace tutti::runners {

struct MpiRunnerOptions {
  /// Device buffers are copied to host memory first (the MPI is not device-aware, or the plan
  /// says staged).
  bool stage_device = true;
  /// Regular calls are cut into chunks of at most this; 0: never. Equal on all ranks.
  Bytes chunk_bytes = 0;
};

class MpiRunner : public Runner {
 public:
  MpiRunner(MpiLibrary& mpi, device::Api* api, Scratch& scratch,
            std::atomic<std::uint64_t>& staged_bytes)
      : mpi_(mpi), api_(api), scratch_(scratch), staged_bytes_(staged_bytes) {}
  ~MpiRunner() override;
  MpiRunner(const MpiRunner&) = delete;
  MpiRunner& operator=(const MpiRunner&) = delete;

  void set_options(const MpiRunnerOptions& options) { options_ = options; }
  Status run(Scope scope, const Call& call) override;

  /// A stream on `device` for copies into staging memory and out of it.
  Result<device::Stream> staging_stream(int device);

  /// Elements of each block per chunk; the call's count when it is not cut. Equal on all ranks.
  static std::uint64_t chunk_elements(const Call& call, int ranks, Bytes chunk_bytes);

 private:
  Status ensure_streams(int device);

  MpiLibrary& mpi_;
  device::Api* api_;
  Scratch& scratch_;
  std::atomic<std::uint64_t>& staged_bytes_;
  MpiRunnerOptions options_;
  int stream_device_ = -1;
  device::Stream in_stream_ = nullptr;
  device::Stream out_stream_ = nullptr;
};

}  // namespace tutti::runners
