// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's side of one communicator, of MPI or of the C API: what its ranks agreed on, the
// plans it chose, the runners that carry them. Made at the communicator's first collective, by all
// ranks together, or with the communicator, where it is derived from one whose ranks share memory
// (ParentCommunicator). Used by one thread at a time, as MPI demands of collectives on one
// communicator and the C API too; holds no lock across a call, so two threads on two communicators
// never wait for each other here.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/agreement.hpp"
#include "engine/backends.hpp"
#include "engine/comm_context.hpp"
#include "engine/plan_runner.hpp"
#include "engine/process.hpp"
#include "engine/virtual_nodes.hpp"
#include "runners/runner.hpp"
#include "select/choose.hpp"
#include "topology/layout.hpp"

namespace tutti::engine {

/// What the application said of this communicator by info keys; must be equal on all ranks.
struct Hints {
  std::string plan;          ///< "tutti_plan": a plan list that goes before every other rule.
  std::string memory_kinds;  ///< "mpi_assert_memory_alloc_kinds".
  double timeout_s = 0;      ///< Of its waits; 0: that of the process.
  Status unread{};           ///< What could not be read of it: without an MPI an error everywhere.
};

class Communicator;

/// A communicator in whose shared memory (Communicator::become_parent) all of its ranks exchange
/// facts once when others are derived from it: a microsecond, where a message of the MPI library
/// takes several. A rank takes part at the latest when this is destroyed, and then says that it
/// sets up nothing now.
class ParentCommunicator {
 public:
  /// The ranks of each derived one are those that tell the same color, in the order of their keys
  /// and, of equal keys, as they are here (MPI 4.1 section 7.4.2).
  explicit ParentCommunicator(Communicator& communicator, int color = 0, int key = 0)
      : communicator_(communicator), color_(color), key_(key) {}
  /// Tells the other ranks that this rank takes part in no later exchange. None may follow.
  struct Last {};
  ParentCommunicator(Communicator& communicator, Last /*last*/) : ParentCommunicator(communicator) {
    is_last_ = true;
  }
  ~ParentCommunicator();
  ParentCommunicator(const ParentCommunicator&) = delete;
  ParentCommunicator& operator=(const ParentCommunicator&) = delete;

  Communicator& communicator() { return communicator_; }

 private:
  friend class Communicator;
  struct Facts;
  /// `mine` without its color and key. The facts of those with this rank's color, in their order.
  /// Error: a rank has died.
  Status exchange(Facts mine, std::vector<Facts>* members);

  Communicator& communicator_;
  int color_;
  int key_;
  bool has_exchanged_ = false;
  bool is_last_ = false;
};

class Communicator {
 public:
  /// Collective. First agreement on the configuration and on whether there is anything to do.
  /// `mpi`: the bootstrap when it is an MPI library; null: the ranks met by other means, and no
  /// plan goes through MPI. Both live longer than the communicator.
  static Result<std::unique_ptr<Communicator>> create(Process& process,
                                                      runners::Bootstrap& bootstrap,
                                                      runners::MpiLibrary* mpi, const RankInfo& me,
                                                      const Hints& hints);
  /// The same, on an MPI's communicator that was just derived from `parent`'s. Null on all ranks:
  /// to be made at its first collective; so where one has little shared memory left, which is for
  /// communicators that have calls.
  static Result<std::unique_ptr<Communicator>> create_derived(ParentCommunicator& parent,
                                                              runners::MpiLibrary& mpi,
                                                              const RankInfo& me);
  /// Collective; the same answer on all ranks, but on one that has failed or has withdrawn: those
  /// that exchange facts hear of it.
  bool become_parent();
  /// On this rank alone: MPI may have derived a communicator on other ranks, and has not here.
  void withdraw_as_parent();
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// True when every call on this communicator is native on the application's own arguments:
  /// no rank can have device memory and no rule asks for anything else.
  bool is_inert() const { return inert_; }
  /// As those of the same ranks are, which have no hints.
  bool are_duplicates_inert() const { return inert_ && !has_any_device_ && !has_hints_; }
  /// False when local buffers need no classification (asserted memory kinds, no device). Without an
  /// MPI "host" is what buffers mostly are in, no promise.
  bool classifies() const {
    return context_.process.device() != nullptr && (mpi_ == nullptr || !asserted_host_);
  }

