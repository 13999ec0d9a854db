// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our schedules: their names, and what they can carry.
#include <algorithm>

#include "select/refusals.hpp"

namespace tutti::select {
namespace {

constexpr std::string_view kPrefix = "schedule";
constexpr std::string_view kNetPrefix = "net";

/// Parallel Rings have names of their own.
bool is_rings(std::string_view name) { return name.starts_with("rings"); }

constexpr Collective kScheduled[] = {Collective::kBcast,
                                     Collective::kGather,
                                     Collective::kScatter,
                                     Collective::kAllgather,
                                     Collective::kReduce,
                                     Collective::kAllreduce,
                                     Collective::kReduceScatterBlock,
                                     Collective::kAlltoall,
                                     Collective::kBarrier};

bool is_schedule_of(Collective collective, const std::string& name) {
  const auto names = schedule_names(collective);
  return std::find(names.begin(), names.end(), name) != names.end();
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

/// A carrier of groups needs data in every message and the counts of all ranks.
bool ccl_carries(Collective collective) {
  return collective != Collective::kBarrier && collective != Collective::kAlltoallv;
}

/// Of a root's pieces: over our transport an alltoallv, too. In v-forms the root alone knows the
/// counts, and there is nothing else.
bool has_pieces_of_a_root(Collective collective) {
  return collective >= Collective::kGather && collective <= Collective::kScatterv;
}

/// Why our transport cannot carry a call that its schedules have.
std::string net_refusal(const Shape& shape, const CommFacts& facts) {
  if (facts.has_mpi) {
    return "schedules over our transport are for communicators without an MPI; use schedule:NAME";
  }
  return shape.memory == Memory::kDevice ? "buffers are in device memory" : facts.net_refusal;
}

}  // namespace

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
      return {"binomial", "chain", "alpha"};
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

bool SchedulePlan::read(std::string_view name, std::string* problem) {
  algorithm = name;
  if (!is_rings(name)) {
    const std::size_t colon = name.find(':');
    const std::string_view prefix = name.substr(0, colon);
    const bool is_ccl = parse_backend(prefix) == Backend::kCcl;
    if (colon == std::string_view::npos || (!is_ccl && prefix != kPrefix && prefix != kNetPrefix)) {
      return false;
    }
    carrier = is_ccl ? Backend::kCcl : prefix == kNetPrefix ? Backend::kNet : Backend::kMpi;
    algorithm.erase(0, colon + 1);
  }
  if (std::none_of(std::begin(kScheduled), std::end(kScheduled),
                   [this](Collective one) { return is_schedule_of(one, algorithm); })) {
    *problem = " is not an algorithm; there are " + all_schedules();
  }
  return true;
}

std::string SchedulePlan::name() const {
  if (carrier == Backend::kMpi && is_rings(algorithm)) {
    return algorithm;
  }
  return std::string(carrier == Backend::kMpi ? kPrefix : to_string(carrier)) + ":" + algorithm;
}

bool SchedulePlan::has(Collective collective) const {
  if (carrier == Backend::kNet && has_pieces_of_a_root(collective) &&
      is_schedule_of(Collective::kAlltoallv, algorithm)) {
    return true;
  }
  return (carrier != Backend::kCcl || ccl_carries(collective)) &&
         is_schedule_of(collective, algorithm);
}

std::string SchedulePlan::refusal(const Shape& shape, const CommFacts& facts) const {
  if (shape.order != Order::kBlocking) {
    return kHasSeveralSteps;
  }
  const bool is_reduced = is_reduction(shape.collective);
  if (carrier == Backend::kCcl && !ccl_carries(shape.collective)) {
    return std::string("schedules of ") + to_string(shape.collective) +
           " do not go through the CCL; use schedule:NAME";
  }
  if (!has(shape.collective)) {
    return "no schedule '" + algorithm + "' for " + to_string(shape.collective);
  }
  const bool is_average = is_reduced && shape.op == ReduceOp::kAvg;
  if (is_average && carrier != Backend::kNet) {
    return "averages have no schedules but those of our transport";
  }
  if (is_average && !has_average(shape.type)) {
    return no_average(shape.type);
  }
  const ReduceOp op = is_average ? ReduceOp::kSum : shape.op;  // Divided at its end.
  // Our own reductions, which our transport has, know pairs.
  if (is_reduced && (!is_predefined(op) || shape.type == DataType::kOther ||
                     (is_pair(shape.type) && carrier != Backend::kNet))) {
    return "schedules reduce basic types with predefined operations";
  }
  // MPI finds this error before anything is sent; a schedule would find it with messages under way.
  if (is_reduced && !is_defined(op, shape.type)) {
    return undefined(shape);
  }
  if (algorithm == "neighbor-exchange" && facts.ranks > 1 && facts.ranks % 2 != 0) {
    return "neighbor-exchange needs an even number of ranks";
  }
  if (carrier == Backend::kMpi) {
    return facts.messages_refusal;
  }
  if (carrier == Backend::kNet) {
    return net_refusal(shape, facts);
  }
  const std::string reason = ccl_memory_refusal(shape, facts);
  return reason.empty() && is_reduced && !facts.device_reduces
             ? "nothing here reduces device memory; use schedule:NAME"
             : reason;
}

}  // namespace tutti::select
