// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Calls and communicators that several tests of this room start from.
#pragma once

#include "select/shape.hpp"

namespace tutti::select {

/// Four ranks on each node, NCCL usable.
inline CommFacts facts_on(int nodes) {
  CommFacts facts;
  facts.nodes = nodes;
  facts.ranks = 4 * nodes;
  facts.ranks_per_node_max = 4;
  facts.ccl_usable = true;
  facts.ccl_name = "nccl";
  return facts;
}

/// A float32 sum on device memory.
inline Shape device_allreduce(Bytes bytes) {
  Shape shape;
  shape.bytes = bytes;
  shape.type = DataType::kFloat32;
  shape.op = ReduceOp::kSum;
  shape.memory = Memory::kDevice;
  return shape;
}

}  // namespace tutti::select
