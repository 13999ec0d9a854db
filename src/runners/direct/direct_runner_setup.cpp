// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The set-up of DirectRunner: kernels loaded, memory mapped by the peers, and a test of both.
#include "runners/direct/direct_runner.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runners/direct/deferred_free.hpp"
#include "runners/direct/direct_control.hpp"
#include "runners/staged_call.hpp"

namespace tutti::runners {

using select::Collective;

namespace {

constexpr std::string_view kPacketsPrefix = "packets_";
constexpr std::uint32_t kLineLanes = 8;  // On every GPU (device/kernels/wire.hpp).
constexpr double kSelfTestTimeoutS = 20;
constexpr double kFdExchangeTimeoutS = 20;
constexpr Bytes kWordsBytes = 64;  // Of `ended_`, in a line of its own.

}  // namespace

Result<std::unique_ptr<DirectRunner>> DirectRunner::create(device::Api& api, int device,
                                                           const ScopeRank& me, Scratch& scratch,
                                                           const Options& options) {
  if (me.ranks > kernels::kPeersMax) {
    return Status(ErrorCode::kUnsupported,
                  "direct is for at most " + std::to_string(kernels::kPeersMax) +
                      " ranks; this communicator has " + std::to_string(me.ranks));
  }
  free_deferred(api);
  std::unique_ptr<DirectRunner> self(new DirectRunner(api, device, me, scratch, options));
  TUTTI_RETURN_IF_ERROR(self->calls_->reason());
  TUTTI_RETURN_IF_ERROR(self->load_kernels());
  TUTTI_RETURN_IF_ERROR(self->make_memory());
  self->calls_->join(
      kOurs, api, device,
      {.name = "direct",
       .timeout_s = options.timeout_s,
       .takes_turns = options.takes_turns,
       .orders_graphs = self->capture_refusal().empty(),
       .outcome = [runner = self.get()] { return runner->outcome(); },
       .progress = options.progress,
       .look = [runner = self.get()] { return runner->look(); },
       .late = [runner = self.get()] { return runner->call_records_.who_is_behind(); },
       .close = [runner = self.get()] { runner->close(); },
       .end = [runner = self.get()] { runner->give_up(); }});
  return self;
}

Status DirectRunner::load_kernels() {
  const std::string runtime = api_.name();
  geometry_.wire = runtime == "hip" ? DirectWire::kPackets : options_.wire;
  const auto lanes = static_cast<std::uint32_t>(api_.warp_threads());
  geometry_.warp_lines = std::max(lanes / kLineLanes, 1U);
  geometry_.warps_max = std::min(device::kBlockThreads / lanes, geometry_.warps_max);
  TUTTI_ASSIGN_OR_RETURN(module_, device::KernelModule::load(api_, device_));
  geometry_.general_only = runtime == "cuda" && geometry_.wire == DirectWire::kPackets;
  // Every kernel now: the first use of one may load code and wait for the device.
  const auto names = direct_kernel_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    Kernel kernel;
    if (std::string_view(names[i]).starts_with(kPacketsPrefix) == geometry_.general_only) {
      TUTTI_ASSIGN_OR_RETURN(kernel.function, module_.find(names[i]));
    }
    kernels_.push_back(kernel);
  }
  return {};
}

Status DirectRunner::make_memory() {
  TUTTI_ASSIGN_OR_RETURN(stream_, api_.create_stream(device_));
  const Bytes words_at = arena_bytes();
  const Bytes bytes = words_at + kWordsBytes + sizeof(kernels::LaunchCounter);
  TUTTI_ASSIGN_OR_RETURN(arena_, api_.allocate_shared(device_, bytes, options_.sharing));
  ended_ = reinterpret_cast<kernels::Word*>(static_cast<std::byte*>(arena_) + words_at);
  counter_ = reinterpret_cast<kernels::LaunchCounter*>(static_cast<std::byte*>(arena_) + words_at +
                                                       kWordsBytes);
  // Zero is no epoch.
  TUTTI_RETURN_IF_ERROR(api_.fill_async(arena_, 0, bytes, stream_));
  TUTTI_RETURN_IF_ERROR(api_.wait_stream(stream_));
  TUTTI_ASSIGN_OR_RETURN(void* const words, api_.allocate_pinned(sizeof(Control), device_));
  std::memset(words, 0, sizeof(Control));
  control_ = static_cast<Control*>(words);
  epochs_.fill(options_.first_epoch);
  liveness_ = PeerLiveness::make();
  return open_fd_exchange();
}

