// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Bringing up the direct backend for a communicator, at the first call that a rule gives to it: the
// kernels, the arenas, their mappings and a test of these are each agreed before the next step, so
// that it is usable on every rank or on none.
#include "engine/direct_backend.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "discover/discover.hpp"
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

/// Chooses this rank's GPU, if it can have one; what the others must know of it.
DirectFacts own_facts(CommContext& context, int device) {
  DirectFacts mine;
  mine.process = runners::HostProcess::self();
  const auto explain = [&mine](const Status& status) {
    if (!status.ok()) {
      put_text(mine.reason, status.message());
    }
    return status.ok();
  };
  device::Api* const api = context.process.device();
  const std::string blocking = launch_blocking_variable();
  const std::string& allowed = context.process.config().direct;
  if (api == nullptr) {
    put_text(mine.reason, "no GPU library");
  } else if (allowed == "off") {
    put_text(mine.reason, "TUTTI_DIRECT=off");
  } else if (allowed != "all" && std::string_view(api->name()) == "hip") {
    put_text(mine.reason, "never run on an AMD GPU; TUTTI_DIRECT=all tries");
  } else if (context.process.direct_communicators.load(std::memory_order_relaxed) >=
             kCommunicatorsMax) {
    put_text(mine.reason, std::to_string(kCommunicatorsMax) +
                              " communicators of this process have staging memory already");
  } else if (!blocking.empty()) {
    put_text(mine.reason, blocking);
  } else if (explain(context.choose_device(device))) {
    const auto identity = api->identity(context.device);
    if (explain(identity.status())) {
      put_text(mine.gpu, *identity);
      const auto pci = api->pci_address(context.device);
      put_text(mine.pci, pci.ok() ? *pci : "");
      const auto processors = api->concurrent_processors(context.device);
      if (explain(processors.status())) {
        mine.concurrent_processors = *processors;
        mine.usable = 1;
      }
    }
  }
  return mine;
}

}  // namespace

DirectBackend::~DirectBackend() {
  if (runner_ != nullptr) {
    lose();
  }
}

Status DirectBackend::set_up(int device) {
  was_tried_ = true;
  std::string& refusal = context_.facts.direct_device_refusal;
  refusal.clear();
  Status status = agree(device, &refusal);
  if (!status.ok()) {
    refusal = "its set-up failed: " + status.message();
  }
  if (!refusal.empty()) {
    runner_.reset();
  } else {
    context_.facts.direct_capture_refusal = runner_->capture_refusal();
    context_.process.direct_communicators.fetch_add(1, std::memory_order_relaxed);
  }
  if (context_.is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, refusal.empty() ? "direct: kernels of this communicator are ready (" +
                                               runner_->description() + ")"
                                         : "no direct backend on this communicator: " + refusal);
  }
  return status;
}

