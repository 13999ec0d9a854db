// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The MPI library's collectives for plans of ours: on the communicator of a scope, with its counts.
#include "mpi/library.hpp"

#include <algorithm>
#include <climits>
#include <numeric>
#include <string>
#include <vector>

#include "mpi/types.hpp"
#include "mpi/unit_type.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using runners::Call;
using runners::Scope;
using runners::ScopeRank;
using select::Collective;

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
