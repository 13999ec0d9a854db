// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/library.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/on_failure.hpp"
#include "mpi/types.hpp"
#include "runners/peer_watch.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using runners::Scope;
using runners::ScopeRank;

Status check(int code, const char* what) {
  if (code == MPI_SUCCESS) {
    return {};
  }
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  pmpi.Error_string(code, text, &length);
  return Status::mpi(code, std::string(what) + ": " + text);
}

namespace {

/// Private communicators of this process that each serve one of the application's alone, and at
/// most, splits included. Those that could not be freed count.
constexpr std::uint64_t kAloneMax = 8;
constexpr std::uint64_t kPrivateMax = 64;
/// Of a private communicator with scopes, beside the whole one.
constexpr std::int64_t kScopeComms = 2 * (runners::kScopeCount - 1);

std::mutex g_mutex;
std::vector<std::weak_ptr<PrivateComm>> g_private;  ///< In the order of their making.
std::uint64_t g_live = 0;
std::uint64_t g_number = 0;

void count_live(std::int64_t more) {
  const std::lock_guard lock(g_mutex);
  g_live += static_cast<std::uint64_t>(more);
}

/// The oldest one over the ranks of a communicator on which nothing is left behind; other ranks may
/// find another.
std::shared_ptr<PrivateComm> find_private(MPI_Comm application) {
  const std::lock_guard lock(g_mutex);
  std::erase_if(g_private, [](const auto& known) { return known.expired(); });
  for (const auto& known : g_private) {
    int order = MPI_UNEQUAL;
    std::shared_ptr<PrivateComm> found = known.lock();
    if (found != nullptr && !found->has_left && !found->has_missed &&
        pmpi.Comm_compare(application, found->comms[0], &order) == MPI_SUCCESS &&
        order == MPI_CONGRUENT) {
      return found;
    }
  }
  return nullptr;
}

/// Not MPI_Comm_dup, which runs the copy callbacks of the application's attributes. Null: there is
/// none to be had, or none for this rank.
bool split(MPI_Comm from, int color, int key, MPI_Comm* made) {
  const QuietErrors quiet(from);
  if (pmpi.Comm_split(from, color, key, made) != MPI_SUCCESS) {
    *made = MPI_COMM_NULL;
    return false;
  }
  return *made == MPI_COMM_NULL ||
         pmpi.Comm_set_errhandler(*made, MPI_ERRORS_RETURN) == MPI_SUCCESS;
}

void free_if_any(MPI_Comm* comm) {
  if (*comm != MPI_COMM_NULL) {
    pmpi.Comm_free(comm);
  }
}

std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  if (pmpi.Get_library_version(text, &length) != MPI_SUCCESS) {
    return "";
  }
  // Libraries with MPICH's ABI that are not MPICH's own begin otherwise.
  const std::string_view version(text);
  return version.starts_with("MPICH Version:") ? "mpich"
         : version.starts_with("Open MPI v")   ? "openmpi"
                                               : "";
}

const std::string& known_library_name() {
  static const std::string found = library_name();
  return found;
}

bool is_fatal(MPI_Comm comm) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  if (pmpi.Comm_get_errhandler(comm, &handler) != MPI_SUCCESS) {
    return true;
  }
  const bool found = handler == MPI_ERRORS_ARE_FATAL;
  pmpi.Errhandler_free(&handler);
  return found;
}

/// The communicator whose handler gets the errors of one. MPICH gives MPI_COMM_SELF and what
/// MPI_Comm_create and MPI_Intercomm_merge make no handler: MPI_COMM_WORLD's gets their errors, and
/// who asks hears MPI_ERRORS_ARE_FATAL.
MPI_Comm handled_on(MPI_Comm comm) {
  const bool may_have_none = known_library_name() == "mpich" && is_fatal(comm) && has_world();
  return may_have_none && !is_fatal(MPI_COMM_WORLD) ? MPI_COMM_WORLD : comm;
}

}  // namespace

bool has_world() {
  int flag = 0;
  return pmpi.Initialized(&flag) == MPI_SUCCESS && flag != 0;
}

void call_errhandler(MPI_Comm comm, int code) { pmpi.Comm_call_errhandler(handled_on(comm), code); }