Status DirectBackend::agree(int device, std::string* refusal) {
  const auto self = static_cast<std::size_t>(context_.me.rank);
  const DirectFacts mine = own_facts(context_, device);
  device::Api* const api = context_.process.device();
  const std::string& allowed = context_.process.config().direct;
  std::vector<DirectFacts> all(static_cast<std::size_t>(context_.me.ranks));
  TUTTI_RETURN_IF_ERROR(context_.bootstrap.allgather(&mine, all.data(), sizeof(mine)));
  *refusal = context_.machines.nodes() != 1
                 ? "ranks are on " + std::to_string(context_.machines.nodes()) + " machines"
             : context_.me.ranks > device::kernels::kPeersMax
                 ? "direct is for at most " + std::to_string(device::kernels::kPeersMax) +
                       " ranks; this communicator has " + std::to_string(context_.me.ranks)
                 : refusal_of(all);
  if (!refusal->empty()) {
    return {};
  }
  const bool is_cuda = std::string_view(api->name()) == "cuda";
  const std::vector<GpuOfRank> gpus = gpus_of(all);
  enum : std::size_t { kWithoutNvlink, kOthers, kWithoutGraphs, kAgreed };
  std::array<std::uint64_t, kAgreed> agreed{};
  agreed[kWithoutNvlink] = is_cuda && !has_nvlink_to_all(all, self) ? 1 : 0;
  // On a GPU that ranks share, calls of other processes' communicators at the same time.
  agreed[kOthers] = share_gpus(gpus) && context_.me.world_ranks > context_.me.ranks ? 1 : 0;
  // Containers on one node may have drivers of their own.
  agreed[kWithoutGraphs] = api->orders_graphs() ? 0 : 1;
  TUTTI_RETURN_IF_ERROR(context_.bootstrap.max_in_place(agreed.data(), kAgreed));
  if (agreed[kWithoutNvlink] != 0 && allowed != "all") {
    *refusal =
        "NVLink does not join all these GPUs, or it cannot be seen that it does; "
        "TUTTI_DIRECT=all tries over PCIe";
    return {};
  }
  // Kernels of several communicators must fit on a GPU side by side: they wait for their peers.
  runners::DirectTuning tuning;
  const bool beside_others = context_.is_concurrent || agreed[kOthers] != 0;
  tuning.blocks_max =
      shared_blocks_max(gpus, beside_others ? kOthersBlocksMax : runners::kDirectBlocksMax);
  // As much as the shipped rules give direct of a call whose size all ranks know.
  if (context_.facts.ccl_usable) {
    tuning.pair_bytes_max = select::kDirectMovementsUpTo / static_cast<Bytes>(context_.me.ranks);
  }
  pair_bytes_max_ = tuning.pair_bytes_max;
  // In one process a rank's call would wait in turn for that of its peer, which waits for it.
  const bool takes_turns = !context_.is_concurrent && !share_gpus_in_process(gpus);

  const auto wire =
      agreed[kWithoutNvlink] != 0 ? runners::DirectWire::kPackets : runners::DirectWire::kLines;
  // What does not map in one way may in the next; all ranks come to each of them together.
  std::string first;
  for (const device::Sharing sharing : sharings(context_.process.config().direct_handles)) {
    bool is_final = false;
    TUTTI_RETURN_IF_ERROR(make({.timeout_s = context_.timeout_s,
                                .wire = wire,
                                .tuning = tuning,
                                .sharing = sharing,
                                .takes_turns = takes_turns,
                                .orders_graphs = agreed[kWithoutGraphs] == 0,
                                .progress = [this] { context_.bootstrap.progress(); },
                                .calls = context_.calls},
                               &is_final, refusal));
    if (refusal->empty() || is_final) {
      return {};
    }
    first = first.empty() ? *refusal : first;
    runner_.reset();
  }
  *refusal = first;
  return {};
}

/// `is_final`: no other way of sharing memory can change the answer.
Status DirectBackend::make(const runners::DirectRunner::Options& options, bool* is_final,
                           std::string* refusal) {
  using runners::DirectRunner;
  auto made = DirectRunner::create(*context_.process.device(), context_.device,
                                   {.rank = context_.me.rank, .ranks = context_.me.ranks},
                                   context_.process.scratch(), options);
  refusal->clear();
  TUTTI_RETURN_IF_ERROR(
      context_.agree_step(made.status(), "could not make its kernels and staging memory", refusal));
  if (!refusal->empty()) {
    // The kernels and ordinary memory: every way needs as much.
    *is_final = options.sharing == device::Sharing::kIpc;
    return {};
  }
  runner_ = std::move(*made);
  auto exported = runner_->handle();
  TUTTI_RETURN_IF_ERROR(
      context_.agree_step(exported.status(), "could not show its staging memory", refusal));
  if (!refusal->empty()) {
    return {};
  }
  std::vector<DirectRunner::Handle> handles(static_cast<std::size_t>(context_.me.ranks));
  TUTTI_RETURN_IF_ERROR(
      context_.bootstrap.allgather(&*exported, handles.data(), sizeof(DirectRunner::Handle)));
  TUTTI_RETURN_IF_ERROR(context_.agree_step(runner_->open_peers(handles),
                                            "could not map its peers' memory", refusal));
  if (!refusal->empty()) {
    return {};
  }
  *is_final = true;
  return context_.agree_step(runner_->self_test(), "could not reach its peers' memory", refusal);
}

