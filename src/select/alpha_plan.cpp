// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// alpha: within each node, between the nodes, within each node.
#include "select/refusals.hpp"

namespace tutti::select {
namespace {

std::string alpha_reduction_refusal(const Shape& shape, const CommFacts& facts) {
  if (shape.op == ReduceOp::kAvg) {
    return "alpha does not average";
  }
  if (!is_predefined(shape.op)) {
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

}  // namespace

bool AlphaPlan::read(std::string_view name, std::string* /*problem*/) {
  staged = take_ending(&name, "-staged");
  const bool is_alpha = take_ending(&name, "-alpha");
  const std::optional<Backend> read = parse_backend(name);
  backend = read.value_or(backend);
  return is_alpha && read && !(staged && backend == Backend::kCcl);
}

std::string AlphaPlan::name() const {
  return std::string(to_string(backend)) + (staged ? "-alpha-staged" : "-alpha");
}

bool AlphaPlan::has(Collective collective) const {
  return backend == Backend::kMpi || CclPlan().has(collective);
}

std::string AlphaPlan::refusal(const Shape& shape, const CommFacts& facts) const {
  if (shape.order != Order::kBlocking) {
    return kHasSeveralSteps;
  }
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
  std::string reason = is_reduction(shape.collective) ? alpha_reduction_refusal(shape, facts) : "";
  return reason.empty() && uses(Backend::kCcl) ? CclPlan().refusal(shape, facts) : reason;
}

}  // namespace tutti::select
