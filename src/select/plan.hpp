// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// A plan: what carries a call, with which parameters. Each kind is an alternative of `Plan`, with
// its names and refusals in a file of its own (*_plan.cpp).
// "nccl" and "rccl" are read as "ccl", "native" as "mpi", "flat" as "beta". "mpi" and "ccl" without
// a composition take the one that fits the communicator's nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "select/shape.hpp"

namespace tutti::select {

/// Whose collectives or messages carry a part of a plan: a library's or, of schedules alone, our
/// own transport's.
enum class Backend : std::uint8_t { kMpi, kCcl, kNet };

enum class Composition : std::uint8_t {
  kBeta,   ///< Flat over the communicator.
  kGamma,  ///< Flat on one node (all ranks of the communicator share it).
  kOpen,   ///< Not given: fit() makes it gamma on one node, beta on several.
};

// Every kind of plan has these:
//   kPattern   its names as a regular expression, for the schema of tuning files.
//   kListed    those of messages and explanations; any other has parameters in its name.
//   read       whether `name`, in lower case, is of this kind; if so, takes it apart.
//              `problem` gets what is wrong with it, to be put behind the name.
//   name       what read() reads, without parameters. The hash of a table is of it: it tells all
//              plans of this kind apart that do not differ in parameters alone.
//   has        whether there is this collective at all.
//   needs_mpi  whether a part of it goes through the MPI library.
//   refusal    why it cannot carry a call; empty: it can.
// Parameters are optional: absent, the configuration or the algorithm decides (tuning_format.hpp).

/// The MPI library's own collective: "mpi-beta", "mpi-gamma", "mpi-staged", "mpi-gamma-staged".
struct MpiPlan {
  Composition composition = Composition::kOpen;
  /// Device buffers pass through pinned host memory even if the MPI takes device pointers.
  bool staged = false;
  std::optional<Bytes> chunk_bytes = {};  ///< Pipelining of staged collectives; 0: none.

  static constexpr const char* kPattern = R"re((mpi|native)(-(beta|gamma|flat))?(-staged)?)re";
  static constexpr const char* kListed[] = {"mpi-beta", "mpi-gamma", "mpi-staged"};

  bool read(std::string_view name, std::string* problem);
  std::string name() const;
  bool has(Collective /*collective*/) const { return true; }
  bool needs_mpi() const { return true; }
  std::string refusal(const Shape& shape, const CommFacts& facts) const;
  bool operator==(const MpiPlan&) const = default;
};

/// NCCL's or RCCL's collective: "ccl-beta", "ccl-gamma".
struct CclPlan {
  Composition composition = Composition::kOpen;

  static constexpr const char* kPattern = R"re((ccl|nccl|rccl)(-(beta|gamma|flat))?)re";
  static constexpr const char* kListed[] = {"ccl-beta", "ccl-gamma"};

  bool read(std::string_view name, std::string* problem);
  std::string name() const;
  bool has(Collective collective) const;
  bool needs_mpi() const { return false; }
  std::string refusal(const Shape& shape, const CommFacts& facts) const;
  bool operator==(const CclPlan&) const = default;
};

/// What carries the chunks of a call that is cut.
enum class Pipeline : std::uint8_t {
  kStreams,  ///< One communicator of the library, a stream for each chunk.
  kComms,    ///< A communicator of the library for each chunk, each with its stream.
};

/// Most chunks of a pipeline: each is a kernel that takes its share of the GPU.
inline constexpr int kPipelineChunksMax = 16;

/// The same cut into chunks, flat over the communicator: "ccl-streams(4)", "ccl-comms(4)".
struct PipelinePlan {
  Pipeline kind = Pipeline::kStreams;
  int chunks = 2;  ///< To kPipelineChunksMax.

  static constexpr const char* kPattern =
      R"re((ccl|nccl|rccl)-(streams|comms)\(([2-9]|1[0-6])\))re";
  static constexpr const char* kListed[] = {"ccl-streams(4)", "ccl-comms(4)"};

  bool read(std::string_view name, std::string* problem);
  std::string name() const;
  bool has(Collective collective) const;
  bool needs_mpi() const { return false; }
  std::string refusal(const Shape& shape, const CommFacts& facts) const;
  bool operator==(const PipelinePlan&) const = default;
};

/// Our own kernels on the node's memory: "direct-gamma"; by the GPUs' copy engines: "direct-copy".
struct DirectPlan {
  bool copied = false;

  static constexpr const char* kPattern = R"re(direct(-(beta|gamma|flat|copy))?)re";
  static constexpr const char* kListed[] = {"direct-gamma", "direct-copy"};

