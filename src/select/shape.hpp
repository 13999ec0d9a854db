// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A call's shape (collective, element type, operation, bytes, memory) and facts of a communicator:
// what a plan may depend on, equal on every rank.
// Nothing here may hold a pointer, a datatype handle or anything else that MPI lets ranks of one
// call choose differently.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/config.hpp"
#include "base/units.hpp"

namespace tutti::select {

/// Order equals kCollectiveNames; is_reduction() and is_rooted() look at it, too.
enum class Collective : std::uint8_t {
  kBarrier,
  kBcast,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kAllgather,
  kAllgatherv,
  kAlltoall,
  kAlltoallv,
  kAlltoallw,
  kReduce,
  kAllreduce,
  kReduceScatter,
  kReduceScatterBlock,
  kScan,
  kExscan,
};

const char* to_string(Collective collective);
std::optional<Collective> parse_collective(
    std::string_view name);  ///< also "reducescatter", "all_reduce"

/// True for the collectives that combine values with an operation.
constexpr bool is_reduction(Collective collective) { return collective >= Collective::kReduce; }
/// True for those with a root.
constexpr bool is_rooted(Collective collective) {
  return (collective >= Collective::kBcast && collective <= Collective::kScatterv) ||
         collective == Collective::kReduce;
}

/// False where no rank can know the size (gatherv, scatterv, alltoallv, alltoallw) and for barrier.
bool has_size(Collective collective);

/// Basic types, canonical: MPI_INT, MPI_INT32_T and MPI_INTEGER are all kInt32. Data movement is
/// kByte always, since only its bytes matter. Pairs are a value and an index as the C structures of
/// MPI 4.1 section 6.9.4 (and Fortran's pairs of one type), padding included. kOther: derived types
/// with user operations, long double, logicals that are not 4 bytes.
enum class DataType : std::uint8_t {
  kByte,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kBool,         ///< C bool.
  kLogical32,    ///< Fortran logical of 4 bytes.
  kInt16Int,     ///< short, int: 8 bytes.
  kInt32Int,     ///< int, int: 8 bytes.
  kInt64Int,     ///< int64, int: 16 bytes.
  kFloat32Int,   ///< float, int: 8 bytes.
  kFloat64Int,   ///< double, int: 16 bytes.
  kFloat32Pair,  ///< float, float (MPI_2REAL).
  kFloat64Pair,  ///< double, double (MPI_2DOUBLE_PRECISION).
  kOther,
};

inline constexpr int kDataTypeCount = 25;

const char* to_string(DataType type);  ///< "float32"
std::optional<DataType> parse_data_type(std::string_view name);
/// That it reads, too: "fp16".
std::vector<std::string> other_data_type_names();
/// Bytes from one element to the next; 0 for kOther.
Bytes size_of(DataType type);
/// A value and an index: what MINLOC and MAXLOC are for.
bool is_pair(DataType type);

enum class ReduceOp : std::uint8_t {
  kNone,  ///< Not a reduction.
  kSum,
  kProd,
  kMin,
  kMax,
  kLand,
  kLor,
  kLxor,
  kBand,
  kBor,
  kBxor,
  kMinloc,
  kMaxloc,
  kAvg,  ///< The sum divided by the number of ranks: not MPI's, so is_defined() for no type.
  kUser,
};

inline constexpr int kReduceOpCount = 15;

const char* to_string(ReduceOp op);
/// MPI 4.1 section 6.9.2: which operations are defined for which types.
bool is_defined(ReduceOp op, DataType type);
/// Which types have an average: those of real and complex numbers.
bool has_average(DataType type);
std::optional<ReduceOp> parse_reduce_op(std::string_view name);

/// Where the communicator's ranks keep the buffers of calls of this shape, as *agreed* (see
/// engine/agreement.hpp); never one rank's own view.
enum class Memory : std::uint8_t { kHost, kDevice };

const char* to_string(Memory memory);
std::optional<Memory> parse_memory(std::string_view name);

/// When a call's work begins and who waits for it.
enum class Order : std::uint8_t {
  kBlocking,  ///< The caller, until it is done.
  kStream,    ///< Nobody: it takes its turn on a stream of the application.
  kCaptured,  ///< Nobody: the stream records it in a graph of the application's.
};

const char* to_string(Order order);  ///< "blocking", "stream", "captured"
std::optional<Order> parse_order(std::string_view name);

/// One call, as every rank sees it.
struct Shape {
  Collective collective = Collective::kAllreduce;
  /// Total payload by type signature, the same number on every rank, and the number that rules
  /// compare with and that benchmarks print: allreduce, reduce, bcast, scan: the vector; allgather,
  /// gather, scatter, reduce_scatter, alltoall: one rank's whole vector (block x ranks).
  /// Absent where a rank cannot know it (gatherv, scatterv, alltoallv, alltoallw).
  std::optional<Bytes> bytes;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kNone;
  Memory memory = Memory::kHost;
  Order order = Order::kBlocking;

  bool operator==(const Shape&) const = default;
};

/// Agreed facts of a communicator.
struct CommFacts {
  int ranks = 1;
  int nodes = 1;
  int ranks_per_node_max = 1;
  /// On some node the job has more ranks than cores that they may use (affinity, cgroup quota).
  bool oversubscribed = false;
  std::string mpi;      ///< "mpich", "openmpi": MPI libraries that were measured; else empty.
  bool has_mpi = true;  ///< False: the ranks met by other means; nothing goes through MPI.
  bool mpi_device_aware = false;     ///< The MPI takes device pointers itself, on every rank.
  bool mpi_has_large_counts = true;  ///< Counts over 2^31 - 1 elements (_c functions).
  bool ccl_usable = false;           ///< Every rank has the same library and a GPU of its own.
  std::string ccl_name = "ccl";      ///< "nccl", "rccl"; for messages.
  std::string ccl_refusal;           ///< Why not, when !ccl_usable.
  /// Why a pipeline got no more streams, or communicators of the CCL; empty: none lacked any.
  std::string streams_refusal;
  std::string comms_refusal;
  bool device_reduces = false;  ///< Something of ours reduces device memory, on every rank.
  /// Our kernels on peer-mapped device memory, and our copies through shared host memory: why they
  /// cannot carry this communicator; empty: they can.
  std::string direct_device_refusal = "not set up";
  std::string direct_host_refusal = "not set up";
  /// Of calls in a graph of the application's.
  std::string direct_capture_refusal =
      "direct was not set up before the capture; make one call first";
  /// Why our kernels got no staging memory for copy engines; empty: nobody wanted, or they did.
  std::string copies_refusal;
  /// Why steps of ours cannot go through the MPI, or over our transport; empty: they can.
  std::string messages_refusal;
  std::string net_refusal = "not set up";

  bool operator==(const CommFacts&) const = default;
};

}  // namespace tutti::select