// Where a communicator may have no handler of its own, none could be given back to it.
QuietErrors::QuietErrors(MPI_Comm comm)
    : comm_(comm),
      is_quiet_(handled_on(comm) == comm &&
                pmpi.Comm_get_errhandler(comm, &handler_) == MPI_SUCCESS &&
                pmpi.Comm_set_errhandler(comm, MPI_ERRORS_RETURN) == MPI_SUCCESS) {}

QuietErrors::~QuietErrors() {
  if (is_quiet_) {
    pmpi.Comm_set_errhandler(comm_, handler_);
    pmpi.Errhandler_free(&handler_);
  }
}

namespace {

// Under g_mutex. Not MPI_COMM_NULL at first: that is not known before the MPI library is.
MPI_Comm g_quiet{};
bool g_has_quiet = false;

}  // namespace

MPI_Comm quiet_comm() {
  const std::lock_guard lock(g_mutex);
  if (!g_has_quiet && has_world()) {
    g_has_quiet = split(MPI_COMM_SELF, 0, 0, &g_quiet);
  }
  return g_has_quiet ? g_quiet : MPI_COMM_NULL;
}

void free_quiet_comm() {
  const std::lock_guard lock(g_mutex);
  if (std::exchange(g_has_quiet, false)) {
    pmpi.Comm_free(&g_quiet);
  }
}

void ask_alone(const std::function<void(MPI_Comm)>& ask) {
  MPI_Comm alone = MPI_COMM_NULL;
  // Not split(): MPICH's MPI_COMM_SELF would then keep the handler that it has now.
  if (!has_world() || pmpi.Comm_split(MPI_COMM_SELF, 0, 0, &alone) != MPI_SUCCESS) {
    return;
  }
  if (pmpi.Comm_set_errhandler(alone, MPI_ERRORS_RETURN) == MPI_SUCCESS) {
    ask(alone);
  }
  pmpi.Comm_free(&alone);
}

PrivateComm::~PrivateComm() {
  if (has_left || comms[0] == MPI_COMM_NULL) {
    return;
  }
  // MPICH ends the job where messages are left on a communicator that is freed. Those of steps,
  // which are MPI's own collectives, cannot be seen.
  int has_messages = 0;
  if (has_missed && (pmpi.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[0], &has_messages,
                                 MPI_STATUS_IGNORE) != MPI_SUCCESS ||
                     has_messages != 0)) {
    return;
  }
  for (MPI_Comm& comm : comms) {
    free_if_any(&comm);
  }
  for (MPI_Comm& comm : for_reduce) {
    if (!has_missed) {
      free_if_any(&comm);
    }
  }
  count_live(!has_scopes ? -1 : has_missed ? -1 - kScopeComms / 2 : -1 - kScopeComms);
}

Library::Library(MPI_Comm application, double timeout_s)
    : application_(application), timeout_s_(timeout_s) {
  pmpi.Comm_rank(application, &rank_);
  pmpi.Comm_size(application, &ranks_);
  places_[0] = {rank_, ranks_};
}

Library::~Library() {
  constexpr double kRefusalS = 1;  // The others are about to free this communicator, too.
  bool is_settled = settle_within(kRefusalS).ok();
  while (is_settled && !doubts_.empty()) {
    is_settled = settle_doubt(kRefusalS).ok() && late_doubts_ == 0;
  }
  if (!is_settled) {
    leave();
  }
  for (PendingAgreement& doubt : doubts_) {
    static_cast<void>(doubt.values.release());  // MPI may still write there.
  }
}

Status Library::own_check(int code, const char* what) const {
  Status status = check(code, what);
  return status.ok() || private_ != nullptr
             ? status
             : Status::mpi(status.mpi_code(), status.message(), /*raised=*/true);
}

std::string Library::name() const { return known_library_name(); }

/// MPI 4.1 section 3.7.4 wants a blocked call to let others' messages complete. A probe enters the
/// library's progress and takes no message.
void Library::progress() {
  int found = 0;
  // No wildcards: an application may have asserted that none are used (mpi_assert_no_any_source).
  pmpi.Iprobe(rank_, 0, application_, &found, MPI_STATUS_IGNORE);
}