  bool read(std::string_view name, std::string* problem);
  std::string name() const { return copied ? "direct-copy" : "direct-gamma"; }
  bool has(Collective collective) const;
  bool needs_mpi() const { return false; }
  /// In a graph of the application's: calls with as many rounds between all pairs of ranks.
  static bool is_capturable(Collective collective, int ranks);
  std::string refusal(const Shape& shape, const CommFacts& facts) const;
  bool operator==(const DirectPlan&) const = default;
};

/// An algorithm of ours (schedule/algorithm.cpp) over a library's messages, "schedule:ring",
/// "ccl:ring", or over our transport, "net:ring". "rings" is short for "schedule:rings"; without an
/// MPI "schedule:NAME" is "net:NAME" (fit()).
struct SchedulePlan {
  std::string algorithm;
  Backend carrier = Backend::kMpi;
  std::optional<int> radix = {};     ///< k of k-nomial trees.
  std::optional<int> segments = {};  ///< Parts that steps are cut into.

  static constexpr const char* kPattern =
      R"re(rings[a-z-]*|(schedule|ccl|nccl|rccl|net):[a-z-]+)re";
  static constexpr const char* kListed[] = {"rings",    "schedule:ring", "ccl:rings",
                                            "ccl:ring", "net:rings",     "net:ring"};

  bool read(std::string_view name, std::string* problem);
  std::string name() const;
  bool has(Collective collective) const;
  bool needs_mpi() const { return carrier == Backend::kMpi; }
  std::string refusal(const Shape& shape, const CommFacts& facts) const;
  bool operator==(const SchedulePlan&) const = default;
};

/// On each node to its leader, among leaders, back on each node: "mpi-alpha", "ccl-alpha",
/// "mpi-alpha-staged".
struct AlphaPlan {
  Backend backend = Backend::kMpi;
  bool staged = false;                          ///< As MpiPlan's; of kMpi only.
  std::optional<Bytes> chunk_bytes = {};        ///< As MpiPlan's.
  std::optional<Backend> node_backend = {};     ///< Within a node; absent: `backend`.
  std::optional<Backend> leaders_backend = {};  ///< Among leaders; absent: `backend`.

  Backend node() const { return node_backend.value_or(backend); }
  Backend leaders() const { return leaders_backend.value_or(backend); }
  bool uses(Backend part) const { return node() == part || leaders() == part; }

  static constexpr const char* kPattern =
      R"re((mpi|native)-alpha(-staged)?|(ccl|nccl|rccl)-alpha)re";
  static constexpr const char* kListed[] = {"mpi-alpha", "ccl-alpha"};

  bool read(std::string_view name, std::string* problem);
  std::string name() const;
  bool has(Collective collective) const;
  bool needs_mpi() const { return uses(Backend::kMpi); }
  std::string refusal(const Shape& shape, const CommFacts& facts) const;
  bool operator==(const AlphaPlan&) const = default;
};

using Plan = std::variant<MpiPlan, AlphaPlan, CclPlan, PipelinePlan, DirectPlan, SchedulePlan>;

template <class Kind>
bool is(const Plan& plan) {
  return std::holds_alternative<Kind>(plan);
}

std::string to_string(const Plan& plan);

/// "mpi", "ccl", "net".
const char* to_string(Backend backend);
/// "mpi", "native", "ccl", "nccl", "rccl".
std::optional<Backend> parse_backend(std::string_view name);

/// Parses a plan's name. Errors list the names there are.
Result<Plan> parse_plan(std::string_view name);

/// `plan` with the composition that a communicator's nodes ask for, if it is open; of schedules
/// with the carrier that the communicator has.
Plan fit(Plan plan, const CommFacts& facts);

/// Names of the algorithms that carry `collective` as schedules; the same as in
/// schedule/algorithm.cpp, which this room does not know.
std::vector<std::string> schedule_names(Collective collective);

/// Every plan without parameters (of schedules those that are for several collectives, of pipelines
/// those of four chunks), in the order in which messages and explanations list them.
std::vector<Plan> all_plans();
/// What their names, and those of plans with parameters in theirs, match as a whole: a regular
/// expression of ECMAScript.
std::string plan_pattern();

/// Whether a plan has this collective at all; of one that has it refusal() may have more to say.
bool backend_has(const Plan& plan, Collective collective);

/// Why `plan` cannot carry `shape` on a communicator with `facts`; empty when it can.
std::string refusal(const Plan& plan, const Shape& shape, const CommFacts& facts);

/// The plan every call has: the MPI library's own collective, flat.
Plan native_plan(const CommFacts& facts);

}  // namespace tutti::select
