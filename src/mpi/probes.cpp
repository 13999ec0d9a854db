// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/probes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "mpi/library.hpp"
#include "mpi/pmpi.hpp"
#include "runners/direct/host_reduce.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

using select::Collective;
using select::DataType;
using select::ReduceOp;

namespace {

/// Operands that tell signed from unsigned, a logical operation from a bitwise one and a sum from
/// anything else, in any type of one byte or more. No result overflows: there libraries differ from
/// themselves (Open MPI's vector code saturates).
struct Operands {
  std::int64_t in;
  std::int64_t inout;
};
constexpr std::size_t kProbes = 6;

std::array<Operands, kProbes> operands_of(ReduceOp op, DataType type) {
  switch (op) {
    case ReduceOp::kSum:
      return {{{1, 2}, {-5, 2}, {100, 20}, {-100, 50}, {0, 7}, {3, 0}}};
    case ReduceOp::kProd:
      return {{{3, 5}, {-1, 1}, {1, -7}, {2, 50}, {0, 9}, {1, 1}}};
    case ReduceOp::kLand:
    case ReduceOp::kLor:
    case ReduceOp::kLxor:
      if (type == DataType::kBool || type == DataType::kLogical32) {
        return {{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 1}, {0, 0}}};
      }
      return {{{0, 0}, {0, 4}, {2, 0}, {2, 4}, {1, 1}, {-1, 1}}};
    default:
      return {{{1, 2}, {127, -128}, {-1, 1}, {-128, 5}, {0x55, 0x33}, {6, 6}}};
  }
}

/// A whole number as a value of one of our types; little-endian.
void encode(DataType type, std::int64_t value, std::byte* to) {
  const auto put = [&](const auto& number) { std::memcpy(to, &number, sizeof(number)); };
  const auto real = static_cast<double>(value);
  switch (type) {
    case DataType::kFloat32:
      return put(static_cast<float>(value));
    case DataType::kFloat64:
      return put(real);
    case DataType::kComplex64:
      return put(std::array{static_cast<float>(value), 2.0F});
    case DataType::kComplex128:
      return put(std::array{real, 2.0});
    default:
      std::memcpy(to, &value, select::size_of(type));
  }
}

/// Values whose encoding or padding differs between libraries, and the 16-bit floats, for which
/// MPICH 5.0 ends the process in operations that it accepts: they mean what the standard says.
bool is_probed(DataType type) {
  return !select::is_pair(type) && type != DataType::kFloat16 && type != DataType::kBfloat16;
}

/// Whether the library's operation on its type computes what ours does on `type`.
bool computes_the_same(MPI_Datatype theirs, MPI_Op mpi_op, DataType type, ReduceOp op) {
  const auto ours = runners::reduce_function(runners::Isa::kBaseline, type, op);
  if (ours == nullptr) {
    return false;
  }
  if (!is_probed(type)) {
    return true;
  }
  constexpr std::size_t kElementBytesMax = 16;
  alignas(16) std::array<std::byte, kProbes * kElementBytesMax> in{};
  alignas(16) std::array<std::byte, kProbes * kElementBytesMax> inout{};
  alignas(16) std::array<std::byte, kProbes * kElementBytesMax> expected{};
  const std::size_t bytes = select::size_of(type);
  const auto operands = operands_of(op, type);
  for (std::size_t i = 0; i < kProbes; ++i) {
    encode(type, operands[i].in, &in[i * bytes]);
    encode(type, operands[i].inout, &inout[i * bytes]);
  }
  const std::array<const void*, 2> inputs = {in.data(), inout.data()};
  ours(expected.data(), inputs.data(), 2, kProbes);
  return pmpi.Reduce_local(in.data(), inout.data(), static_cast<int>(kProbes), theirs, mpi_op) ==
             MPI_SUCCESS &&
         std::memcmp(inout.data(), expected.data(), kProbes * bytes) == 0;
}

/// Whether the library takes the type for the operation. Arguments are checked before anything is
/// done, and a refusal is raised on the communicator, which returns it; MPI_Reduce_local has none,
/// so that a refusal there would reach the application's error handler.
bool accepts(MPI_Comm alone, MPI_Datatype type, MPI_Op op) {
  alignas(16) std::array<std::byte, 64> in{};
  alignas(16) std::array<std::byte, 64> out{};
  return pmpi.small.Allreduce(in.data(), out.data(), 1, type, op, alone) == MPI_SUCCESS;
}

}  // namespace

