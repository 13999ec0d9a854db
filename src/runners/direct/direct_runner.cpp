// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "runners/direct/direct_runner.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/pause.hpp"
#include "device/host_memory.hpp"
#include "runners/direct/deferred_free.hpp"
#include "runners/staged_call.hpp"

namespace tutti::runners {

namespace kernels = device::kernels;
using select::Collective;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kPacketsPrefix = "packets_";
constexpr double kSelfTestTimeoutS = 20;
constexpr double kFdExchangeTimeoutS = 20;
/// How long a kernel that was told to give up may take to do so.
constexpr double kGiveUpS = 10;
/// How long a kernel may take to end where a peer's call differs and has the same shape: that peer
/// or another may still have to launch its own. Then it is told to give up.
constexpr double kMismatchS = 2;
/// Of a call that is copied, queued at most: a full queue would hold the host up beyond all
/// time-outs.
constexpr std::size_t kChunksAhead = 4;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Of a reduce_scatter.
Bytes input_bytes(const Call& call) {
  Bytes bytes = 0;
  for (const std::uint64_t count : call.recv_counts) {
    bytes += count * call.element_bytes;
  }
  return bytes;
}

}  // namespace

struct DirectRunner::Control {
  alignas(64) std::array<kernels::Wide, kDirectBlocksMax> done;  ///< By block.
  alignas(64) kernels::Word abort;
  alignas(64) kernels::Word failed;
  /// Set before anything is ended: what stands behind another runner's call must not begin.
  alignas(64) kernels::Word closed;
  kernels::Word* ended;  ///< The word that kernels look at before they begin.
};

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
  TUTTI_RETURN_IF_ERROR(self->end_->reason());
  TUTTI_RETURN_IF_ERROR(self->load_kernels());
  TUTTI_RETURN_IF_ERROR(self->make_memory());
  self->end_->join(CommonEnd::Turn::kKernels,
                   {.close = [runner = self.get()] { runner->close(); },
                    .end = [runner = self.get()] { runner->give_up(); }});
  return self;
}

DirectRunner::~DirectRunner() {
  begin_end();
  if (broken_) {
    module_.abandon();
    if (copies_ != nullptr) {
      copies_->abandon();
    }
    if (stream_ != nullptr) {
      StreamLine::of(api_, device_).abandon(api_, device_, stream_);
    }
    return;  // A kernel that never ended may still use all of it, and memory of peers.
  }
  DeferredFree deferred{.opened = std::move(opened_),
                        .memories = std::move(deferred_),
                        .pinned = control_,
                        .module = std::move(module_),
                        .liveness = std::move(liveness_)};
  free_when_alone(api_, device_, std::move(deferred));
}

void DirectRunner::begin_end() {
  const auto ignore = [](const Status& status) { static_cast<void>(status); };
  ignore(stream_status(/*wait=*/true));
  stream_calls_.reset();
  end_->leave(CommonEnd::Turn::kKernels);
  if (broken_ || std::exchange(has_ended_, true)) {
    return;
  }
  liveness_.end();  // Now: the driver may be busy until the process ends.
  await_receivers();
  const device::RelaxedCapture relaxed(api_);
  if (stream_ != nullptr) {
    ignore(api_.wait_stream(stream_));
    ignore(api_.destroy_stream(stream_));
  }
  for (const Kernel& kernel : kernels_) {
    if (kernel.launcher != nullptr) {
      ignore(api_.destroy_launcher(kernel.launcher));
    }
  }
  end_copies();  // Its streams end before the memory that they use goes.
  if (arena_ != nullptr) {
    deferred_.push_back(arena_);
  }
  if (StreamLine::of(api_, device_).is_quiet(api_)) {
    close_peer_memory(api_, std::exchange(opened_, {}), liveness_);
  }
}

/// Whoever was not waited for has still to push into this rank's memory, also a while from now:
/// this process must not end before. A late peer is waited for; one that will not come is not.
void DirectRunner::await_receivers() {
  constexpr int kLooksPerProcess = 1000;  // Whether a process runs is asked of /proc.
  const auto start = Clock::now();
  for (int peer = 0; peer < me_.ranks; ++peer) {
    const std::uint64_t epoch = epochs_[static_cast<std::size_t>(peer)];
    for (int looks = 0;
         (unawaited_ >> peer & 1) != 0 && !call_records_.has_completed(peer, epoch) &&
         call_records_.failed_peer() < 0 &&
         (looks % kLooksPerProcess != 0 || !liveness_.has_ended(peer)) &&
         (options_.timeout_s <= 0 || seconds_since(start) < options_.timeout_s);
         ++looks) {
      usleep(50);
      if (options_.progress) {
        options_.progress();
      }
    }
  }
}

