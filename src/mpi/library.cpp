// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/library.hpp"

#include <chrono>
#include <climits>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

#include "base/on_failure.hpp"
#include "mpi/types.hpp"

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

Library::Library(MPI_Comm application, double timeout_s)
    : application_(application), own_(application), timeout_s_(timeout_s) {
  pmpi.Comm_rank(application, &rank_);
  pmpi.Comm_size(application, &ranks_);
  comms_.fill(MPI_COMM_NULL);
  comms_[0] = application;
  places_[0] = {rank_, ranks_};
}

Library::~Library() {
  if (has_left_) {
    return;
  }
  if (own_ != application_) {
    pmpi.Comm_free(&own_);
  }
  for (MPI_Comm& comm : comms_) {
    if (comm != MPI_COMM_NULL && comm != application_) {
      pmpi.Comm_free(&comm);
    }
  }
}

Status Library::own_check(int code, const char* what) const {
  Status status = check(code, what);
  return status.ok() || own_ != application_
             ? status
             : Status::mpi(status.mpi_code(), status.message(), /*raised=*/true);
}

std::string Library::name() const {
  static const std::string found = [] {
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
  }();
  return found;
}

/// MPI 4.1 section 3.7.4 wants a blocked call to let others' messages complete. A probe enters the
/// library's progress and takes no message.
void Library::progress() {
  int found = 0;
  // No wildcards: an application may have asserted that none are used (mpi_assert_no_any_source).
  pmpi.Iprobe(rank_, 0, application_, &found, MPI_STATUS_IGNORE);
}

Status Library::duplicate() {
  if (own_ != application_) {
    return {};
  }
  MPI_Comm copy = MPI_COMM_NULL;
  // Not MPI_Comm_dup, which runs the copy callbacks of the application's attributes.
  TUTTI_RETURN_IF_ERROR(
      own_check(pmpi.Comm_split(application_, 0, rank_, &copy), "MPI_Comm_split"));
  own_ = copy;
  return check(pmpi.Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

template <class Body>
Status Library::agree(Body body) {
  TUTTI_RETURN_IF_ERROR(failure_);
  Status status = body();
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
  using Clock = std::chrono::steady_clock;
  constexpr int kPollsPerLook = 256;
  const auto start = Clock::now();
  constexpr double kEndS = 2;
  constexpr double kLookEveryS = 0.25;
  double look_at_s = kLookEveryS;
  bool all_live = false;
  const double limit_s =
      timeout_s_ > 0 ? 2 * timeout_s_ + kEndS : std::numeric_limits<double>::infinity();
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
    const double waited_s = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited_s > look_at_s && look_) {
      look_at_s = waited_s + kLookEveryS;
      const Status looked = look_();
      if (!looked.ok() && looked.code() != ErrorCode::kUnavailable) {
        return Status(looked.code(),
                      std::string("an agreement of the ranks (") + what + "): " + looked.message());
      }
      all_live = looked.ok();
    }
    if (waited_s > limit_s && !all_live) {
      return Status(ErrorCode::kTimeout, std::string("an agreement of the ranks (") + what +
                                             ") did not end within " + std::to_string(limit_s) +
                                             " s (TUTTI_TIMEOUT=" + std::to_string(timeout_s_) +
                                             "); some rank failed, is dead or not in the call");
    }
    std::this_thread::yield();
  }
}

Status Library::allgather(const void* send, void* recv, Bytes bytes_each) {
  return agree([&]() -> Status {
    const int bytes = static_cast<int>(bytes_each);
    if (own_ == application_) {
      return own_check(pmpi.small.Allgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, own_),
                       "MPI_Allgather");
    }
    // The own part last, in memory that may be left behind.
    const Bytes all_bytes = bytes_each * static_cast<Bytes>(ranks_);
    auto data = std::make_unique<std::byte[]>(all_bytes + bytes_each);
    std::memcpy(data.get() + all_bytes, send, bytes_each);
    MPI_Request request = MPI_REQUEST_NULL;
    TUTTI_RETURN_IF_ERROR(check(pmpi.Iallgather(data.get() + all_bytes, bytes, MPI_BYTE, data.get(),
                                                bytes, MPI_BYTE, own_, &request),
                                "MPI_Iallgather"));
    TUTTI_RETURN_IF_ERROR(await(request, &data, "MPI_Iallgather"));
    std::memcpy(recv, data.get(), all_bytes);
    return {};
  });
}

Status Library::max_in_place(std::uint64_t* values, int count) {
  return agree([&]() -> Status {
    if (own_ == application_) {
      return own_check(
          pmpi.small.Allreduce(MPI_IN_PLACE, values, count, MPI_UINT64_T, MPI_MAX, own_),
          "MPI_Allreduce");
    }
    const Bytes bytes = static_cast<Bytes>(count) * sizeof(std::uint64_t);
    auto data = std::make_unique<std::byte[]>(bytes);
    std::memcpy(data.get(), values, bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    TUTTI_RETURN_IF_ERROR(check(
        pmpi.Iallreduce(MPI_IN_PLACE, data.get(), count, MPI_UINT64_T, MPI_MAX, own_, &request),
        "MPI_Iallreduce"));
    TUTTI_RETURN_IF_ERROR(await(request, &data, "MPI_Iallreduce"));
    std::memcpy(values, data.get(), bytes);
    return {};
  });
}

Status Library::make_scopes(int node) {
  // MPI_Comm_split waits without bound: no rank begins it before all have come this far.
  std::uint64_t unused = 0;
  TUTTI_RETURN_IF_ERROR(max_in_place(&unused, 1));
  return agree([&] { return split_scopes(node); });
}

Status Library::split_scopes(int node) {
  auto split = [&](Scope scope, int color) -> Status {
    MPI_Comm& comm = comms_[static_cast<std::size_t>(scope)];
    TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_split(own(), color, rank_, &comm), "MPI_Comm_split"));
    ScopeRank& place = places_[static_cast<std::size_t>(scope)];
    if (comm == MPI_COMM_NULL) {
      place = {-1, 0};
      return {};
    }
    TUTTI_RETURN_IF_ERROR(
        check(pmpi.Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    TUTTI_RETURN_IF_ERROR(check(pmpi.Comm_rank(comm, &place.rank), "MPI_Comm_rank"));
    return check(pmpi.Comm_size(comm, &place.ranks), "MPI_Comm_size");
  };
  TUTTI_RETURN_IF_ERROR(split(Scope::kNode, node));
  const bool is_leader = scope_rank(Scope::kNode).rank == 0;
  return split(Scope::kLeaders, is_leader ? 0 : MPI_UNDEFINED);
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
  const ScopeRank& me = scope_rank(scope);
  MPI_Comm comm = comms_[static_cast<std::size_t>(scope)];
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
  return with_bytes(bytes, [&](int count, MPI_Datatype type) {
    return check(pmpi.Isend(data, count, type, peer, tag, own(), request(slot, kSent)),
                 "MPI_Isend");
  });
}

Status Library::irecv(void* data, Bytes bytes, int peer, int tag, int slot) {
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
  constexpr auto kPatience = std::chrono::seconds(1);
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
    if (!receives || Clock::now() - start > kPatience) {
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
