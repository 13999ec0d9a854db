// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Bringing up the direct backend for a communicator, at the first call that a rule gives to it: the
// kernels, the arenas, their mappings and a test of these are each agreed before the next step, so
// that it is usable on every rank or on none.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "discover/discover.hpp"
#include "engine/communicator.hpp"
#include "engine/gpu_sharing.hpp"
#include "select/table.hpp"

namespace tutti::engine {
namespace {

/// Of a process: each has up to 64 MiB of staging memory and its own kernels.
constexpr int kCommunicatorsMax = 16;
/// Blocks of a launch where several collectives may be under way at once.
constexpr std::uint32_t kOthersBlocksMax = 8;

/// What a rank tells the others; fixed size, host byte order (one kind of node per job).
struct DirectFacts {
  std::int32_t usable = 0;
  std::int32_t concurrent_processors = 0;
  runners::HostProcess process;
  char gpu[64] = {};
  char pci[32] = {};
  char reason[240] = {};
};

template <std::size_t N>
void put(char (&field)[N], const std::string& text) {
  std::strncpy(field, text.c_str(), N - 1);
}

std::vector<GpuOfRank> gpus_of(const std::vector<DirectFacts>& all) {
  std::vector<GpuOfRank> gpus;
  for (const DirectFacts& rank : all) {
    gpus.push_back({rank.gpu, rank.concurrent_processors, rank.process});
  }
  return gpus;
}

/// Variables that make a launch wait for its kernel, which here waits for other ranks' launches.
std::string launch_blocking_variable() {
  for (const char* name : {"CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"}) {
    const std::string value = environment_value(name);
    if (!value.empty() && value != "0") {
      return std::string(name) + "=" + value + " makes launches wait; unset it";
    }
  }
  return {};
}

/// The first reason, in rank order, why these ranks cannot use it; empty: they can.
std::string refusal_of(const std::vector<DirectFacts>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].usable == 0) {
      return "rank " + std::to_string(rank) + ": " + all[rank].reason;
    }
  }
  return sharing_refusal(gpus_of(all));
}

/// Whether NVLink joins this rank's GPU with those of all others that have another one. What is not
/// known is not so.
bool has_nvlink_to_all(const std::vector<DirectFacts>& all, std::size_t self) {
  const topology::Machine machine = discover::this_machine().machine;
  const auto gpu_at = [&](const char* pci) {
    const auto wanted = topology::normal_pci(pci);
    for (std::size_t gpu = 0; wanted && gpu < machine.gpus.size(); ++gpu) {
      if (topology::normal_pci(machine.gpus[gpu].pci) == wanted) {
        return static_cast<int>(gpu);
      }
    }
    return -1;
  };
  const int own = gpu_at(all[self].pci);
  return std::all_of(all.begin(), all.end(), [&](const DirectFacts& rank) {
    if (std::string_view(rank.gpu) == all[self].gpu) {
      return true;
    }
    const int other = gpu_at(rank.pci);
    return own >= 0 && other >= 0 &&
           topology::link_between(machine, own, other).kind == topology::LinkKind::kNvlink;
  });
}

/// In the order in which they are tried. cuIpc works without more ado in nearly all places.
std::vector<device::Sharing> sharings(const std::string& handles) {
  using device::Sharing;
  if (handles == "auto") {
    return {Sharing::kIpc, Sharing::kDescriptor, Sharing::kFabric};
  }
  return {handles == "ipc"          ? Sharing::kIpc
          : handles == "descriptor" ? Sharing::kDescriptor
                                    : Sharing::kFabric};
}

}  // namespace

Status Communicator::setup_direct(select::Memory memory, int device) {
  const bool on_device = memory == select::Memory::kDevice;
  std::string& refusal = on_device ? facts_.direct_device_refusal : facts_.direct_host_refusal;
  (on_device ? direct_device_tried_ : direct_host_tried_) = true;
  refusal.clear();
  Status status = on_device ? agree_direct(device, &refusal) : agree_direct_host(&refusal);
  if (!status.ok()) {
    refusal = "its set-up failed: " + status.message();
  }
  if (!on_device) {
    return status;
  }
  if (!refusal.empty()) {
    direct_runner_.reset();
  } else {
    process_.direct_communicators.fetch_add(1, std::memory_order_relaxed);
  }
  if (is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, refusal.empty() ? "direct: kernels of this communicator are ready (" +
                                               direct_runner_->description() + ")"
                                         : "no direct backend on this communicator: " + refusal);
  }
  return status;
}