Result<bool> Library::all_made(bool is_made) {
  std::uint64_t failed = is_made ? 0 : 1;
  TUTTI_RETURN_IF_ERROR(max_in_place(&failed, 1));
  return failed == 0;
}

Result<bool> Library::duplicate(bool may_share) {
  enum : std::size_t { kLive, kNumber, kShared, kSharedInverse, kCount };
  std::array<std::uint64_t, kCount> values{};
  std::shared_ptr<PrivateComm> found = may_share ? find_private(application_) : nullptr;
  {
    const std::lock_guard lock(g_mutex);
    values[kLive] = g_live;
    values[kNumber] = ++g_number;
  }
  values[kShared] = found != nullptr ? found->number : 0;
  values[kSharedInverse] = ~values[kShared];
  TUTTI_RETURN_IF_ERROR(max_in_place(values.data(), kCount));
  number_ = values[kNumber];
  {
    const std::lock_guard lock(g_mutex);
    g_number = std::max(g_number, number_);
  }
  if (values[kLive] >= kAloneMax && values[kShared] != 0 &&
      values[kShared] == ~values[kSharedInverse]) {
    private_ = std::move(found);
    TUTTI_RETURN_IF_ERROR(take_places());
    return true;
  }
  if (values[kLive] >= kPrivateMax) {
    return false;
  }
  auto made = std::make_shared<PrivateComm>();
  made->number = number_;
  const bool is_made = split(application_, 0, rank_, &made->comms[0]);
  TUTTI_ASSIGN_OR_RETURN(const bool have_all, all_made(is_made));
  if (!have_all) {
    free_if_any(&made->comms[0]);
    return false;
  }
  private_ = std::move(made);
  const std::lock_guard lock(g_mutex);
  ++g_live;
  g_private.push_back(private_);
  return true;
}

Status Library::usable() const {
  return private_ == nullptr || !private_->has_left
             ? Status()
             : Status(ErrorCode::kUnavailable,
                      "an earlier call of these ranks failed, maybe on another communicator: its "
                      "messages may still be under way");
}

template <class Body>
Status Library::agree(Body body) {
  TUTTI_RETURN_IF_ERROR(failure_);
  Status status = usable();
  if (status.ok()) {
    status = settle();
  }
  if (status.ok()) {
    status = body();
  }
  if (!status.ok()) {
    leave();
    // What MPI has raised, it has raised for this call alone.
    failure_ = status.raised() ? Status::mpi(status.mpi_code(), status.message()) : status;
  }
  return status;
}

/// One that comes late may have waited for a peer itself, as long as it may (an NCCL communicator
/// that did not come about), and for the end of that.
double Library::limit_s() const {
  constexpr double kEndS = 2;
  return timeout_s_ > 0 ? 2 * timeout_s_ + kEndS : std::numeric_limits<double>::infinity();
}

/// A blocking collective would wait for ever for a rank whose call failed, or whose arguments were
/// refused: it makes another call or none.
Status Library::await(MPI_Request request, std::unique_ptr<std::byte[]>* data, const char* what,
                      double limit_s, bool waits_for_the_living) {
  constexpr int kPollsPerLook = 256;
  runners::PeerWatch watch(look_, limit_s, waits_for_the_living);
  // MPI may still write there, also where it has found an error.
  OnFailure give_up([&] { static_cast<void>(data->release()); });
  for (std::uint64_t polls = 1;; ++polls) {
    int done = 0;
    TUTTI_RETURN_IF_ERROR(check(pmpi.Test(&request, &done, MPI_STATUS_IGNORE), what));
    if (done != 0) {
      give_up.succeed();
      return {};
    }
    if (polls % kPollsPerLook != 0) {
      continue;
    }
    const Status watched = watch.check();
    if (watched.ok()) {
      std::this_thread::yield();
      continue;
    }
    const std::string which = std::string("an agreement of the ranks (") + what + ")";
    if (watched.code() == ErrorCode::kTimeout) {
      return Status(ErrorCode::kTimeout, which + " did not end within " + std::to_string(limit_s) +
                                             " s (TUTTI_TIMEOUT=" + std::to_string(timeout_s_) +
                                             "); some rank failed, is dead or not in the call");
    }
    return Status(watched.code(), which + ": " + watched.message());
  }
}

