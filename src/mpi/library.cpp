// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/library.hpp"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/on_failure.hpp"
#include "mpi/types.hpp"
#include "runners/peer_watch.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using runners::Call;
using runners::Scope;
using runners::ScopeRank;
using select::Collective;

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
    if (found != nullptr && !found->has_left &&
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
  for (MPI_Comm& comm : comms) {
    free_if_any(&comm);
  }
  count_live(has_scopes ? -static_cast<std::int64_t>(runners::kScopeCount) : -1);
}

Library::Library(MPI_Comm application, double timeout_s)
    : application_(application), timeout_s_(timeout_s) {
  pmpi.Comm_rank(application, &rank_);
  pmpi.Comm_size(application, &ranks_);
  places_[0] = {rank_, ranks_};
}

Library::~Library() {
  constexpr double kRefusalS = 1;  // The others are about to free this communicator, too.
  if (!settle_within(kRefusalS).ok()) {
    leave();
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

/// A blocking collective would wait for ever for a rank whose call failed, or whose arguments were
/// refused: it makes another call or none. One that comes late may have waited for a peer itself,
/// as long as it may (an NCCL communicator that did not come about), and for the end of that.
Status Library::await(MPI_Request request, std::unique_ptr<std::byte[]>* data, const char* what) {
  constexpr double kEndS = 2;
  return await(request, data, what,
               timeout_s_ > 0 ? 2 * timeout_s_ + kEndS : std::numeric_limits<double>::infinity(),
               /*waits_for_the_living=*/true);
}

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

struct Library::Agreement {
  enum Kind : int { kRefusal = 1, kCall, kStep };
  static constexpr std::size_t kMost = 12;

  std::uint64_t kind = 0;
  std::uint64_t number = 0;
  std::uint64_t inverse = 0;
  std::uint64_t is_refused = 0;
  std::array<std::uint64_t, kMost> values{};

  /// Of the maxima over all ranks: they were in the same one, or some were refused in its place.
  bool is_same() const { return number == ~inverse; }
};

Library::Agreement Library::agreement(int kind, std::uint64_t call) const {
  constexpr unsigned kCallBits = 40;
  Agreement made;
  made.kind = static_cast<std::uint64_t>(kind);
  made.number = (number_ << kCallBits) + call;
  made.inverse = ~made.number;
  made.is_refused = kind == Agreement::kRefusal ? 1 : 0;
  return made;
}

namespace {

template <class T>
int begin_maximum(std::byte* data, MPI_Comm comm, MPI_Request* request) {
  return pmpi.Iallreduce(MPI_IN_PLACE, data, static_cast<int>(sizeof(T) / sizeof(std::uint64_t)),
                         MPI_UINT64_T, MPI_MAX, comm, request);
}

}  // namespace

Status Library::exchange(Agreement* agreement) {
  static_assert(std::is_trivially_copyable_v<Agreement>);
  const std::uint64_t kind = agreement->kind;
  auto data = std::make_unique<std::byte[]>(sizeof(*agreement));
  std::memcpy(data.get(), agreement, sizeof(*agreement));
  MPI_Request request = MPI_REQUEST_NULL;
  TUTTI_RETURN_IF_ERROR(
      check(begin_maximum<Agreement>(data.get(), own(), &request), "MPI_Iallreduce"));
  TUTTI_RETURN_IF_ERROR(await(request, &data, "MPI_Iallreduce"));
  std::memcpy(agreement, data.get(), sizeof(*agreement));
  if (agreement->kind == kind && agreement->is_same()) {
    return {};
  }
  return Status(ErrorCode::kInvalidArgument,
                "the ranks are in different calls: some rank's arguments were wrong, in this call "
                "or in an earlier one");
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
    TUTTI_RETURN_IF_ERROR(await(request, &data, "MPI_Iallgather"));
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
    Agreement step = agreement(Agreement::kStep, 0);
    std::copy_n(values, count, step.values.begin());
    TUTTI_RETURN_IF_ERROR(exchange(&step));
    std::copy_n(step.values.begin(), count, values);
    return {};
  });
}

Result<bool> Library::agree_on_call(std::uint64_t call, bool on_device) {
  if (private_ == nullptr) {
    return MpiLibrary::agree_on_call(call, on_device);
  }
  Agreement made = agreement(Agreement::kCall, call);
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
  const Agreement agreed = agreement(Agreement::kRefusal, call);
  Refusal refusal;
  refusal.values = std::make_unique<std::byte[]>(sizeof(agreed));
  std::memcpy(refusal.values.get(), &agreed, sizeof(agreed));
  const bool is_begun =
      begin_maximum<Agreement>(refusal.values.get(), own(), &refusal.request) == MPI_SUCCESS;
  if (is_begun) {
    refusals_.push_back(std::move(refusal));
  }
  return is_begun;
}

