// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/log.hpp"
#include "engine/compositions.hpp"
#include "engine/placement.hpp"
#include "runners/direct/deferred_free.hpp"
#include "runners/staged_call.hpp"

namespace tutti::engine {

using select::Backend;
using select::Collective;
using select::Composition;
using select::Memory;
using select::Shape;

namespace {

bool is_native_flat(const select::Plan& plan) {
  return plan.backend == Backend::kMpi && plan.composition != Composition::kAlpha;
}

/// True when some rule can give a call on host memory a plan other than the MPI's own.
bool acts_on_host_memory(const select::Table& table) {
  return std::any_of(table.rules.begin(), table.rules.end(), [](const select::Rule& rule) {
    return !is_native_flat(rule.plan) && rule.memory.value_or(Memory::kHost) == Memory::kHost;
  });
}

/// True when some rule may need messages of ours through the MPI, beside the application's own
/// calls.
bool needs_messages(const select::Table& table) {
  return std::any_of(table.rules.begin(), table.rules.end(), [](const select::Rule& rule) {
    const bool is_on_host = rule.memory.value_or(Memory::kHost) == Memory::kHost;
    return is_on_host && !is_native_flat(rule.plan) && rule.plan.backend != Backend::kDirect;
  });
}

/// True when some rule asks for an algorithm of ours: nothing else looks at sockets and rails.
bool has_schedules(const select::Table& table) {
  return std::any_of(table.rules.begin(), table.rules.end(), [](const select::Rule& rule) {
    return rule.plan.backend == Backend::kSchedule;
  });
}

bool is_on_device(const runners::Call& call) {
  return call.send_memory.kind == device::MemoryKind::kDevice ||
         call.recv_memory.kind == device::MemoryKind::kDevice;
}

schedule::Parameters schedule_parameters(const select::Plan& plan) {
  return {.radix = plan.parameters.radix.value_or(0),
          .segments = plan.parameters.segments.value_or(0)};
}

std::size_t cache_slot(const Shape& shape, std::size_t size) {
  std::uint64_t hash = shape.bytes.value_or(~Bytes{0}) * 0x9E3779B97F4A7C15ULL;
  hash ^= (static_cast<std::uint64_t>(shape.collective) << 1) ^
          (static_cast<std::uint64_t>(shape.type) << 6) ^
          (static_cast<std::uint64_t>(shape.op) << 11) ^ static_cast<std::uint64_t>(shape.memory);
  hash ^= static_cast<std::uint64_t>(shape.order) << 15;
  hash ^= hash >> 29;
  return hash % size;
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
    runners::DirectHostRunner& runner = *communicator_.direct_host_runner_;
    // Whom a failure concerns finds it, too.
    static_cast<void>(is_last_ ? runner.post_last_facts(&none, sizeof(none))
                               : runner.allgather_facts(&none, /*all=*/nullptr, sizeof(none)));
  } catch (const std::bad_alloc&) {
    return;  // Of an error's text.
  }
}

Status ParentCommunicator::exchange(Facts mine, std::vector<Facts>* members) {
  static_assert(std::is_trivially_copyable_v<Facts> &&
                sizeof(Facts) <= runners::HostLayout::kFactsBytes);
  std::vector<Facts> all(static_cast<std::size_t>(communicator_.place_.ranks));
  members->reserve(all.size());
  mine.color = color_;
  mine.key = key_;
  has_exchanged_ = true;
  TUTTI_RETURN_IF_ERROR(
      communicator_.direct_host_runner_->allgather_facts(&mine, all.data(), sizeof(mine)));
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
                                                           const Place& place, const Hints& hints) {
  std::unique_ptr<Communicator> self(new Communicator(process, bootstrap, mpi, place));
  self->facts_.has_mpi = mpi != nullptr;
  self->facts_.mpi = mpi == nullptr ? "" : mpi->name();
  const Status unread = self->read_hints(hints);
  std::vector<ExchangedFacts> ranks;
  TUTTI_RETURN_IF_ERROR(self->exchange(!unread.ok(), &ranks));
  TUTTI_RETURN_IF_ERROR(self->agree_on(unread, ranks));
  return self;
}

Result<std::unique_ptr<Communicator>> Communicator::create_derived(ParentCommunicator& parent,
                                                                   runners::MpiLibrary& mpi,
                                                                   const Place& place) {
  std::unique_ptr<Communicator> self(
      new Communicator(parent.communicator().process_, mpi, &mpi, place));
  self->facts_.has_mpi = true;
  self->facts_.mpi = mpi.name();
  std::vector<ExchangedFacts> ranks;
  TUTTI_ASSIGN_OR_RETURN(const bool is_now, self->exchange_derived(parent, &ranks));
  if (!is_now) {
    return std::unique_ptr<Communicator>();
  }
  self->are_mapped_ = true;
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
    return {};
  }
  if (mpi_ != nullptr) {
    // An MPI has some two thousand communicators; where nothing needs one of ours, none is made.
    // Where tables differ no rank has a plan of ours, and none makes one.
    if (has_any_device_ || (disagreement_.empty() && needs_messages(*table_))) {
      // Threads may be in calls of two communicators in another order on each rank.
      TUTTI_ASSIGN_OR_RETURN(const bool is_made, mpi_->duplicate(!is_concurrent_));
      if (!is_made) {
        lose_messages();
      }
    }
    mpi_runner_ = std::make_unique<runners::MpiRunner>(*mpi_, process_.device(), process_.scratch(),
                                                       process_.counters().staged_bytes);
  }
  is_complete_ = true;
  process_.counters().communicators.fetch_add(1, std::memory_order_relaxed);
  if (is_speaker() && log_enabled(LogLevel::kInfo)) {
    announce();
  }
  return {};
}

