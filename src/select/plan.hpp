// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A plan: which backend carries the call, in which composition, with which parameters.
// Written backend-composition: "mpi-gamma", "ccl-beta"; "nccl-beta" and "rccl-beta" are read as
// "ccl-beta". "native" and "mpi" mean the MPI library's own collective in the composition that
// fits. "direct-gamma" are our own kernels on the node's memory; with "direct-copy" the GPUs' copy
// engines move the bytes. "schedule:ring" is an algorithm of ours over MPI point-to-point; "rings"
// is short for "schedule:rings"; "ccl:ring" is the same over NCCL's or RCCL's messages.
// "ccl-streams(4)" and "ccl-comms(4)" are pipelines: the call cut into chunks, flat over the
// communicator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "select/shape.hpp"

namespace tutti::select {

enum class Backend : std::uint8_t { kMpi, kCcl, kDirect, kSchedule };

enum class Composition : std::uint8_t {
  kBeta,   ///< Flat over the communicator.
  kGamma,  ///< Flat on one node (all ranks of the communicator share it).
  kAlpha,  ///< On each node to its leader, among leaders, back on each node.
};

/// What carries the chunks of a call that is cut (kCcl only).
enum class Pipeline : std::uint8_t {
  kNone,     ///< Not cut.
  kStreams,  ///< One communicator of the library, a stream for each chunk.
  kComms,    ///< A communicator of the library for each chunk, each with its stream.
};

/// Most chunks of a pipeline: each is a kernel that takes its share of the GPU.
inline constexpr int kPipelineChunksMax = 16;

/// Parameters a rule may set. Absent: the configuration's default.
struct PlanParameters {
  std::optional<Bytes> chunk_bytes;        ///< Pipelining of staged native collectives; 0: none.
  std::optional<Backend> node_backend;     ///< alpha: within a node. Default: the plan's backend.
  std::optional<int> radix;                ///< Schedules: k of k-nomial trees.
  std::optional<int> segments;             ///< Schedules: parts that steps are cut into.
  std::optional<Backend> leaders_backend;  ///< alpha: among leaders. Default: the plan's backend.

  bool operator==(const PlanParameters&) const = default;
};

struct Plan {
  Backend backend = Backend::kMpi;
  Composition composition = Composition::kBeta;
  /// Device buffers pass through pinned host memory even if the MPI takes device pointers.
  bool staged = false;
  std::string algorithm;  ///< kSchedule: its name in schedule/algorithm.cpp.
  PlanParameters parameters;
  Pipeline pipeline = Pipeline::kNone;
  int chunks = 1;  ///< 2 to kPipelineChunksMax where there is a pipeline.
  /// kSchedule: whose messages carry it, kMpi or kCcl.
  Backend carrier = Backend::kMpi;
  bool copied = false;  ///< kDirect: by the GPUs' copy engines.

  bool operator==(const Plan&) const = default;
};

/// Whether one collective of the MPI library is the whole call.
inline bool is_native_flat(const Plan& plan) {
  return plan.backend == Backend::kMpi && plan.composition != Composition::kAlpha;
}

/// "mpi-gamma", "mpi-staged", "ccl-alpha", "direct-copy", "ccl-streams(4)", "rings", "ccl:rings".
std::string to_string(const Plan& plan);

/// "mpi", "ccl".
const char* to_string(Backend backend);
/// "mpi", "native", "ccl", "nccl", "rccl".
std::optional<Backend> parse_backend(std::string_view name);

/// Parses a plan's name. "mpi", "native", "ccl", "nccl", "rccl" without a composition leave it to
/// fit(): gamma on one node, beta on several. Errors list the names there are.
Result<Plan> parse_plan(std::string_view name);

/// A plan's name, taken apart.
struct PlanName {
  Plan plan;
  bool composition_fits = false;  ///< No composition was given: fit() sets it.
};
Result<PlanName> parse_plan_name(std::string_view name);

/// The algorithm of a schedule's name, "ring" of "schedule:ring" and of "ccl:ring", and whose
/// messages carry it; absent: a plan of another kind. Whether there is such an algorithm is open.
std::optional<std::string> schedule_of(std::string_view name, Backend* carrier);

/// `plan` in the composition that a communicator's nodes ask for: gamma on one, beta on several.
Plan fit(Plan plan, const CommFacts& facts);

/// Names of the algorithms that carry `collective` as schedules; the same as in
/// schedule/algorithm.cpp, which this room does not know.
std::vector<std::string> schedule_names(Collective collective);

/// Every plan without parameters (of schedules those that are for several collectives, of pipelines
/// those of four chunks), in the order in which messages and explanations list them.
std::vector<Plan> all_plans();

/// Whether a plan's backend has this collective at all: NCCL and RCCL lack barrier, scan and
/// exscan, a schedule is for some collectives, a pipeline for those that all ranks cut alike,
/// copies for allgather and alltoall.
bool backend_has(const Plan& plan, Collective collective);

/// Why `plan` cannot carry `shape` on a communicator with `facts`; empty when it can.
/// The one place that knows what each backend and composition supports.
std::string refusal(const Plan& plan, const Shape& shape, const CommFacts& facts);

/// The plan every call has: the MPI library's own collective, flat.
Plan native_plan(const CommFacts& facts);

}  // namespace tutti::select