Status Library::settle() {
  constexpr double kEndS = 2;
  return settle_within(timeout_s_ > 0 ? 2 * timeout_s_ + kEndS
                                      : std::numeric_limits<double>::infinity());
}

Status Library::settle_within(double limit_s) {
  std::vector<Refusal> refusals = std::exchange(refusals_, {});
  Status settled;
  for (Refusal& refusal : refusals) {
    if (!settled.ok()) {
      static_cast<void>(refusal.values.release());  // MPI may still write there.
      continue;
    }
    Agreement met;
    settled = await(refusal.request, &refusal.values, "MPI_Iallreduce", limit_s);
    if (settled.ok()) {
      std::memcpy(&met, refusal.values.get(), sizeof(met));
    }
    if (!settled.ok() || !met.is_same() || met.kind > Agreement::kCall) {
      settled =
          Status(ErrorCode::kInvalidArgument,
                 "an earlier call of this rank had wrong arguments, and other ranks are in it");
    }
  }
  return settled;
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
  MPI_Comm& on_node = private_->comms[static_cast<std::size_t>(Scope::kNode)];
  MPI_Comm& leaders = private_->comms[static_cast<std::size_t>(Scope::kLeaders)];
  TUTTI_ASSIGN_OR_RETURN(bool have_all, all_made(split(own(), node, rank_, &on_node)));
  if (have_all) {
    int rank = 0;
    pmpi.Comm_rank(on_node, &rank);
    TUTTI_ASSIGN_OR_RETURN(have_all,
                           all_made(split(own(), rank == 0 ? 0 : MPI_UNDEFINED, rank_, &leaders)));
  }
  if (!have_all) {
    free_if_any(&leaders);
    free_if_any(&on_node);
    return Status(ErrorCode::kUnavailable, "the MPI library has no more communicators");
  }
  private_->has_scopes = true;
  count_live(runners::kScopeCount - 1);
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

namespace {

/// Offsets may be negative; in a Call they are wrapped.
std::uint64_t magnitude(std::uint64_t number) {
  const auto value = static_cast<std::int64_t>(number);
  return value < 0 ? 0 - number : number;
}

/// Largest count or offset of a call in elements: whether int arguments can say it.
std::uint64_t largest_number(const Call& call) {
  std::uint64_t largest = call.count;
  for (auto numbers : {call.send_counts, call.send_offsets, call.recv_counts, call.recv_offsets}) {
    for (const std::uint64_t number : numbers) {
      largest = std::max(largest, magnitude(number));
    }
  }
  return largest;
}

/// Greatest common divisor of all counts and offsets, for an MPI without _c functions.
std::uint64_t common_unit(const Call& call) {
  std::uint64_t unit = call.count;
  for (auto numbers : {call.send_counts, call.send_offsets, call.recv_counts, call.recv_offsets}) {
    for (const std::uint64_t number : numbers) {
      unit = std::gcd(unit, magnitude(number));
    }
  }
  return std::max<std::uint64_t>(unit, 1);
}

template <class T>
std::vector<T> scaled(std::span<const std::uint64_t> numbers, std::uint64_t unit) {
  std::vector<T> result(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    result[i] =
        static_cast<T>(static_cast<std::int64_t>(numbers[i]) / static_cast<std::int64_t>(unit));
  }
  return result;
}

/// A run of bytes as one element, freed at the end of the call: a type that is freed lives on until
/// its messages are complete.
class UnitType {
 public:
  ~UnitType() {
    if (type_ != MPI_DATATYPE_NULL) {
      pmpi.Type_free(&type_);
    }
  }
  UnitType() : type_(MPI_DATATYPE_NULL) {}
  UnitType(const UnitType&) = delete;
  UnitType& operator=(const UnitType&) = delete;
  Status make(Bytes bytes) {
    if (bytes <= INT_MAX) {
      TUTTI_RETURN_IF_ERROR(check(pmpi.Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type_),
                                  "MPI_Type_contiguous"));
    } else {
      constexpr Bytes kPart = Bytes{1} << 30;
      UnitType part;
      TUTTI_RETURN_IF_ERROR(part.make(kPart));
      const int counts[] = {static_cast<int>(bytes / kPart), static_cast<int>(bytes % kPart)};
      const MPI_Aint offsets[] = {0, static_cast<MPI_Aint>(bytes / kPart * kPart)};
      const MPI_Datatype types[] = {part.get(), MPI_BYTE};
      TUTTI_RETURN_IF_ERROR(check(pmpi.Type_create_struct(2, counts, offsets, types, &type_),
                                  "MPI_Type_create_struct"));
    }
    return check(pmpi.Type_commit(&type_), "MPI_Type_commit");
  }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_;
};

/// `bytes` bytes as a count of a type: MPI_BYTE, or one element of a type of that many bytes.
template <class Begin>
Status with_bytes(Bytes bytes, Begin begin) {
  if (bytes <= INT_MAX) {
    return begin(static_cast<int>(bytes), MPI_BYTE);
  }
  UnitType whole;
  TUTTI_RETURN_IF_ERROR(whole.make(bytes));
  return begin(1, whole.get());
}

}  // namespace