void Communicator::announce() const {
  log(LogLevel::kInfo, "communicator: " + std::to_string(place_.ranks) + " ranks on " +
                           std::to_string(facts_.nodes) + " node(s), " +
                           (mpi_ == nullptr           ? "no MPI"
                            : facts_.mpi_device_aware ? "MPI device-aware"
                                                      : "MPI not device-aware (staging)") +
                           ", device " + process_.device_report().taken +
                           (asserted_ ? std::string(", memory asserted: ") + to_string(*asserted_)
                                      : std::string(", memory agreed per call class")));
}

/// Whether some rule may give a call on host memory to the memory that the ranks share.
bool Communicator::may_share_memory() const {
  return machines_.nodes() == 1 &&
         std::any_of(table_->rules.begin(), table_->rules.end(), [this](const auto& rule) {
           return rule.plan.backend == Backend::kDirect &&
                  rule.memory.value_or(Memory::kHost) == Memory::kHost &&
                  select::may_match(rule, facts_);
         });
}

/// Where a new communicator would need more than shared memory (a communicator of ours, rings of
/// its own, hints), it waits for its first call, which may never come.
bool Communicator::become_parent() {
  if (has_withdrawn_as_parent_ || mpi_ == nullptr || has_any_device_ || is_concurrent_ ||
      may_have_hints_ || !disagreement_.empty() || needs_messages(process_.table()) ||
      !may_share_memory()) {
    return false;
  }
  if (!direct_host_tried_ && failure_.ok()) {
    const Status made = setup_direct(Memory::kHost, -1);
    if (!made.ok()) {
      fail(made);
    }
  }
  return direct_host_runner_ != nullptr;
}

void Communicator::withdraw_as_parent() {
  if (direct_host_runner_ != nullptr && !has_withdrawn_as_parent_) {
    const ParentCommunicator none(*this, ParentCommunicator::Last());
  }
  has_withdrawn_as_parent_ = true;
}

