// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "select/plan.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/message.hpp"

namespace tutti::select {
namespace {

constexpr std::string_view kStaged = "staged";
constexpr Pipeline kPipelines[] = {Pipeline::kStreams, Pipeline::kComms};
constexpr int kPipelineChunksListed = 4;  // Of the MPI4AI paper's experiment.
const std::string kSchedulePrefix = "schedule:";
constexpr std::string_view kDirectCopy = "direct-copy";

/// Parallel Rings have names of their own.
bool is_rings(std::string_view name) { return name.starts_with("rings"); }

const char* to_string(Composition composition) {
  switch (composition) {
    case Composition::kBeta:
      return "beta";
    case Composition::kGamma:
      return "gamma";
    case Composition::kAlpha:
      return "alpha";
  }
  return "?";
}

std::optional<Composition> parse_composition(std::string_view name) {
  for (Composition composition : {Composition::kBeta, Composition::kGamma, Composition::kAlpha}) {
    if (name == to_string(composition)) {
      return composition;
    }
  }
  return name == "flat" ? std::optional(Composition::kBeta) : std::nullopt;
}

/// Takes "-word" off the end of `name`; the word must satisfy `take`.
template <class Take>
void take_suffix(std::string_view* name, Take take) {
  std::size_t dash = name->rfind('-');
  if (dash != std::string_view::npos && take(name->substr(dash + 1))) {
    *name = name->substr(0, dash);
  }
}

const char* to_string(Pipeline pipeline) {
  switch (pipeline) {
    case Pipeline::kNone:
      return "none";
    case Pipeline::kStreams:
      return "streams";
    case Pipeline::kComms:
      return "comms";
  }
  return "?";
}

/// Takes "ccl-streams" or the like off the front of `name`; kNone where it starts otherwise.
Pipeline take_pipeline(std::string_view* name) {
  const std::size_t dash = name->find('-');
  if (dash == std::string_view::npos || parse_backend(name->substr(0, dash)) != Backend::kCcl) {
    return Pipeline::kNone;
  }
  const std::string_view rest = name->substr(dash + 1);
  for (const Pipeline pipeline : kPipelines) {
    if (rest.starts_with(to_string(pipeline))) {
      *name = rest.substr(std::string_view(to_string(pipeline)).size());
      return pipeline;
    }
  }
  return Pipeline::kNone;
}

/// "(4)" -> 4; absent where it is not that of 2 to kPipelineChunksMax.
std::optional<int> parse_chunks(std::string_view text) {
  for (int chunks = 2; chunks <= kPipelineChunksMax; ++chunks) {
    if (text == "(" + std::to_string(chunks) + ")") {
      return chunks;
    }
  }
  return std::nullopt;
}

std::string on_nodes(int nodes) {
  return "this communicator is on " + std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
}

bool predefined(ReduceOp op) { return op != ReduceOp::kUser && op != ReduceOp::kNone; }

constexpr Collective kScheduled[] = {Collective::kBcast,
                                     Collective::kGather,
                                     Collective::kScatter,
                                     Collective::kAllgather,
                                     Collective::kReduce,
                                     Collective::kAllreduce,
                                     Collective::kReduceScatterBlock,
                                     Collective::kAlltoall,
                                     Collective::kBarrier};

bool is_schedule(const std::string& name) {
  return std::any_of(std::begin(kScheduled), std::end(kScheduled), [&](Collective collective) {
    const auto names = schedule_names(collective);
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

/// "allgather: linear, ring; bcast: ..."
std::string all_schedules() {
  std::string text;
  for (const Collective collective : kScheduled) {
    text += (text.empty() ? "" : "; ") + std::string(to_string(collective)) + ":";
    for (const std::string& name : schedule_names(collective)) {
      text += " " + name;
    }
  }
  return text;
}

std::string undefined(const Shape& shape) {
  return std::string("MPI does not define '") + to_string(shape.op) + "' for " +
         to_string(shape.type);
}

/// A carrier of groups needs data in every message and the counts of all ranks.
bool ccl_carries(Collective collective) {
  return collective != Collective::kBarrier && collective != Collective::kAlltoallv;
}

/// What a schedule on device memory needs beside what it needs on host memory.
std::string carrier_refusal(const Shape& shape, const CommFacts& facts) {
  if (shape.memory == Memory::kHost) {
    return "buffers are in host memory";
  }
  if (!facts.ccl_usable) {
    return facts.ccl_refusal.empty() ? "no collective communication library" : facts.ccl_refusal;
  }
  if (is_reduction(shape.collective) && !facts.device_reduces) {
    return "nothing here reduces device memory; use schedule:NAME";
  }
  return "";
}

std::string schedule_refusal(const Plan& plan, const Shape& shape, const CommFacts& facts) {
  if (plan.carrier == Backend::kCcl && !ccl_carries(shape.collective)) {
    return std::string("schedules of ") + to_string(shape.collective) +
           " go through the MPI library alone; use schedule:NAME";
  }
  if (!backend_has(plan, shape.collective)) {
    return "no schedule '" + plan.algorithm + "' for " + to_string(shape.collective);
  }
  if (is_reduction(shape.collective) &&
      (!predefined(shape.op) || shape.type == DataType::kOther || is_pair(shape.type))) {
    return "schedules reduce basic types with predefined operations";
  }
  // MPI finds this error before anything is sent; a schedule would find it with messages under way.
  if (is_reduction(shape.collective) && !is_defined(shape.op, shape.type)) {
    return undefined(shape);
  }
  if (plan.algorithm == "neighbor-exchange" && facts.ranks > 1 && facts.ranks % 2 != 0) {
    return "neighbor-exchange needs an even number of ranks";
  }
  return plan.carrier == Backend::kCcl ? carrier_refusal(shape, facts) : facts.messages_refusal;
}

bool direct_has(Collective collective) {
  return collective != Collective::kScan && collective != Collective::kExscan;
}

/// What every rank cuts into chunks alike and sends to all others.
bool is_copied(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kAlltoall;
}

std::string direct_refusal(const Plan& plan, const Shape& shape, const CommFacts& facts) {
  if (plan.copied && !is_copied(shape.collective)) {
    return std::string("copy engines carry allgather and alltoall, not ") +
           to_string(shape.collective) + "; use direct";
  }
  if (plan.copied && shape.memory == Memory::kHost) {
    return "buffers are in host memory, which no copy engine is for; use direct";
  }
  if (!direct_has(shape.collective)) {
    return std::string("direct has no ") + to_string(shape.collective) + "; it stays native";
  }
  if (facts.nodes != 1) {
    return "direct is for one node; " + on_nodes(facts.nodes);
  }
  const std::string& reason =
      shape.memory == Memory::kDevice ? facts.direct_device_refusal : facts.direct_host_refusal;
  if (!reason.empty()) {
    return reason;
  }
  if (!is_reduction(shape.collective)) {
    return plan.copied ? facts.copies_refusal : "";
  }
  if (!predefined(shape.op)) {
    return "direct cannot call a user-defined operation";
  }
  if (shape.type == DataType::kOther) {
    return "direct does not know this datatype";
  }
  return is_defined(shape.op, shape.type) ? "" : undefined(shape);
}

/// Whether `backend` carries a step of the plan.
bool uses(const Plan& plan, Backend backend) {
  if (plan.composition != Composition::kAlpha) {
    return plan.backend == backend;
  }
  return plan.parameters.node_backend.value_or(plan.backend) == backend ||
         plan.parameters.leaders_backend.value_or(plan.backend) == backend;
}

/// NCCL 2.x and RCCL 2.x: ncclRedOp_t and ncclDataType_t, and a complex number as two reals.
std::string ccl_reduction_refusal(const Shape& shape, const std::string& ccl) {
  switch (shape.op) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      break;
    case ReduceOp::kUser:
      return ccl + " cannot call a user-defined operation";
    default:
      return ccl + " has no operation '" + to_string(shape.op) + "'; it has sum, prod, min and max";
  }
  switch (shape.type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kFloat32:
    case DataType::kFloat64:
      return "";
    case DataType::kComplex64:
    case DataType::kComplex128:
      return shape.op == ReduceOp::kSum ? ""
                                        : ccl + " can only sum " + to_string(shape.type) +
                                              ", not '" + to_string(shape.op) + "'";
    case DataType::kOther:
      return ccl + " does not know this datatype";
    default:
      return ccl + " does not reduce " + to_string(shape.type);
  }
}

bool ccl_has(Collective collective) {
  return collective != Collective::kBarrier && collective != Collective::kScan &&
         collective != Collective::kExscan;
}

std::string ccl_refusal(const Shape& shape, const CommFacts& facts) {
  if (!ccl_has(shape.collective)) {
    return facts.ccl_name + " has no " + to_string(shape.collective) + "; it stays native";
  }
  if (shape.memory == Memory::kHost) {
    return "buffers are in host memory";
  }
  if (!facts.ccl_usable) {
    return facts.ccl_refusal.empty() ? "no collective communication library" : facts.ccl_refusal;
  }
  return is_reduction(shape.collective) ? ccl_reduction_refusal(shape, facts.ccl_name) : "";
}

/// Vectors, and blocks of one size: what every rank cuts alike from numbers that all know.
bool is_cut(Collective collective) {
  switch (collective) {
    case Collective::kBcast:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllgather:
    case Collective::kAlltoall:
    case Collective::kReduce:
    case Collective::kAllreduce:
    case Collective::kReduceScatterBlock:
      return true;
    default:
      return false;
  }
}

std::string pipeline_refusal(const Plan& plan, const Shape& shape, const CommFacts& facts) {
  if (ccl_has(shape.collective) && !is_cut(shape.collective)) {
    return std::string(to_string(shape.collective)) +
           " has a count for each rank and is not cut into chunks; use ccl";
  }
  return plan.pipeline == Pipeline::kStreams ? facts.streams_refusal : facts.comms_refusal;
}

std::string alpha_refusal(const Shape& shape, const CommFacts& facts) {
  switch (shape.collective) {
    case Collective::kBcast:
    case Collective::kAllgather:
    case Collective::kReduce:
    case Collective::kAllreduce:
    case Collective::kReduceScatterBlock:
      break;
    default:
      return std::string("alpha is not made for ") + to_string(shape.collective) +
             "; it is for allreduce, reduce, bcast, allgather and reduce_scatter_block";
  }
  if (facts.nodes <= 1) {
    return "alpha needs several nodes; " + on_nodes(facts.nodes);
  }
  if (!facts.messages_refusal.empty()) {
    return facts.messages_refusal;
  }
  if (!is_reduction(shape.collective)) {
    return "";
  }
  if (!predefined(shape.op)) {
    return std::string("alpha changes the order of a reduction; ") + to_string(shape.collective) +
           " with a user-defined operation stays flat";
  }
  if (shape.type == DataType::kOther || is_pair(shape.type)) {
    return std::string("alpha does not know this datatype; ") + to_string(shape.collective) +
           " with it stays flat";
  }
  // Its first step reduces the blocks of all ranks at once.
  if (shape.collective == Collective::kReduceScatterBlock && !facts.mpi_has_large_counts &&
      shape.bytes && *shape.bytes / size_of(shape.type) > INT32_MAX) {
    return "alpha reduces over 2^31 elements at once here, which this MPI library cannot count";
  }
  // MPI finds this error on all ranks; a step on some of them would find it with others under way.
  return is_defined(shape.op, shape.type) ? "" : undefined(shape);
}

bool is_carried_by_mpi(const Plan& plan) {
  return plan.backend == Backend::kSchedule ? plan.carrier == Backend::kMpi
                                            : uses(plan, Backend::kMpi);
}

/// What a plan needs to be queued on a stream: that no step of it waits on the host.
std::string order_refusal(const Plan& plan, const Shape& shape) {
  if (shape.order == Order::kBlocking) {
    return "";
  }
  if (is_carried_by_mpi(plan)) {
    return "MPI waits on the host and takes no stream";
  }
  if (shape.memory == Memory::kHost) {
    return "a call on a stream takes memory of the GPU, not of the host";
  }
  if (plan.backend == Backend::kSchedule || plan.pipeline != Pipeline::kNone ||
      plan.composition == Composition::kAlpha) {
    return "a call on a stream is one step; this plan has several that wait on the host";
  }
  if (plan.copied) {
    return "copies that are queued cannot be called off when a call before them fails; use direct";
  }
  if (shape.order == Order::kCaptured && plan.backend == Backend::kDirect) {
    return "direct counts its launches, so a graph of the application's cannot repeat one";
  }
  return "";
}

}  // namespace

const char* to_string(Backend backend) {
  switch (backend) {
    case Backend::kMpi:
      return "mpi";
    case Backend::kCcl:
      return "ccl";
    case Backend::kDirect:
      return "direct";
    case Backend::kSchedule:
      return "schedule";
  }
  return "?";
}

std::vector<std::string> schedule_names(Collective collective) {
  switch (collective) {
    case Collective::kAllgather:
    case Collective::kAllgatherv:
      return {"linear",
              "ring",
              "recursive-doubling",
              "bruck",
              "neighbor-exchange",
              "rings",
              "rings-xor",
              "rings-knomial",
              "rings-binomial-doubling",
              "rings-binomial-halving",
              "rings-recursive-doubling",
              "rings-inter-socket",
              "rings-inter-socket-pipelined",
              "alpha"};
    case Collective::kReduceScatter:
    case Collective::kReduceScatterBlock:
      return {"ring", "pairwise", "recursive-halving", "rings"};
    case Collective::kAllreduce:
      return {"ring", "recursive-doubling", "rabenseifner", "rings", "double-tree", "alpha",
              "delta"};
    case Collective::kBcast:
      return {"knomial", "chain", "scatter-allgather", "double-tree", "alpha"};
    case Collective::kReduce:
      return {"binomial", "alpha"};
    case Collective::kGather:
    case Collective::kScatter:
      return {"binomial"};
    case Collective::kAlltoall:
      return {"linear", "pairwise", "bruck", "rails"};
    case Collective::kAlltoallv:
      return {"linear", "pairwise"};
    case Collective::kBarrier:
      return {"dissemination"};
    default:
      return {};
  }
}

std::optional<Backend> parse_backend(std::string_view name) {
  if (name == "mpi" || name == "native") {
    return Backend::kMpi;
  }
  if (name == "ccl" || name == "nccl" || name == "rccl") {
    return Backend::kCcl;
  }
  return std::nullopt;
}

bool backend_has(const Plan& plan, Collective collective) {
  switch (plan.backend) {
    case Backend::kMpi:
      return true;
    case Backend::kCcl:
      return plan.pipeline == Pipeline::kNone ? ccl_has(collective) : is_cut(collective);
    case Backend::kDirect:
      return plan.copied ? is_copied(collective) : direct_has(collective);
    case Backend::kSchedule: {
      if (plan.carrier == Backend::kCcl && !ccl_carries(collective)) {
        return false;
      }
      const auto names = schedule_names(collective);
      return std::find(names.begin(), names.end(), plan.algorithm) != names.end();
    }
  }
  return false;
}

std::string to_string(const Plan& plan) {
  if (plan.backend == Backend::kSchedule && plan.carrier == Backend::kCcl) {
    return std::string(to_string(plan.carrier)) + ":" + plan.algorithm;
  }
  if (plan.backend == Backend::kSchedule) {
    return is_rings(plan.algorithm) ? plan.algorithm : kSchedulePrefix + plan.algorithm;
  }
  if (plan.copied) {
    return std::string(kDirectCopy);
  }
  std::string name = to_string(plan.backend);
  if (plan.pipeline != Pipeline::kNone) {
    return name + "-" + to_string(plan.pipeline) + "(" + std::to_string(plan.chunks) + ")";
  }
  if (!plan.staged) {
    return name + "-" + to_string(plan.composition);
  }
  // Staged is flat unless it says otherwise: "mpi-staged", "mpi-alpha-staged".
  if (plan.composition != Composition::kBeta) {
    name += std::string("-") + to_string(plan.composition);
  }
  return name + "-" + std::string(kStaged);
}

std::optional<std::string> schedule_of(std::string_view name, Backend* carrier) {
  if (is_rings(name)) {
    return std::string(name);
  }
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view prefix = name.substr(0, colon + 1);
  const bool is_ccl = parse_backend(name.substr(0, colon)) == Backend::kCcl;
  if (!is_ccl && prefix != kSchedulePrefix) {
    return std::nullopt;
  }
  *carrier = is_ccl ? Backend::kCcl : Backend::kMpi;
  return std::string(name.substr(colon + 1));
}

Result<PlanName> parse_plan_name(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view rest = text;
  PlanName result;
  if (auto algorithm = schedule_of(text, &result.plan.carrier)) {
    result.plan.backend = Backend::kSchedule;
    result.plan.algorithm = std::move(*algorithm);
    if (!is_schedule(result.plan.algorithm)) {
      return Status(ErrorCode::kInvalidConfig,
                    in_quotes(name) + " is not an algorithm; there are " + all_schedules());
    }
    return result;
  }
  result.plan.pipeline = take_pipeline(&rest);
  if (result.plan.pipeline != Pipeline::kNone) {
    const std::optional<int> chunks = parse_chunks(rest);
    if (!chunks) {
      const std::string right = std::string("ccl-") + to_string(result.plan.pipeline);
      return Status(ErrorCode::kInvalidConfig,
                    in_quotes(name) + " does not say into how many chunks a call is cut; write " +
                        right + "(2) to " + right + "(" + std::to_string(kPipelineChunksMax) + ")");
    }
    result.plan.backend = Backend::kCcl;
    result.plan.chunks = *chunks;
    return result;
  }
  if (text == kDirectCopy) {
    result.plan.backend = Backend::kDirect;
    result.plan.composition = Composition::kGamma;
    result.plan.copied = true;
    return result;
  }
  bool given = false;
  take_suffix(&rest, [&](std::string_view word) {
    result.plan.staged = word == kStaged;
    return result.plan.staged;
  });
  take_suffix(&rest, [&](std::string_view word) {
    std::optional<Composition> composition = parse_composition(word);
    given = composition.has_value();
    result.plan.composition = composition.value_or(Composition::kBeta);
    return given;
  });
  std::optional<Backend> backend = parse_backend(rest);
  if (rest == to_string(Backend::kDirect) && !result.plan.staged &&
      result.plan.composition != Composition::kAlpha) {
    // Made for one node and nothing else: refusal() says so where there are several.
    result.plan.backend = Backend::kDirect;
    result.plan.composition = Composition::kGamma;
    return result;
  }
  if (!backend || (result.plan.staged && *backend != Backend::kMpi)) {
    std::string names = "mpi, ccl, direct";
    for (const Plan& plan : all_plans()) {
      names += ", " + to_string(plan);
    }
    return Status(ErrorCode::kInvalidConfig, in_quotes(name) + " is not a plan; plans are " +
                                                 names + " (native is mpi; nccl and rccl are ccl)");
  }
  result.plan.backend = *backend;
  result.composition_fits = !given && !result.plan.staged;
  return result;
}

Result<Plan> parse_plan(std::string_view name) {
  TUTTI_ASSIGN_OR_RETURN(PlanName parsed, parse_plan_name(name));
  return parsed.plan;
}

Plan fit(Plan plan, const CommFacts& facts) {
  plan.composition = facts.nodes == 1 ? Composition::kGamma : Composition::kBeta;
  return plan;
}

std::vector<Plan> all_plans() {
  std::vector<Plan> plans;
  for (Backend backend : {Backend::kMpi, Backend::kCcl}) {
    for (Composition composition : {Composition::kBeta, Composition::kGamma, Composition::kAlpha}) {
      Plan plan;
      plan.backend = backend;
      plan.composition = composition;
      plans.push_back(plan);
    }
  }
  Plan direct;
  direct.backend = Backend::kDirect;
  direct.composition = Composition::kGamma;
  plans.push_back(direct);
  direct.copied = true;
  plans.push_back(direct);
  Plan staged;
  staged.staged = true;
  plans.push_back(staged);
  for (const Pipeline pipeline : kPipelines) {
    Plan cut;
    cut.backend = Backend::kCcl;
    cut.pipeline = pipeline;
    cut.chunks = kPipelineChunksListed;
    plans.push_back(cut);
  }
  for (const Backend carrier : {Backend::kMpi, Backend::kCcl}) {
    for (const char* name : {"rings", "ring"}) {
      Plan scheduled;
      scheduled.backend = Backend::kSchedule;
      scheduled.carrier = carrier;
      scheduled.algorithm = name;
      plans.push_back(scheduled);
    }
  }
  return plans;
}

std::string refusal(const Plan& plan, const Shape& shape, const CommFacts& facts) {
  if (!facts.has_mpi && is_carried_by_mpi(plan)) {
    return "this communicator has no MPI";
  }
  if (std::string reason = order_refusal(plan, shape); !reason.empty()) {
    return reason;
  }
  // On host memory "staged" has nothing to stage and is the same flat call: never a refusal.
  if (plan.staged && plan.backend == Backend::kCcl) {
    return facts.ccl_name + " reads device memory itself; staged is for mpi";
  }
  if (plan.backend == Backend::kSchedule) {
    return schedule_refusal(plan, shape, facts);
  }
  if (plan.backend == Backend::kDirect) {
    return direct_refusal(plan, shape, facts);
  }
  if (plan.composition == Composition::kGamma && facts.nodes != 1) {
    return "gamma is for one node; " + on_nodes(facts.nodes);
  }
  if (plan.composition == Composition::kAlpha) {
    std::string reason = alpha_refusal(shape, facts);
    if (!reason.empty()) {
      return reason;
    }
  }
  if (plan.pipeline != Pipeline::kNone) {
    std::string reason = pipeline_refusal(plan, shape, facts);
    if (!reason.empty()) {
      return reason;
    }
  }
  return uses(plan, Backend::kCcl) ? ccl_refusal(shape, facts) : "";
}

Plan native_plan(const CommFacts& facts) { return fit(Plan{}, facts); }

}  // namespace tutti::select
