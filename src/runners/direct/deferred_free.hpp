// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The end of what a communicator has on a GPU.
//
// Of memory that other ranks have mapped: CUDA and HIP leave undefined what happens when it is
// freed before the last of them has let go of it, and ranks end communicators when they like. So
// the memory of a rank that ends earlier than its peers stays until they have left or their
// processes have ended.
//
// Of all of it: a driver that frees memory, closes a mapping or unloads code waits for what runs on
// the GPU. A kernel there may wait for a peer that waits for this thread. So while calls of other
// communicators of the process are on streams, or a kernel was left that did not end, nothing is
// given back. Nor while a graph of the application's holds calls: it may be launched.
//
// What has to stay goes when this process makes or ends a communicator after that, else with the
// process.
#pragma once

#include <vector>

#include "device/device.hpp"
#include "device/kernel_module.hpp"
#include "runners/direct/peer_liveness.hpp"
#include "runners/graph_order.hpp"

namespace tutti::runners {

/// What one communicator has on a GPU at its end.
struct DeferredFree {
  std::vector<void*> opened{};    ///< Memory of peers, mapped here.
  std::vector<void*> memories{};  ///< Of the device; peers may have it mapped.
  void* pinned = nullptr;
  device::KernelModule module{};
  PeerLiveness liveness{};
  GraphOrder::Count graphs{};  ///< Of the application's, whose launches use all of it.
};

/// Closes memory of peers, and tells them so.
void close_peer_memory(device::Api& api, const std::vector<void*>& opened, PeerLiveness& liveness);
/// Takes what `deferred` names on `device` and frees it as soon as no peer is left, for which it
/// waits some tenths of a second, and the GPU is quiet. `api` must live when free_deferred() is
/// called with it.
void free_when_alone(device::Api& api, int device, DeferredFree deferred);
/// Frees what may be by now of what the above had to keep.
void free_deferred(device::Api& api);

}  // namespace tutti::runners
