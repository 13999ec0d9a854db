// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What a communicator and the backends that it brings up know together: who this rank is, where all
// ranks are, which GPU is this rank's, and the facts by which plans are chosen.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "device/device.hpp"
#include "engine/process.hpp"
#include "runners/bootstrap.hpp"
#include "runners/stream_calls.hpp"
#include "select/shape.hpp"
#include "topology/layout.hpp"

namespace tutti::engine {

/// Facts of this rank that only the entry point (src/mpi, the C API) knows.
struct RankInfo {
  int rank = 0;
  int ranks = 1;
  int world_rank = 0;
  int world_ranks = 1;
  bool mpi_device_aware = false;
  std::uint64_t types_hash = 0;  ///< Of what the MPI library's reductions take its types for.
  bool thread_multiple = false;  ///< Other threads may be in collectives of other communicators.
  bool keeps_hints = false;      ///< A communicator may have hints that did not pass us.
};

/// Into a field of zeros that ranks exchange; cut to it, with a terminating zero.
template <std::size_t N>
void put_text(char (&field)[N], const std::string& text) {
  std::strncpy(field, text.c_str(), N - 1);
}

struct CommContext {
  Process& process;
  runners::Bootstrap& bootstrap;
  RankInfo me;
  select::CommFacts facts{};
  topology::Layout placement{};  ///< By node, real or virtual: what plans see.
  topology::Layout machines{};   ///< By machine: who shares GPUs.
  int device = -1;               ///< This rank's GPU, once something was set up on it.
  bool is_concurrent = false;    ///< Beside others' calls, on some rank: its calls take no turns.
  double timeout_s = 0;          ///< Of a wait for another rank; 0: none.
  /// By a thread that need not be in a call: waits end.
  std::shared_ptr<std::atomic<bool>> is_aborted = std::make_shared<std::atomic<bool>>(false);
  /// Of the runners on the GPU, whose calls may stand behind each other on streams.
  std::shared_ptr<runners::StreamCalls> calls = std::make_shared<runners::StreamCalls>();
  /// Of the C API, by this rank, for an invalid argument that its peers' calls may not have.
  std::uint32_t refused_calls = 0;
  /// Breaks the communicator on this rank.
  std::function<void(const Status&)> fail{};

  bool is_speaker() const { return me.rank == 0; }
  /// For a scope: what it asks of the driver ends no capture in another thread.
  void relax(std::optional<device::RelaxedCapture>* relaxed) const {
    if (process.device() != nullptr) {
      relaxed->emplace(*process.device());
    }
  }
  /// On all ranks: there is no communicator of ours.
  void lose_messages();
  /// This rank's GPU: that of `wanted` >= 0, else the application's current one, else by local
  /// rank.
  Status choose_device(int wanted);
  /// Sets `refusal` on all ranks, "rank 3 WHAT", when `status` is bad on one of them: whether a
  /// step of a set-up succeeded everywhere.
  Status agree_step(const Status& status, const char* what, std::string* refusal) const;
};

}  // namespace tutti::engine
