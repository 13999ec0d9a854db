// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// choose(): pure; equal inputs give equal plans on every rank. Everything else about selection
// (explaining, caching) stands around it.
#pragma once

#include <string>
#include <vector>

#include "select/plan.hpp"
#include "select/shape.hpp"
#include "select/table.hpp"

namespace tutti::select {

/// A rule that matched but whose plan cannot carry the call.
struct Refused {
  std::size_t rule = 0;
  Plan plan;
  std::string reason;
};

struct Decision {
  Plan plan;
  /// False: nothing carries the call, and `plan` means nothing. Only without an MPI.
  bool is_carried = true;
  /// Index in Table::rules, or -1 when no rule matched (native).
  int rule = -1;
  /// Non-empty: the first match was not taken, so this is a fall-back, counted and reported.
  std::vector<Refused> refused;
  /// The same for optional rules: nobody asked for them, so passing them over is no fall-back.
  std::vector<Refused> passed_over;
};

/// True when every predicate on the communicator holds; those on the call are open.
bool may_match(const Rule& rule, const CommFacts& facts);
/// True when every predicate of the rule holds; says nothing about what its plan supports.
bool matches(const Rule& rule, const Shape& shape, const CommFacts& facts);

/// First rule that matches and can carry the shape; native when none does and there is an MPI.
Decision choose(const Shape& shape, const CommFacts& facts, const Table& table);

/// Whether a call that nothing carries is carried as one on host memory, by plans that copy.
/// A barrier is not: it has no buffers. Nor is what a graph is to replay.
bool may_stage(const Shape& shape, const CommFacts& facts);

/// The decision, the rule's origin, each refused rule with its reason and every other plan with
/// whether it could carry the call, as a JSON document (schema in docs/tuning.md).
std::string explain_json(const Shape& shape, const CommFacts& facts, const Table& table);

}  // namespace tutti::select
