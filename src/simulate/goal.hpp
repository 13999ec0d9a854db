// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// GOAL traces (Hoefler, Siebert, Lumsdaine, "Group Operation Assembly Language", ICPP 2009), the
// textual form that trace collectors write, as a workload. Read: num_ranks, rank N { ... }, and in
// it send / recv / calc with optional labels, tags and cpu / nic clauses, `a requires b` (b is
// complete) and `a irequires b` (b has begun). calc is nanoseconds. A trace that could not run to
// its end is refused: operations of a rank that wait for each other in a circle, and sends and
// receives of a source, destination and tag that do not match in number and sizes.
#pragma once

#include <string>

#include "base/result.hpp"
#include "simulate/workload.hpp"

namespace tutti::simulate {

/// Errors: "<file>:<line>: what is wrong; remedy".
Result<Workload> parse_goal(const std::string& text, const std::string& file);

}  // namespace tutti::simulate
