// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Reasons that several kinds of plans give (*_plan.cpp), and the endings of their names.
#pragma once

#include <string>
#include <string_view>

#include "select/plan.hpp"

namespace tutti::select {

inline constexpr const char* kHasSeveralSteps =
    "a call on a stream is one step; this plan has several that wait on the host";

/// An operation of MPI's own.
inline bool is_predefined(ReduceOp op) { return op >= ReduceOp::kSum && op <= ReduceOp::kMaxloc; }

inline std::string undefined(const Shape& shape) {
  return std::string("MPI does not define '") + to_string(shape.op) + "' for " +
         to_string(shape.type);
}

inline std::string no_average(DataType type) {
  return std::string("there is no average of ") + to_string(type);
}

inline std::string on_nodes(int nodes) {
  return "this communicator is on " + std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
}

inline std::string gamma_refusal(Composition composition, const CommFacts& facts) {
  return composition == Composition::kGamma && facts.nodes != 1
             ? "gamma is for one node; " + on_nodes(facts.nodes)
             : "";
}

/// Why the CCL cannot move a call's data.
inline std::string ccl_memory_refusal(const Shape& shape, const CommFacts& facts) {
  if (shape.memory == Memory::kHost) {
    return "buffers are in host memory";
  }
  if (facts.ccl_usable) {
    return "";
  }
  return facts.ccl_refusal.empty() ? "no collective communication library" : facts.ccl_refusal;
}

inline const char* ending(Composition composition) {
  return composition == Composition::kOpen    ? ""
         : composition == Composition::kGamma ? "-gamma"
                                              : "-beta";
}

inline bool take_ending(std::string_view* name, std::string_view ending) {
  const bool is_there = name->ends_with(ending);
  name->remove_suffix(is_there ? ending.size() : 0);
  return is_there;
}

inline Composition take_composition(std::string_view* name) {
  if (take_ending(name, "-gamma")) {
    return Composition::kGamma;
  }
  return take_ending(name, "-beta") || take_ending(name, "-flat") ? Composition::kBeta
                                                                  : Composition::kOpen;
}

}  // namespace tutti::select
