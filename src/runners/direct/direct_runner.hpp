// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Carries calls on device memory by our own kernels: every GPU of a node pushes what the others
// need into staging memory of theirs that it has mapped (device/kernels/direct.hpp). One launch a
// call; the host waits for words that the kernel stores to its memory, not for the stream.
//
// Set-up is the caller's, step by step, since each step must have succeeded on all ranks before the
// next: create, exchange handles, open_peers, self_test (engine/direct_backend.cpp).
//
// A call on a stream of the application is the same launch, and nobody waits for the words; its end
// is for StreamCalls to see. Calls of both kinds run in the order in which they were made.
//
// Allgather and alltoall can also be copied: the GPUs' copy engines move the bytes and a kernel for
// each chunk, the exchange of a barrier, only says that they are there (copy_staging.hpp). Such a
// call is never queued on a stream of the application: when a call before it was ended, its copies
// would go on into memory that peers still read.
//
// Waiting is bounded: after `timeout_s`, or when a peer's process is gone that had not come to the
// end of its runner, the host tells its kernel to give up. From then on this object refuses all
// calls, and so does the communicator's other runner (stream_calls.hpp).
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "device/kernel_module.hpp"
#include "runners/direct/call_records.hpp"
#include "runners/direct/copy_staging.hpp"
#include "runners/direct/fd_exchange.hpp"
#include "runners/direct/launch.hpp"
#include "runners/direct/peer_liveness.hpp"
#include "runners/runner.hpp"
#include "runners/scratch.hpp"
#include "runners/stream_calls.hpp"

namespace tutti::runners {

class DirectRunner : public Runner {
 public:
  struct Options {
    double timeout_s = 0;  ///< 0: wait for ever.
    DirectWire wire = DirectWire::kLines;
    DirectTuning tuning;
    device::Sharing sharing = device::Sharing::kIpc;  ///< How peers get at the staging memory.
    bool takes_turns = false;          ///< On streams, with other communicators of the process.
    bool orders_graphs = true;         ///< Equal on all ranks: Api::orders_graphs() on each.
    std::function<void()> progress{};  ///< Bootstrap::progress, while a blocking call waits.
    std::uint64_t first_epoch = 1;     ///< Equal on all ranks. Others than 1 are for tests.
    /// Shared with the communicator's other runner.
    std::shared_ptr<StreamCalls> calls = std::make_shared<StreamCalls>();
  };
  /// What a rank gives to the others of the communicator.
  struct Handle {
    device::IpcHandle memory{};
    FdExchange::Address fd_address;
    PeerLiveness::Identity identity;
  };

  /// Loads the kernels and makes the arena. Local.
  static Result<std::unique_ptr<DirectRunner>> create(device::Api& api, int device,
                                                      const ScopeRank& me, Scratch& scratch,
                                                      const Options& options);
  ~DirectRunner() override;
  DirectRunner(const DirectRunner&) = delete;
  DirectRunner& operator=(const DirectRunner&) = delete;

  /// Lets go of the peers' memory, so that they need not wait for the end of this object; no call
  /// may follow.
  void begin_end();

  Result<Handle> handle() const { return handle_of(arena_); }
  /// Maps the peers' arenas and runs every kernel once, empty. In rank order, own included. Local,
  /// but for kDescriptor, where it takes all ranks.
  Status open_peers(std::span<const Handle> handles);
  /// The same for ranks that are in this process (tests): their arenas' addresses.
  Status open_arenas(std::span<void* const> arenas,
                     std::span<const PeerLiveness::Identity> identities = {});
  void* arena() const { return arena_; }
  /// Data of all peers through the real mappings, within some seconds. Collective.
  Status self_test();

  /// Of the whole communicator, whose ranks are all on this node.
  Status run(Scope scope, const Call& call) override;

  /// Staging memory for calls that are copied, in the same steps as above.
  Result<Handle> make_copies();
  Status open_copies(std::span<const Handle> handles);
  CopyStaging& copies() { return *copies_; }
  /// Gives back what the two above have taken, before any call was copied.
  void drop_copies();
  Status self_test_copies();

  /// An allgather or alltoall by copies.
  Status run_copied(const Call& call);

  /// As run(), queued on a stream of the application, which takes memory of this device alone;
  /// returns at once. A failure of the work shows in calls() and in later calls.
  Status enqueue(const Call& call, device::Stream stream);
  /// A call of a graph that the application captures on `stream` and launches any number of times,
  /// mixed with other calls; its graphs with calls of one communicator follow each other. A launch
  /// that waits for `timeout_s` ends, and all after it. `call`: DirectPlan::is_capturable().
  Status capture(const Call& call, device::Stream stream);
  /// Why there is no capture(); empty: there is.
  std::string capture_refusal() const;
  StreamCalls& calls() { return *calls_; }

  /// For the INFO line: the library, the wire and the size of the staging memory.
  std::string description() const;
  const DirectGeometry& geometry() const { return geometry_; }
  void set_tuning(const DirectTuning& tuning) { options_.tuning = tuning; }

