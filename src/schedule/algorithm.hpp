// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The algorithms there are, by collective and name. A generator is a pure function of what is equal
// on all ranks and of the rank; its file's head gives its source and its cost, and cost_of()
// the same as numbers, which tests hold against what the validator counts.
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
  int segments = 0;  ///< Parts that every step is cut into to overlap phases, at least 1.

  bool operator==(const Parameters&) const = default;
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

/// Elements, of the rank or node that has most.
struct Cost {
  int rounds = 0;                  ///< Longest chain of messages that wait for one another.
  std::uint64_t sent_max = 0;      ///< By a rank, to any.
  std::uint64_t scratch_max = 0;   ///< Of a rank.
  std::uint64_t node_out_max = 0;  ///< From the ranks of a node to those of others.

  bool operator==(const Cost&) const = default;
};

struct Algorithm {
  select::Collective collective;
  const char* name;
  const char* summary;
  /// Unsegmented; callers use generate().
  Program (*make)(const Task&);
  /// Of at least one element, in blocks of one size; callers use cost_of().
  Cost (*cost)(const Task&);
  /// Why it cannot carry a task, a function of what is equal on all ranks; null: it always can.
  std::string (*refusal)(const Task&) = nullptr;
  /// Segments where parameters name none; null: one.
  int (*segments)(const Task&) = nullptr;
};

/// What `task.rank` does, cut into the segments that the parameters or the algorithm ask for.
Program generate(const Algorithm& algorithm, const Task& task);

/// By the closed formulas, without a program. Exact for blocks of one size and unsegmented steps on
/// nodes of as many consecutive ranks each, one socket and a NIC per rank, for any root and radix.
/// Everywhere else rounds and scratch are upper bounds; blocks then count as large as the largest.
/// Not for alltoallv.
Cost cost_of(const Algorithm& algorithm, const Task& task);

std::span<const Algorithm> algorithms();
/// Null when there is none of that name. v-forms and their regular forms share algorithms.
const Algorithm* find_algorithm(select::Collective collective, std::string_view name);

}  // namespace tutti::schedule