Status Communicator::agree_direct_host(std::string* refusal) {
  *refusal = machines_.nodes() != 1
                 ? "ranks are on " + std::to_string(machines_.nodes()) + " machines"
                 : "";
  if (!refusal->empty()) {
    return {};
  }
  if (host_introductions().empty()) {
    *refusal = "more ranks than a machine has";
    return {};
  }
  calls_line_ = unread_line_.data();
  const auto introductions = std::exchange(host_introductions_, nullptr);
  auto made =
      runners::DirectHostRunner::create(std::move(host_memory_), place_.rank, *introductions,
                                        {.timeout_s = process_.config().timeout_s,
                                         // As MPI does; the C API promises a limit.
                                         .waits_for_the_living = mpi_ != nullptr,
                                         .is_crowded = facts_.oversubscribed,
                                         .are_mapped = are_mapped_,
                                         .progress = [this] { bootstrap_.progress(); },
                                         .calls = &calls_,
                                         .calls_doubted = doubted_});
  if (made.ok()) {
    direct_host_runner_ = std::move(*made);
    set_calls_line();
  } else if (made.status().code() != ErrorCode::kUnavailable) {
    return made.status();  // Nothing was agreed: the others may have it.
  } else {
    *refusal = made.status().message();  // No rank has it.
  }
  if (is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, refusal->empty() ? "direct: shared memory of this communicator is ready"
                                          : "no direct backend for host memory: " + *refusal);
  }
  return {};
}

Status Communicator::agree_direct(int device, std::string* refusal) {
  const auto self = static_cast<std::size_t>(place_.rank);
  DirectFacts mine;
  mine.process = runners::HostProcess::self();
  const auto explain = [&mine](const Status& status) {
    if (!status.ok()) {
      put(mine.reason, status.message());
    }
    return status.ok();
  };
  device::Api* const api = process_.device();
  const std::string blocking = launch_blocking_variable();
  const std::string& allowed = process_.config().direct;
  if (api == nullptr) {
    put(mine.reason, "no GPU library");
  } else if (allowed == "off") {
    put(mine.reason, "TUTTI_DIRECT=off");
  } else if (allowed != "all" && std::string_view(api->name()) == "hip") {
    put(mine.reason, "never run on an AMD GPU; TUTTI_DIRECT=all tries");
  } else if (process_.direct_communicators.load(std::memory_order_relaxed) >= kCommunicatorsMax) {
    put(mine.reason, std::to_string(kCommunicatorsMax) +
                         " communicators of this process have staging memory already");
  } else if (!blocking.empty()) {
    put(mine.reason, blocking);
  } else if (explain(choose_device(device))) {
    const auto identity = api->identity(device_);
    if (explain(identity.status())) {
      put(mine.gpu, *identity);
      const auto pci = api->pci_address(device_);
      put(mine.pci, pci.ok() ? *pci : "");
      const auto processors = api->concurrent_processors(device_);
      if (explain(processors.status())) {
        mine.concurrent_processors = *processors;
        mine.usable = 1;
      }
    }
  }
  std::vector<DirectFacts> all(static_cast<std::size_t>(place_.ranks));
  TUTTI_RETURN_IF_ERROR(bootstrap_.allgather(&mine, all.data(), sizeof(mine)));
  *refusal = machines_.nodes() != 1
                 ? "ranks are on " + std::to_string(machines_.nodes()) + " machines"
             : place_.ranks > device::kernels::kPeersMax
                 ? "direct is for at most " + std::to_string(device::kernels::kPeersMax) +
                       " ranks; this communicator has " + std::to_string(place_.ranks)
                 : refusal_of(all);
  if (!refusal->empty()) {
    return {};
  }
  const bool is_cuda = std::string_view(api->name()) == "cuda";
  const std::vector<GpuOfRank> gpus = gpus_of(all);
  enum : std::size_t { kWithoutNvlink, kOthers, kAgreed };
  std::array<std::uint64_t, kAgreed> agreed{};
  agreed[kWithoutNvlink] = is_cuda && !has_nvlink_to_all(all, self) ? 1 : 0;
  // On a GPU that ranks share, calls of other processes' communicators at the same time.
  agreed[kOthers] = share_gpus(gpus) && place_.world_ranks > place_.ranks ? 1 : 0;
  TUTTI_RETURN_IF_ERROR(bootstrap_.max_in_place(agreed.data(), kAgreed));
  if (agreed[kWithoutNvlink] != 0 && allowed != "all") {
    *refusal =
        "NVLink does not join all these GPUs, or it cannot be seen that it does; "
        "TUTTI_DIRECT=all tries over PCIe";
    return {};
  }
  // Kernels of several communicators must fit on a GPU side by side: they wait for their peers.
  runners::DirectTuning tuning;
  const bool beside_others = is_concurrent_ || agreed[kOthers] != 0;
  tuning.blocks_max =
      shared_blocks_max(gpus, beside_others ? kOthersBlocksMax : runners::kDirectBlocksMax);
  // As much as the shipped rules give direct of a call whose size all ranks know.
  if (facts_.ccl_usable) {
    tuning.pair_bytes_max = select::kDirectMovementsUpTo / static_cast<Bytes>(place_.ranks);
  }
  direct_pair_bytes_max_ = tuning.pair_bytes_max;
  // In one process a rank's call would wait in turn for that of its peer, which waits for it.
  const bool takes_turns = !is_concurrent_ && !share_gpus_in_process(gpus);

  const auto wire =
      agreed[kWithoutNvlink] != 0 ? runners::DirectWire::kPackets : runners::DirectWire::kLines;
  // What does not map in one way may in the next; all ranks come to each of them together.
  std::string first;
  for (const device::Sharing sharing : sharings(process_.config().direct_handles)) {
    bool is_final = false;
    TUTTI_RETURN_IF_ERROR(make_direct({.timeout_s = process_.config().timeout_s,
                                       .wire = wire,
                                       .tuning = tuning,
                                       .sharing = sharing,
                                       .takes_turns = takes_turns,
                                       .progress = [this] { bootstrap_.progress(); },
                                       .end = end_},
                                      &is_final, refusal));
    if (refusal->empty() || is_final) {
      return {};
    }
    first = first.empty() ? *refusal : first;
    direct_runner_.reset();
  }
  *refusal = first;
  return {};
}