 private:
  static constexpr auto kOurs = StreamCalls::Carrier::kKernels;
  DirectRunner(device::Api& api, int device, const ScopeRank& me, Scratch& scratch,
               const Options& options)
      : api_(api),
        device_(device),
        me_(me),
        scratch_(scratch),
        options_(options),
        calls_(options.calls) {}
  Status load_kernels();
  Status open_fd_exchange();
  Result<Handle> handle_of(void* memory) const;
  /// All ranks' memory in rank order, `own` among it; as open_peers().
  Result<std::vector<void*>> map(std::span<const Handle> handles, void* own);
  Result<std::vector<Descriptor>> exchange_descriptors(std::span<const Handle> handles);
  Status make_memory();
  /// The slots of launches that the host counts, and behind them those of captured ones.
  Bytes arena_bytes() const;
  void await_receivers();
  /// The copies' memory is in deferred_ from then on.
  void end_copies();
  Status warm();
  device::LaunchShape shape_of(const DirectLaunch& launch) const;
  /// How a call on this device's memory is carried.
  using Carrier = Status (DirectRunner::*)(const Call&);
  Status run_by(Carrier carrier, const Call& call);
  Status test_by(Carrier carrier);
  Status test_turns(Carrier carrier);
  Status carry(const Call& call);
  Status carry_copied(const Call& call);
  Status copy_chunks(const Call& call);
  /// Gives a call that needs it a copy of its input, made on `stream`, in `copy`.
  Status copy_input(Call* call, device::Stream stream, Lease* copy);
  /// A launch with this communicator's arenas and epochs, and what the peers are told of it.
  struct Planned : DirectLaunch {
    std::array<CallRecords::Entry, device::kernels::kPeersMax> entries{};  ///< Number 0: none.
  };
  /// The launch of a call; the next one, on all ranks.
  Planned planned(const Call& call);
  /// As a call of which this launch is a part.
  void describe(Planned* launch, const Call& call, const DirectLaunch& pieces) const;
  void note_awaited(const DirectLaunch& launch);
  Status launch(Planned& launch, device::Stream stream);
  Status wait(const Planned& launch, double timeout_s);
  /// Tells the peers of a launch, makes it, and counts it.
  Status queue(Planned* next, device::Stream stream);
  /// A peer's call that is not the one that this rank makes.
  struct Mismatch {
    int peer = -1;  ///< -1: none.
    CallRecords::Entry theirs;
  };
  /// Looks at the peers in `unchecked`, and clears those whose calls are right. `is_complete`: the
  /// launch has ended, so all peers have made theirs.
  Mismatch compare(std::uint32_t* unchecked, const Planned& launch, bool is_complete) const;
  /// The error of that. Ends the calls of this object, unless the launch can end, and with all
  /// peers in step for the next one.
  Status end_mismatch(const Planned& launch, std::uint32_t unchecked, const Mismatch& mismatch);
  /// All calls up to now are completed.
  void set_completed();
  bool is_done(const DirectLaunch& launch) const;
  /// For StreamCalls alone, in this order.
  void close();
  void give_up();
  /// A failure of a call that had begun, as it is: ends the other runner's calls too.
  Status end_if_broken(Status status);
  /// Of calls on streams: whether the peers are there.
  Status look();
  /// Of captured calls: whether one has ended itself.
  Status outcome() const;
  /// Why waiting on is useless; empty: it is not. What was waited for may have come meanwhile.
  std::string gone_peer() const;
  void break_off();

  /// Words in host memory that kernels and host share.
  struct Control;

  device::Api& api_;
  int device_;
  ScopeRank me_;
  Scratch& scratch_;
  Options options_;
  DirectGeometry geometry_;
  std::string no_graphs_;  ///< Why launches cost more than they could; empty: they do not.
  device::Stream stream_ = nullptr;
  device::KernelModule module_;
  struct Kernel {
    device::Function function = nullptr;
    device::Launcher launcher = nullptr;  ///< Null: launched anew each time.
  };
  std::vector<Kernel> kernels_;  ///< As direct_kernel_names().
  void* arena_ = nullptr;
  device::kernels::Word* ended_ = nullptr;             ///< Behind the arena's slots.
  device::kernels::LaunchCounter* counter_ = nullptr;  ///< Behind it.
  std::array<void*, device::kernels::kPeersMax> arenas_{};
  std::optional<FdExchange> fd_exchange_;  ///< kDescriptor, until the peers have been opened.
  std::vector<void*> opened_;
  std::size_t opened_before_copies_ = 0;
  PeerLiveness liveness_;
  CallRecords call_records_;     ///< On pages of liveness_.
  std::vector<void*> deferred_;  ///< Memory that peers may have mapped, after its use.
  bool has_ended_ = false;       ///< In order.
  std::string gone_;             ///< What the last look() found, if it found anything.
  Control* control_ = nullptr;
  std::array<std::uint64_t, device::kernels::kPeersMax> epochs_{};
  std::array<std::uint64_t, device::kernels::kPeersMax> numbers_{};  ///< Calls of each pair.
  std::uint32_t unawaited_ = 0;  ///< Peers whose last call nobody waited for; one bit each.
  std::uint64_t sequence_ = 0;
  std::unique_ptr<CopyStaging> copies_;  ///< Null: no call was to be copied yet.
  std::atomic<bool> broken_{false};
  std::shared_ptr<StreamCalls> calls_;
  bool has_run_ = false;  ///< A call on stream_ may not be quite over.
};

}  // namespace tutti::runners