Status DirectRunner::open_fd_exchange() {
  if (options_.sharing == device::Sharing::kDescriptor) {
    TUTTI_ASSIGN_OR_RETURN(fd_exchange_, FdExchange::open());
  }
  return {};
}

Result<DirectRunner::Handle> DirectRunner::handle_of(void* memory) const {
  Handle handle;
  TUTTI_ASSIGN_OR_RETURN(handle.memory, api_.export_memory(memory));
  handle.memory.sharing = options_.sharing;
  if (fd_exchange_) {
    handle.fd_address = fd_exchange_->address();
  }
  handle.identity = liveness_.identity();
  return handle;
}

Result<std::vector<Descriptor>> DirectRunner::exchange_descriptors(
    std::span<const Handle> handles) {
  std::vector<FdExchange::Address> addresses;
  for (const Handle& handle : handles) {
    addresses.push_back(handle.fd_address);
  }
  const int own = handles[static_cast<std::size_t>(me_.rank)].memory.descriptor;
  TUTTI_RETURN_IF_ERROR(fd_exchange_->send_to_all(addresses, me_.rank, own));
  auto received = fd_exchange_->receive_from_all(me_.ranks, me_.rank, kFdExchangeTimeoutS);
  fd_exchange_.reset();
  return received;
}

Result<std::vector<void*>> DirectRunner::map(std::span<const Handle> handles, void* own) {
  std::vector<void*> memories;
  std::vector<Descriptor> descriptors(handles.size());  // Closed once they are mapped.
  if (fd_exchange_) {
    TUTTI_ASSIGN_OR_RETURN(descriptors, exchange_descriptors(handles));
  }
  for (int peer = 0; peer < me_.ranks; ++peer) {
    const Handle& handle = handles[static_cast<std::size_t>(peer)];
    if (peer == me_.rank) {
      memories.push_back(own);
      continue;
    }
    device::IpcHandle shown = handle.memory;
    shown.descriptor = descriptors[static_cast<std::size_t>(peer)].get();
    TUTTI_ASSIGN_OR_RETURN(void* const opened, api_.open_memory(device_, shown));
    opened_.push_back(opened);
    memories.push_back(opened);
  }
  return memories;
}

Status DirectRunner::open_peers(std::span<const Handle> handles) {
  std::vector<PeerLiveness::Identity> identities;
  for (const Handle& handle : handles) {
    identities.push_back(handle.identity);
  }
  TUTTI_ASSIGN_OR_RETURN(const auto arenas, map(handles, arena_));
  return open_arenas(arenas, identities);
}

Status DirectRunner::open_arenas(std::span<void* const> arenas,
                                 std::span<const PeerLiveness::Identity> identities) {
  liveness_.open(identities, me_.rank);
  call_records_.set_own(me_.rank, liveness_.own_page());
  for (int peer = 0; peer < me_.ranks; ++peer) {
    call_records_.set_peer(peer, liveness_.page_of(peer));
  }
  for (std::size_t peer = 0; peer < arenas.size(); ++peer) {
    arenas_[peer] = arenas[peer];
  }
  return warm();
}

/// Runs every kernel once, on nothing: in its own arena, where all flags still are 0, it finds
/// epoch 0 of all peers at once.
Status DirectRunner::warm() {
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    Kernel& kernel = kernels_[i];
    if (kernel.function == nullptr) {
      continue;
    }
    Planned alone;
    alone.kernel = static_cast<int>(i);
    std::fill(std::begin(alone.arguments.arena), std::end(alone.arguments.arena), arena_);
    // As rank 0 of as many as this kernel is for.
    const int most = std::string_view(direct_kernel_names()[i]).back() - '0';
    alone.arguments.ranks = static_cast<kernels::Word>(std::min(me_.ranks, most));
    alone.arguments.blocks = 1;
    alone.arguments.warps = alone.warps = kernels::kPeersMax;  // In an exchange, one for each peer.
    alone.arguments.alignment = kernels::kUnitBytes;
    std::fill_n(alone.arguments.rounds, alone.arguments.ranks, 1U);
    std::fill_n(alone.arguments.pair_warps, alone.arguments.ranks,
                alone.warps >> kernels::exchange_shift(alone.arguments.ranks));
    alone.arguments.slot_bytes = direct_slot_bytes(geometry_, me_.ranks);
    void* arguments[] = {&alone.arguments};
    auto launcher = api_.create_launcher(kernel.function, device_, shape_of(alone), arguments);
    kernel.launcher = launcher.ok() ? *launcher : nullptr;
    if (!launcher.ok() && no_graphs_.empty()) {
      no_graphs_ = launcher.status().message();
    }
    TUTTI_RETURN_IF_ERROR(launch(alone, stream_));
    TUTTI_RETURN_IF_ERROR(wait(alone, kSelfTestTimeoutS));
  }
  return {};
}