/// Of what tells calls apart: calls of a communicator, and their kinds (agree_on_call()).
constexpr unsigned kCallBits = 40;
constexpr unsigned kKindBits = 16;

struct Library::Agreement {
  enum Kind : int { kRefusal = 1, kCall, kStep };
  static constexpr std::size_t kMost = 12;

  void set_call_kind(std::uint64_t to) {
    call_kind = to;
    call_kind_inverse = ~to;
  }

  std::uint64_t kind = 0;
  std::uint64_t number = 0;
  std::uint64_t inverse = 0;
  std::uint64_t call_kind = 0;
  std::uint64_t call_kind_inverse = 0;
  std::uint64_t is_refused = 0;
  std::uint64_t is_doubted = 0;
  std::array<std::uint64_t, kMost> values{};

  /// Of the maxima over all ranks: they were in the same one, or some were refused in its place.
  bool is_same() const { return number == ~inverse; }
  /// A rank took its part for a call that the others are not in: they agree anew.
  bool is_void() const { return is_doubted != 0 && call_kind != ~call_kind_inverse; }
};

Library::Agreement Library::agreement(int kind, std::uint64_t call, std::uint64_t call_kind) const {
  Agreement made;
  made.kind = static_cast<std::uint64_t>(kind);
  made.number = (number_ << kCallBits) + call;
  made.inverse = ~made.number;
  if (kind == Agreement::kRefusal) {
    made.is_refused = 1;  // Of a call of whatever kind.
  } else {
    made.set_call_kind(call_kind == 0 ? 0 : (number_ << kKindBits) + call_kind);
  }
  return made;
}

Result<Library::PendingAgreement> Library::begin(const Agreement& agreement) const {
  static_assert(std::is_trivially_copyable_v<Agreement>);
  PendingAgreement begun;
  begun.values = std::make_unique<std::byte[]>(sizeof(agreement));
  std::memcpy(begun.values.get(), &agreement, sizeof(agreement));
  constexpr int kWords = sizeof(Agreement) / sizeof(std::uint64_t);
  TUTTI_RETURN_IF_ERROR(check(pmpi.Iallreduce(MPI_IN_PLACE, begun.values.get(), kWords,
                                              MPI_UINT64_T, MPI_MAX, own(), &begun.request),
                              "MPI_Iallreduce"));
  return begun;
}

Status Library::end(PendingAgreement* refusal, Agreement* met) {
  TUTTI_RETURN_IF_ERROR(await(refusal->request, &refusal->values, "MPI_Iallreduce", limit_s(),
                              /*waits_for_the_living=*/true));
  std::memcpy(met, refusal->values.get(), sizeof(*met));
  return {};
}

namespace {

Status in_different_calls() {
  return Status(ErrorCode::kInvalidArgument,
                "the ranks are in different calls: some rank's arguments were wrong, in this call "
                "or in an earlier one");
}

}  // namespace

Status Library::exchange(Agreement* agreement) {
  const Agreement own = *agreement;
  while (!doubts_.empty()) {  // Nobody has waited for their ends.
    TUTTI_RETURN_IF_ERROR(end(&doubts_.front(), agreement));
    doubts_.erase(doubts_.begin());
    late_doubts_ = 0;
    if (agreement->is_void()) {
      continue;
    }
    // The others took it for this rank's part in what it comes to now, or in what it was not in.
    const bool is_this = agreement->kind == own.kind && agreement->number == own.number &&
                         agreement->call_kind == own.call_kind;
    return is_this ? Status() : in_different_calls();
  }
  do {
    TUTTI_ASSIGN_OR_RETURN(PendingAgreement begun, begin(own));
    TUTTI_RETURN_IF_ERROR(end(&begun, agreement));
  } while (agreement->is_void());
  if (agreement->kind == own.kind && agreement->is_same()) {
    return {};
  }
  return in_different_calls();
}