Status Library::collective(Scope scope, const Call& call) {
  Status status = collective_on(scope, call);
  if (status.code() == ErrorCode::kMpiFailed && scope == Scope::kWhole) {
    return Status::mpi(status.mpi_code(), status.message(), /*raised=*/true);
  }
  return status;
}

Status Library::collective_on(Scope scope, const Call& call) {
  if (scope != Scope::kWhole) {
    TUTTI_RETURN_IF_ERROR(usable());
  }
  const ScopeRank& me = scope_rank(scope);
  MPI_Comm comm = comm_of(scope);
  const bool reduction = select::is_reduction(call.collective);
  if (!reduction && call.element_bytes != 1) {
    return Status(ErrorCode::kInvalidArgument, "data movement must come as bytes");
  }
  const MPI_Datatype type = reduction ? handle_from<MPI_Datatype>(call.mpi_type) : MPI_BYTE;
  if (largest_number(call) <= INT_MAX) {
    return collective_as<int>(comm, me, call, type, 1);
  }
  if (has_large_counts()) {
    return collective_as<MPI_Count>(comm, me, call, type, 1);
  }
  // As many bytes as divide all counts and offsets; of those that a library can still cut, if any.
  constexpr std::uint64_t kCut = std::uint64_t{1} << 30;
  const std::uint64_t common = common_unit(call);
  const std::uint64_t unit = common % kCut == 0 ? kCut : common;
  if (!reduction && call.collective != Collective::kAlltoallw &&
      largest_number(call) / unit <= INT_MAX) {
    UnitType wide;
    TUTTI_RETURN_IF_ERROR(wide.make(unit));
    return collective_as<int>(comm, me, call, wide.get(), unit);
  }
  return Status(ErrorCode::kUnsupported,
                std::string(select::to_string(call.collective)) +
                    ": counts over 2^31 need an MPI with large-count (_c) functions");
}

MPI_Request* Library::request(int slot, Bytes expected) {
  const auto needed = static_cast<std::size_t>(slot) + 1;
  if (requests_.size() < needed) {
    requests_.resize(needed, MPI_REQUEST_NULL);
    expected_.resize(needed);
    indices_.resize(needed);
    statuses_.resize(needed);
  }
  expected_[needed - 1] = expected;
  return &requests_[static_cast<std::size_t>(slot)];
}

Status Library::isend(const void* data, Bytes bytes, int peer, int tag, int slot) {
  TUTTI_RETURN_IF_ERROR(usable());
  return with_bytes(bytes, [&](int count, MPI_Datatype type) {
    return check(pmpi.Isend(data, count, type, peer, tag, own(), request(slot, kSent)),
                 "MPI_Isend");
  });
}

Status Library::irecv(void* data, Bytes bytes, int peer, int tag, int slot) {
  TUTTI_RETURN_IF_ERROR(usable());
  return with_bytes(bytes, [&](int count, MPI_Datatype type) {
    return check(pmpi.Irecv(data, count, type, peer, tag, own(), request(slot, bytes)),
                 "MPI_Irecv");
  });
}

Status Library::test_some(int slots, std::vector<int>* completed) {
  return kTestsomeKnowsCommunicator ? test_together(slots, completed) : test_each(slots, completed);
}