void DirectRunner::end_copies() {
  if (copies_ != nullptr) {
    deferred_.push_back(copies_->release_memory());
    copies_.reset();
  }
}

Status DirectRunner::load_kernels() {
  const std::string runtime = api_.name();
  geometry_.wire = options_.wire;
  is_host_ = runtime == "host";
  if (is_host_) {
    geometry_ = {.wire = DirectWire::kLines, .warp_lines = 1};
  } else if (runtime == "hip") {
    geometry_ = {.wire = DirectWire::kPackets, .warp_lines = 8, .warps_max = 8};
  }
  TUTTI_ASSIGN_OR_RETURN(module_, KernelModule::load(api_, device_));
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
  const Bytes slots_bytes = direct_arena_bytes(geometry_, me_.ranks);
  const Bytes bytes = slots_bytes + sizeof(kernels::Word);
  TUTTI_ASSIGN_OR_RETURN(arena_, api_.allocate_shared(device_, bytes, options_.sharing));
  ended_ = reinterpret_cast<kernels::Word*>(static_cast<std::byte*>(arena_) + slots_bytes);
  // Zero is no epoch.
  TUTTI_RETURN_IF_ERROR(api_.fill_async(arena_, 0, bytes, stream_));
  TUTTI_RETURN_IF_ERROR(api_.wait_stream(stream_));
  TUTTI_ASSIGN_OR_RETURN(void* const words, api_.allocate_pinned(sizeof(Control), device_));
  std::memset(words, 0, sizeof(Control));
  control_ = static_cast<Control*>(words);
  control_->ended = ended_;
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

Result<std::vector<net::Descriptor>> DirectRunner::exchange_descriptors(
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
  std::vector<net::Descriptor> descriptors(handles.size());  // Closed once they are mapped.
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

device::LaunchShape DirectRunner::shape_of(const DirectLaunch& launch) const {
  const std::uint32_t lanes = kernel_warp_threads(api_.name());
  return {.grid = {launch.blocks, 1, 1}, .block = {launch.warps * lanes, 1, 1}};
}

std::string DirectRunner::description() const {
  return std::string(api_.name()) + " " + module_.target() +
         (geometry_.wire == DirectWire::kLines ? ", 128-byte lines, " : ", 8-byte packets, ") +
         std::to_string(direct_arena_bytes(geometry_, me_.ranks) >> 20) + " MiB of staging memory" +
         (options_.sharing == device::Sharing::kDescriptor ? " by descriptors"
          : options_.sharing == device::Sharing::kFabric   ? " by handles of the fabric"
                                                           : "") +
         (no_graphs_.empty() ? "" : ", plain launches: " + no_graphs_);
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

Status DirectRunner::run(Scope scope, const Call& call) {
  if (scope != Scope::kWhole) {
    return Status(ErrorCode::kUnsupported, "direct carries whole communicators only");
  }
  return end_if_broken(run_by(&DirectRunner::carry, call));
}

Status DirectRunner::run_copied(const Call& call) {
  return end_if_broken(run_by(&DirectRunner::carry_copied, call));
}

Status DirectRunner::end_if_broken(Status status) {
  if (!status.ok() && broken_) {
    end_->end(status);
  }
  return status;
}

Status DirectRunner::failed_before() const {
  const Status reason = end_->reason();
  return Status(ErrorCode::kLibraryFailed, "direct: this communicator failed before" +
                                               (reason.ok() ? "" : ": " + reason.message()));
}

Status DirectRunner::run_by(Carrier carrier, const Call& call) {
  TUTTI_RETURN_IF_ERROR(stream_status(/*wait=*/true));
  if (broken_) {
    return failed_before();
  }
  has_run_ = true;
  const bool move_send = !call.send_memory.is_usable_on(device_);
  const bool move_recv = !call.recv_memory.is_usable_on(device_);
  if (!move_send && !move_recv && !direct_needs_copy(call)) [[likely]] {
    return (this->*carrier)(call);
  }
  const device::RelaxedCapture relaxed(api_);
  StagedCall staged;
  Status status = staged.move_in(call, me_, StagingMemory::kDevice, device_, move_send, move_recv,
                                 &api_, scratch_, stream_);
  Call moved = staged.call();
  Lease copy;
  if (status.ok()) {
    status = copy_input(&moved, stream_, &copy);
  }
  if (status.ok()) {
    status = (this->*carrier)(moved);
  }
  if (!status.ok()) {
    if (broken_ || status.code() != ErrorCode::kMismatch) {
      broken_ = true;  // The peers are in the call.
      staged.abandon();
      copy.abandon();
    }
    return status;
  }
  return staged.move_out();
}

Status DirectRunner::copy_input(Call* call, device::Stream stream, Lease* copy) {
  if (!direct_needs_copy(*call)) {
    return {};
  }
  const Bytes bytes = input_bytes(*call);
  TUTTI_ASSIGN_OR_RETURN(*copy, scratch_.device(device_, bytes, /*may_wait=*/false));
  TUTTI_RETURN_IF_ERROR(api_.copy_async(copy->data(), call->send, bytes, stream));
  call->send = copy->data();
  call->in_place = false;
  return {};
}

Status DirectRunner::enqueue(const Call& call, device::Stream stream) {
  if (broken_) {
    TUTTI_RETURN_IF_ERROR(stream_status(/*wait=*/false));
    return failed_before();
  }
  TUTTI_RETURN_IF_ERROR(check_on_device(call, device_));
  TUTTI_ASSIGN_OR_RETURN(auto current, device::CurrentDevice::set(api_, device_));
  const device::RelaxedCapture relaxed(api_);
  if (std::exchange(has_run_, false)) {
    // Its words have come; what is left is the end of its kernel.
    TUTTI_RETURN_IF_ERROR(api_.wait_stream(stream_));
  }
  if (stream_calls_ == nullptr) {
    stream_calls_ = std::make_unique<StreamCalls>(
        api_, device_,
        StreamCalls::Options{
            .name = "direct",
            .timeout_s = options_.timeout_s,
            .communicator = end_.get(),
            .kind = options_.takes_turns ? StreamLine::Kind::kKernel : StreamLine::Kind::kBeside,
            // A kernel gives up only when the common end has told it to.
            .outcome = [this] { return end_->reason(); },
            .look = [this] { return look(); },
            .end = [this](const Status& failure) { end_->end(failure); }});
  }
  const bool is_behind_other = end_->is_behind_other(CommonEnd::Turn::kKernels);
  return stream_calls_->add(stream, [&](Lease* copy) -> Status {
    Call moved = call;
    TUTTI_RETURN_IF_ERROR(copy_input(&moved, stream, copy));
    if (is_behind_other) {
      TUTTI_RETURN_IF_ERROR(follow(stream));
    }
    Planned next = planned(moved);
    announce(next);
    TUTTI_RETURN_IF_ERROR(launch(next, stream));
    count(next);
    note_awaited(next);
    return {};
  });
}

Status DirectRunner::stream_status(bool wait) {
  if (stream_calls_ == nullptr) {
    return {};
  }
  return wait ? stream_calls_->drain() : stream_calls_->failure();
}

Status DirectRunner::precede(device::Stream stream) {
  return stream_calls_ == nullptr ? Status() : stream_calls_->precede(stream);
}

Status DirectRunner::look() {
  // Only the second time: between two looks StreamCalls has asked whether the call is over.
  std::string gone = gone_peer();
  const bool is_known = !gone.empty() && gone == gone_;
  gone_ = std::move(gone);
  return is_known ? Status(ErrorCode::kTimeout, "direct: a call on a stream: " + gone_) : Status();
}

DirectRunner::Planned DirectRunner::planned(const Call& call) {
  Planned launch{plan_direct(call, me_, geometry_, options_.tuning)};
  for (std::size_t peer = 0; peer < arenas_.size(); ++peer) {
    launch.arguments.arena[peer] = arenas_[peer];
    epochs_[peer] = direct_first_epoch(epochs_[peer], launch.rounds[peer]);
    launch.arguments.epoch[peer] = epochs_[peer];
  }
  describe(&launch, call, launch);
  return launch;
}

void DirectRunner::describe(Planned* launch, const Call& call, const DirectLaunch& pieces) const {
  for (std::size_t peer = 0; peer < launch->rounds.size(); ++peer) {
    if (launch->rounds[peer] > 0) {
      launch->entries[peer] = {.number = numbers_[peer] + 1,
                               .form = CallRecords::Entry::form_of(
                                   call, launch->arguments.pair_warps[peer], launch->rounds[peer]),
                               .send_bytes = pieces.send_bytes[peer],
                               .recv_bytes = pieces.recv_bytes[peer]};
    }
  }
}

void DirectRunner::count(const DirectLaunch& launch) {
  for (std::size_t peer = 0; peer < launch.rounds.size(); ++peer) {
    epochs_[peer] += launch.rounds[peer];
    numbers_[peer] += launch.rounds[peer] > 0 ? 1 : 0;
  }
}

/// Pairs without rounds have exchanged nothing in this launch.
void DirectRunner::note_awaited(const DirectLaunch& launch) {
  for (std::size_t peer = 0; peer < launch.rounds.size(); ++peer) {
    unawaited_ &= launch.rounds[peer] > 0 ? ~(1U << peer) : ~0U;
  }
  unawaited_ |= launch.arguments.unawaited;
}

void DirectRunner::set_completed() {
  for (int peer = 0; peer < me_.ranks; ++peer) {
    call_records_.set_completed(peer, epochs_[static_cast<std::size_t>(peer)]);
  }
}

Status DirectRunner::carry(const Call& call) {
  Planned next = planned(call);
  for (int peer = 0; peer < me_.ranks; ++peer) {
    if ((next.send_only_peers >> peer & 1) != 0 &&
        call_records_.has_completed(peer, epochs_[static_cast<std::size_t>(peer)])) {
      next.arguments.unawaited |= 1U << peer;
    }
  }
  announce(next);
  Status status = launch(next, stream_);
  if (!status.ok()) {
    broken_ = true;
    return status;
  }
  count(next);
  note_awaited(next);
  status = wait(next, options_.timeout_s);
  if (!broken_) {
    set_completed();
  }
  return status;
}

Status DirectRunner::carry_copied(const Call& call) {
  Status status = copy_chunks(call);
  if (!status.ok() && !broken_.exchange(true)) {
    break_off();
  }
  return status;
}

Status DirectRunner::copy_chunks(const Call& call) {
  const DirectLaunch whole = plan_direct(call, me_, geometry_, options_.tuning);
  const kernels::DirectArguments& pieces = whole.arguments;
  const Bytes bytes = call.count * call.element_bytes;
  const Bytes tuned = options_.tuning.copy_chunk_bytes;
  const Bytes chunk_bytes = std::min(tuned != 0 ? tuned : kBytesMax, copies_->slot_bytes());
  Call barrier;
  barrier.collective = Collective::kBarrier;
  std::array<Planned, kChunksAhead> signals;
  std::size_t chunk = 0;
  for (Bytes offset = 0; offset < bytes; offset += chunk_bytes, ++chunk) {
    Planned& signal = signals[chunk % kChunksAhead];
    if (chunk >= kChunksAhead) {
      TUTTI_RETURN_IF_ERROR(wait(signal, options_.timeout_s));
    }
    const Bytes some = std::min(chunk_bytes, bytes - offset);
    TUTTI_RETURN_IF_ERROR(copies_->send(pieces, offset, some, stream_));
    signal = planned(barrier);
    describe(&signal, call, whole);
    // Behind a signal that gave up, the copies of this chunk may have spoilt what peers read.
    signal.arguments.is_queued = 1;
    announce(signal);
    TUTTI_RETURN_IF_ERROR(launch(signal, stream_));
    count(signal);
    note_awaited(signal);
    TUTTI_RETURN_IF_ERROR(copies_->take(pieces, offset, some, stream_));
  }
  // A launch that exchanges nothing: its word says that all is over.
  TUTTI_RETURN_IF_ERROR(copies_->finish(stream_));
  Planned end = planned(barrier);
  // Every signal describes the whole call: who has made the last one has the right number of them.
  end.entries = chunk > 0 ? signals[(chunk - 1) % kChunksAhead].entries : decltype(end.entries){};
  std::fill(std::begin(end.arguments.rounds), std::end(end.arguments.rounds), 0U);
  TUTTI_RETURN_IF_ERROR(launch(end, stream_));
  TUTTI_RETURN_IF_ERROR(wait(end, options_.timeout_s));
  set_completed();
  return {};
}

void DirectRunner::announce(const Planned& launch) {
  for (int peer = 0; peer < me_.ranks; ++peer) {
    if (const auto& entry = launch.entries[static_cast<std::size_t>(peer)]; entry.number > 0) {
      call_records_.write(peer, entry);
    }
  }
}

Status DirectRunner::launch(Planned& launch, device::Stream stream) {
  kernels::DirectArguments& a = launch.arguments;
  a.done = control_->done.data();
  a.sequence = ++sequence_;
  a.abort = &control_->abort;
  a.failed = &control_->failed;
  a.ended = ended_;
  if (stream != stream_) {
    a.is_queued = 1;
  }
  void* arguments[] = {&a};
  const Kernel& kernel = kernels_[static_cast<std::size_t>(launch.kernel)];
  return kernel.launcher != nullptr
             ? api_.launch_again(kernel.launcher, shape_of(launch), stream, arguments)
             : api_.launch(kernel.function, shape_of(launch), stream, arguments);
}

bool DirectRunner::is_done(const DirectLaunch& launch) const {
  for (std::uint32_t block = 0; block < launch.blocks; ++block) {
    // Launches behind it store greater numbers.
    if (std::atomic_ref(control_->done[block]).load(std::memory_order_acquire) <
        launch.arguments.sequence) {
      return false;
    }
  }
  return true;
}

std::string DirectRunner::gone_peer() const {
  if (const int peer = liveness_.dead_peer(); peer >= 0) {
    return "the process of rank " + std::to_string(peer) + " is gone";
  }
  if (const int peer = call_records_.failed_peer(); peer >= 0) {
    return "rank " + std::to_string(peer) + " makes no more calls here, after an error of its own";
  }
  return "";
}

DirectRunner::Mismatch DirectRunner::compare(std::uint32_t* unchecked, const Planned& launch,
                                             bool is_complete) const {
  for (int peer = 0; peer < me_.ranks; ++peer) {
    if ((*unchecked >> peer & 1) == 0) {
      continue;
    }
    const CallRecords::Entry& own = launch.entries[static_cast<std::size_t>(peer)];
    CallRecords::Entry theirs;
    const auto found = call_records_.find(peer, own.number, &theirs);
    if (found == CallRecords::Found::kEntry ? !own.fits(theirs)
                                            : found == CallRecords::Found::kBehind && is_complete) {
      return {peer, found == CallRecords::Found::kEntry ? theirs : CallRecords::Entry()};
    }
    if (found != CallRecords::Found::kBehind &&
        (found != CallRecords::Found::kBusy || is_complete)) {
      *unchecked &= ~(1U << peer);
    }
  }
  return {};
}

Status DirectRunner::end_mismatch(const Planned& launch, std::uint32_t unchecked,
                                  const Mismatch& mismatch) {
  const CallRecords::Entry& own = launch.entries[static_cast<std::size_t>(mismatch.peer)];
  Status status(ErrorCode::kMismatch,
                "direct: rank " + std::to_string(mismatch.peer) +
                    (mismatch.theirs.number == 0 ? " makes another call"
                                                 : " calls " + mismatch.theirs.text()) +
                    " where this rank calls " + own.text() +
                    "; give all ranks the same collective, root and sizes");
  const auto is_in_step = [&] {
    for (int peer = 0; peer < me_.ranks; ++peer) {
      const CallRecords::Entry& mine = launch.entries[static_cast<std::size_t>(peer)];
      CallRecords::Entry theirs;
      if ((unchecked >> peer & 1) != 0 &&
          (call_records_.find(peer, mine.number, &theirs) != CallRecords::Found::kEntry ||
           mine.shape() != theirs.shape())) {
        return false;
      }
    }
    return true;
  };
  const auto start = Clock::now();
  while (own.shape() == mismatch.theirs.shape() && !is_done(launch) && gone_peer().empty() &&
         seconds_since(start) < kMismatchS) {
    usleep(100);
    if (options_.progress) {
      options_.progress();
    }
  }
  if (!is_done(launch) || !is_in_step()) {
    broken_ = true;
    break_off();
  }
  return status;
}

Status DirectRunner::wait(const Planned& launch, double timeout_s) {
  constexpr int kLooksPerClock = 4096;
  constexpr int kLooksPerProgress = 1024;  // Longer than a short call takes.
  constexpr int kLooksPerCompare = 64;
  constexpr double kPeerCheckS = 0.5;
  // The host device computes on the cores that would wait.
  const int looks_before_yield = is_host_ ? 16 : 1 << 16;
  const auto start = Clock::now();
  double next_check_s = kPeerCheckS;
  std::string reason;
  std::uint32_t unchecked = 0;
  for (std::size_t peer = 0; peer < launch.entries.size(); ++peer) {
    unchecked |= launch.entries[peer].number > 0 ? 1U << peer : 0;
  }
  unchecked &= ~launch.arguments.unawaited;
  for (std::int64_t looks = 1; !is_done(launch); ++looks) {
    pause_briefly();
    if (unchecked != 0 && looks % kLooksPerCompare == 0) {
      if (const Mismatch found = compare(&unchecked, launch, /*is_complete=*/false);
          found.peer >= 0) {
        return end_mismatch(launch, unchecked, found);
      }
    }
    if (looks > looks_before_yield) {
      sched_yield();
    }
    if (looks % kLooksPerProgress == 0 && options_.progress) {
      options_.progress();
    }
    if (looks % kLooksPerClock != 0) {
      continue;
    }
    const double waited_s = seconds_since(start);
    if (timeout_s > 0 && waited_s > timeout_s) {
      reason = "not finished after TUTTI_TIMEOUT=" + std::to_string(timeout_s) +
               " s; a peer may be dead or not in the call";
      break;
    }
    if (waited_s > next_check_s) {
      next_check_s += kPeerCheckS;
      reason = gone_peer();
      // A kernel that faulted never stores its word.
      const device::RelaxedCapture relaxed(api_);
      const auto done = api_.stream_done(stream_);
      if (!done.ok()) {
        broken_ = true;
        return done.status();
      }
      if (!reason.empty()) {
        break;
      }
    }
  }
  if (!reason.empty() && is_done(launch)) {
    reason.clear();  // All had come, while this thread did something else or was not running.
  }
  const bool has_given_up = std::atomic_ref(control_->failed).load(std::memory_order_relaxed) != 0;
  if (reason.empty() && unchecked != 0 && !has_given_up) {
    if (const Mismatch found = compare(&unchecked, launch, /*is_complete=*/true); found.peer >= 0) {
      return end_mismatch(launch, unchecked, found);
    }
  }
  if (reason.empty() && !has_given_up) {
    return {};
  }
  broken_ = true;
  break_off();
  reason = reason.empty() ? "its kernel gave up waiting" : reason;
  return Status(ErrorCode::kTimeout,
                std::string("direct ") +
                    direct_kernel_names()[static_cast<std::size_t>(launch.kernel)] + ": " + reason);
}

/// A plain store: the driver may let no thread in before something was ended.
void DirectRunner::close() {
  broken_ = true;
  call_records_.set_failed();
  std::atomic_ref(control_->closed).store(1, std::memory_order_release);
}

Status DirectRunner::follow(device::Stream stream) {
  if (!is_host_) {
    return api_.copy_async(ended_, &control_->closed, sizeof(*ended_), stream);
  }
  // The same, for a device whose copies are not atomic.
  device::host_device_enqueue(
      stream,
      [](void* words) {
        auto* const control = static_cast<Control*>(words);
        if (std::atomic_ref(control->closed).load(std::memory_order_acquire) != 0) {
          std::atomic_ref(*control->ended).store(1, std::memory_order_relaxed);
        }
      },
      control_);
  return {};
}

/// Ends what waits, and keeps from pushing what has not begun.
void DirectRunner::give_up() {
  std::atomic_ref(control_->abort).store(1, std::memory_order_release);
  if (is_host_) {
    std::atomic_ref(*ended_).store(1, std::memory_order_relaxed);
    return;
  }
  const auto current = device::CurrentDevice::set(api_, device_);
  const device::RelaxedCapture relaxed(api_);
  if (current.ok()) {  // Nothing of a failed driver's is run either.
    static_cast<void>(api_.copy_async(ended_, &control_->abort, sizeof(*ended_), stream_));
  }
}

void DirectRunner::break_off() {
  give_up();
  const device::RelaxedCapture relaxed(api_);
  const auto start = Clock::now();
  for (;;) {
    const auto done = api_.stream_done(stream_);
    const bool is_over = !done.ok() || (*done && (copies_ == nullptr || copies_->is_idle()));
    if (is_over || seconds_since(start) > kGiveUpS) {
      return;
    }
    usleep(1000);
  }
}

}  // namespace tutti::runners