Status Library::allgather(const void* send, void* recv, Bytes bytes_each) {
  if (private_ != nullptr) {
    TUTTI_RETURN_IF_ERROR(max_in_place(nullptr, 0));  // Nobody is in another agreement.
  }
  return agree([&]() -> Status {
    const int bytes = static_cast<int>(bytes_each);
    if (private_ == nullptr) {
      return own_check(pmpi.small.Allgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, own()),
                       "MPI_Allgather");
    }
    // The own part last, in memory that may be left behind.
    const Bytes all_bytes = bytes_each * static_cast<Bytes>(ranks_);
    auto data = std::make_unique<std::byte[]>(all_bytes + bytes_each);
    std::memcpy(data.get() + all_bytes, send, bytes_each);
    MPI_Request request = MPI_REQUEST_NULL;
    TUTTI_RETURN_IF_ERROR(check(pmpi.Iallgather(data.get() + all_bytes, bytes, MPI_BYTE, data.get(),
                                                bytes, MPI_BYTE, own(), &request),
                                "MPI_Iallgather"));
    TUTTI_RETURN_IF_ERROR(
        await(request, &data, "MPI_Iallgather", limit_s(), /*waits_for_the_living=*/true));
    std::memcpy(recv, data.get(), all_bytes);
    return {};
  });
}

Status Library::max_in_place(std::uint64_t* values, int count) {
  return agree([&]() -> Status {
    if (private_ == nullptr) {
      return own_check(
          pmpi.small.Allreduce(MPI_IN_PLACE, values, count, MPI_UINT64_T, MPI_MAX, own()),
          "MPI_Allreduce");
    }
    if (static_cast<std::size_t>(count) > Agreement::kMost) {
      return Status(ErrorCode::kUnsupported, "an agreement on more values than there is room for");
    }
    Agreement step = agreement(Agreement::kStep, 0, 0);
    std::copy_n(values, count, step.values.begin());
    TUTTI_RETURN_IF_ERROR(exchange(&step));
    std::copy_n(step.values.begin(), count, values);
    return {};
  });
}

Result<bool> Library::agree_on_call(std::uint64_t call, std::uint64_t kind, bool on_device) {
  if (private_ == nullptr) {
    return MpiLibrary::agree_on_call(call, kind, on_device);
  }
  Agreement made = agreement(Agreement::kCall, call, kind);
  made.values[0] = on_device ? 1 : 0;
  TUTTI_RETURN_IF_ERROR(agree([&] { return exchange(&made); }));
  if (made.is_refused != 0) {
    return Status(ErrorCode::kMismatch, "another rank's arguments of this call are wrong");
  }
  return made.values[0] != 0;
}

/// It completes where all ranks are in it, or in the agreement on this call.
bool Library::refuse(std::uint64_t call) {
  constexpr std::size_t kPendingMax = 64;
  if (private_ == nullptr || private_->has_left ||
      (refusals_.size() >= kPendingMax && !settle().ok())) {
    return false;
  }
  Result<PendingAgreement> begun = begin(agreement(Agreement::kRefusal, call, 0));
  if (begun.ok()) {
    begun->call = call;
    refusals_.push_back(std::move(*begun));
  }
  return begun.ok();
}

bool Library::doubt(std::uint64_t kind, bool on_device) {
  if (private_.use_count() != 1 || private_->has_left || !failure_.ok()) {
    return false;
  }
  Agreement doubted;
  doubted.kind = Agreement::kRefusal;
  doubted.set_call_kind((number_ << kKindBits) + kind);
  doubted.is_doubted = 1;
  doubted.values[0] = on_device ? 1 : 0;
  Result<PendingAgreement> begun = begin(doubted);
  if (begun.ok()) {
    doubts_.push_back(std::move(*begun));
  }
  return begun.ok();
}