Status Library::test_together(int slots, std::vector<int>* completed) {
  int many = 0;
  const int code = pmpi.Testsome(slots, requests_.data(), &many, indices_.data(), statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    // Only the statuses say what it was.
    for (int i = 0; i < many; ++i) {
      TUTTI_RETURN_IF_ERROR(check(statuses_[static_cast<std::size_t>(i)].MPI_ERROR, "a message"));
    }
  }
  TUTTI_RETURN_IF_ERROR(check(code, "MPI_Testsome"));
  if (many == MPI_UNDEFINED) {
    return {};
  }
  for (int i = 0; i < many; ++i) {
    const auto at = static_cast<std::size_t>(i);
    TUTTI_RETURN_IF_ERROR(
        check_length(statuses_[at], expected_[static_cast<std::size_t>(indices_[at])]));
  }
  completed->insert(completed->end(), indices_.begin(), indices_.begin() + many);
  return {};
}

Status Library::test_each(int slots, std::vector<int>* completed) {
  for (int slot = 0; slot < slots; ++slot) {
    MPI_Request& request = requests_[static_cast<std::size_t>(slot)];
    if (request == MPI_REQUEST_NULL) {
      continue;
    }
    int done = 0;
    MPI_Status status;
    TUTTI_RETURN_IF_ERROR(check(pmpi.Test(&request, &done, &status), "MPI_Test"));
    if (done != 0) {
      TUTTI_RETURN_IF_ERROR(check_length(status, expected_[static_cast<std::size_t>(slot)]));
      completed->push_back(slot);
    }
  }
  return {};
}

/// A receive is taken back, which needs no peer, unless it has met its message: then it ends with
/// it, for which a sender that lives needs a moment. No MPI takes a send back.
bool Library::abandon() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kCancelTimeout = std::chrono::seconds(1);
  for (std::size_t slot = 0; slot < requests_.size(); ++slot) {
    if (requests_[slot] != MPI_REQUEST_NULL && expected_[slot] != kSent) {
      static_cast<void>(pmpi.Cancel(&requests_[slot]));  // Whether it was is asked below.
    }
  }
  const auto start = Clock::now();
  for (;;) {
    bool receives = false;
    bool sends = false;
    for (std::size_t slot = 0; slot < requests_.size(); ++slot) {
      MPI_Request& request = requests_[slot];
      if (request == MPI_REQUEST_NULL) {
        continue;
      }
      // One that could not be cancelled or asked is under way until MPI says that it is not: an
      // error of the message itself says so, too, of which some keep the request.
      int done = 0;
      static_cast<void>(pmpi.Test(&request, &done, MPI_STATUS_IGNORE));
      if (done == 0 && request != MPI_REQUEST_NULL) {
        (expected_[slot] == kSent ? sends : receives) = true;
      }
    }
    if (!receives || Clock::now() - start > kCancelTimeout) {
      return !receives && !sends;
    }
    std::this_thread::yield();
  }
}

/// MPI calls a message that is too long an error, one that is too short a success: ranks that came
/// with other counts, or one that is in another call.
Status Library::check_length(const MPI_Status& status, Bytes expected) const {
  if (expected == kSent) {
    return {};
  }
  MPI_Count got = 0;
  TUTTI_RETURN_IF_ERROR(check(pmpi.Get_elements_x(&status, MPI_BYTE, &got), "MPI_Get_elements_x"));
  if (static_cast<Bytes>(got) == expected) {
    return {};
  }
  return Status(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(status.MPI_SOURCE) + " sent " + std::to_string(got) +
                    " bytes where " + std::to_string(expected) +
                    " belong: the ranks differ in their counts or in their calls");
}

Status Library::reduce_local(const void* in, void* inout, std::uint64_t count, const Call& call) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  for (std::uint64_t done = 0; done < count; done += kMost) {
    TUTTI_RETURN_IF_ERROR(check(pmpi.Reduce_local(runners::at(in, done, call.element_bytes),
                                                  runners::at(inout, done, call.element_bytes),
                                                  static_cast<int>(std::min(count - done, kMost)),
                                                  handle_from<MPI_Datatype>(call.mpi_type),
                                                  handle_from<MPI_Op>(call.mpi_op)),
                                "MPI_Reduce_local"));
  }
  return {};
}

/// A message of this rank to itself, on the private communicator, where there is no other one.
Status Library::pack_large(const void* element, MPI_Datatype type, void* dense, Bytes bytes) {
  return with_bytes(bytes, [&](int count, MPI_Datatype of_bytes) {
    return check(pmpi.Sendrecv(element, 1, type, rank_, 0, dense, count, of_bytes, rank_, 0, own(),
                               MPI_STATUS_IGNORE),
                 "MPI_Sendrecv");
  });
}