  /// The plan for a call; equal on all ranks. May communicate (agreement, CCL set-up).
  /// `device` is the ordinal of a local device buffer of this call, -1 when all are host memory.
  /// A call that is not waited for is on device memory on every rank: nothing is agreed, but the
  /// first sets up what plans need, which a captured one cannot.
  /// Errors: under TUTTI_STRICT when the plan is a fall-back; without an MPI when there is no plan.
  Result<const Route*> route(select::Collective collective, std::optional<Bytes> bytes,
                             select::DataType type, select::ReduceOp op, int device,
                             select::Order order = select::Order::kBlocking);
  /// Of a call that is refused at its root, this rank, where is_asserted_host(): what the others
  /// take who have made it. They may wait in the set-up of what carries it, and this rank does its
  /// part there without waiting for them. The route is to look at alone: it need not be counted,
  /// nor be the last one.
  Result<Route> route_of_refused(select::Collective collective, std::optional<Bytes> bytes,
                                 select::DataType type, select::ReduceOp op);

  /// All buffers of all ranks are in host memory, and no agreement on that belongs to a call.
  bool is_asserted_host() const { return asserted_host_; }
  /// Ranks agree on nothing before such a call, and its messages and steps are not taken for those
  /// of another collective: a root that was refused there alone goes on as natively. In alpha only
  /// as its node's leader, of which the others want nothing.
  bool may_be_missed(const Route& route, int root) const {
    const auto* const alpha = std::get_if<select::AlphaPlan>(&route.plan);
    return asserted_host_ && (select::is<select::SchedulePlan>(route.plan) ||
                              (alpha != nullptr && !alpha->uses(select::Backend::kCcl) &&
                               context_.placement.local_of[static_cast<std::size_t>(root)] == 0));
  }
  /// True when no buffer needs classification, nothing is agreed on any more and no call is timed:
  /// a call's route follows from its arguments.
  bool is_host_only() const { return asserted_host_ && !classifies() && !has_summary_; }
  /// Whether native calls on host memory may be remembered, with a look at each one's buffers.
  bool is_often_host() const { return (!asserted_ || asserted_host_) && !has_summary_; }
  /// Whether the next call of a remembered route, on host memory here, is one for all ranks without
  /// another agreement.
  static bool is_on_host(const Route& route) {
    return route.agreed == nullptr ||
           (route.agreed->mode == select::Memory::kHost && !agreement_due(route.agreed->calls + 1));
  }
  /// Grows when a route that route() gave may be gone, and by forget_routes().
  std::uint64_t routes_epoch() const { return routes_epoch_; }
  /// The next call is not to go by what is remembered.
  void forget_routes() { ++routes_epoch_; }
  /// Once for each call that run() does not carry, before anything of it is done: it takes its
  /// number among the communicator's calls (runners/direct/host_layout.hpp), so that a rank that is
  /// in shared memory meanwhile hears of it.
  void pass_by() {
    set_calls_line();
    tell_call();
  }
  /// The same for a call that MPI is to refuse, which other ranks may not have made.
  void turn_away() {
    if (std::byte* const line = backends_.host.calls_line(); line != nullptr) {
      runners::HostArea::turned_away(line).publish(calls_ + 1);  // Before others see it pass.
    }
    pass_by();
  }
  /// A call has been refused at its root alone, this rank, and has no number yet. Natively it did
  /// not happen: the root may make it again, once for the others' once, or may be the only one to
  /// make it; or the others made it. A later call in shared memory finds out which by the number
  /// that it has there.
  void doubt_call();
  /// The same for a call of a class that the ranks agree on before its next call, which for this
  /// rank was on `device` (-1: host memory): what the others agree on next tells whether they made
  /// it. False: nothing is agreed on before it, or this rank cannot be told, and nothing is done.
  bool doubt_agreement(select::Collective collective, std::optional<Bytes> bytes, int device);
  /// Finds what became of such calls. `agrees`: in this rank's next call there is an agreement, to
  /// which the others come, too; else they are waited for a second.
  void settle_agreements(bool agrees);
  bool has_agreements_in_doubt() const { return !doubted_agreements_.empty(); }
  /// Whether the ranks agree on the memory of the next such call.
  bool agrees_on(select::Collective collective, std::optional<Bytes> bytes) const;
  bool has_doubts() const { return doubted_ > 0; }
  /// The next call is the last refused one made again, which is in doubt or `has_number`;
  /// `is_agreed`: the ranks have agreed on its memory.
  void make_again(bool has_number, bool is_agreed);
  /// Takes them for made by all others.
  void count_doubted();
  /// For the scope of a collective of the MPI library's own, which has passed by: somebody looks
  /// whether the ranks live.
  WatchedCall watch() const { return WatchedCall(*watched_calls_); }
  /// Both, for a call that takes a route which is known from an earlier one; of one on which the
  /// ranks agree, take_agreed() too.
  [[gnu::always_inline, nodiscard]] WatchedCall pass_by_watched(const KnownRoute& known) {
    tell_call();
    if (!counts_beside_others_) [[likely]] {
      // A locked instruction is a tenth of what the fastest collectives take.
      known.calls->store(known.calls->load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
    } else {
      known.calls->fetch_add(1, std::memory_order_relaxed);
    }
    last_route_ = known.route;
    return watch();
  }

  static void take_agreed(const Route& route) {
    if (route.agreed != nullptr) {
      ++route.agreed->calls;
    }
  }

  /// Carries out a route that is not native on the application's arguments, or whose local
  /// buffers the MPI cannot read.
  Status run(const Route& route, const runners::Call& call);
  /// Begins a call and returns at once; one that is carried in host memory when it is done, which
  /// is behind what the stream has got so far. On `stream`, null: one of our own, where buffers
  /// must be ready. kUnsupported, kInvalidArgument: nothing has begun, and run() may carry it, also
  /// where other ranks have started theirs. Of a captured call the result tells nothing.
  Result<runners::StartedCall> start(const Route& route, const runners::Call& call,
                                     device::Stream stream = nullptr);
  /// What became of the calls on streams; `wait`: when all of them are over. A failure is the
  /// communicator's.
  Status stream_status(bool wait);
  /// The same without waiting, at less cost: StreamCalls::glance().
  Status stream_glance();
  runners::StreamCalls& stream_calls() { return *context_.calls; }
  /// StreamCalls::mark(); waits for the stream where all calls so far have gone through host
  /// memory.
  Status mark(device::Stream stream);
  /// This rank's GPU, once something was set up on it; -1: none yet.
  int device() const { return context_.device; }
  /// The selection for a shape with its reasons, as JSON (select::explain_json). Local: what was
  /// not tried yet counts as usable.
  std::string explain(const select::Shape& shape) const;

  /// The memory that the next call is on; empty where the ranks agree on it then. Of calls whose
  /// size all ranks know only what is asserted: other sizes are of other classes.
  std::optional<select::Memory> known_memory(select::Collective collective) const;
  /// Whether some rule has steps of ours for this collective, on the memory that it is known to be
  /// on: what a rank does beside its peers then meets what they did.
  bool has_own_plans(select::Collective collective) const;
  /// Whether a rank that is not in such a call may miss steps of ours in which the others wait for
  /// it: all but those in shared memory, where they hear of it.
  bool may_be_apart(select::Collective collective) const;
  /// What broke this communicator on this rank, ok while nothing has. A rank that failed after the
  /// choice no longer counts calls as its peers do: its next call would meet their last one.
  const Status& failure() const { return failure_; }
  /// failure(), or that abort() was called.
  Status why_ended() const;
  /// From any thread: the call under way and all later ones fail.
  void abort();
  /// Peers that wait for this rank in shared memory hear of it.
  void fail(const Status& status);
  /// CommContext::refused_calls.
  void count_refused_call() { ++context_.refused_calls; }
  /// After a call that was refused on this rank, in which others may be in steps of ours: the next
  /// such steps come when it is known that it was refused on all.
  void refuse(select::Collective collective);
  /// Begins what the end of this object waits for, so that the ends of several can be under way; no
  /// call may follow.
  void begin_end();
  /// For a scope: what it asks of the driver ends no capture in another thread. Two calls of the
  /// driver that only touch this thread's state; yet none are spent on a launch of ours, whose fast
  /// path asks for nothing that a capture forbids.
  void relax(std::optional<device::RelaxedCapture>* relaxed) const { context_.relax(relaxed); }
  /// A stream for copies to and from `device` that stage a native call; `bytes` are counted.
  Result<device::Stream> staging_stream(int device, Bytes bytes) {
    return backends_.mpi.staging_stream(device, bytes);
  }

  /// Where the ranks sit, equal on all of them.
  const topology::Layout& placement() const { return context_.placement; }
  /// Name of the plan used last, for the info key tutti_plan_used.
  std::string last_plan() const;
  Process& process() { return context_.process; }

 private:
  friend class ParentCommunicator;
  Status wait_for_stream(int device, device::Stream stream);
  /// What became of calls on streams; a failure is the communicator's.
  Status noted(Status status);
  /// Of a communicator in its process: gone after all that may have leased memory.
  class Membership {
   public:
    explicit Membership(const CommContext& context) : context_(context) {
      context_.process.enter();
    }
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;
    ~Membership() { context_.process.leave(context_.calls->has_failed()); }

   private:
    const CommContext& context_;
  };

  struct CachedRoute {
    bool valid = false;
    select::Shape shape;
    Route route;
  };

  Communicator(Process& process, runners::Bootstrap& bootstrap, runners::MpiLibrary* mpi,
               const RankInfo& me)
      : context_{.process = process, .bootstrap = bootstrap, .me = me},
        mpi_(mpi),
        table_(&process.table()) {
    context_.fail = [this](const Status& status) { fail(status); };
  }

  struct RankFacts;
  struct HostFacts;
  struct ExchangedFacts;
  /// Error: why the hints are invalid.
  Status read_hints(const Hints& hints);
  RankFacts own_facts(bool has_unread_hint) const;
  HostFacts own_host_facts();
  /// More ranks than a machine has exchange nothing about shared memory.
  bool may_share_machine() const;
  /// All ranks' facts, by rank.
  Status exchange(bool has_unread_hint, std::vector<ExchangedFacts>* ranks);
  /// False: to be made later.
  Result<bool> exchange_derived(ParentCommunicator& parent, std::vector<ExchangedFacts>* ranks);
  Status agree_on(const Status& unread, const std::vector<ExchangedFacts>& ranks);
  bool may_share_memory() const;
  void announce() const;
  /// Why all calls stay with the MPI library.
  void announce_inert() const;
  Status agree_configuration(const Status& unread, const std::vector<ExchangedFacts>& ranks);
  /// Puts the rules of a hinted plan list before all others.
  Status take_plan(const std::string& plan);
  void agree_placement(const std::vector<ExchangedFacts>& ranks);
  void watch_processes();
  void give_back_host_memory(bool is_known = false);
  void set_calls_line() {
    std::byte* const line = backends_.host.calls_line();
    calls_line_ = line != nullptr ? line : unread_line_.data();
  }
  void tell_call() {
    const std::uint64_t number = calls_ + 1;
    calls_ = number;  // Not read again after the stores, which may alias it.
    runners::HostArea::pass_by(calls_line_, number);
  }
  /// Whether some rule can give a call of this communicator a plan other than the MPI's own, as far
  /// as is known before the first call.
  bool can_act() const;
  bool is_for(const select::Rule& rule, select::Collective collective,
              std::optional<select::Memory> memory) const;
  CachedRoute& cached_route(const select::Shape& shape);
  void find_number(const runners::Call& call);
  /// In shared memory: nobody is to wait for this rank to leave calls that are in doubt.
  void tell_doubts();
  Status agree_memory(MemoryModes::Class& memory, int device);
  Status take_memory(MemoryModes::Class& memory, bool any_device, int device);
  void settle_agreement(double limit_s, bool is_again);
  void free_deferred_memory();
  Status set_up_host();
  Status prepare(const select::Plan& plan, select::Memory memory, int device,
                 std::string* ccl_refusal);
  Status prepare_streams(select::Order order, int device);
  Result<Route> no_route(select::Shape shape, const select::Decision& decision, int device);
  /// `reached_by`: why another memory than the call's is decided on; a fall-back.
  Result<Route> decide(const select::Shape& shape, int device, const std::string& reached_by = {});
  select::CommFacts facts_to_choose_by(const std::string& ccl_refusal = {}) const;
  Result<Route> make_route(const select::Shape& shape, const select::Plan& plan,
                           const std::string& fallback);

  CommContext context_;
  runners::MpiLibrary* mpi_;  ///< Null without MPI.
  bool inert_ = false;
  bool is_disabled_ = false;  ///< By a rank's settings.
  bool asserted_host_ = false;
  bool has_devices_ = false;     ///< Every rank has a GPU library.
  bool has_any_device_ = false;  ///< Some rank has.
  std::optional<select::Memory> asserted_;
  bool strict_ = false;
  bool has_summary_ = false;     ///< TUTTI_SUMMARY on some rank.
  bool has_hints_ = false;       ///< On some rank.
  bool may_have_hints_ = false;  ///< Those derived from this one, on some rank.
  bool has_copied_ = false;      ///< A call on a stream went through host memory.
  bool is_complete_ = false;     ///< Its set-up; until then others may hold it for so.
  Status failure_;
  std::string disagreement_;    ///< Non-empty: ranks differ in configuration; native plans for all.
  const select::Table* table_;  ///< The process's, or own_table_.
  std::unique_ptr<select::Table> own_table_;
  std::unique_ptr<MemoryModes> modes_;  ///< Null where all memory is the host's.
  /// Of the calls in doubt, if others may be in agreements on them (of none or of all): with this
  /// rank's device.
  std::vector<std::pair<MemoryModes::Class*, int>> doubted_agreements_;
  Membership membership_{context_};
  bool has_withdrawn_as_parent_ = false;
  std::uint64_t doubted_ = 0;    ///< Beside calls_ (doubt_call()).
  bool is_next_agreed_ = false;  ///< route() is not to agree: the ranks have (make_again()).
  /// So few that nobody waits in shared memory for this rank to leave earlier calls.
  static constexpr std::uint64_t kDoubtedMax = runners::HostLayout::kBriefSlots - 2;
  /// What to write to where no other rank reads it: a remembered call does not ask.
  alignas(std::uint64_t) std::array<std::byte, 2 * sizeof(std::uint64_t)> unread_line_{};
  // What a remembered call needs, in one line of the cache.
  alignas(64) std::uint64_t calls_ = 0;  ///< That this rank has made, whatever carried them.
  /// Where this rank tells the others of them, since the last call whose route was not known.
  std::byte* calls_line_ = unread_line_.data();
  WatchedCalls* watched_calls_ = &WatchedCalls::unwatched();
  const Route* last_route_ = nullptr;
  std::uint64_t routes_epoch_ = 0;
  bool counts_beside_others_ = false;  ///< CommContext::is_concurrent.

  Backends backends_{context_, calls_, doubted_};

  /// By a hash of the shape; grows, since a program may have thousands of communicators.
  std::vector<CachedRoute> routes_;
};

}  // namespace tutti::engine