Result<runners::DoubtedCall> Library::settle_doubt(double wait_s) {
  using runners::DoubtedCall;
  if (late_doubts_ == doubts_.size()) {
    return DoubtedCall::kNotMade;
  }
  PendingAgreement& doubt = doubts_[late_doubts_];
  if (std::isfinite(wait_s)) {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::duration<double>(wait_s);
    int done = 0;
    while (done == 0) {
      TUTTI_RETURN_IF_ERROR(check(pmpi.Test(&doubt.request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
      if (done == 0 && Clock::now() >= until) {
        ++late_doubts_;
        return DoubtedCall::kNotMade;
      }
      std::this_thread::yield();
    }
  }
  Agreement met;
  const Status ended = agree([&] { return end(&doubt, &met); });
  doubts_.erase(doubts_.begin() + static_cast<std::ptrdiff_t>(late_doubts_));
  TUTTI_RETURN_IF_ERROR(ended);
  if (met.is_void()) {
    return DoubtedCall::kNotMade;
  }
  return met.is_refused != 0 || met.kind != Agreement::kCall ? DoubtedCall::kRefused
         : met.values[0] != 0                                ? DoubtedCall::kMadeOnDevice
                                                             : DoubtedCall::kMadeOnHost;
}

Status Library::settle() { return settle_within(limit_s()); }

Status Library::settle_within(double limit_s) {
  Status settled;
  for (PendingAgreement& refusal : std::exchange(refusals_, {})) {
    if (!settled.ok()) {
      static_cast<void>(refusal.values.release());  // MPI may still write there.
      continue;
    }
    settled = settle_refusal(&refusal, limit_s);
  }
  return settled;
}

Status Library::settle_refusal(PendingAgreement* refusal, double limit_s) {
  Agreement met;
  const Status ended = await(refusal->request, &refusal->values, "MPI_Iallreduce", limit_s);
  if (ended.ok()) {
    std::memcpy(&met, refusal->values.get(), sizeof(met));
  }
  if (ended.ok() && met.is_void()) {
    const std::uint64_t call = refusal->call;
    TUTTI_ASSIGN_OR_RETURN(*refusal, begin(agreement(Agreement::kRefusal, call, 0)));
    refusal->call = call;
    return settle_refusal(refusal, limit_s);
  }
  return ended.ok() && met.is_same() && met.kind <= Agreement::kCall
             ? Status()
             : Status(
                   ErrorCode::kInvalidArgument,
                   "an earlier call of this rank had wrong arguments, and other ranks are in it");
}

Status Library::make_scopes(int node) {
  if (private_ == nullptr) {
    return Status(ErrorCode::kUnavailable, "no communicator of ours to split");
  }
  if (private_->has_scopes) {  // Made for another communicator, on all of its ranks.
    return take_places();
  }
  // MPI_Comm_split waits without bound: no rank begins it before all have come this far.
  std::uint64_t unused = 0;
  TUTTI_RETURN_IF_ERROR(max_in_place(&unused, 1));
  return split_scopes(node);
}

Status Library::split_scopes(int node) {
  constexpr auto kNode = static_cast<std::size_t>(Scope::kNode);
  constexpr auto kLeaders = static_cast<std::size_t>(Scope::kLeaders);
  int rank_on_node = 0;
  std::vector<MPI_Comm*> made;
  for (auto* const some : {&private_->comms, &private_->for_reduce}) {
    for (const std::size_t scope : {kNode, kLeaders}) {
      MPI_Comm& comm = (*some)[scope];
      made.push_back(&comm);
      const int color = scope == kNode ? node : rank_on_node == 0 ? 0 : MPI_UNDEFINED;
      TUTTI_ASSIGN_OR_RETURN(const bool have_all, all_made(split(own(), color, rank_, &comm)));
      if (!have_all) {
        for (auto one = made.rbegin(); one != made.rend(); ++one) {
          free_if_any(*one);
        }
        return Status(ErrorCode::kUnavailable, "the MPI library has no more communicators");
      }
      if (scope == kNode) {
        pmpi.Comm_rank(comm, &rank_on_node);
      }
    }
  }
  private_->has_scopes = true;
  count_live(kScopeComms);
  return take_places();
}

Status Library::take_places() {
  for (const Scope scope : {Scope::kNode, Scope::kLeaders}) {
    ScopeRank& place = places_[static_cast<std::size_t>(scope)];
    place = {-1, 0};
    if (MPI_Comm comm = comm_of(scope); comm != MPI_COMM_NULL) {
      TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_rank(comm, &place.rank), "MPI_Comm_rank"));
      TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_size(comm, &place.ranks), "MPI_Comm_size"));
    }
  }
  return {};
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