/// `is_final`: no other way of sharing memory can change the answer.
Status Communicator::make_direct(const runners::DirectRunner::Options& options, bool* is_final,
                                 std::string* refusal) {
  using runners::DirectRunner;
  auto made = DirectRunner::create(*process_.device(), device_,
                                   {.rank = place_.rank, .ranks = place_.ranks}, process_.scratch(),
                                   options);
  refusal->clear();
  TUTTI_RETURN_IF_ERROR(
      agree_step(made.status(), "could not make its kernels and staging memory", refusal));
  if (!refusal->empty()) {
    // The kernels and ordinary memory: every way needs as much.
    *is_final = options.sharing == device::Sharing::kIpc;
    return {};
  }
  direct_runner_ = std::move(*made);
  auto exported = direct_runner_->handle();
  TUTTI_RETURN_IF_ERROR(
      agree_step(exported.status(), "could not show its staging memory", refusal));
  if (!refusal->empty()) {
    return {};
  }
  std::vector<DirectRunner::Handle> handles(static_cast<std::size_t>(place_.ranks));
  TUTTI_RETURN_IF_ERROR(
      bootstrap_.allgather(&*exported, handles.data(), sizeof(DirectRunner::Handle)));
  TUTTI_RETURN_IF_ERROR(
      agree_step(direct_runner_->open_peers(handles), "could not map its peers' memory", refusal));
  if (!refusal->empty()) {
    return {};
  }
  *is_final = true;
  return agree_step(direct_runner_->self_test(), "could not reach its peers' memory", refusal);
}

Status Communicator::prepare_copies() {
  copies_tried_ = true;
  std::string& refusal = facts_.copies_refusal;
  using runners::DirectRunner;
  const auto made = direct_runner_->make_copies();
  TUTTI_RETURN_IF_ERROR(
      agree_step(made.status(), "could not make staging memory for copies", &refusal));
  if (!refusal.empty()) {
    direct_runner_->drop_copies();
    return {};
  }
  std::vector<DirectRunner::Handle> handles(static_cast<std::size_t>(place_.ranks));
  TUTTI_RETURN_IF_ERROR(bootstrap_.allgather(&*made, handles.data(), sizeof(DirectRunner::Handle)));
  TUTTI_RETURN_IF_ERROR(agree_step(direct_runner_->open_copies(handles),
                                   "could not map its peers' memory for copies", &refusal));
  if (!refusal.empty()) {
    direct_runner_->drop_copies();
    return {};
  }
  TUTTI_RETURN_IF_ERROR(agree_step(direct_runner_->self_test_copies(),
                                   "could not copy into its peers' memory", &refusal));
  if (!refusal.empty()) {
    lose_direct(refusal);  // It may be broken on some of the ranks.
  }
  return {};
}

void Communicator::lose_direct(const std::string& reason) {
  facts_.direct_device_refusal = reason;
  for (CachedRoute& cached : routes_) {
    cached.valid = false;
  }
  forget_routes();
  if (last_on_stream_ == select::Backend::kDirect) {
    last_on_stream_ = select::Backend::kMpi;
  }
  direct_runner_.reset();
  process_.direct_communicators.fetch_sub(1, std::memory_order_relaxed);
}

/// The same answer on all ranks: whether a step of a set-up succeeded everywhere.
Status Communicator::agree_step(const Status& status, const char* what, std::string* refusal) {
  std::uint64_t failed = status.ok() ? 0 : static_cast<std::uint64_t>(place_.rank) + 1;
  TUTTI_RETURN_IF_ERROR(bootstrap_.max_in_place(&failed, 1));
  if (failed != 0) {
    // Once: a job may make hundreds of communicators, all of which fail alike.
    if (!status.ok() && process_.counters().is_first(status.message())) {
      log(LogLevel::kWarn, status.message());
    }
    *refusal = "rank " + std::to_string(failed - 1) + " " + what + " (see its log)";
  }
  return {};
}

}  // namespace tutti::engine
