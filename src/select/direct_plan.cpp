// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Our own kernels and shared memory: what the plan needs, and its name.
#include "select/refusals.hpp"
#include "select/table.hpp"

namespace tutti::select {

/// Made for one node and nothing else: refusal() says so where there are several.
bool DirectPlan::read(std::string_view name, std::string* /*problem*/) {
  copied = name == "direct-copy";
  take_composition(&name);
  return copied || name == "direct";
}

/// Copies: what every rank cuts into chunks alike and sends to all others.
bool DirectPlan::has(Collective collective) const {
  return copied ? collective == Collective::kAllgather || collective == Collective::kAlltoall
                : collective != Collective::kScan && collective != Collective::kExscan;
}

bool DirectPlan::is_capturable(Collective collective, int ranks) {
  switch (collective) {
    case Collective::kBcast:
    case Collective::kGather:
    case Collective::kScatter:
      return ranks == 2;  // One pair.
    case Collective::kBarrier:
    case Collective::kReduce:
    case Collective::kAllreduce:
    case Collective::kAllgather:
    case Collective::kReduceScatterBlock:
    case Collective::kAlltoall:
      return true;
    default:
      return false;
  }
}

namespace {

std::string capture_refusal(const Shape& shape, const CommFacts& facts) {
  if (!DirectPlan::is_capturable(shape.collective, facts.ranks)) {
    return "in a graph direct carries calls alone that are alike between all pairs of ranks, not " +
           std::string(to_string(shape.collective)) + " on " + std::to_string(facts.ranks) +
           " ranks";
  }
  if (!shape.bytes || *shape.bytes > kDirectCapturedUpTo) {
    return "in a graph direct carries at most " + std::to_string(kDirectCapturedUpTo >> 10) +
           " KiB";
  }
  return facts.direct_capture_refusal;
}

}  // namespace

std::string DirectPlan::refusal(const Shape& shape, const CommFacts& facts) const {
  if (copied && shape.order != Order::kBlocking) {
    return "copies that are queued cannot be called off when a call before them fails; use direct";
  }
  if (copied && !has(shape.collective)) {
    return std::string("copy engines carry allgather and alltoall, not ") +
           to_string(shape.collective) + "; use direct";
  }
  if (copied && shape.memory == Memory::kHost) {
    return "buffers are in host memory, which no copy engine is for; use direct";
  }
  if (!has(shape.collective)) {
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
  if (shape.order == Order::kCaptured) {
    if (const std::string why = capture_refusal(shape, facts); !why.empty()) {
      return why;
    }
  }
  if (!is_reduction(shape.collective)) {
    return copied ? facts.copies_refusal : "";
  }
  if (shape.op == ReduceOp::kAvg) {
    return has_average(shape.type) ? "" : no_average(shape.type);
  }
  if (!is_predefined(shape.op)) {
    return "direct cannot call a user-defined operation";
  }
  if (shape.type == DataType::kOther) {
    return "direct does not know this datatype";
  }
  return is_defined(shape.op, shape.type) ? "" : undefined(shape);
}

}  // namespace tutti::select
