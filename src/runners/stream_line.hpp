// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The order of calls on streams among the communicators of a process, by GPU.
//
// A kernel that waits for its peers holds its part of the GPU. Of several communicators' kernels,
// queued on streams that do not wait for each other, a GPU may begin any first, and where it has no
// room for all, two GPUs that begin with different ones wait for each other for ever. So a call of
// one communicator waits, by an event, for those that others have queued before it, if our kernels
// are among them or carry the call itself. NCCL's and RCCL's among themselves are theirs to order.
//
// This adds no deadlock. Ranks queue calls of different communicators in one order, as the C API
// demands, and each call waits for earlier ones of this order only: of all that are not over, the
// first waits for nothing but its peers, which have queued it or will, behind calls that are over.
// Communicators that say `concurrent` are not in line: their kernels are few enough to be side by
// side.
//
// What is on the streams matters to whoever frees memory, too: the driver waits then for all that
// runs on the GPU, and a kernel may wait there for a peer that never comes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"

namespace tutti::runners {

/// Destroyed when nobody waits for it any more.
using SharedEvent = std::shared_ptr<void>;
Result<SharedEvent> make_shared_event(device::Api& api, int device);

class StreamLine {
 public:
  /// Of a communicator: whatever is the same for all of its calls and nobody else's.
  using Owner = const void*;

  /// That of a GPU, for the life of the process. `api` lives as long, or ends when nobody is in
  /// line: another one may come to its address.
  static StreamLine& of(const device::Api& api, int device);

  enum class Kind : std::uint8_t {
    kBeside,   ///< Not in line.
    kLibrary,  ///< NCCL's or RCCL's.
    kKernel,   ///< Ours.
  };

  /// What a call of `owner` waits for.
  std::vector<SharedEvent> ahead_of(Owner owner, Kind kind);
  /// The call was queued; `after` is its end, and that of all that its owner queued before.
  void join(Owner owner, Kind kind, const SharedEvent& after);
  /// That end has come.
  void leave(Owner owner, const SharedEvent& after);
  /// That end may never come, and its owner goes: nobody waits for it any more.
  void abandon(const SharedEvent& after);
  /// The same for what is on a stream of the device now.
  void abandon(device::Api& api, int device, device::Stream stream);

  /// Whether all that communicators have on the GPU's streams is over.
  bool is_quiet(device::Api& api);

 private:
  struct Last {
    Owner owner = nullptr;  ///< Null: gone.
    Kind kind = Kind::kBeside;
    bool has_kernels = false;  ///< It, or what it stands behind.
    SharedEvent after;
  };

  std::mutex mutex_;
  std::vector<Last> in_flight_;  ///< The last call of each owner; few.
};

}  // namespace tutti::runners
