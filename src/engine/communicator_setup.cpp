// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What the ranks of a communicator agree on before its first call: settings, facts, placement.
#include "engine/communicator.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/log.hpp"
#include "engine/placement.hpp"

namespace tutti::engine {

using select::Collective;
using select::DirectPlan;
using select::Memory;
using select::MpiPlan;
using select::SchedulePlan;

namespace {

/// True when some rule can give a call on host memory a plan other than the MPI's own.
bool acts_on_host_memory(const select::Table& table) {
  return std::any_of(table.rules.begin(), table.rules.end(), [](const select::Rule& rule) {
    return !select::is<MpiPlan>(rule.plan) && rule.memory.value_or(Memory::kHost) == Memory::kHost;
  });
}

/// True when some rule may need messages of ours through the MPI, beside the application's own
/// calls.
bool needs_messages(const select::Table& table) {
  return std::any_of(table.rules.begin(), table.rules.end(), [](const select::Rule& rule) {
    const bool is_on_host = rule.memory.value_or(Memory::kHost) == Memory::kHost;
    return is_on_host && !select::is<MpiPlan>(rule.plan) && !select::is<DirectPlan>(rule.plan);
  });
}

/// True when some rule of a user's asks for an algorithm of ours: nothing else looks at sockets and
/// rails.
bool has_schedules(const select::Table& table) {
  return std::any_of(table.rules.begin(), table.rules.end(), [](const select::Rule& rule) {
    return select::is<SchedulePlan>(rule.plan) && !rule.is_shipped;
  });
}

}  // namespace

/// One rank's settings and place. All ranks exchange these in one allgather before a communicator's
/// first call: programs that make many communicators pay for each exchange.
struct Communicator::RankFacts {
  /// Bits of `traits`. The communicator has one of these if any rank has it:
  enum : std::uint32_t {
    kDevice = 1,  ///< Has a GPU library.
    kActive = 2,  ///< Some rule acts on host memory.
    kSummary = 4,
    kStrict = 8,
    kDisabled = 16,
    kUnread = 32,  ///< A hint could not be read.
    kConcurrent = 64,
    kHinted = 2048,
    kKeepsHints = 4096,
    // ... these if all ranks have them:
    kAware = 128,
    kLarge = 256,
    // ... and these only if all ranks agree.
    kAssertedHost = 512,
    kAssertedDevice = 1024,
    kAsserted = kAssertedHost | kAssertedDevice,
  };
  std::uint64_t settings = 0;  ///< Of the rules, TUTTI_* settings and MPI library, hashed.
  std::uint64_t node = 0;
  std::uint64_t machine = 0;
  std::int32_t rails = 0;
  std::int32_t socket = 0;
  std::uint32_t traits = 0;
  std::uint32_t unused = 0;
};

/// The part about shared memory.
struct Communicator::HostFacts {
  NodeShare share;
  runners::DirectHostRunner::Introduction introduction;
};

struct Communicator::ExchangedFacts {
  RankFacts facts;
  HostFacts host;  ///< Exchanged if the ranks may all be on one machine.
};

struct ParentCommunicator::Facts {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::uint32_t is_willing = 0;  ///< To set the communicator up now. 0: the rest may be missing.
  std::uint32_t is_last = 0;     ///< It takes part in no later exchange.
  Communicator::RankFacts facts;
  NodeShare share;
  runners::HostMemory::Part part;
  runners::HostProcess process;
};

ParentCommunicator::~ParentCommunicator() {
  if (has_exchanged_) {
    return;
  }
  Facts none;
  none.color = color_;
  none.key = key_;
  none.is_last = is_last_ ? 1 : 0;
  try {
    runners::DirectHostRunner& runner = *communicator_.backends_.host.runner();
    // A rank that waits for these facts sees a failure itself.
    static_cast<void>(is_last_ ? runner.post_last_facts(&none, sizeof(none))
                               : runner.allgather_facts(&none, /*all=*/nullptr, sizeof(none)));
  } catch (const std::bad_alloc&) {
    return;  // Of an error's text.
  }
}

Status ParentCommunicator::exchange(Facts mine, std::vector<Facts>* members) {
  static_assert(std::is_trivially_copyable_v<Facts> &&
                sizeof(Facts) <= runners::HostLayout::kFactsBytes);
  std::vector<Facts> all(static_cast<std::size_t>(communicator_.context_.me.ranks));
  members->reserve(all.size());
  mine.color = color_;
  mine.key = key_;
  has_exchanged_ = true;
  TUTTI_RETURN_IF_ERROR(
      communicator_.backends_.host.runner()->allgather_facts(&mine, all.data(), sizeof(mine)));
  if (std::any_of(all.begin(), all.end(), [](const Facts& one) { return one.is_last != 0; })) {
    return Status(ErrorCode::kUnavailable, "a rank takes part in no more exchanges");
  }
  std::copy_if(all.begin(), all.end(), std::back_inserter(*members),
               [&](const Facts& other) { return other.color == color_; });
  std::stable_sort(members->begin(), members->end(),
                   [](const Facts& one, const Facts& other) { return one.key < other.key; });
  return {};
}

Result<std::unique_ptr<Communicator>> Communicator::create(Process& process,
                                                           runners::Bootstrap& bootstrap,
                                                           runners::MpiLibrary* mpi,
                                                           const RankInfo& me, const Hints& hints) {
  std::unique_ptr<Communicator> self(new Communicator(process, bootstrap, mpi, me));
  self->context_.facts.has_mpi = mpi != nullptr;
  self->context_.facts.mpi = mpi == nullptr ? "" : mpi->name();
  const Status unread = self->read_hints(hints);
  std::vector<ExchangedFacts> ranks;
  TUTTI_RETURN_IF_ERROR(self->exchange(!unread.ok(), &ranks));
  TUTTI_RETURN_IF_ERROR(self->agree_on(unread, ranks));
  return self;
}

Result<std::unique_ptr<Communicator>> Communicator::create_derived(ParentCommunicator& parent,
                                                                   runners::MpiLibrary& mpi,
                                                                   const RankInfo& me) {
  std::unique_ptr<Communicator> self(
      new Communicator(parent.communicator().context_.process, mpi, &mpi, me));
  self->context_.facts.has_mpi = true;
  self->context_.facts.mpi = mpi.name();
  std::vector<ExchangedFacts> ranks;
  TUTTI_ASSIGN_OR_RETURN(const bool is_now, self->exchange_derived(parent, &ranks));
  if (!is_now) {
    return std::unique_ptr<Communicator>();
  }
  self->backends_.host.set_mapped();
  TUTTI_RETURN_IF_ERROR(self->agree_on({}, ranks));
  return self;
}

/// All that follows the exchange.
Status Communicator::agree_on(const Status& unread, const std::vector<ExchangedFacts>& ranks) {
  TUTTI_RETURN_IF_ERROR(agree_configuration(unread, ranks));
  if (!inert_) {
    free_deferred_memory();
    agree_placement(ranks);
    inert_ = !can_act();
  }
  if (inert_) {
    is_complete_ = true;
    give_back_host_memory();
    if (context_.is_speaker() && context_.me.ranks > 1 && log_enabled(LogLevel::kInfo)) {
      announce_inert();
    }
    return {};
  }
  if (mpi_ != nullptr) {
    // An MPI has some two thousand communicators; where nothing needs one of ours, none is made.
    // Where tables differ no rank has a plan of ours, and none makes one. Open MPI 5.0 hangs where
    // threads make communicators while others are in MPI_Comm_create_group: there the ranks agree
    // on the application's. A rank alone has nobody to agree with.
    const bool may_hang = context_.is_concurrent && context_.facts.mpi == "openmpi";
    if ((has_any_device_ && context_.me.ranks > 1 && !may_hang) ||
        (disagreement_.empty() && needs_messages(*table_))) {
      // Threads may be in calls of two communicators in another order on each rank.
      TUTTI_ASSIGN_OR_RETURN(const bool is_made, mpi_->duplicate(!context_.is_concurrent));
      if (!is_made) {
        context_.lose_messages();
      }
    }
    backends_.mpi.begin(*mpi_);
  }
  is_complete_ = true;
  context_.process.counters().communicators.fetch_add(1, std::memory_order_relaxed);
  if (context_.is_speaker() && log_enabled(LogLevel::kInfo)) {
    announce();
  }
  return {};
}

void Communicator::announce() const {
  log(LogLevel::kInfo, "communicator: " + std::to_string(context_.me.ranks) + " ranks on " +
                           std::to_string(context_.facts.nodes) + " node(s), " +
                           (mpi_ == nullptr                   ? "no MPI"
                            : context_.facts.mpi_device_aware ? "MPI device-aware"
                                                              : "MPI not device-aware (staging)") +
                           ", device " + context_.process.device_report().taken +
                           (asserted_ ? std::string(", memory asserted: ") + to_string(*asserted_)
                                      : std::string(", memory agreed per call class")));
}

void Communicator::announce_inert() const {
  const auto& facts = context_.facts;
  const std::string why =
      is_disabled_ ? "TUTTI_ENABLE=0 on some rank"
      : facts.nodes > 1
          ? "no rule has another plan for host memory on " + std::to_string(facts.nodes) +
                " nodes; remedy: a plan by hand (tutti run --plan allgather=rings) or a tuning file"
      : facts.oversubscribed
          ? "no rule has another plan for host memory with more ranks than cores that they may use"
          : "no rule has another plan for host memory here (tutti explain)";
  log(LogLevel::kInfo,
      "communicator: " + std::to_string(context_.me.ranks) + " ranks, native: " + why);
}

/// Whether some rule may give a call on host memory to the memory that the ranks share.
bool Communicator::may_share_memory() const {
  return context_.machines.nodes() == 1 &&
         std::any_of(table_->rules.begin(), table_->rules.end(), [this](const auto& rule) {
           return select::is<DirectPlan>(rule.plan) &&
                  rule.memory.value_or(Memory::kHost) == Memory::kHost &&
                  select::may_match(rule, context_.facts);
         });
}

/// Where a new communicator would need more than shared memory (a communicator of ours, rings of
/// its own, hints), it waits for its first call, which may never come.
bool Communicator::become_parent() {
  if (has_withdrawn_as_parent_ || mpi_ == nullptr || has_any_device_ || context_.is_concurrent ||
      may_have_hints_ || !disagreement_.empty() || needs_messages(context_.process.table()) ||
      !may_share_memory()) {
    return false;
  }
  // After a failure, too, where the peers may be up already: they are to hear of it.
  if (!backends_.host.was_tried() && (failure_.ok() || backends_.host.has_posted())) {
    const Status made = set_up_host();
    if (!made.ok()) {
      fail(made);
    }
  }
  return backends_.host.runner() != nullptr;
}

void Communicator::withdraw_as_parent() {
  if (backends_.host.runner() != nullptr && !has_withdrawn_as_parent_) {
    const ParentCommunicator none(*this, ParentCommunicator::Last());
  }
  has_withdrawn_as_parent_ = true;
}

Result<bool> Communicator::exchange_derived(ParentCommunicator& parent,
                                            std::vector<ExchangedFacts>* ranks) {
  ParentCommunicator::Facts mine;
  mine.facts = own_facts(/*has_unread_hint=*/false);
  const auto memory =
      context_.process.host_memory(context_.process.node_share(context_.me.world_ranks).node_ranks,
                                   /*has_threads=*/false);
  if (memory.ok() && (*memory)->shares_rings() && !(*memory)->is_half_taken()) {
    const HostFacts host = own_host_facts();
    mine.share = host.share;
    mine.part = host.introduction.part;
    mine.process = host.introduction.process;
    mine.is_willing = mine.part.life != 0 ? 1 : 0;
  }
  std::vector<ParentCommunicator::Facts> members;
  // Not all have taken part, and none has heard from all.
  if (const Status exchanged = parent.exchange(mine, &members); !exchanged.ok()) {
    give_back_host_memory(/*is_known=*/true);
    return false;
  }
  const auto own = static_cast<std::size_t>(context_.me.rank);
  if (members.size() != static_cast<std::size_t>(context_.me.ranks) ||
      (mine.is_willing != 0 && members[own].part.ticket.key != mine.part.ticket.key)) {
    failure_ = Status(ErrorCode::kMismatch,
                      "the ranks of a new communicator are in another order than MPI 4.1 section "
                      "7.4.2 says");
    return failure_;
  }
  bool are_willing = true;
  for (const ParentCommunicator::Facts& member : members) {
    are_willing &= member.is_willing != 0;
    ExchangedFacts& one = ranks->emplace_back();
    one.facts = member.facts;
    one.host.share = member.share;
    one.host.introduction.part = member.part;
    one.host.introduction.process = member.process;
  }
  if (!are_willing) {
    give_back_host_memory();
  }
  return are_willing;
}

Status Communicator::take_plan(const std::string& plan) {
  select::Table hinted;
  for (int index = 0; index < kCollectiveCount; ++index) {
    TUTTI_ASSIGN_OR_RETURN(
        const auto rules,
        select::parse_plan_list(static_cast<Collective>(index), plan,
                                mpi_ == nullptr ? "options: plan" : "info key tutti_plan"));
    // One plan list for all collectives: what a backend does not have is no broken wish.
    std::copy_if(rules.begin(), rules.end(), std::back_inserter(hinted.rules),
                 [&](const select::Rule& rule) {
                   return select::backend_has(rule.plan, static_cast<Collective>(index));
                 });
  }
  own_table_->rules.insert(own_table_->rules.begin(), hinted.rules.begin(), hinted.rules.end());
  return {};
}

Status Communicator::read_hints(const Hints& hints) {
  if (mpi_ == nullptr || !hints.plan.empty()) {
    own_table_ = std::make_unique<select::Table>(context_.process.table());
    table_ = own_table_.get();
  }
  Status unread = hints.unread;
  if (unread.ok() && !hints.plan.empty()) {
    const Status planned = take_plan(hints.plan);
    unread = planned.ok() ? Status() : Status(ErrorCode::kInvalidConfig, planned.message());
  }
  if (!unread.ok() && mpi_ != nullptr &&
      (context_.is_speaker() || context_.process.config().strict)) {
    log(LogLevel::kError,
        unread.message() + (context_.process.config().strict ? "" : "; the hint is ignored"));
  }
  if (mpi_ == nullptr) {
    *own_table_ = select::without_mpi(std::move(*own_table_));
  }
  asserted_ = asserted_memory(hints.memory_kinds);
  context_.timeout_s = hints.timeout_s > 0 ? hints.timeout_s : context_.process.config().timeout_s;
  return unread;
}

Communicator::RankFacts Communicator::own_facts(bool has_unread_hint) const {
  const Config& config = context_.process.config();
  // Without such a rule nobody reads the place.
  const topology::RankPlace place =
      config.enable && has_schedules(*table_)
          ? own_place(context_.process, context_.me.world_rank, context_.me.world_ranks)
          : topology::RankPlace{};
  const std::pair<std::uint32_t, bool> traits[] = {
      {RankFacts::kDevice, context_.process.device() != nullptr},
      {RankFacts::kActive, acts_on_host_memory(*table_)},
      {RankFacts::kSummary, context_.process.summary() != nullptr},
      {RankFacts::kStrict, config.strict},
      {RankFacts::kDisabled, !config.enable},
      {RankFacts::kUnread, has_unread_hint},
      {RankFacts::kConcurrent, context_.me.thread_multiple},
      {RankFacts::kHinted, own_table_ != nullptr || asserted_},
      {RankFacts::kKeepsHints, context_.me.keeps_hints},
      {RankFacts::kAware, context_.me.mpi_device_aware},
      {RankFacts::kLarge, mpi_ != nullptr && mpi_->has_large_counts()},
      {RankFacts::kAssertedHost, asserted_ == Memory::kHost},
      {RankFacts::kAssertedDevice, asserted_ == Memory::kDevice},
  };
  RankFacts facts;
  facts.settings = context_.process.agreement_hash() ^ context_.me.types_hash ^
                   std::hash<std::string>{}(context_.facts.mpi) ^
                   (own_table_ == nullptr ? 0 : own_table_->hash());
  facts.node = node_identity(config.virtual_nodes, context_.me.world_rank, context_.me.world_ranks);
  facts.machine = machine_identity();
  facts.rails = place.rails;
  facts.socket = place.socket;
  for (const auto& [trait, is_so] : traits) {
    facts.traits |= is_so ? trait : 0;
  }
  return facts;
}

Communicator::HostFacts Communicator::own_host_facts() {
  HostFacts facts;
  if (!context_.process.config().enable || !acts_on_host_memory(*table_)) {
    return facts;
  }
  facts.share = context_.process.node_share(context_.me.world_ranks);
  // Without an MPI several ranks may be threads of this process: each needs memory of its own.
  auto memory = mpi_ != nullptr ? context_.process.host_memory(facts.share.node_ranks,
                                                               context_.me.thread_multiple)
                                : runners::HostMemory::make(runners::HostMemory::default_options(
                                      context_.me.ranks, /*has_threads=*/false));
  facts.introduction = backends_.host.introduce(std::move(memory));
  return facts;
}

bool Communicator::may_share_machine() const {
  constexpr int kMachineRanksMax = 1024;
  return context_.me.ranks <= kMachineRanksMax;
}

Status Communicator::exchange(bool has_unread_hint, std::vector<ExchangedFacts>* ranks) {
  static_assert(std::is_trivially_copyable_v<ExchangedFacts>);
  const auto count = static_cast<std::size_t>(context_.me.ranks);
  ExchangedFacts mine;
  mine.facts = own_facts(has_unread_hint);
  ranks->resize(count);
  Status gathered;
  if (may_share_machine()) {
    mine.host = own_host_facts();
    gathered = context_.bootstrap.allgather(&mine, ranks->data(), sizeof(ExchangedFacts));
  } else {
    std::vector<RankFacts> all(count);
    gathered = context_.bootstrap.allgather(&mine.facts, all.data(), sizeof(RankFacts));
    for (std::size_t rank = 0; rank < count; ++rank) {
      (*ranks)[rank].facts = all[rank];
    }
  }
  if (!gathered.ok()) {
    failure_ = gathered;  // Others may have heard of this rank's memory.
  }
  return gathered;
}

Status Communicator::agree_configuration(const Status& unread,
                                         const std::vector<ExchangedFacts>& ranks) {
  std::uint32_t some = 0;
  std::uint32_t all = ~0U;
  for (const ExchangedFacts& one : ranks) {
    some |= one.facts.traits;
    all &= one.facts.traits;
  }
  const auto first = [&](auto is_meant) {
    return std::find_if(ranks.begin(), ranks.end(),
                        [&](const ExchangedFacts& one) { return is_meant(one.facts); }) -
           ranks.begin();
  };
  const auto first_unread =
      first([](const RankFacts& facts) { return (facts.traits & RankFacts::kUnread) != 0; });
  const auto first_other =
      first([&](const RankFacts& facts) { return facts.settings != ranks[0].facts.settings; });

  context_.is_concurrent = (some & RankFacts::kConcurrent) != 0;
  counts_beside_others_ = context_.is_concurrent;
  has_hints_ = (some & RankFacts::kHinted) != 0;
  may_have_hints_ = (some & RankFacts::kKeepsHints) != 0;
  strict_ = (some & RankFacts::kStrict) != 0;
  has_devices_ = (all & RankFacts::kDevice) != 0;
  has_any_device_ = (some & RankFacts::kDevice) != 0;
  context_.facts.ranks = context_.me.ranks;
  context_.facts.mpi_device_aware = (all & RankFacts::kAware) != 0;
  context_.facts.mpi_has_large_counts = (all & RankFacts::kLarge) != 0;
  const bool is_asserted_alike = (some & RankFacts::kAsserted) == (all & RankFacts::kAsserted);
  if (!is_asserted_alike) {
    asserted_.reset();  // The standard wants it equal on all ranks; it is not, so it fixes nothing.
  }
  if (!has_any_device_) {
    asserted_ = Memory::kHost;
  } else {
    modes_ = std::make_unique<MemoryModes>();
  }
  asserted_host_ = asserted_ == Memory::kHost;
  if ((some & RankFacts::kDisabled) != 0) {
    if (mpi_ == nullptr) {
      return Status(ErrorCode::kInvalidConfig,
                    "TUTTI_ENABLE=0 on some rank, and there is no MPI to go to");
    }
    is_disabled_ = true;
    inert_ = true;
    return {};
  }
  // A program that calls us by name gets an error where an MPI's hint is only ignored.
  if (mpi_ == nullptr && (some & RankFacts::kUnread) != 0) {
    return !unread.ok() ? unread
                        : Status(ErrorCode::kInvalidConfig,
                                 "options: rank " + std::to_string(first_unread) +
                                     " has some that cannot be read (it tells why)");
  }
  if (mpi_ == nullptr && !is_asserted_alike) {
    return Status(ErrorCode::kInvalidConfig, "options: ranks differ in their memory");
  }
  if (first_other != context_.me.ranks) {
    disagreement_ = "rank " + std::to_string(first_other) +
                    " has other tuning rules or TUTTI_* settings than rank 0, or another build of "
                    "the MPI library (give every rank the same environment, tuning file and MPI)";
  } else if (!context_.process.config_error().empty()) {
    disagreement_ = context_.process.config_error();
  } else if (strict_ && (some & RankFacts::kUnread) != 0) {
    disagreement_ =
        "rank " + std::to_string(first_unread) + " has a hint that cannot be read (it tells why)";
  }
  if (mpi_ == nullptr) {
    return disagreement_.empty() ? Status() : Status(ErrorCode::kInvalidConfig, disagreement_);
  }
  if (!disagreement_.empty()) {
    disagreement_ += "; native plans for all";
  }
  // An erroneous configuration must be heard even where there is nothing to speed up.
  // An inert communicator's calls are not seen: with a summary none is, on any rank.
  has_summary_ = (some & RankFacts::kSummary) != 0;
  inert_ =
      asserted_host_ && (some & RankFacts::kActive) == 0 && !has_summary_ && disagreement_.empty();
  return {};
}

void Communicator::agree_placement(const std::vector<ExchangedFacts>& ranks) {
  // Before the application or we make an NCCL communicator: both must see the same hosts.
  announce_virtual_node(context_.process.config().virtual_nodes, context_.me.world_rank,
                        context_.me.world_ranks);
  std::vector<std::uint64_t> nodes;
  std::vector<std::uint64_t> machines;
  std::vector<topology::RankPlace> places;
  nodes.reserve(ranks.size());
  machines.reserve(ranks.size());
  places.reserve(ranks.size());
  bool is_active = false;
  for (const auto& [facts, host] : ranks) {
    nodes.push_back(facts.node);
    machines.push_back(facts.machine);
    places.push_back({.rails = facts.rails, .socket = facts.socket});
    is_active |= (facts.traits & RankFacts::kActive) != 0;
  }
  context_.placement = topology::make_layout(nodes);
  context_.machines = nodes == machines ? context_.placement : topology::make_layout(machines);
  topology::set_places(places, &context_.placement);
  std::vector<runners::DirectHostRunner::Introduction> introductions;
  if (is_active && may_share_machine()) {
    introductions.reserve(ranks.size());
    for (const ExchangedFacts& one : ranks) {
      introductions.push_back(one.host.introduction);
    }
    for (const std::vector<int>& on_machine : context_.machines.ranks_of) {
      std::vector<NodeShare> shares;
      shares.reserve(on_machine.size());
      for (const int rank : on_machine) {
        shares.push_back(ranks[static_cast<std::size_t>(rank)].host.share);
      }
      context_.facts.oversubscribed |= is_oversubscribed(shares);
    }
  }
  backends_.host.set_introductions(std::move(introductions));  // Its own stays there until all are.
  if (!backends_.host.introductions().empty()) {
    watch_processes();
  }
  if (context_.machines.nodes() != 1) {
    give_back_host_memory();
  } else if (mpi_ != nullptr) {
    mpi_->set_look([this] { return backends_.host.look_at_peers(/*in_call=*/false); });
  }
  context_.facts.nodes = context_.placement.nodes();
  context_.facts.ranks_per_node_max = context_.placement.ranks_per_node_max();
  context_.facts.ccl_refusal = "no device buffers seen yet";
}

/// Of this machine: calls that go to the MPI end when one of them has died.
void Communicator::watch_processes() {
  if (mpi_ == nullptr) {
    return;
  }
  std::vector<runners::HostProcess> processes(backends_.host.introductions().size());
  bool has_any = false;
  const runners::HostProcess& own = runners::HostProcess::self();
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const runners::HostProcess& process = backends_.host.introductions()[rank].process;
    if (context_.machines.node_of[rank] ==
            context_.machines.node_of[static_cast<std::size_t>(context_.me.rank)] &&
        process.is_another_known(own)) {
      processes[rank] = process;
      has_any = true;
    }
  }
  if (!has_any) {
    return;
  }
  watched_calls_ = context_.process.watch_calls(std::move(processes));
  if (context_.machines.nodes() == 1 && backends_.host.memory() != nullptr) {
    context_.process.watch_for(watched_calls_, backends_.host.other_way_finder());
  }
}

}  // namespace tutti::engine
