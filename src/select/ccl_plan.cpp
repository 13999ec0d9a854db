// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// NCCL's or RCCL's collectives, whole and cut into chunks.
#include <algorithm>
#include <iterator>

#include "select/refusals.hpp"

namespace tutti::select {
namespace {

std::string ccl_reduction_refusal(const Shape& shape, const std::string& ccl) {
  if (shape.op == ReduceOp::kUser) {
    return ccl + " cannot call a user-defined operation";
  }
  if (shape.op == ReduceOp::kAvg) {
    return has_average(shape.type) ? "" : no_average(shape.type);
  }
  if (shape.op < ReduceOp::kSum || shape.op > ReduceOp::kMax) {
    return ccl + " has no operation '" + to_string(shape.op) +
           "'; it has sum, prod, min, max and avg";
  }
  using enum DataType;
  if (shape.type == kComplex64 || shape.type == kComplex128) {
    return shape.op == ReduceOp::kSum ? ""
                                      : ccl + " can only sum " + to_string(shape.type) + ", not '" +
                                            to_string(shape.op) + "'";
  }
  if (shape.type == kOther) {
    return ccl + " does not know this datatype";
  }
  constexpr DataType kReduced[] = {kInt8,   kUint8,   kInt32,    kUint32,  kInt64,
                                   kUint64, kFloat16, kBfloat16, kFloat32, kFloat64};
  const bool is_reduced =
      std::find(std::begin(kReduced), std::end(kReduced), shape.type) != std::end(kReduced);
  return is_reduced ? "" : ccl + " does not reduce " + to_string(shape.type);
}

std::string beginning(Pipeline kind) {
  return kind == Pipeline::kStreams ? "ccl-streams" : "ccl-comms";
}

}  // namespace

bool CclPlan::read(std::string_view name, std::string* /*problem*/) {
  composition = take_composition(&name);
  return parse_backend(name) == Backend::kCcl;
}

std::string CclPlan::name() const { return std::string("ccl") + ending(composition); }

bool CclPlan::has(Collective collective) const {
  return collective != Collective::kBarrier && collective != Collective::kScan &&
         collective != Collective::kExscan;
}

std::string CclPlan::refusal(const Shape& shape, const CommFacts& facts) const {
  std::string reason = gamma_refusal(composition, facts);
  if (!reason.empty()) {
    return reason;
  }
  if (!has(shape.collective)) {
    return facts.ccl_name + " has no " + to_string(shape.collective) + "; it stays native";
  }
  reason = ccl_memory_refusal(shape, facts);
  return reason.empty() && is_reduction(shape.collective)
             ? ccl_reduction_refusal(shape, facts.ccl_name)
             : reason;
}

bool PipelinePlan::read(std::string_view name, std::string* problem) {
  const std::size_t dash = name.find('-');
  if (dash == std::string_view::npos || parse_backend(name.substr(0, dash)) != Backend::kCcl) {
    return false;
  }
  const std::string written = "ccl" + std::string(name.substr(dash));
  kind = written.starts_with(beginning(Pipeline::kComms)) ? Pipeline::kComms : Pipeline::kStreams;
  const std::string right = beginning(kind);
  if (!written.starts_with(right)) {
    return false;
  }
  for (chunks = 2; chunks <= kPipelineChunksMax; ++chunks) {
    if (written == this->name()) {
      return true;
    }
  }
  *problem = " does not say into how many chunks a call is cut; write " + right + "(2) to " +
             right + "(" + std::to_string(kPipelineChunksMax) + ")";
  return true;
}

std::string PipelinePlan::name() const {
  return beginning(kind) + "(" + std::to_string(chunks) + ")";
}

/// Vectors, and blocks of one size: what every rank cuts alike from numbers that all know.
bool PipelinePlan::has(Collective collective) const {
  return CclPlan().has(collective) && has_size(collective) &&
         collective != Collective::kAllgatherv && collective != Collective::kReduceScatter;
}

std::string PipelinePlan::refusal(const Shape& shape, const CommFacts& facts) const {
  if (shape.order != Order::kBlocking) {
    return kHasSeveralSteps;
  }
  const CclPlan whole;
  if (whole.has(shape.collective) && !has(shape.collective)) {
    return std::string(to_string(shape.collective)) +
           " has a count for each rank and is not cut into chunks; use ccl";
  }
  const std::string& reason =
      kind == Pipeline::kStreams ? facts.streams_refusal : facts.comms_refusal;
  return reason.empty() ? whole.refusal(shape, facts) : reason;
}

}  // namespace tutti::select