void ask_meaning(MPI_Comm alone, MPI_Datatype type, const Candidates& candidates,
                 Meaning* meaning) {
  for (const auto& [op, mpi_op] :
       {std::pair(ReduceOp::kSum, MPI_SUM), std::pair(ReduceOp::kProd, MPI_PROD),
        std::pair(ReduceOp::kMin, MPI_MIN), std::pair(ReduceOp::kMax, MPI_MAX),
        std::pair(ReduceOp::kLand, MPI_LAND), std::pair(ReduceOp::kLor, MPI_LOR),
        std::pair(ReduceOp::kLxor, MPI_LXOR), std::pair(ReduceOp::kBand, MPI_BAND),
        std::pair(ReduceOp::kBor, MPI_BOR), std::pair(ReduceOp::kBxor, MPI_BXOR),
        std::pair(ReduceOp::kMinloc, MPI_MINLOC), std::pair(ReduceOp::kMaxloc, MPI_MAXLOC)}) {
    const auto is_ours = [op = op](DataType ours) { return select::is_defined(op, ours); };
    if (std::none_of(candidates.begin(), candidates.end(), is_ours)) {
      continue;  // Refused by its name, with the better reason.
    }
    DataType& own = (*meaning)[static_cast<std::size_t>(op)];
    own = DataType::kOther;
    if (!accepts(alone, type, mpi_op)) {
      continue;
    }
    for (const DataType candidate : candidates) {
      if (computes_the_same(type, mpi_op, candidate, op)) {
        own = candidate;
        break;
      }
    }
  }
}

namespace {

/// By collective, of one element and of more: libraries let one pass that is where it belongs.
struct AliasingErrors {
  int of_one = MPI_SUCCESS;
  int of_more = MPI_SUCCESS;
};
std::array<AliasingErrors, kCollectiveCount> g_aliasing_errors;

/// `count` elements onto themselves, on a communicator of this rank alone.
int move_onto_itself(MPI_Comm alone, Collective collective, int count) {
  alignas(16) std::array<int, 4> data{};
  int* const at = data.data();
  const MPI_Datatype type = MPI_INT;
  const int zero = 0;
  const auto& mpi = pmpi.small;
  switch (collective) {
    case Collective::kGather:
      return mpi.Gather(at, count, type, at, count, type, 0, alone);
    case Collective::kGatherv:
      return mpi.Gatherv(at, count, type, at, &count, &zero, type, 0, alone);
    case Collective::kScatter:
      return mpi.Scatter(at, count, type, at, count, type, 0, alone);
    case Collective::kScatterv:
      return mpi.Scatterv(at, &count, &zero, type, at, count, type, 0, alone);
    case Collective::kAllgather:
      return mpi.Allgather(at, count, type, at, count, type, alone);
    case Collective::kAllgatherv:
      return mpi.Allgatherv(at, count, type, at, &count, &zero, type, alone);
    case Collective::kAlltoall:
      return mpi.Alltoall(at, count, type, at, count, type, alone);
    case Collective::kAlltoallv:
      return mpi.Alltoallv(at, &count, &zero, type, at, &count, &zero, type, alone);
    case Collective::kAlltoallw:
      return mpi.Alltoallw(at, &count, &zero, &type, at, &count, &zero, &type, alone);
    case Collective::kReduce:
      return mpi.Reduce(at, at, count, type, MPI_SUM, 0, alone);
    case Collective::kAllreduce:
      return mpi.Allreduce(at, at, count, type, MPI_SUM, alone);
    case Collective::kScan:
      return mpi.Scan(at, at, count, type, MPI_SUM, alone);
    case Collective::kExscan:
      return mpi.Exscan(at, at, count, type, MPI_SUM, alone);
    case Collective::kReduceScatter:
      return mpi.Reduce_scatter(at, at, &count, type, MPI_SUM, alone);
    case Collective::kReduceScatterBlock:
      return mpi.Reduce_scatter_block(at, at, count, type, MPI_SUM, alone);
    default:
      return MPI_SUCCESS;
  }
}

}  // namespace

void ask_aliasing_errors(MPI_Comm alone) {
  // Open MPI raises this one where no communicator is known.
  const QuietErrors world(MPI_COMM_WORLD);
  const QuietErrors self(MPI_COMM_SELF);
  const auto class_of = [](int code) {
    int error_class = code;
    return code == MPI_SUCCESS || pmpi.Error_class(code, &error_class) != MPI_SUCCESS ? code
                                                                                      : error_class;
  };
  for (int index = 0; index < kCollectiveCount; ++index) {
    const auto collective = static_cast<Collective>(index);
    g_aliasing_errors[static_cast<std::size_t>(index)] = {
        class_of(move_onto_itself(alone, collective, 1)),
        class_of(move_onto_itself(alone, collective, 2))};
  }
}

int aliasing_error(Collective collective, std::uint64_t elements) {
  const AliasingErrors& errors = g_aliasing_errors[static_cast<std::size_t>(collective)];
  return elements == 0 ? MPI_SUCCESS : elements == 1 ? errors.of_one : errors.of_more;
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
