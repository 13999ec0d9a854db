// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Problems and layouts for the tests of generators, and all ranks' programs of one.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "schedule/algorithm.hpp"
#include "schedule/validate.hpp"

namespace tutti::schedule::testing {

inline std::vector<Program> generate_all(const Algorithm& algorithm, const topology::Layout& layout,
                                         const Problem& problem, Parameters parameters = {}) {
  std::vector<Program> programs;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    programs.push_back(generate(algorithm, {layout, problem, rank, parameters}));
  }
  return programs;
}

inline bool has_one_count(Collective collective) {
  return collective == Collective::kBcast || collective == Collective::kReduce ||
         collective == Collective::kAllreduce || collective == Collective::kAlltoall;
}

/// Every rank's block has `count` elements.
inline Problem equal_problem(Collective collective, int ranks, std::uint64_t count, int root = 0) {
  Problem problem;
  problem.collective = collective;
  problem.ranks = ranks;
  problem.root = root;
  if (collective != Collective::kBarrier) {
    problem.counts.assign(has_one_count(collective) ? 1 : static_cast<std::size_t>(ranks), count);
  }
  return problem;
}

/// Blocks of 0 to 9 elements; the v-form of the collective where there is one.
inline Problem uneven_problem(Collective collective, int ranks, std::uint64_t seed, int root = 0) {
  std::mt19937_64 random(seed);
  Problem problem = equal_problem(collective, ranks, 0, root);
  for (std::uint64_t& count : problem.counts) {
    count = random() % 10;
  }
  if (collective == Collective::kAlltoall) {
    problem.collective = Collective::kAlltoallv;
    for (int i = 0; i < ranks * ranks; ++i) {
      problem.matrix.push_back(random() % 10);
    }
  }
  return problem;
}

/// Unequal nodes in any order, with fewer or more NICs than ranks.
inline topology::Layout odd_layout(int ranks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::uint64_t nodes = 1 + random() % static_cast<std::uint64_t>(ranks);
  std::vector<std::uint64_t> identities;
  for (int rank = 0; rank < ranks; ++rank) {
    identities.push_back(random() % nodes);
  }
  topology::Layout layout = topology::make_layout(identities);
  for (int node = 0; node < layout.nodes(); ++node) {
    layout.rails_of.push_back(static_cast<int>(1 + random() % 6));
  }
  const std::uint64_t sockets = 1 + seed % 3;
  for (int rank = 0; sockets > 1 && rank < ranks; ++rank) {
    layout.socket_of.push_back(static_cast<int>(random() % sockets));
  }
  return layout;
}

inline std::string first_error(const Report& report) {
  return report.ok() ? "" : report.errors.front();
}

inline std::string text(const Cost& cost) {
  return std::to_string(cost.rounds) + " rounds, sent " + std::to_string(cost.sent_max) +
         ", scratch " + std::to_string(cost.scratch_max) + ", out of a node " +
         std::to_string(cost.node_out_max);
}

}  // namespace tutti::schedule::testing