Status DirectBackend::prepare_copies() {
  copies_tried_ = true;
  std::string& refusal = context_.facts.copies_refusal;
  using runners::DirectRunner;
  const auto made = runner_->make_copies();
  TUTTI_RETURN_IF_ERROR(
      context_.agree_step(made.status(), "could not make staging memory for copies", &refusal));
  if (!refusal.empty()) {
    runner_->drop_copies();
    return {};
  }
  std::vector<DirectRunner::Handle> handles(static_cast<std::size_t>(context_.me.ranks));
  TUTTI_RETURN_IF_ERROR(
      context_.bootstrap.allgather(&*made, handles.data(), sizeof(DirectRunner::Handle)));
  TUTTI_RETURN_IF_ERROR(context_.agree_step(
      runner_->open_copies(handles), "could not map its peers' memory for copies", &refusal));
  if (!refusal.empty()) {
    runner_->drop_copies();
    return {};
  }
  TUTTI_RETURN_IF_ERROR(context_.agree_step(runner_->self_test_copies(),
                                            "could not copy into its peers' memory", &refusal));
  if (!refusal.empty()) {
    context_.facts.direct_device_refusal = refusal;  // It may be broken on some of the ranks.
    lose();
  }
  return {};
}

void DirectBackend::lose() {
  runner_.reset();
  context_.process.direct_communicators.fetch_sub(1, std::memory_order_relaxed);
}

Status DirectBackend::prepare(const select::Plan& plan, int device, std::string* /*ccl_refusal*/) {
  if (!was_tried_) {
    TUTTI_RETURN_IF_ERROR(set_up(device));
  }
  const bool is_copied = std::get<select::DirectPlan>(plan).copied;
  return is_copied && runner_ != nullptr && !copies_tried_ ? prepare_copies() : Status();
}

/// Every rank has a launch for its other pairs or none, and a group for its large ones or none: the
/// launches come first on all, so that nobody waits in a group for a rank that waits in a launch.
template <class Own, class Rest>
Status DirectBackend::carry(const runners::Call& call, const Own& own, const Rest& rest) {
  const runners::ScopeRank me{.rank = context_.me.rank, .ranks = context_.me.ranks};
  const runners::LargePairs large = runners::large_pairs(call, me, pair_bytes_max_);
  Status status = large.has_others ? own(call) : Status();
  // What differs from one rank alone leaves the large pieces of others as they are: they wait.
  if (!large.has_large || (!status.ok() && status.code() != ErrorCode::kMismatch)) {
    return status;
  }
  runners::CountsOfPairs counts;
  Status of_rest = rest(runners::only_pairs(call, me, large.peers, &counts));
  return status.ok() ? of_rest : status;
}

/// A launch asks nothing of the driver that a capture forbids, and is in a hurry.
Status DirectBackend::run(const Route& route, const runners::Call& call) {
  if (std::get<select::DirectPlan>(route.plan).copied) {
    std::optional<device::RelaxedCapture> relaxed;
    context_.relax(&relaxed);
    return runner_->run_copied(call);
  }
  return carry(
      call,
      [this](const runners::Call& part) { return runner_->run(runners::Scope::kWhole, part); },
      [this](const runners::Call& part) {
        std::optional<device::RelaxedCapture> relaxed;
        context_.relax(&relaxed);
        return ccl_.runner()->run(runners::Scope::kWhole, part);
      });
}

Status DirectBackend::start(const Route& route, const runners::Call& call, device::Stream stream) {
  if (std::get<select::DirectPlan>(route.plan).copied) {
    return PlanRunner::start(route, call, stream);
  }
  if (route.order == select::Order::kCaptured) {
    return runner_->capture(call, stream);
  }
  return carry(
      call, [&](const runners::Call& part) { return runner_->enqueue(part, stream); },
      [&](const runners::Call& part) { return ccl_.start(route, part, stream); });
}

}  // namespace tutti::engine