Result<DirectRunner::Handle> DirectRunner::make_copies() {
  opened_before_copies_ = opened_.size();
  TUTTI_ASSIGN_OR_RETURN(copies_, CopyStaging::create(api_, device_, me_, options_.sharing));
  TUTTI_RETURN_IF_ERROR(open_fd_exchange());
  return handle_of(copies_->memory());
}

void DirectRunner::drop_copies() {
  for (std::size_t i = opened_before_copies_; i < opened_.size(); ++i) {
    static_cast<void>(api_.close_memory(opened_[i]));
  }
  opened_.resize(std::min(opened_.size(), opened_before_copies_));
  fd_exchange_.reset();
  end_copies();  // Peers may not have closed it yet: it goes with the rest.
}

Status DirectRunner::open_copies(std::span<const Handle> handles) {
  TUTTI_ASSIGN_OR_RETURN(const auto memories, map(handles, copies_->memory()));
  copies_->set_memories(memories);
  return {};
}

Status DirectRunner::self_test() {
  liveness_.close_files();
  return test_by(&DirectRunner::carry);
}

Status DirectRunner::self_test_copies() { return test_by(&DirectRunner::carry_copied); }

Status DirectRunner::test_by(Carrier carrier) {
  const double timeout_s = options_.timeout_s;
  const DirectTuning tuning = options_.tuning;
  Status status = test_turns(carrier);
  options_.timeout_s = timeout_s;
  options_.tuning = tuning;
  return status;
}

Status DirectRunner::test_turns(Carrier carrier) {
  // Some lines to each peer and back, twice: in one round, and by as few warps as there can be, in
  // several, which is other code and sees other banks of the slots. Copies: in one chunk and in
  // more than there are buffers.
  constexpr std::uint64_t kWords = 600;
  const auto ranks = static_cast<std::uint64_t>(me_.ranks);
  const Bytes bytes = ranks * kWords * sizeof(std::uint32_t);
  TUTTI_ASSIGN_OR_RETURN(Lease send, scratch_.device(device_, bytes));
  TUTTI_ASSIGN_OR_RETURN(Lease recv, scratch_.device(device_, bytes));
  options_.timeout_s = kSelfTestTimeoutS;
  Status result;  // Every rank takes all turns, whatever it finds: the others wait for it.
  for (std::uint32_t turn = 0; turn < 2; ++turn) {
    options_.tuning.blocks = options_.tuning.warps = turn;
    options_.tuning.copy_chunk_bytes = Bytes{turn} * 512;
    const auto word = [&](std::uint64_t from, std::uint64_t to, std::uint64_t i) {
      return static_cast<std::uint32_t>((from * 64 + to) * 100003 + i * 7 + turn);
    };
    std::vector<std::uint32_t> words;
    for (std::uint64_t peer = 0; peer < ranks; ++peer) {
      for (std::uint64_t i = 0; i < kWords; ++i) {
        words.push_back(word(static_cast<std::uint64_t>(me_.rank), peer, i));
      }
    }
    TUTTI_RETURN_IF_ERROR(api_.copy(send.data(), words.data(), bytes));
    Call call;
    call.collective = Collective::kAlltoall;
    call.element_bytes = 1;
    call.count = kWords * sizeof(std::uint32_t);
    call.send = send.data();
    call.recv = recv.data();
    call.send_memory = call.recv_memory = {device::MemoryKind::kDevice, device_};
    if (Status status = run_by(carrier, call); !status.ok()) {
      send.abandon();  // The kernel may still use them.
      recv.abandon();
      return status;
    }
    TUTTI_RETURN_IF_ERROR(api_.copy(words.data(), recv.data(), bytes));
    for (std::uint64_t peer = 0; peer < ranks; ++peer) {
      for (std::uint64_t i = 0; i < kWords; ++i) {
        if (words[peer * kWords + i] != word(peer, static_cast<std::uint64_t>(me_.rank), i)) {
          result = Status(ErrorCode::kUnsupported,
                          "direct: what rank " + std::to_string(peer) +
                              " wrote into this GPU's memory arrived changed; peer access between "
                              "these GPUs does not work (is an IOMMU in the way?)");
        }
      }
    }
  }
  return result;
}

}  // namespace tutti::runners