Result<bool> Communicator::exchange_derived(ParentCommunicator& parent,
                                            std::vector<ExchangedFacts>* ranks) {
  ParentCommunicator::Facts mine;
  mine.facts = own_facts(/*has_unread_hint=*/false);
  const auto memory = process_.host_memory(process_.node_share(place_.world_ranks).node_ranks,
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
  const auto own = static_cast<std::size_t>(place_.rank);
  if (members.size() != static_cast<std::size_t>(place_.ranks) ||
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

Communicator::~Communicator() {
  membership_.has_failed = !failure_.ok();
  if (device_combine_ != nullptr && (!failure_.ok() || !end_->reason().ok())) {
    device_combine_->abandon();  // Its kernels may be behind one that never ends.
  }
  if (direct_runner_ != nullptr) {
    process_.direct_communicators.fetch_sub(1, std::memory_order_relaxed);
  }
  process_.unwatch_calls(watched_calls_);
  if (mpi_ != nullptr) {
    mpi_->set_look(nullptr);
  }
  give_back_host_memory(/*is_known=*/!is_complete_);
  free_deferred_memory();
}

/// Of communicators that were freed earlier; this one may have no kernels of ours.
void Communicator::free_deferred_memory() {
  if (!inert_ && process_.device() != nullptr) {
    runners::free_deferred(*process_.device());
  }
}

std::optional<Memory> Communicator::known_memory(Collective collective) const {
  return asserted_ || select::has_size(collective) ? asserted_ : modes_->known(collective);
}

bool Communicator::has_own_plans(Collective collective) const {
  const std::optional<Memory> memory = has_any_device_ ? known_memory(collective) : Memory::kHost;
  return std::any_of(table_->rules.begin(), table_->rules.end(), [&](const select::Rule& rule) {
    return !is_native_flat(rule.plan) && is_for(rule, collective, memory);
  });
}

/// Whether a rule may be the one for a collective, on that memory or on any.
bool Communicator::is_for(const select::Rule& rule, Collective collective,
                          std::optional<Memory> memory) const {
  const std::vector<Collective>& meant = rule.collectives;
  return select::may_match(rule, facts_) && (!memory || rule.memory.value_or(*memory) == *memory) &&
         (meant.empty() || std::find(meant.begin(), meant.end(), collective) != meant.end());
}

bool Communicator::may_be_apart(Collective collective) const {
  const std::optional<Memory> memory = has_any_device_ ? known_memory(collective) : Memory::kHost;
  return !memory ||
         std::any_of(table_->rules.begin(), table_->rules.end(), [&](const select::Rule& rule) {
           return !is_native_flat(rule.plan) &&
                  !(rule.plan.backend == Backend::kDirect && *memory == Memory::kHost) &&
                  is_for(rule, collective, memory);
         });
}

void Communicator::fail(const Status& status) {
  if (mpi_ != nullptr && failure_.ok()) {
    mpi_->leave();
  }
  failure_ = status;
  forget_routes();  // No call goes to the MPI as it did before.
  if (host_introductions().size() > 1 && host_memory_ != nullptr) {
    host_memory_->tell_failure(host_introductions()[static_cast<std::size_t>(place_.rank)].part);
  }
  if (direct_host_runner_ != nullptr) {
    direct_host_runner_->give_up(status);
  }
  if (ccl_runner_ != nullptr) {
    ccl_runner_->set_failed();
  }
}

/// On all ranks.
void Communicator::lose_messages() {
  facts_.messages_refusal =
      "no communicator of ours is to be had beside the application's (it has many; the MPI library "
      "has few)";
  if (is_speaker() && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, facts_.messages_refusal);
  }
}

void Communicator::refuse() {
  count_doubted();
  if (direct_host_runner_ != nullptr) {
    direct_host_runner_->tell_refusal();
  } else if (host_memory_ != nullptr) {
    runners::DirectHostRunner::tell_refusal(
        *host_memory_, host_introductions()[static_cast<std::size_t>(place_.rank)], place_.ranks,
        calls_);
  }
  if (mpi_ == nullptr || !mpi_->refuse(calls_)) {
    fail(Status(ErrorCode::kInvalidArgument,
                "an earlier call of this rank had wrong arguments; other ranks may be in it"));
  }
}

void Communicator::begin_end() {
  if (direct_runner_ != nullptr) {
    direct_runner_->begin_end();
  }
  if (ccl_runner_ != nullptr) {
    ccl_runner_->begin_end();
  }
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
    own_table_ = std::make_unique<select::Table>(process_.table());
    table_ = own_table_.get();
  }
  Status unread = hints.unread;
  if (unread.ok() && !hints.plan.empty()) {
    const Status planned = take_plan(hints.plan);
    unread = planned.ok() ? Status() : Status(ErrorCode::kInvalidConfig, planned.message());
  }
  if (!unread.ok() && mpi_ != nullptr && (is_speaker() || process_.config().strict)) {
    log(LogLevel::kError,
        unread.message() + (process_.config().strict ? "" : "; the hint is ignored"));
  }
  if (mpi_ == nullptr) {
    *own_table_ = select::without_mpi(std::move(*own_table_));
  }
  asserted_ = asserted_memory(hints.memory_kinds);
  return unread;
}

Communicator::RankFacts Communicator::own_facts(bool has_unread_hint) const {
  const Config& config = process_.config();
  // Without such a rule nobody reads the place.
  const topology::RankPlace place = config.enable && has_schedules(*table_)
                                        ? own_place(process_, place_.world_rank, place_.world_ranks)
                                        : topology::RankPlace{};
  const std::pair<std::uint32_t, bool> traits[] = {
      {RankFacts::kDevice, process_.device() != nullptr},
      {RankFacts::kActive, acts_on_host_memory(*table_)},
      {RankFacts::kSummary, process_.summary() != nullptr},
      {RankFacts::kStrict, config.strict},
      {RankFacts::kDisabled, !config.enable},
      {RankFacts::kUnread, has_unread_hint},
      {RankFacts::kConcurrent, place_.thread_multiple},
      {RankFacts::kHinted, own_table_ != nullptr || asserted_},
      {RankFacts::kKeepsHints, place_.keeps_hints},
      {RankFacts::kAware, place_.mpi_device_aware},
      {RankFacts::kLarge, mpi_ != nullptr && mpi_->has_large_counts()},
      {RankFacts::kAssertedHost, asserted_ == Memory::kHost},
      {RankFacts::kAssertedDevice, asserted_ == Memory::kDevice},
  };
  RankFacts facts;
  facts.settings = process_.agreement_hash() ^ place_.types_hash ^
                   std::hash<std::string>{}(facts_.mpi) ^
                   (own_table_ == nullptr ? 0 : own_table_->hash());
  facts.node = node_identity(config.virtual_nodes, place_.world_rank, place_.world_ranks);
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
  if (!process_.config().enable || !acts_on_host_memory(*table_)) {
    return facts;
  }
  facts.share = process_.node_share(place_.world_ranks);
  // Without an MPI several ranks may be threads of this process: each needs memory of its own.
  auto memory = mpi_ != nullptr
                    ? process_.host_memory(facts.share.node_ranks, place_.thread_multiple)
                    : runners::HostMemory::make(runners::HostMemory::default_options(
                          place_.ranks, /*has_threads=*/false));
  facts.introduction = runners::DirectHostRunner::introduce(memory, place_.ranks);
  host_memory_ = memory.ok() ? *memory : nullptr;
  set_introductions({facts.introduction});
  return facts;
}

bool Communicator::may_share_machine() const {
  constexpr int kMachineRanksMax = 1024;
  return place_.ranks <= kMachineRanksMax;
}

Status Communicator::exchange(bool has_unread_hint, std::vector<ExchangedFacts>* ranks) {
  static_assert(std::is_trivially_copyable_v<ExchangedFacts>);
  const auto count = static_cast<std::size_t>(place_.ranks);
  ExchangedFacts mine;
  mine.facts = own_facts(has_unread_hint);
  ranks->resize(count);
  Status gathered;
  if (may_share_machine()) {
    mine.host = own_host_facts();
    gathered = bootstrap_.allgather(&mine, ranks->data(), sizeof(ExchangedFacts));
  } else {
    std::vector<RankFacts> all(count);
    gathered = bootstrap_.allgather(&mine.facts, all.data(), sizeof(RankFacts));
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

  is_concurrent_ = (some & RankFacts::kConcurrent) != 0;
  has_hints_ = (some & RankFacts::kHinted) != 0;
  may_have_hints_ = (some & RankFacts::kKeepsHints) != 0;
  strict_ = (some & RankFacts::kStrict) != 0;
  has_devices_ = (all & RankFacts::kDevice) != 0;
  has_any_device_ = (some & RankFacts::kDevice) != 0;
  facts_.ranks = place_.ranks;
  facts_.mpi_device_aware = (all & RankFacts::kAware) != 0;
  facts_.mpi_has_large_counts = (all & RankFacts::kLarge) != 0;
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
  if (first_other != place_.ranks) {
    disagreement_ = "rank " + std::to_string(first_other) +
                    " has other tuning rules or TUTTI_* settings than rank 0, or another build of "
                    "the MPI library (give every rank the same environment, tuning file and MPI)";
  } else if (!process_.config_error().empty()) {
    disagreement_ = process_.config_error();
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
  announce_virtual_node(process_.config().virtual_nodes, place_.world_rank, place_.world_ranks);
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
  placement_ = topology::make_layout(nodes);
  machines_ = nodes == machines ? placement_ : topology::make_layout(machines);
  topology::set_places(places, &placement_);
  std::vector<runners::DirectHostRunner::Introduction> introductions;
  if (is_active && may_share_machine()) {
    introductions.reserve(ranks.size());
    for (const ExchangedFacts& one : ranks) {
      introductions.push_back(one.host.introduction);
    }
    for (const std::vector<int>& on_machine : machines_.ranks_of) {
      std::vector<NodeShare> shares;
      shares.reserve(on_machine.size());
      for (const int rank : on_machine) {
        shares.push_back(ranks[static_cast<std::size_t>(rank)].host.share);
      }
      facts_.oversubscribed |= is_oversubscribed(shares);
    }
  }
  set_introductions(std::move(introductions));  // Its own stays there until all are.
  if (!host_introductions().empty()) {
    watch_processes();
  }
  if (machines_.nodes() != 1) {
    give_back_host_memory();
  } else if (mpi_ != nullptr) {
    mpi_->set_look([this] { return look_at_peers(/*in_call=*/false); });
  }
  facts_.nodes = placement_.nodes();
  facts_.ranks_per_node_max = placement_.ranks_per_node_max();
  facts_.ccl_refusal = "no device buffers seen yet";
}

/// Of this machine: calls that go to the MPI end when one of them has died.
void Communicator::watch_processes() {
  if (mpi_ == nullptr) {
    return;
  }
  std::vector<runners::HostProcess> processes(host_introductions().size());
  bool has_any = false;
  const runners::HostProcess& own = runners::HostProcess::self();
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const runners::HostProcess& process = host_introductions()[rank].process;
    if (machines_.node_of[rank] == machines_.node_of[static_cast<std::size_t>(place_.rank)] &&
        process.is_another_known(own)) {
      processes[rank] = process;
      has_any = true;
    }
  }
  watched_calls_ = has_any ? process_.watch_calls(std::move(processes)) : nullptr;
  if (watched_calls_ != nullptr && machines_.nodes() == 1 && host_memory_ != nullptr) {
    process_.watch_for(watched_calls_, [memory = host_memory_, rank = place_.rank,
                                        introductions = host_introductions_] {
      return runners::DirectHostRunner::find_call_another_way(*memory, rank, *introductions);
    });
  }
}

/// What keeps a rank from coming to this communicator's calls; kUnavailable: nothing tells.
Status Communicator::look_at_peers(bool in_call) {
  if (direct_host_runner_ != nullptr) {
    return direct_host_runner_->look_at_peers(in_call);
  }
  if (host_memory_ != nullptr &&
      host_introductions().size() == static_cast<std::size_t>(place_.ranks)) {
    return runners::DirectHostRunner::look_at_peers(*host_memory_, place_.rank,
                                                    host_introductions(), in_call ? calls_ : 0);
  }
  return Status(ErrorCode::kUnavailable, "the ranks share no memory");
}

/// Null: no other rank reads it.
std::byte* Communicator::find_calls_line() const {
  if (direct_host_runner_ != nullptr) {
    return direct_host_runner_->calls_line();
  }
  return host_memory_ == nullptr
             ? nullptr
             : runners::DirectHostRunner::calls_line(
                   *host_memory_, host_introductions()[static_cast<std::size_t>(place_.rank)],
                   place_.ranks);
}

/// `is_known`: others may have heard of it, and still count on it.
void Communicator::give_back_host_memory(bool is_known) {
  calls_line_ = unread_line_.data();
  if (!host_introductions().empty() && host_memory_ != nullptr) {
    const bool is_alone = host_introductions().size() == 1;
    const auto& mine = host_introductions()[is_alone ? 0 : static_cast<std::size_t>(place_.rank)];
    // After a failure of this rank the others may be in a call and still look at the memory.
    if (failure_.ok() && !is_known) {
      runners::DirectHostRunner::give_back(host_memory_, mine);
    } else {
      host_memory_->abandon(mine.part);
    }
  }
  host_introductions_.reset();
  host_memory_.reset();
}

bool Communicator::can_act() const {
  if (!asserted_host_ || !disagreement_.empty() || mpi_ == nullptr || has_summary_) {
    return true;
  }
  return std::any_of(table_->rules.begin(), table_->rules.end(), [this](const select::Rule& rule) {
    return !is_native_flat(rule.plan) && rule.memory.value_or(Memory::kHost) == Memory::kHost &&
           select::may_match(rule, facts_) &&
           // A shipped rule that cannot be carried is no fall-back to report.
           !(rule.optional && rule.plan.backend == Backend::kDirect && machines_.nodes() != 1);
  });
}

Status Communicator::agree_memory(MemoryModes::Class& memory, int device) {
  bool any_device = device >= 0;
  if (mpi_ != nullptr) {
    const Result<bool> agreed = mpi_->agree_on_call(calls_ + 1, any_device);
    if (agreed.status().code() == ErrorCode::kMismatch) {
      --memory.calls;  // The rank whose call was refused does not know of which class it is.
      pass_by();
    }
    TUTTI_RETURN_IF_ERROR(agreed.status());
    any_device = *agreed;
  } else {
    std::uint64_t any = any_device ? 1 : 0;
    TUTTI_RETURN_IF_ERROR(bootstrap_.max_in_place(&any, 1));
    any_device = any != 0;
  }
  process_.counters().agreements.fetch_add(1, std::memory_order_relaxed);
  memory.mode = any_device ? Memory::kDevice : Memory::kHost;
  if (any_device && !ccl_tried_ && disagreement_.empty()) {
    return setup_ccl(device);
  }
  return {};
}

Result<const Route*> Communicator::route(Collective collective, std::optional<Bytes> bytes,
                                         select::DataType type, select::ReduceOp op, int device,
                                         select::Order order) {
  Shape shape{collective, bytes, type, op, Memory::kHost, order};
  MemoryModes::Class* agreed = nullptr;
  if (order != select::Order::kBlocking) {
    shape.memory = Memory::kDevice;
    TUTTI_RETURN_IF_ERROR(prepare_streams(order, device));
  } else if (asserted_) {
    shape.memory = *asserted_;
    // The same call on every rank, and the first that can show which GPU is this rank's.
    if (asserted_ == Memory::kDevice && !ccl_tried_ && disagreement_.empty() &&
        collective != Collective::kBarrier) {
      TUTTI_RETURN_IF_ERROR(setup_ccl(device));
    }
  } else if (collective != Collective::kBarrier) {
    agreed = &modes_->of(collective, bytes);
    if (!std::exchange(is_next_agreed_, false) && agreement_due(++agreed->calls)) {
      TUTTI_RETURN_IF_ERROR(agree_memory(*agreed, device));
    }
    shape.memory = agreed->mode;
  }
  if ((device >= 0) != (shape.memory == Memory::kDevice)) [[unlikely]] {
    process_.counters().misfits.fetch_add(1, std::memory_order_relaxed);
  }
  CachedRoute& cached = cached_route(shape);
  if (!cached.valid || cached.shape != shape) [[unlikely]] {
    if (cached.valid) {
      forget_routes();
    }
    cached.valid = false;
    TUTTI_ASSIGN_OR_RETURN(cached.route, decide(shape, device));
    cached.route.agreed = agreed;
    cached.shape = shape;
    cached.valid = true;
  }
  cached.route.calls->fetch_add(1, std::memory_order_relaxed);
  if (cached.route.fallbacks != nullptr) [[unlikely]] {
    cached.route.fallbacks->fetch_add(1, std::memory_order_relaxed);
  }
  if (cached.route.summary != nullptr) [[unlikely]] {
    Summary::current() = cached.route.summary;
  }
  last_route_ = &cached.route;
  return last_route_;
}

Communicator::CachedRoute& Communicator::cached_route(const Shape& shape) {
  constexpr std::size_t kSizeMin = 8;
  constexpr std::size_t kSizeMax = 256;
  if (routes_.empty()) {
    routes_.resize(kSizeMin);
  }
  CachedRoute* cached = &routes_[cache_slot(shape, routes_.size())];
  if (cached->valid && cached->shape != shape && routes_.size() < kSizeMax) {
    last_route_ = nullptr;
    forget_routes();
    routes_ = std::vector<CachedRoute>(2 * routes_.size());
    cached = &routes_[cache_slot(shape, routes_.size())];
  }
  return *cached;
}

/// The same answer on every rank, which all make the same calls.
Status Communicator::prepare_streams(select::Order order, int device) {
  if (!has_devices_) {
    return Status(ErrorCode::kUnavailable,
                  "a call on a stream: not every rank has a GPU library (" +
                      process_.device_report().taken + " here)");
  }
  if (ccl_tried_ || !disagreement_.empty()) {
    return {};
  }
  if (order == select::Order::kCaptured) {
    return Status(
        ErrorCode::kUnsupported,
        "the first call of a communicator on a stream sets up what it needs and cannot be "
        "captured: make one call before the capture begins");
  }
  return setup_ccl(device);
}

select::Decision Communicator::choose(const Shape& shape, select::CommFacts* facts) const {
  // Until it was tried, direct counts as usable: the table is equal on all ranks, so all of them
  // come to the first rule that wants it together.
  if (!direct_device_tried_) {
    facts->direct_device_refusal.clear();
  }
  if (!direct_host_tried_) {
    facts->direct_host_refusal.clear();
  }
  return select::choose(shape, *facts, *table_);
}

std::string Communicator::explain(const Shape& shape) const {
  select::CommFacts facts = facts_;
  if (!ccl_tried_ && has_devices_) {
    facts.ccl_usable = true;
  }
  static_cast<void>(choose(shape, &facts));
  return select::explain_json(shape, facts, *table_);
}

Result<Route> Communicator::decide(const Shape& shape, int device, const std::string& reached_by) {
  if (!disagreement_.empty()) {
    return make_route(shape, select::native_plan(facts_), disagreement_);
  }
  std::optional<device::RelaxedCapture> relaxed;
  relax(&relaxed);  // Whatever has to be set up.
  select::CommFacts facts = facts_;
  for (;;) {
    const select::Decision decision = choose(shape, &facts);
    const bool on_device = shape.memory == Memory::kDevice;
    if (decision.plan.backend == Backend::kDirect &&
        !(on_device ? direct_device_tried_ : direct_host_tried_)) {
      TUTTI_RETURN_IF_ERROR(setup_direct(shape.memory, device));
      facts.direct_device_refusal = facts_.direct_device_refusal;
      facts.direct_host_refusal = facts_.direct_host_refusal;
      continue;
    }
    if (decision.plan.copied && !copies_tried_) {
      TUTTI_RETURN_IF_ERROR(prepare_copies());
      facts.copies_refusal = facts_.copies_refusal;
      facts.direct_device_refusal = facts_.direct_device_refusal;
      continue;
    }
    if (!decision.is_carried) {
      return no_route(shape, decision, device);
    }
    std::string fallback;
    if (!reached_by.empty()) {
      fallback = reached_by + "; using " + to_string(decision.plan) + " through host memory";
    } else if (!decision.refused.empty()) {
      const select::Refused& first = decision.refused.front();
      fallback = std::string(to_string(shape.collective)) + ": " + to_string(first.plan) +
                 " refused: " + first.reason + "; using " + to_string(decision.plan);
    }
    if (decision.plan.composition == Composition::kAlpha) {
      std::string refusal;
      TUTTI_RETURN_IF_ERROR(prepare_alpha(decision.plan, &refusal));
      if (!refusal.empty()) {
        // Agreed by all ranks: choose again as if the CCL were not there.
        facts.ccl_usable = false;
        facts.ccl_refusal = refusal;
        facts.messages_refusal = facts_.messages_refusal;
        continue;
      }
    }
    if (decision.plan.pipeline != select::Pipeline::kNone) {
      TUTTI_RETURN_IF_ERROR(prepare_pipeline(decision.plan));
      facts.streams_refusal = facts_.streams_refusal;
      facts.comms_refusal = facts_.comms_refusal;
      if (!select::refusal(decision.plan, shape, facts).empty()) {
        continue;
      }
    }
    return make_route(shape, decision.plan, fallback);
  }
}

/// Without an MPI there may be no plan. Device memory that no GPU carries can still go through the
/// memory of the node, for a caller who waits (select::may_stage).
Result<Route> Communicator::no_route(Shape shape, const select::Decision& decision, int device) {
  std::string reasons;
  for (const auto* list : {&decision.refused, &decision.passed_over}) {
    for (const select::Refused& entry : *list) {
      const std::string reason = "; " + to_string(entry.plan) + ": " + entry.reason;
      reasons += reasons.find(reason) == std::string::npos ? reason : "";
    }
  }
  const std::string text = std::string(to_string(shape.collective)) +
                           ": nothing carries this call on " + to_string(shape.memory) +
                           " memory (" + to_string(shape.order) + ")" + reasons;
  if (!select::may_stage(shape, facts_)) {
    return Status(ErrorCode::kUnsupported, text);
  }
  shape.memory = Memory::kHost;
  auto staged = decide(shape, device, text);
  return staged.status().code() == ErrorCode::kUnsupported
             ? Status(ErrorCode::kUnsupported, text + "; " + staged.status().message())
             : std::move(staged);
}

Result<Route> Communicator::make_route(const Shape& shape, const select::Plan& plan,
                                       const std::string& fallback) {
  if (!fallback.empty() && strict_) {
    if (is_speaker()) {
      log(LogLevel::kError, "TUTTI_STRICT: " + fallback);
    }
    return Status(ErrorCode::kFallback, fallback);
  }
  Route route;
  route.plan = plan;
  if (!plan.parameters.chunk_bytes) {
    route.plan.parameters.chunk_bytes = process_.config().pipeline_chunk_bytes;
  }
  route.memory = shape.memory;
  route.order = shape.order;
  // Chunks only where every rank must expect staging, and only on what all ranks can divide alike.
  // What MPI refuses it refuses whole: an error between two chunks breaks the communicator.
  const bool staging = shape.memory == Memory::kDevice && (!facts_.mpi_device_aware || plan.staged);
  const bool chunked =
      plan.backend == Backend::kMpi && staging && shape.bytes &&
      !runners::has_counts(shape.collective) && shape.op != select::ReduceOp::kUser &&
      shape.type != select::DataType::kOther && !select::is_pair(shape.type) &&
      (shape.op == select::ReduceOp::kNone || select::is_defined(shape.op, shape.type)) &&
      *route.plan.parameters.chunk_bytes != 0 && *shape.bytes > *route.plan.parameters.chunk_bytes;
  if (!chunked) {
    route.plan.parameters.chunk_bytes = 0;
  }
  route.native_flat = is_native_flat(plan) && !chunked;
  route.calls = &process_.counters().plan(to_string(plan));
  if (Summary* summary = process_.summary(); summary != nullptr) {
    route.summary = summary->cell(shape.collective, shape.bytes, to_string(plan));
  }
  if (!fallback.empty()) {
    route.fallbacks = &process_.fallback(fallback, is_speaker());
  }
  return route;
}

runners::Runner& Communicator::runner(Backend backend) {
  if (backend == Backend::kCcl) {
    return *ccl_runner_;
  }
  if (backend == Backend::kDirect) {
    return *direct_runner_;
  }
  return *mpi_runner_;
}

Status Communicator::prepare_alpha(const select::Plan& plan, std::string* refusal) {
  if (!scopes_made_) {
    const Status made =
        bootstrap_.make_scopes(placement_.node_of[static_cast<std::size_t>(place_.rank)]);
    if (made.code() == ErrorCode::kUnavailable && bootstrap_.failure().ok()) {
      lose_messages();  // Agreed by all ranks.
      *refusal = facts_.messages_refusal;
      return {};
    }
    TUTTI_RETURN_IF_ERROR(made);
    scopes_made_ = true;
  }
  const Backend node = plan.parameters.node_backend.value_or(plan.backend);
  const Backend leaders = plan.parameters.leaders_backend.value_or(plan.backend);
  if (node == Backend::kCcl) {
    TUTTI_RETURN_IF_ERROR(init_ccl_scope(runners::Scope::kNode, refusal));
  }
  if (leaders == Backend::kCcl && refusal->empty()) {
    TUTTI_RETURN_IF_ERROR(init_ccl_scope(runners::Scope::kLeaders, refusal));
  }
  return {};
}

Status Communicator::run(const Route& route, const runners::Call& call) {
  Status status = run_once(route, call);
  // Calls that differ are an error of that call alone, unless they have ended the runners.
  if (status.code() == ErrorCode::kMismatch && failure_.ok() && !end_->reason().ok()) {
    fail(Status(ErrorCode::kLibraryFailed, "this communicator failed before: " + status.message()));
  }
  return status;
}

Status Communicator::run_once(const Route& route, const runners::Call& call) {
  if (last_on_stream_ != Backend::kMpi) {
    TUTTI_RETURN_IF_ERROR(stream_status(/*wait=*/true));  // Calls run in the order of their making.
  }
  const bool is_in_shared_memory = route.is_in_shared_memory();
  if (is_in_shared_memory) {
    if (doubted_ > 0) [[unlikely]] {
      find_number(call);
    }
    ++calls_;
  } else {
    count_doubted();  // Steps of ours go by numbers, and do not show them.
    pass_by();
    if (mpi_ != nullptr && !route.native_flat) {
      TUTTI_RETURN_IF_ERROR(mpi_->settle());
    }
  }
  const bool is_launch = route.plan.backend == Backend::kDirect && !route.plan.copied;
  std::optional<device::RelaxedCapture> relaxed;
  if (route.memory == Memory::kDevice ? !is_launch : is_on_device(call)) {
    relax(&relaxed);
  }
  if (mpi_runner_ != nullptr) {
    mpi_runner_->set_options({.stage_device = !mpi_reads_device(route),
                              .chunk_bytes = *route.plan.parameters.chunk_bytes});
  }
  if (route.plan.backend == Backend::kSchedule && route.plan.carrier == Backend::kCcl) {
    return run_ccl_schedule(route.plan, call);
  }
  if (route.plan.backend == Backend::kSchedule) {
    return run_schedule(route.plan, call);
  }
  if (is_in_shared_memory) {
    return run_direct_host(call);
  }
  if (route.plan.copied) {
    return direct_runner_->run_copied(call);
  }
  if (route.plan.pipeline != select::Pipeline::kNone) {
    return ccl_runner_->run_pipeline(route.plan.pipeline, route.plan.chunks, call);
  }
  if (is_launch) {
    return carry_direct(call, [&](Backend backend, const runners::Call& part) {
      std::optional<device::RelaxedCapture> of_part;
      if (backend != Backend::kDirect) {
        relax(&of_part);
      }
      return runner(backend).run(runners::Scope::kWhole, part);
    });
  }
  if (route.plan.composition != Composition::kAlpha) {
    return runner(route.plan.backend).run(runners::Scope::kWhole, call);
  }
  const Backend node = route.plan.parameters.node_backend.value_or(route.plan.backend);
  const Backend leaders = route.plan.parameters.leaders_backend.value_or(route.plan.backend);
  const AlphaContext context{.placement = placement_,
                             .rank = place_.rank,
                             .node = runner(node),
                             .leaders = runner(leaders),
                             .scratch_on_device = node == Backend::kCcl || leaders == Backend::kCcl,
                             .device = device_,
                             .api = process_.device(),
                             .scratch = process_.scratch()};
  return run_alpha(context, call);
}

/// Every rank has a launch for its other pairs or none, and a group for its large ones or none: the
/// launches come first on all, so that nobody waits in a group for a rank that waits in a launch.
template <class Carry>
Status Communicator::carry_direct(const runners::Call& call, Carry carry) {
  const runners::ScopeRank me{.rank = place_.rank, .ranks = place_.ranks};
  const runners::LargePairs large = runners::large_pairs(call, me, direct_pair_bytes_max_);
  Status status = large.has_others ? carry(Backend::kDirect, call) : Status();
  // What differs from one rank alone leaves the large pieces of others as they are: they wait.
  if (!large.has_large || (!status.ok() && status.code() != ErrorCode::kMismatch)) {
    return status;
  }
  runners::CountsOfPairs counts;
  Status rest = carry(Backend::kCcl, runners::only_pairs(call, me, large.peers, &counts));
  return status.ok() ? rest : status;
}

Status Communicator::enqueue(const Route& route, const runners::Call& call, device::Stream stream) {
  if (route.order == select::Order::kCaptured) {
    return ccl_runner_->enqueue_on(call, stream, /*is_captured=*/true);
  }
  if (route.plan.backend != Backend::kDirect) {
    return enqueue_on(route.plan.backend, call, stream);
  }
  return carry_direct(call, [&](Backend backend, const runners::Call& part) {
    return enqueue_on(backend, part, stream);
  });
}

Status Communicator::enqueue_on(Backend backend, const runners::Call& call, device::Stream stream) {
  const Backend last = std::exchange(last_on_stream_, backend);
  if (last == Backend::kDirect && backend != last) {
    TUTTI_RETURN_IF_ERROR(direct_runner_->precede(stream));
  } else if (last == Backend::kCcl && backend != last) {
    TUTTI_RETURN_IF_ERROR(ccl_runner_->precede(stream));
  }
  return backend == Backend::kDirect ? direct_runner_->enqueue(call, stream)
                                     : ccl_runner_->enqueue_on(call, stream, /*is_captured=*/false);
}

Status Communicator::stream_status(bool wait) {
  Status status;
  if (direct_runner_ != nullptr) {
    status = direct_runner_->stream_status(wait);
  }
  if (ccl_runner_ != nullptr) {
    Status other = ccl_runner_->stream_status(wait);
    status = status.ok() ? std::move(other) : std::move(status);
  }
  if (!status.ok() && failure_.ok()) {
    fail(status);
  }
  return status;
}

void Communicator::doubt_call() {
  if (doubted_ == kDoubtedMax) {
    count_doubted();
  }
  ++doubted_;
  tell_doubts();
  forget_routes();  // The entry point must see whether the next one is it again.
}

void Communicator::tell_doubts() {
  if (std::byte* const line = find_calls_line(); line != nullptr) {
    const runners::HostCounter turned_away = runners::HostArea::turned_away(line);
    turned_away.publish(std::max({turned_away.read(), calls_, std::uint64_t{1}}));
    runners::HostArea::in_doubt(line).publish(has_doubts() ? 1 : 0);
  }
}

void Communicator::make_again(bool has_number, bool is_agreed) {
  is_next_agreed_ = is_agreed;
  if (has_number) {
    --calls_;  // It is native again, and told by the same number.
  } else if (has_doubts()) {
    --doubted_;
    tell_doubts();
  }
}

void Communicator::count_doubted() {
  if (has_doubts()) {
    for (; doubted_ > 0; --doubted_) {
      turn_away();
    }
    tell_doubts();
  }
}

/// Of a call in shared memory, among the numbers that it may have with the others.
void Communicator::find_number(const runners::Call& call) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (has_doubts()) {
    const std::optional<bool> is_it = direct_host_runner_->has_number(call, calls_ + 1, end);
    if (!is_it) {
      return;  // This call does not tell.
    }
    if (*is_it) {
      break;
    }
    --doubted_;
    turn_away();  // Others may wait for this rank there.
  }
  doubted_ = 0;
  tell_doubts();
}

Status Communicator::run_direct_host(const runners::Call& call) {
  const bool move_send = call.send_memory.kind == device::MemoryKind::kDevice;
  const bool move_recv = call.recv_memory.kind == device::MemoryKind::kDevice;
  if (!move_send && !move_recv) {
    return direct_host_runner_->run(runners::Scope::kWhole, call);
  }
  runners::StagedCall staged;
  Status moved = staged.move_in(call, {.rank = place_.rank, .ranks = place_.ranks},
                                runners::StagingMemory::kPinnedHost, -1, move_send, move_recv,
                                process_.device(), process_.scratch());
  if (!moved.ok()) {
    direct_host_runner_->give_up(moved);  // The other ranks are in the call.
    return moved;
  }
  TUTTI_RETURN_IF_ERROR(direct_host_runner_->run(runners::Scope::kWhole, staged.call()));
  return staged.move_out();
}

Status Communicator::run_schedule(const select::Plan& plan, const runners::Call& call) {
  if (schedule_runner_ == nullptr) {
    schedule_runner_ = std::make_unique<runners::ScheduleRunner>(
        *mpi_, place_.rank, process_.device(), process_.scratch(), placement_,
        process_.config().timeout_s, [this] { return look_at_peers(/*in_call=*/true); });
  }
  device::Stream stream = nullptr;
  if (const int device = std::max(call.send_memory.device, call.recv_memory.device); device >= 0) {
    TUTTI_ASSIGN_OR_RETURN(stream, staging_stream(device, call.count * call.element_bytes));
  }
  Status status = schedule_runner_->run(plan.algorithm, schedule_parameters(plan), call, stream);
  if (!status.ok()) {
    fail(status);  // Messages of this call may still be under way: no later one may meet them.
  }
  return status;
}

Status Communicator::run_ccl_schedule(const select::Plan& plan, const runners::Call& call) {
  if (ccl_schedule_runner_ == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(ccl::Library * library, process_.ccl());
    ccl_schedule_runner_ = std::make_unique<runners::CclScheduleRunner>(
        *ccl_runner_, *library, *process_.device(), device_, bootstrap_, process_.scratch(),
        placement_,
        device_combine_ == nullptr ? runners::DeviceReduce()
                                   : runners::DeviceReduce(std::cref(*device_combine_)));
  }
  return ccl_schedule_runner_->run(plan.algorithm, schedule_parameters(plan), call);
}

std::string Communicator::last_plan() const {
  return last_route_ == nullptr ? std::string() : to_string(last_route_->plan);
}

}  // namespace tutti::engine
