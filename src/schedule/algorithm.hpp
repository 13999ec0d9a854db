// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The algorithms there are, by collective and name. A generator is a pure function of what is equal
// on all ranks and of the rank; its file's head gives its source and its cost, and cost() the same
// as numbers, which tests hold against what the validator counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "schedule/problem.hpp"
#include "schedule/program.hpp"
#include "topology/layout.hpp"

namespace tutti::schedule {

/// 0: the algorithm's own choice.
struct Parameters {
  int radix = 0;     ///< k of k-nomial trees, at least 2.
  int segments = 0;  ///< Parts that a vector is cut into to overlap phases, at least 1.
};

/// All a generator may look at.
struct Task {
  const topology::Layout& layout;
  const Problem& problem;
  int rank = 0;
  Parameters parameters;

  int radix_or(int own) const { return parameters.radix > 1 ? parameters.radix : own; }

  int ranks() const { return problem.ranks; }
  int root() const { return problem.root; }
  /// The rank `distance` further, around the end.
  int after(int distance) const { return ((rank + distance) % ranks() + ranks()) % ranks(); }
};

/// Longest chain of messages, and elements sent by the rank that sends most.
struct Cost {
  int rounds = 0;
  std::uint64_t sent_max = 0;
};

struct Algorithm {
  select::Collective collective;
  const char* name;
  const char* summary;
  /// Unsegmented; callers use generate().
  Program (*make)(const Task&);
  /// For equal blocks; exact where `is_exact`, else an upper bound.
  Cost (*cost)(const Task&);
  bool is_exact = true;
  /// Why it cannot carry a task, a function of what is equal on all ranks; null: it always can.
  std::string (*refusal)(const Task&) = nullptr;
  /// Segments where parameters name none; null: one.
  int (*segments)(const Task&) = nullptr;
};

/// What `task.rank` does, cut into the segments that the parameters or the algorithm ask for.
Program generate(const Algorithm& algorithm, const Task& task);

std::span<const Algorithm> algorithms();
/// Null when there is none of that name. v-forms and their regular forms share algorithms.
const Algorithm* find_algorithm(select::Collective collective, std::string_view name);

}  // namespace tutti::schedule