Status Library::unpack_large(const void* dense, void* element, MPI_Datatype type, Bytes bytes) {
  return with_bytes(bytes, [&](int count, MPI_Datatype of_bytes) {
    return check(pmpi.Sendrecv(dense, count, of_bytes, rank_, 0, element, 1, type, rank_, 0, own(),
                               MPI_STATUS_IGNORE),
                 "MPI_Sendrecv");
  });
}

template <class C>
Status Library::collective_as(MPI_Comm comm, const ScopeRank& me, const Call& call,
                              MPI_Datatype type, std::uint64_t unit_bytes) {
  using D = Displacement<C>;
  const Collectives<C>& table = pmpi.of<C>();
  const auto count = static_cast<C>(call.count / unit_bytes);
  const auto op = handle_from<MPI_Op>(call.mpi_op);
  // MPI forbids buffers that overlap; ours do only where the application said MPI_IN_PLACE.
  const runners::Aliasing aliasing = runners::aliasing_of(call);
  const bool send_in_place =
      aliasing == runners::Aliasing::kSame || aliasing == runners::Aliasing::kSendInRecv;
  const void* send = send_in_place ? MPI_IN_PLACE : call.send;
  void* recv = aliasing == runners::Aliasing::kRecvInSend ? MPI_IN_PLACE : call.recv;
  const char* name = select::to_string(call.collective);
  switch (call.collective) {
    case Collective::kBcast:
      return check(table.Bcast(recv, count, type, call.root, comm), name);
    case Collective::kGather:
      return check(table.Gather(send, count, type, recv, count, type, call.root, comm), name);
    case Collective::kScatter:
      return check(table.Scatter(send, count, type, recv, count, type, call.root, comm), name);
    case Collective::kAllgather:
      return check(table.Allgather(send, count, type, recv, count, type, comm), name);
    case Collective::kAlltoall:
      return check(table.Alltoall(send, count, type, recv, count, type, comm), name);
    case Collective::kReduce:
      // Only the root may say MPI_IN_PLACE; elsewhere the receive buffer does not exist.
      return check(table.Reduce(send, recv, count, type, op, call.root, comm), name);
    case Collective::kAllreduce:
      return check(table.Allreduce(send, recv, count, type, op, comm), name);
    case Collective::kScan:
      return check(table.Scan(send, recv, count, type, op, comm), name);
    case Collective::kExscan:
      return check(table.Exscan(send, recv, count, type, op, comm), name);
    case Collective::kReduceScatterBlock:
      return check(table.Reduce_scatter_block(send, recv, count, type, op, comm), name);
    default:
      break;
  }
  const std::vector<C> send_counts = scaled<C>(call.send_counts, unit_bytes);
  const std::vector<C> recv_counts = scaled<C>(call.recv_counts, unit_bytes);
  // alltoallw's displacements are bytes whatever the type.
  const std::uint64_t displacement_unit =
      call.collective == Collective::kAlltoallw ? 1 : unit_bytes;
  const std::vector<D> send_displs = scaled<D>(call.send_offsets, displacement_unit);
  const std::vector<D> recv_displs = scaled<D>(call.recv_offsets, displacement_unit);
  switch (call.collective) {
    case Collective::kReduceScatter:
      return check(table.Reduce_scatter(send, recv, recv_counts.data(), type, op, comm), name);
    case Collective::kGatherv:
      return check(table.Gatherv(send, count, type, recv, recv_counts.data(), recv_displs.data(),
                                 type, call.root, comm),
                   name);
    case Collective::kScatterv:
      return check(table.Scatterv(send, send_counts.data(), send_displs.data(), type, recv, count,
                                  type, call.root, comm),
                   name);
    case Collective::kAllgatherv:
      return check(table.Allgatherv(send, count, type, recv, recv_counts.data(), recv_displs.data(),
                                    type, comm),
                   name);
    case Collective::kAlltoallv:
      return check(table.Alltoallv(send, send_counts.data(), send_displs.data(), type, recv,
                                   recv_counts.data(), recv_displs.data(), type, comm),
                   name);
    case Collective::kAlltoallw: {
      // Not as alltoallv: ranks that need no staging call MPI_Alltoallw itself.
      const std::vector<MPI_Datatype> types(static_cast<std::size_t>(me.ranks), type);
      return check(table.Alltoallw(send, send_counts.data(), send_displs.data(), types.data(), recv,
                                   recv_counts.data(), recv_displs.data(), types.data(), comm),
                   name);
    }
    default:
      return Status(ErrorCode::kUnsupported, std::string(name) + " has no MPI form");
  }
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
